"""What a load balancer and a proxy need: whether a coordinator can do its work, and whose request it is."""

import base64
import contextlib
import http.client
import json
import logging
from types import SimpleNamespace

import pytest

from service.fake_operated import PASSWORD, PASSWORD_HASH, FakeOperated
from service.faults import Served
from service.postgres import server
from service.running import Running, begun, codes_for, running, send, usual_rules
from service.served import LOOPS, eventually, served
from turnout.service.coordinator.events import Events
from turnout.service.coordinator.store_sync import LONGEST_LOOK, StoreSync
from turnout.service.http.asgi import send_json
from turnout.service.http.listeners import Listener
from turnout.service.operator.app import operator_app
from turnout.service.rules import Timing
from turnout.service.store.backup import open_store
from turnout.service.store.store import PAUSED, StoreProblem


async def whoever(scope, receive, send):
    """Answers with the address that it takes the client to have."""
    await send_json(send, 200, json.dumps(scope["client"][0]).encode())


class TestWhoseRequestItIs:
    @pytest.mark.parametrize("loop", LOOPS)
    @pytest.mark.parametrize(
        ("proxies", "said", "client"),
        [
            ((), "192.0.2.1", "127.0.0.1"),  # nobody is believed unless named
            (("10.0.0.1",), "192.0.2.1", "127.0.0.1"),  # this one is not named
            (("127.0.0.1",), "192.0.2.1", "192.0.2.1"),
            (("127.0.0.1",), "203.0.113.9, 192.0.2.1", "192.0.2.1"),  # what the client itself said comes first
            (("127.0.0.1", "10.0.0.0/8"), "203.0.113.9, 192.0.2.1, 10.1.2.3", "192.0.2.1"),  # two proxies
            (("127.0.0.0/8",), "2001:db8::7", "2001:db8::7"),
            (("127.0.0.1",), "", "127.0.0.1"),
        ],
    )
    def test_the_last_address_that_is_no_trusted_proxy_counts(self, loop, proxies, said, client):
        with served(SimpleApp(), loop=loop, proxies=proxies) as (bound, _, _):
            assert send(bound.url, "GET", "/", headers={"X-Forwarded-For": said}) == (200, client)

    @pytest.mark.parametrize("proxy", ["*", "proxy.example", "10.0.0.1/8", ""])
    def test_a_proxy_is_an_address_or_a_network(self, proxy):
        with pytest.raises(ValueError, match="trusted proxy must be an IP address or a network"):
            Listener(whoever, proxies=(proxy,))

    @pytest.mark.parametrize(("proxies", "status"), [(("127.0.0.1",), 200), ((), 429)], ids=["trusted", "by default"])
    def test_eight_wrong_passwords_of_one_lock_out_nobody_else(self, proxies, status):
        """The second is the sabotaged twin: without a trusted proxy all requests come from its address."""
        app = operator_app(FakeOperated(rounds=3), password_hash=PASSWORD_HASH)
        with served(app, proxies=proxies) as (bound, _, _):
            wrong = [snapshot(bound.url, "wrong", "192.0.2.1") for _ in range(9)]
            assert wrong == [401] * 8 + [429]
            assert snapshot(bound.url, PASSWORD, "192.0.2.1") == 429
            assert snapshot(bound.url, PASSWORD, "192.0.2.2") == status


class SimpleApp:
    """`whoever`, with room for what `served` puts there."""

    async def __call__(self, scope, receive, send):
        await whoever(scope, receive, send)


def snapshot(url, password, address):
    secret = base64.b64encode(f"operator:{password}".encode()).decode()
    return send(url, "GET", "/api/snapshot", headers={"Authorization": f"Basic {secret}", "X-Forwarded-For": address})[
        0
    ]


def test_the_command_has_the_option_for_both_listeners(tmp_path):
    options = ["--capacity", "2", "--missing", "absent", "--hard-limit", "none", "--trusted-proxy", "127.0.0.1"]
    with Served(tmp_path, tmp_path / "run.db", *options) as coordinator:
        coordinator.wait()
        said = coordinator.output
        page = said.partition("operator's page ")[2].split()[0]
        one, other = {"X-Forwarded-For": "192.0.2.1"}, {"X-Forwarded-For": "192.0.2.2"}
        tokens = [send(coordinator.url, "GET", "/v1/round", token="wrong", headers=one)[0] for _ in range(22)]
        assert (tokens[0], tokens[-1]) == (401, 429)
        assert send(coordinator.url, "GET", "/v1/round", token="wrong", headers=other)[0] == 401
        assert [snapshot(page, "wrong", "192.0.2.1") for _ in range(9)][-1] == 429
        assert snapshot(page, (tmp_path / "password").read_text().strip(), "192.0.2.2") == 200
        for url in (coordinator.url, page):
            assert send(url, "GET", "/healthz") == (200, {"status": "ok"})
            eventually(lambda url=url: send(url, "GET", "/readyz") == (200, {"status": "ready"}))


class TestReadiness:
    def test_false_while_the_database_fails_and_true_again(self, tmp_path, monkeypatch):
        store = begun(tmp_path / "run.db", usual_rules(Timing(round=0.0, deadline=60.0)))
        look = store.control

        def broken():
            raise StoreProblem("secret.db: disk I/O error")

        with running(store) as found:
            eventually(lambda: send(found.url, "GET", "/readyz") == (200, {"status": "ready"}))
            store.control = broken
            eventually(lambda: send(found.url, "GET", "/readyz")[0] == 503)
            said = send(found.url, "GET", "/readyz")[1]
            assert said == {"error": "unready", "message": "the database fails: the log says why"}
            assert send(found.url, "GET", "/healthz")[0] == 200  # it lives
            store.control = look
            eventually(lambda: send(found.url, "GET", "/readyz")[0] == 200)

    def test_false_while_the_database_does_not_answer(self, sync):
        assert sync.made.unready() == ""
        sync.now += LONGEST_LOOK + 1.0
        assert sync.made.unready() == "the database has not answered for 6 s"

    def test_false_without_a_leader(self, sync):
        made, store = sync.made, sync.made.store
        made.leads = False
        assert made.unready() == "this coordinator does not lead yet"
        store.shared = True
        assert made.unready() == ""  # another does
        made._known = sync.now = sync.now + 10.0 + LONGEST_LOOK
        assert made.unready() == ""  # the round may still be closed
        made._known = sync.now = sync.now + 1.0
        assert made.unready() == "no coordinator leads: round 0 should have closed 6 s ago"
        store.change("me", mode=PAUSED)
        made._take_control(store.control())
        assert made.unready() == ""  # none is to be closed

    def test_false_at_the_end(self, sync):
        sync.made.events.stop()
        assert sync.made.unready() == "this coordinator is about to stop"

    @pytest.fixture
    def sync(self, tmp_path):
        """One that leads, with a clock that stands still."""
        store = begun(tmp_path / "run.db", usual_rules(Timing(round=1.0, deadline=10.0), wait_for=0))
        found = SimpleNamespace(now=100.0)
        found.made = StoreSync(store, Events(), lambda: found.now)
        found.made.leads = True
        with contextlib.closing(store):
            yield found
            found.made._thread.shutdown()


def test_taking_over_is_a_line_in_the_log(caplog):
    location = server().database()
    store = begun(location, usual_rules(Timing(round=0.0, deadline=60.0)))
    codes_for(store, 1)
    with caplog.at_level(logging.INFO, "turnout.coordinator"):
        first = Running(store)
        eventually(lambda: first.coordinator.sync.leads)
        with running(open_store(location)) as second:
            eventually(lambda: send(second.url, "GET", "/readyz")[0] == 200)
            assert not second.coordinator.sync.leads
            leading = "this coordinator leads: it closes the rounds from now on"
            assert [line.getMessage() for line in caplog.records].count(leading) == 1
            first.stop()
            eventually(lambda: second.coordinator.sync.leads)
            assert [line.getMessage() for line in caplog.records].count(leading) == 2


def test_probes_need_no_name_and_no_password():
    app = operator_app(FakeOperated(rounds=3), password_hash=PASSWORD_HASH)
    with served(app) as (bound, _, _):
        for path, said in (("/healthz", "ok"), ("/readyz", "ready")):
            assert send(bound.url, "GET", path, headers={"Host": "elsewhere.example"}) == (200, {"status": said})
        app._view.operated.unready = lambda: "the database fails: the log says why"
        connection = http.client.HTTPConnection("127.0.0.1", bound.port, timeout=20)
        with contextlib.closing(connection):
            connection.request("GET", "/readyz")
            reply = connection.getresponse()
            assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
