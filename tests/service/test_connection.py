"""The wire: bounded in time and size, no redirect followed, TLS with an authority of one's own."""

import json
import random
import shutil
import socket
import ssl
import subprocess
import threading
import time
from contextlib import contextmanager

import pytest

from service.fake_coordinator import FakeCoordinator, served
from turnout.errors import FileProblem
from turnout.service import Report
from turnout.service.agent.connection import FIRST_PAUSE, HELD, Backoff, Dialogue, HttpWire, Reply
from turnout.service.network import Address, Unreachable

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@contextmanager
def raw_server(behave, context=None):
    """A server that does with each connection what `behave(connection, number)` says."""
    listener = socket.create_server(("127.0.0.1", 0))
    stopping, threads = threading.Event(), []

    def serve(connection, number):
        try:
            if context is not None:
                connection = context.wrap_socket(connection, server_side=True)
            behave(connection, number)
        except OSError:
            pass
        finally:
            connection.close()

    def accept():
        for number in range(1000):
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.settimeout(5)
            threads.append(threading.Thread(target=serve, args=(connection, number), daemon=True))
            threads[-1].start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http{'s' if context else ''}://localhost:{listener.getsockname()[1]}"
    finally:
        stopping.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)
        for one in threads:
            one.join(6)


def request(connection):
    """Read one request."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(4096)
        if not more:
            return b""
        data += more
    return data


def answers(*replies):
    def behave(connection, number):
        for reply in replies:
            if not request(connection):
                return
            connection.sendall(reply)

    return behave


def get(url, **options):
    wire = HttpWire(url, **options)
    try:
        return wire.send("GET", "/v1/round", None, "token")
    finally:
        wire.close()


def test_one_connection_serves_many_requests():
    connections = []

    def behave(connection, number):
        connections.append(number)
        answers(*[GOOD] * 5)(connection, number)

    with raw_server(behave) as url:
        wire = HttpWire(url + "/prefix/")
        for _ in range(5):
            assert wire.send("POST", "/v1/report", b"{}", "token").body == b"{}"
        wire.close()
    assert connections == [0]


def test_a_kept_connection_that_has_died_is_made_anew_once():
    with raw_server(answers(GOOD)) as url:  # each closes after one answer
        wire = HttpWire(url)
        for _ in range(3):
            assert wire.send("GET", "/x", None, None).status == 200
            time.sleep(0.05)
        wire.close()
    silent = raw_server(lambda connection, number: request(connection))
    with silent as url, pytest.raises(Unreachable, match="closed connection without response"):
        get(url)


def test_a_listener_that_hangs_up_on_plain_http_may_want_https():
    for reply in (b"", b"\x15\x03\x01\x00\x02\x02\x46\r\n"):  # uvicorn's way, and a TLS alert
        with (
            raw_server(answers(reply)) as url,
            pytest.raises(Unreachable, match="if it is served with TLS, write https://"),
        ):
            get(url)
    with raw_server(answers(GOOD)) as url:
        wire = HttpWire(url)
        wire.send("GET", "/x", None, None)
    with pytest.raises(Unreachable) as problem:  # it has answered once: the address is right
        wire.send("GET", "/x", None, None)
    assert "https://" not in str(problem.value)


def test_what_is_sent_is_what_was_given():
    seen = []

    def behave(connection, number):
        seen.append(request(connection))
        connection.sendall(GOOD)

    with raw_server(behave) as url:
        get(url + "/fleet")
    lines = seen[0].decode().split("\r\n")
    assert lines[0] == "GET /fleet/v1/round HTTP/1.1"
    host = url.removeprefix("http://")
    assert sorted(lines[1:-2]) == [
        "Accept-Encoding: identity",
        "Accept: application/json",
        "Authorization: Bearer token",
        f"Host: {host}",
    ]


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n", "bytes, more than"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b"x" * 70_000, "more than 65,536 bytes"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"ffff\r\n" + b"x" * 65535 + b"\r\n" + b"ffff\r\n"
         + b"x" * 65535, "more than 65,536 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", "IncompleteRead|ended after 5"),
        (b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 200 + b"\r\n", "more than 100 headers"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000, "header line"),
        (b"SSH-2.0-OpenSSH\r\n", "SSH"),
        (b"HTTP/1.1 abc\r\n\r\n", "abc"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "IncompleteRead|zz"),
        (b"", "closed connection"),
    ],
    ids=range(10),
)  # fmt: skip
def test_endless_broken_and_foreign_replies_are_none(reply, told):
    with raw_server(answers(reply)) as url, pytest.raises(Unreachable, match=told):
        get(url)


@pytest.mark.parametrize("kind", ["nothing", "header", "body", "continue", "chunks"])
def test_a_slow_reply_ends_with_the_time_of_the_whole_request(kind):
    starts = {"header": b"HTTP/1.1 200 OK\r\n", "body": b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n"}
    starts["chunks"] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    drops = {
        "header": b"X-A: b\r\n",
        "body": b"x",
        "continue": b"HTTP/1.1 100 Continue\r\n\r\n",
        "chunks": b"1\r\nx\r\n",
    }

    def drip(connection, number):
        request(connection)
        connection.sendall(starts.get(kind, b""))
        for _ in range(20):
            connection.sendall(drops.get(kind, b""))
            time.sleep(0.05)

    with raw_server(drip) as url:
        begun = time.monotonic()
        with pytest.raises(Unreachable):
            get(url, seconds=0.4)
        assert time.monotonic() - begun < 1.0


def test_a_redirection_is_not_followed():
    seen = []
    moved = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:9/v1/round\r\nContent-Length: 0\r\n\r\n"

    def behave(connection, number):
        seen.append(request(connection))
        connection.sendall(moved)

    with raw_server(behave) as url:
        assert get(url).status == 307
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("header", "wait"), [(b"7", 7.0), (b"99999999999", 3600.0), (b"-5", None), (b"Wed, 21 Oct", None), (b"", None)]
)
def test_retry_after(header, wait):
    reply = b"HTTP/1.1 503 Busy\r\nRetry-After: " + header + b"\r\nContent-Length: 2\r\n\r\n{}"
    with raw_server(answers(reply)) as url:
        assert get(url).retry_after == wait


def test_cut_ends_a_held_request_at_once_and_for_good():
    coordinator = FakeCoordinator()
    coordinator.holds = True
    with served(coordinator) as url:
        wire, told = HttpWire(url), []

        def wait():
            with pytest.raises(Unreachable) as problem:
                wire.send("POST", "/v1/report", json.dumps({"round": 0}).encode(), "token")
            told.append(problem.value)

        thread = threading.Thread(target=wait)
        thread.start()
        assert coordinator.held.wait(5)
        begun = time.monotonic()
        wire.cut()
        thread.join(5)
        assert time.monotonic() - begun < 0.5
        assert told
        with pytest.raises(Unreachable, match="stopped"):
            wire.send("GET", "/v1/round", None, "token")


def test_nobody_there():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(Unreachable, match="Connection refused"):
        get(f"http://127.0.0.1:{port}")
    with pytest.raises(Unreachable):
        get("http://no-such-host.invalid")


@pytest.mark.parametrize(
    "url",
    ["", "coordinator", "ftp://a", "file:///etc/passwd", "http://", "https://user:secret@a", "http://a?b", "http://a#b",
     "http://a:99999", "http://a b", "http://a\r\nX: 1", "http://ä.example", None],
)  # fmt: skip
def test_what_is_no_url(url):
    with pytest.raises(ValueError, match="URL must be"):
        Address.of(url)


class TestTls:
    @pytest.fixture(scope="module")
    @staticmethod
    def authority(tmp_path_factory):
        """An authority, a certificate for localhost that it signed, and another authority."""
        if shutil.which("openssl") is None:
            pytest.skip("no openssl to make certificates with")
        home = tmp_path_factory.mktemp("tls")

        def openssl(*arguments):
            subprocess.run(["openssl", *arguments], cwd=home, check=True, capture_output=True)

        for name in ("ca", "other"):
            openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.pem",
                    "-subj", f"/CN={name}", "-days", "2", "-addext", "basicConstraints=critical,CA:TRUE",
                    "-addext", "keyUsage=critical,keyCertSign,cRLSign")  # fmt: skip
        openssl(
            "req", "-newkey", "rsa:2048", "-nodes", "-keyout", "here.key", "-out", "here.csr", "-subj", "/CN=localhost"
        )
        # Python 3.13 wants all of it.
        (home / "ext").write_text("subjectAltName=DNS:localhost\nauthorityKeyIdentifier=keyid\n")
        openssl("x509", "-req", "-in", "here.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out",
                "here.pem", "-days", "2", "-extfile", "ext")  # fmt: skip
        return home

    def test_only_the_given_authority_is_trusted(self, authority):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority / "here.pem", authority / "here.key")
        with raw_server(answers(GOOD, GOOD), context) as url:
            wire = HttpWire(url, ca=authority / "ca.pem")
            assert [wire.send("GET", "/x", None, "t").status for _ in range(2)] == [200, 200]
            wire.close()
            for options in ({}, {"ca": authority / "other.pem"}):
                with pytest.raises(Unreachable, match=r"certificate verify failed.*: --ca must name the PEM file"):
                    get(url, **options)
            with pytest.raises(Unreachable, match=r"not valid for '127\.0\.0\.1'.*: call it by a name that"):
                get(url.replace("localhost", "127.0.0.1"), ca=authority / "ca.pem")

    def test_tls_where_there_is_none(self):
        with raw_server(answers(GOOD)) as url, pytest.raises(Unreachable, match="without TLS, write http://"):
            get(url.replace("http:", "https:"))

    def test_a_held_request_over_tls_is_cut_at_once(self, authority):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority / "here.pem", authority / "here.key")
        held = threading.Event()

        def hold(connection, number):
            request(connection)
            held.set()
            connection.recv(1)

        with raw_server(hold, context) as url:
            wire, told = HttpWire(url, ca=authority / "ca.pem"), []

            def wait():
                with pytest.raises(Unreachable) as problem:
                    wire.send("GET", "/x", None, "t")
                told.append(problem.value)

            thread = threading.Thread(target=wait)
            thread.start()
            assert held.wait(5)
            begun = time.monotonic()
            wire.cut()
            thread.join(5)
            assert time.monotonic() - begun < 0.5
            assert told
            wire.close()

    def test_a_file_that_is_no_authority(self, tmp_path):
        (tmp_path / "empty.pem").write_text("")
        for name in ("none.pem", "empty.pem"):
            with pytest.raises(FileProblem, match=name):
                HttpWire("https://localhost", ca=tmp_path / name)
        with pytest.raises(ValueError, match="ca must be left out for http"):
            HttpWire("http://localhost", ca=tmp_path / "empty.pem")


class Restarted:
    """A coordinator that is up and down in turns of six seconds, on a clock that pauses move; it holds every report."""

    def __init__(self, restarts, up=6.0, down=6.0, shows_life=True):
        self.shows_life = shows_life
        self.now, self.turn, self.up, self.end = 0.0, up + down, up, restarts * (up + down)
        self.tries, self.answered = 0, 0.0

    def pause(self, seconds):
        self.now += seconds

    def send(self, method, path, body, token):
        self.tries += 1
        at = self.now % self.turn
        if self.now >= self.end:
            self.answered = self.now
            return Reply(200, b'{"round":0,"outcome":"closed","counted":false,"lease":0.0,"next":null}')
        if at >= self.up:
            raise Unreachable("refused")
        held = self.up - at
        self.now += held
        raise Unreachable("the connection broke", held=self.shows_life and held >= HELD)


def seconds_until_back(wire, monkeypatch, seed):
    drawn = random.Random(seed)
    monkeypatch.setattr("turnout.service.agent.connection.random.SystemRandom", lambda: drawn)
    talk = Dialogue(wire, clock=lambda: wire.now, pause=wire.pause, check=lambda: None, noted=lambda _: None)
    talk.report("token", Report("run", 0, True))
    return wire.answered - wire.end


def test_after_ten_restarts_in_two_minutes_a_device_is_back_within_seconds(monkeypatch):
    """Certain, not likely: no pause is longer than a quarter of the pauses of one turn, or than the first one."""
    waits = [seconds_until_back(Restarted(10), monkeypatch, seed) for seed in range(300)]
    assert max(waits) < 2.0


def test_the_twin_whose_pauses_double_and_that_ignores_signs_of_life_is_away_for_longer(monkeypatch):
    """As it was: after ten restarts a pause is drawn from 0 to 60 seconds."""

    class Doubling(Backoff):
        def wait(self, at_least=0.0):
            self._waited += 1
            self._pause(random.SystemRandom().uniform(0.0, min(60.0, 0.25 * 2.0**self._waited)))

    monkeypatch.setattr("turnout.service.agent.connection.Backoff", Doubling)
    waits = [seconds_until_back(Restarted(10, shows_life=False), monkeypatch, seed) for seed in range(300)]
    assert max(waits) > 20.0


def test_in_a_long_outage_pauses_grow_to_a_minute(monkeypatch):
    """Some two tries a minute, once a device has waited for minutes: no coordinator is flooded when it returns."""
    pauses, drawn = [], random.Random(1)
    monkeypatch.setattr("turnout.service.agent.connection.random.SystemRandom", lambda: drawn)
    waiting = Backoff(pauses.append)
    while sum(pauses) < 3600.0:
        waiting.wait()
    assert len(pauses) < 200
    assert 30.0 < max(pauses[-20:]) <= 60.0
    waiting.reset()
    waiting.wait()
    assert pauses[-1] <= FIRST_PAUSE


def test_a_request_that_was_held_before_the_connection_broke_was_held(monkeypatch):
    monkeypatch.setattr("turnout.service.agent.connection.HELD", 0.2)

    def holds(connection, number):
        request(connection)
        time.sleep(0.4)

    with raw_server(holds) as url, pytest.raises(Unreachable) as broken:
        get(url)
    assert broken.value.held
    with raw_server(lambda connection, number: request(connection)) as url, pytest.raises(Unreachable) as hung_up:
        get(url)
    assert not hung_up.value.held
    with pytest.raises(Unreachable) as refused:
        get(url)
    assert not refused.value.held
