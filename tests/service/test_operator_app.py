"""The operator's listener over real sockets: who gets in, what is shown and changed, what bad input comes to."""

import http.client
import itertools
import json
import socket
import time
from contextlib import closing

import pytest

from service.fake_operated import DEVICES, FakeOperated, served
from service.operator_client import ask, basic, change
from turnout.service.operator import app as module
from turnout.service.store.store import USUAL_HOURS, StoreProblem


@pytest.fixture(scope="module")
def anew():
    with served(FakeOperated()) as found:
        yield found


@pytest.fixture
def operated():
    return FakeOperated(rounds=40)


@pytest.fixture
def server(anew, operated):
    anew.show(operated)
    return anew


PATHS = ["/", "/static/operator.js", "/static/operator.css", "/plotly.js", "/api/snapshot", "/api/rounds", "/api/log"]
PATHS += ["/static/devices.js", "/static/asking.js", "/static/showing.js", "/api/devices"]


# Who gets in


def test_nothing_is_shown_without_the_password(server):
    schemes = ("Bearer x", "Basic !", "Basic /w==", "Basic")
    guesses = [basic(password="wrong"), basic(user="root"), *({"Authorization": scheme} for scheme in schemes)]
    asked = [({}, path) for path in (*PATHS, "/metrics", "/api/events", "/nothing", "/static/../password")]
    for headers, path in asked + [(guess, "/api/snapshot") for guess in guesses]:
        reply = ask(server, path, headers=headers, auth=False)
        assert reply.status == 401
        assert reply.json["error"] == "password"
        assert reply.headers["www-authenticate"].startswith("Basic ")


def test_a_change_needs_the_password(server, operated):
    usual = {"Content-Type": "application/json", "X-Turnout": "1"}
    assert ask(server, "/api/control", "POST", '{"mode": "stopped"}', usual, auth=False).status == 401
    assert operated.mode == "running"


def test_health_is_for_everyone_and_says_nothing_else(server):
    reply = ask(server, "/healthz", auth=False)
    assert (reply.status, reply.json) == (200, {"status": "ok"})


def test_guessing_is_slowed_down_and_then_refused_right_or_wrong(server):
    seen = [ask(server, "/", headers=basic(password=f"guess {i}"), auth=False).status for i in range(12)]
    assert seen == [401] * 8 + [429] * 4
    locked = ask(server, "/")
    assert locked.status == 429
    assert locked.json["error"] == "attempts"
    assert 1 <= int(locked.headers["retry-after"]) <= 10
    assert ask(server, "/healthz", auth=False).status == 200


def test_the_right_password_is_hashed_once(server, monkeypatch):
    calls = itertools.count()
    monkeypatch.setattr("turnout.service.operator.guard.matches", lambda *given: next(calls) >= 0)
    for _ in range(5):
        assert ask(server, "/api/snapshot").status == 200
    assert next(calls) == 1


def test_a_foreign_name_is_refused_as_in_dns_rebinding(server, operated):
    assert ask(server, "/api/snapshot", headers={"Host": f"evil.example:{server.port}"}).status == 400
    for name in ("localhost", f"127.0.0.1:{server.port}", "[::1]:80"):
        assert ask(server, "/api/snapshot", headers={"Host": name}).status == 200
    with served(operated, allowed_hosts=("*",)) as anywhere:
        assert ask(anywhere, "/api/snapshot", headers={"Host": "grid.example"}).status == 200


# What browsers may do


def test_every_answer_has_strict_headers(server):
    replies = [ask(server, path) for path in (*PATHS, "/healthz", "/metrics", "/nothing", "/api/rounds?last=x")]
    replies += [ask(server, "/", auth=False), ask(server, "/", "DELETE"), change(server, "/api/control", "{")]
    for reply in replies:
        policy = reply.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["x-frame-options"] == "DENY"
        assert reply.headers["referrer-policy"] == "no-referrer"
        if "etag" not in reply.headers:  # all but Plotly itself
            assert reply.headers["cache-control"] == "no-store"


def test_a_failure_of_ours_has_them_too(server, operated, monkeypatch):
    monkeypatch.setattr(operated, "snapshot", lambda: {}["secret"])
    reply = ask(server, "/api/snapshot")
    assert reply.status == 500
    assert reply.json["error"] == "internal"
    assert b"secret" not in reply.content
    assert reply.headers["x-content-type-options"] == "nosniff"


CROSS_SITE = [
    {"Content-Type": "application/x-www-form-urlencoded"},
    {"Content-Type": "text/plain"},
    {"Content-Type": "application/json"},
    {"Content-Type": "application/json", "X-Turnout": "1", "Origin": "https://evil.example"},
    {"Content-Type": "application/json", "X-Turnout": "1", "Origin": "null"},
    {"Content-Type": "application/json", "X-Turnout": "1", "Sec-Fetch-Site": "cross-site"},
    {"Content-Type": "text/plain", "X-Turnout": "1"},
    {"X-Turnout": "1"},
]


def test_a_form_of_another_site_changes_nothing(server, operated):
    for headers, path in itertools.product(CROSS_SITE, ("/api/control", "/api/codes", "/api/devices/3/revoke")):
        reply = ask(server, path, "POST", '{"mode": "stopped"}', headers)
        assert reply.status in (400, 403)
        assert set(reply.json) == {"error", "message"}
    assert operated.mode == "running"
    assert not operated.left


def test_our_own_page_may_change_things(server, operated):
    origin = {"Origin": server.url, "Sec_Fetch_Site": "same-origin"}
    assert change(server, "/api/control", {"mode": "paused"}, **origin).status == 200
    assert operated.mode == "paused"


def test_plotly_comes_from_its_package_small_and_once(server):
    whole = ask(server, "/plotly.js")
    small = ask(server, "/plotly.js", headers={"Accept-Encoding": "gzip, br"})
    assert len(small.content) < 0.4 * len(whole.content)
    assert b"plotly.js" in whole.content[:200]
    again = ask(server, "/plotly.js", headers={"If-None-Match": whole.headers["etag"]})
    assert (again.status, again.content) == (304, b"")


# What is shown and changed


def test_a_snapshot_has_counts_and_no_decision(server):
    found = ask(server, "/api/snapshot").json
    assert (found["round"], found["capacity"], found["members"], found["troubles"]) == (40, 600.0, DEVICES, [])
    assert found["most_signal"] is None  # infinity, which JSON does not have


def test_rounds(server):
    assert len(ask(server, "/api/rounds").json["rounds"]) == 40
    assert [closed["round"] for closed in ask(server, "/api/rounds?last=3").json["rounds"]] == [37, 38, 39]


def test_capacity_and_mode(server, operated):
    reply = change(server, "/api/control", {"capacity": 450})
    assert (reply.status, reply.json["capacity"], operated.capacity) == (200, 450.0, 450.0)
    for mode in ("paused", "draining", "stopped", "running"):
        assert change(server, "/api/control", {"mode": mode}).json["mode"] == mode
    last = ask(server, "/api/log").json["changes"]
    assert (last[1]["who"], last[1]["what"], last[1]["detail"]) == ("operator page", "capacity", "600 -> 450")
    assert len(last) == 6


def test_codes_and_revoking(server, operated):
    made = change(server, "/api/codes", {"count": 3, "weight": 7, "hours": 1.5})
    assert made.status == 201
    assert len(set(made.json["codes"])) == 3
    assert operated.changes[-1].detail == "3 of weight 7 for 1.5 hours"
    assert change(server, "/api/codes", {"weight": 2**40}).json["hours"] == USUAL_HOURS  # as on the command line
    assert operated.changes[-1].detail == f"1 of weight {2**40} for 24 hours"
    assert change(server, "/api/devices/17/revoke", {}).json == {"revoked": 17}
    assert list(operated.left) == [17]


BAD_CONTROLS = (
    *("", "{", "[]", "null", '"x"', "{}", "[" * 4000, b"\xff\xfe", '{"extra": 1}', '{"mode": "running", "mood": 1}'),
    *('{"mode": "faster"}', '{"mode": null}', '{"mode": ["running"]}', '{"capacity": "6"}', '{"capacity": null}'),
    *('{"capacity": true}', '{"capacity": NaN}', '{"capacity": 0}', '{"capacity": -1}', '{"capacity": 1e999}'),
    *('{"capacity": Infinity}', '{"capacity": 2e6}', '{"capacity": ' + "9" * 3000 + "}"),
)
BAD_CODES = (
    *('{"count": 0}', '{"count": 100001}', '{"count": 1.5}', '{"count": true}', '{"weight": 0}', '{"weight": "1"}'),
    *(
        '{"count": 1' + "0" * 3000 + "}",
        '{"weight": 1099511627777}',
        '{"hours": 1e6}',
        '{"hours": 0}',
        '{"hours": -1}',
        '{"hours": 1e9}',
        '{"hours": null}',
        '{"n": 1}',
    ),
)
BAD = [("/api/control", body) for body in BAD_CONTROLS] + [("/api/codes", body) for body in BAD_CODES]


def test_bad_input_is_refused_and_changes_nothing(server, operated):
    before = operated.version
    for path, body in BAD:
        reply = change(server, path, body)
        assert reply.status == 400, (path, body)
        assert set(reply.json) == {"error", "message"}
        assert len(reply.json["message"]) > 10
    for last in ("0", "-1", "501", "x", "1e2", "9" * 5000, "%00", "٣"):
        path = f"/api/rounds?last={last}" if last.isascii() else "/api/rounds?last=%D9%A3"
        assert ask(server, path).status == 400, last
    for slot in ("1200", "-1", "x", "9" * 5000, "1.0", "%2e%2e"):
        assert change(server, f"/api/devices/{slot}/revoke", {}).status == 404, slot
    assert change(server, "/api/devices/3/revoke", {"why": 1}).status == 400
    assert change(server, "/api/control", " " * 5000).status == 413
    assert change(server, "/api/snapshot", {}).status == 405
    assert ask(server, "/api/control").status == 405
    assert operated.version == before


def test_what_the_store_cannot_do_is_said(server, operated, monkeypatch):
    async def full(*given, **named):
        raise StoreProblem("run.sqlite: the disk is full: make room")

    monkeypatch.setattr(operated, "change", full)
    reply = change(server, "/api/control", {"capacity": 500})
    assert (reply.status, reply.json["message"]) == (503, "run.sqlite: the disk is full: make room")


# The live stream


class Stream:
    """Server-sent events as a browser reads them."""

    def __init__(self, server, after=None):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        self.connection.request("GET", "/api/events", headers=basic() | ({"Last-Event-ID": after} if after else {}))
        self.reply = self.connection.getresponse()

    def event(self):
        """(id, data) of the next event; None at the end."""
        name, data, kind = "", "", ""
        while line := self.reply.readline().decode():
            field, _, value = line.rstrip("\n").partition(": ")
            name, data = (value if field == "id" else name), (value if field == "data" else data)
            kind = value if field == "event" else kind
            if line == "\n" and data:
                return name, kind or json.loads(data)
        return None

    def close(self):
        self.reply.close()
        self.connection.close()


def test_a_stream_begins_with_everything_and_goes_on_with_what_is_new(server, operated):
    with closing(Stream(server)) as stream:
        assert stream.reply.getheader("content-type") == "text/event-stream"
        name, first = stream.event()
        assert (name, len(first["rounds"]), first["fresh"]) == ("night-shift/39", 40, True)
        stream.event()
        server.do(operated.close_round)
        name, second = stream.event()
        assert (name, [closed["round"] for closed in second["rounds"]]) == ("night-shift/40", [40])
        assert second["snapshot"]["round"] == 41
        assert not second["fresh"]


def test_a_stream_goes_on_where_it_was_cut(server):
    with closing(Stream(server, after="night-shift/36")) as stream:
        _, found = stream.event()
        assert ([closed["round"] for closed in found["rounds"]], found["fresh"]) == ([37, 38, 39], False)


def test_another_run_or_an_older_copy_begins_anew(server):
    for after in ("day-shift/36", "night-shift/900", "night-shift/x", "36", "night-shift/" + "9" * 50):
        with closing(Stream(server, after)) as stream:
            _, found = stream.event()
            assert (len(found["rounds"]), found["fresh"]) == (40, True), after


def test_at_most_four_events_a_second_and_no_round_is_left_out(server, operated):
    with closing(Stream(server)) as stream:
        rounds = [closed["round"] for closed in stream.event()[1]["rounds"]]
        began = time.monotonic()
        for _ in range(6):
            server.do(operated.close_round)
            server.do(operated.close_round)
            rounds += [closed["round"] for closed in stream.event()[1]["rounds"]]
        assert time.monotonic() - began >= 5 * 0.25  # before the first there was a pause already
        assert rounds == list(range(len(rounds)))
        assert len(rounds) >= 40 + 2 * 5


def test_a_silent_stream_shows_that_it_lives(server, monkeypatch):
    monkeypatch.setattr(module, "_BEAT", 0.1)
    with closing(Stream(server)) as stream:
        kinds = [stream.event()[1] for _ in range(4)]
        assert kinds[2:] == ["beat", "beat"]


def test_streams_end_with_the_server(operated):
    with served(operated) as server, closing(Stream(server)) as stream:
        stream.event()
        server.stop()  # which waits for it
        while stream.event() is not None:
            pass


def test_pages_that_go_make_room_and_too_many_are_refused(server, monkeypatch):
    monkeypatch.setattr(module, "MOST_STREAMS", 2)
    streams = [Stream(server), Stream(server)]
    for stream in streams:
        stream.event()
    assert ask(server, "/api/events").status == 429
    streams[0].close()
    began = time.monotonic()
    while ask(server, "/api/events", "HEAD").status != 200 or server.app._view.streams > 1:
        assert time.monotonic() - began < 5
        time.sleep(0.02)
    streams[1].close()


def test_a_cut_request_is_no_fault(server, operated):
    with closing(socket.create_connection(("127.0.0.1", server.port))) as line:
        head = "POST /api/control HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-Turnout: 1\r\n"
        line.sendall(f"{head}Authorization: {basic()['Authorization']}\r\nContent-Length: 20\r\n\r\n{{".encode())
    assert ask(server, "/api/snapshot").status == 200
    assert operated.mode == "running"
