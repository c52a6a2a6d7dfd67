import contextlib
import re
import socket
import ssl
import time

import pytest
import uvicorn

from service.served import (
    GET,
    LOOPS,
    Sample,
    connect,
    eventually,
    post,
    read_all,
    read_response,
    self_signed,
    send_all,
    served,
    status,
    talk,
)
from turnout.errors import TurnoutError
from turnout.service.http import bounded_http
from turnout.service.http.bounded_http import bounded
from turnout.service.http.gate import Bounds


@pytest.fixture(params=LOOPS)
def loop(request):
    return request.param


@pytest.fixture(scope="module", params=LOOPS)
def running(request):
    with served(loop=request.param) as found:
        yield found


@pytest.fixture
def server(running):
    """One that runs already, with clean books."""
    bound, app, stop = running
    eventually(lambda: not bound.gate.connections)
    bound.gate.refused.clear()
    for seen in (app.seen, app.gone, app.bodies, app.headers):
        seen.clear()
    return bound, app, stop


def test_a_connection_serves_many_requests(server):
    bound, app, _ = server
    with connect(bound) as connection:
        for length in (0, 1, 2048, 2049, 3):
            connection.sendall(post(b"x" * length))
            head, body = read_response(connection)
            assert status(head) == (200 if length <= 2048 else 413)
            assert length > 2048 or body == b'{"length": %d}' % length
    assert len(app.seen) == 5
    assert not bound.gate.refused


@pytest.mark.parametrize("pieces", [1, 7])
def test_a_request_may_come_in_pieces(server, pieces):
    bound, app, _ = server
    request = post(b"hello", headers=b"x-long: " + b"y" * 3000 + b"\r\n")
    with connect(bound) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(request), len(request) // pieces + 1):
            connection.sendall(request[start : start + len(request) // pieces + 1])
            time.sleep(0.002)
        assert read_response(connection)[1] == b'{"length": 5}'
    assert app.bodies == [b"hello"]


TOO_LARGE = {
    "one header": b"GET / HTTP/1.1\r\nx: " + b"y" * 9000 + b"\r\n\r\n",
    "a header without end": b"GET / HTTP/1.1\r\nx: " + b"y" * 200_000,
    "a name without end": b"GET / HTTP/1.1\r\n" + b"y" * 200_000,
    "10,000 headers": b"GET / HTTP/1.1\r\n" + b"".join(b"x%d: y\r\n" % number for number in range(10_000)) + b"\r\n",
    "51 headers": b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 51 + b"\r\n",
    "path": b"GET /" + b"y" * 9000 + b" HTTP/1.1\r\n\r\n",
    "path without end": b"GET /" + b"y" * 200_000,
    "all together": b"GET /" + b"y" * 5000 + b" HTTP/1.1\r\nx: " + b"y" * 5000 + b"\r\n\r\n",
}


@pytest.mark.parametrize("what", TOO_LARGE)
def test_a_head_that_is_too_large_is_refused_and_the_connection_closed(server, what):
    bound, app, _ = server
    assert status(talk(bound, TOO_LARGE[what])) == 431
    assert not app.seen
    assert status(_one(bound)) == 200  # and others are served on


def _one(bound):
    with connect(bound) as connection:
        connection.sendall(GET)
        return read_response(connection)[0]


def test_a_head_just_within_the_bound_passes(server):
    bound, _, _ = server
    with connect(bound) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 49 + b"z: " + b"y" * 7000 + b"\r\n\r\n")
        assert status(read_response(connection)[0]) == 200


MALFORMED = {
    "garbage": bytes(range(256)) * 4,
    "nothing of a method": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/2.0": b"GET / HTTP/2.0\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "length and chunks": b"POST / HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + GET,
    "two lengths": b"POST / HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
    "a negative length": b"POST / HTTP/1.1\r\ncontent-length: -5\r\n\r\nhello",
    "a length beyond all": b"POST / HTTP/1.1\r\ncontent-length: 99999999999999999999999\r\n\r\nhello",
    "chunked, then not": b"POST / HTTP/1.1\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "a blank before the colon": b"POST / HTTP/1.1\r\ncontent-length : 5\r\n\r\nhello",
    "a folded header": b"GET / HTTP/1.1\r\nx: y\r\n folded\r\n\r\n",
    "an upgrade": b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    "an upgrade with a body": b"POST / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\ncontent-length: 31\r\n\r\n"
    + GET,
    "a tunnel": b"CONNECT there:443 HTTP/1.1\r\n\r\n",
    "a path that is none": b"GET \xff\xfe HTTP/1.1\r\n\r\n",
    "NUL in a header": b"GET / HTTP/1.1\r\nx: a\x00b\r\n\r\n",
}


@pytest.mark.parametrize("what", MALFORMED)
def test_what_is_not_http_1_1_never_reaches_the_application(server, what):
    bound, app, _ = server
    answer = talk(bound, MALFORMED[what])
    assert status(answer) in (400, 505)
    assert answer.count(b"connection: close") == 1
    assert re.search(rb'\r\n\r\n{"error": "malformed", "message": "[^"]+"}$', answer)
    assert not app.seen


def test_trailers_are_dropped_and_count(server):
    bound, app, _ = server
    head = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"
    with connect(bound) as connection:
        connection.sendall(head + b"authorization: Bearer me\r\n\r\n")
        assert read_response(connection)[1] == b'{"length": 5}'
    assert all(name != b"authorization" for name, _ in app.headers[0])
    many = talk(bound, head + b"".join(b"x%d: y\r\n" % number for number in range(100_000)))
    eventually(lambda: len(app.headers) == 2)
    assert len(app.headers[1]) == 1
    assert status(many) in (200, 413, 431)  # it may have been answered before the trailers came


def test_a_chunked_body_beyond_the_applications_limit_is_refused_by_it(server):
    bound, _, _ = server
    with connect(bound) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n" + b"100\r\n" + b"x" * 256 + b"\r\n")
        for _ in range(9):
            connection.sendall(b"100\r\n" + b"x" * 256 + b"\r\n")
        assert status(read_response(connection)[0]) == 413
        connection.sendall(b"0\r\n\r\n" + GET)  # the rest is dropped, and the connection goes on
        assert status(read_response(connection)[0]) == 200


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_a_body_without_end_is_cut_off(server, framing):
    bound, app, _ = server
    head = b"content-length: 100000000" if framing == "length" else b"transfer-encoding: chunked"
    with connect(bound) as connection:
        send_all(connection, b"POST / HTTP/1.1\r\n" + head + b"\r\n\r\n")
        sent = 0
        with contextlib.suppress(ConnectionError):
            for _ in range(10_000):
                connection.sendall(b"4000\r\n" + b"x" * 16384 + b"\r\n")
                sent += 16384
        assert sent < 100_000_000
        assert status(read_all(connection)) in (413, None)
    assert len(app.seen) == 1
    assert not app.bodies


def test_a_request_before_the_answer_to_the_last_is_not_served(server):
    bound, app, _ = server
    answer = talk(bound, GET * 500)
    assert answer.count(b"HTTP/1.1 200") == 1
    assert app.seen == ["/"]
    assert bound.gate.refused["pipelined"] == 1
    assert talk(bound, GET + b"\x00garbage").count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("how", ["half", "full"])
def test_a_client_that_closes_its_end_has_gone(server, how):
    bound, app, _ = server
    with connect(bound) as connection:
        connection.sendall(post(b"", b"/hold"))
        eventually(lambda: app.seen)
        if how == "half":
            connection.shutdown(socket.SHUT_WR)
            assert read_all(connection) == b""
    eventually(lambda: app.gone == ["/hold"])
    eventually(lambda: not bound.gate.connections)


def test_connections_beyond_the_most_are_told_so_and_those_before_are_served(loop):
    bounds = Bounds(most_connections=20)
    with served(loop=loop, bounds=bounds) as (bound, _, _), contextlib.ExitStack() as open_ones:
        first = [open_ones.enter_context(connect(bound)) for _ in range(20)]
        eventually(lambda: len(bound.gate.connections) == 20)
        for _ in range(3):
            answer = talk(bound, b"")
            assert status(answer) == 503
            assert b"retry-after" in answer
        for connection in first:
            connection.sendall(GET)
            assert status(read_response(connection)[0]) == 200
        first[0].close()
        eventually(lambda: len(bound.gate.connections) == 19)
        assert status(_one(bound)) == 200


def test_far_beyond_the_most_nobody_is_told_anything(loop):
    bounds = Bounds(most_connections=5)
    with served(loop=loop, bounds=bounds) as (bound, _, _), contextlib.ExitStack() as open_ones:
        for _ in range(5 + bounded_http.SPARE + 30):
            with contextlib.suppress(ConnectionError):
                open_ones.enter_context(connect(bound))
        eventually(lambda: bound.gate.refused["full"] >= bounded_http.SPARE + 30)
        eventually(lambda: len(bound.gate.connections) <= 5 + bounded_http.SPARE)


@pytest.mark.parametrize("counted", [True, False])
def test_one_address_has_its_share_and_this_machine_any_unless_told(loop, counted):
    bounds = Bounds(most_per_address=3, count_loopback=counted)
    with served(loop=loop, bounds=bounds) as (bound, _, _), contextlib.ExitStack() as open_ones:
        for _ in range(3):
            open_ones.enter_context(connect(bound)).sendall(GET)
        eventually(lambda: len(bound.gate.connections) == 3)
        if counted:
            assert status(talk(bound, b"")) == 503
            open_ones.close()
            eventually(lambda: not bound.gate.connections)
        assert status(_one(bound)) == 200
        assert counted == bool(bound.gate.refused["full"])


def test_who_waits_for_leave_to_send_the_body_gets_it(server):
    bound, _, _ = server
    with connect(bound) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n")
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"hello")
        assert read_response(connection)[1] == b'{"length": 5}'


def test_an_answer_without_a_body_yet_leaves_all_the_same(loop):
    class Streaming(Sample):
        async def __call__(self, scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await self.release.wait()
            for word in (b"one", b"two"):
                await send({"type": "http.response.body", "body": word, "more_body": True})
            await send({"type": "http.response.body"})

    with served(Streaming(), loop=loop) as (bound, _, stop), connect(bound) as connection:
        connection.sendall(GET)
        head = connection.recv(65536)
        assert head.startswith(b"HTTP/1.1 200 OK")
        assert head.endswith(b"\r\n\r\n")
        stop()
        assert read_all(connection) == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"


def test_a_question_for_the_head_alone(server):
    bound, _, _ = server
    with connect(bound) as connection:
        for _ in range(2):
            connection.sendall(GET.replace(b"GET", b"HEAD"))
            answer = connection.recv(65536)
            assert status(answer) == 200
            assert answer.endswith(b"\r\n\r\n")


def test_http_1_0_is_served_and_closed(server):
    bound, _, _ = server
    assert status(talk(bound, b"GET / HTTP/1.0\r\n\r\n")) == 200


def test_a_tls_handshake_that_never_completes_is_cut_off(loop, tmp_path):
    certificate, key = self_signed(tmp_path)
    with served(loop=loop, bounds=Bounds(head_seconds=0.6), certificate=certificate, key=key) as (bound, app, _):
        assert talk(bound, b"") == b""
        assert talk(bound, b"\x16\x03\x01\x02\x00\x01") == b""
        assert b"200" not in talk(bound, GET)
        context = ssl.create_default_context(cafile=str(certificate))
        with context.wrap_socket(connect(bound), server_hostname="localhost") as connection:
            connection.sendall(GET)
            assert status(read_response(connection)[0]) == 200
        with context.wrap_socket(connect(bound), server_hostname="localhost") as connection:
            connection.sendall(TOO_LARGE["path"])
            assert status(read_all(connection)) == 431
        assert app.seen == ["/"]
        eventually(lambda: not bound.gate.connections)


def test_a_stall_of_our_own_is_not_held_against_clients():
    class Connection:
        def __init__(self, deadline):
            self.deadline, self.expired = deadline, False

        def expire(self):
            self.expired = True

    class Loop:
        now = 0.0

        def time(self):
            return self.now

        def call_soon(self, expire):
            expire()

        def call_later(self, delay, sweep, loop):
            self.next = (self.now + delay, sweep)

    loop, gate = Loop(), bounded(Bounds(head_seconds=4.0)).gate
    gate._wind(loop)
    connection = Connection(gate.head_deadline)
    gate.connections.add(connection)
    loop.now = 100.0  # the process was stopped meanwhile
    loop.next[1](loop)
    assert not connection.expired
    for _ in range(20):
        loop.now = loop.next[0]
        loop.next[1](loop)
    assert connection.expired
    gate.connections.clear()
    last = loop.next
    loop.next = None
    last[1](loop)
    assert loop.next is None  # nobody to look after: no timer


def test_a_uvicorn_that_is_built_otherwise_is_refused_with_a_clear_error(monkeypatch):
    monkeypatch.delattr(bounded_http.HttpToolsProtocol, "on_response_complete")  # type: ignore[attr-defined]
    with pytest.raises(TurnoutError, match=rf"uvicorn {re.escape(uvicorn.__version__)} has no .*on_response_complete"):
        bounded()
    monkeypatch.undo()
    monkeypatch.setattr(bounded_http, "_CYCLE_ATTRIBUTES", ("keep_alive", "no_such"))
    with pytest.raises(TurnoutError, match=r"has no RequestResponseCycle\.no_such: install"):
        bounded()


@pytest.mark.parametrize("bound", [{"head_bytes": 0}, {"idle_seconds": float("inf")}, {"most_per_address": -1}])
def test_bounds_are_checked(bound):
    with pytest.raises(ValueError, match="above 0 and finite"):
        Bounds(**bound)
