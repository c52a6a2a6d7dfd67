"""What holds without a proxy in front, for both of uvicorn's parsers; the rest is in test_nginx.py."""

import contextlib
import re
import socket
import time

import pytest

from service.served import (
    GET,
    LOOPS,
    Sample,
    connect,
    eventually,
    post,
    read_all,
    read_response,
    send_all,
    served,
    status,
    talk,
)
from turnout.service.http import listeners
from turnout.service.http.asgi import send_json
from turnout.service.http.listeners import Bounds

PARSERS = ("httptools", "h11")


@contextlib.contextmanager
def using(parser):
    """As where only this machine can connect, or where others can (but bound to this machine all the same)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listeners, "_only_here", lambda sockets: parser == "httptools")
        yield


@pytest.fixture(params=LOOPS)
def loop(request):
    return request.param


@pytest.fixture(scope="module", params=[(parser, loop) for parser in PARSERS for loop in LOOPS], ids="-".join)
def running(request):
    parser, loop = request.param
    with using(parser), served(loop=loop) as found:
        yield found


@pytest.fixture
def server(running):
    """One that runs already, and has seen nothing."""
    bound, app, stop = running
    for seen in (app.seen, app.gone, app.bodies, app.headers):
        seen.clear()
    return bound, app, stop


def test_a_connection_serves_many_requests_until_one_is_too_large(server):
    bound, app, _ = server
    with connect(bound) as connection:
        for length in (0, 1, 2048, 3):
            connection.sendall(post(b"x" * length))
            head, body = read_response(connection)
            assert status(head) == 200
            assert body == b'{"length": %d}' % length
        connection.sendall(post(b"x" * 2049))
        assert status(read_all(connection)) == 413
    assert len(app.seen) == 5


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


ENDLESS = {
    "header": b"GET / HTTP/1.1\r\nx: " + b"y" * 2_000_000,
    "name of a header": b"GET / HTTP/1.1\r\n" + b"y" * 2_000_000,
    "path": b"GET /" + b"y" * 2_000_000,
    "headers": b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 400_000,
}


@pytest.mark.parametrize("what", ENDLESS)
@pytest.mark.parametrize("loop", LOOPS)
def test_where_others_can_connect_a_head_without_end_is_refused(loop, what):
    with using("h11"), served(loop=loop) as (bound, app, _):
        assert status(talk(bound, ENDLESS[what])) in (400, None)  # or the connection is reset
        assert not app.seen
        assert status(_one(bound)) == 200  # and others are served on


def _one(bound):
    with connect(bound) as connection:
        connection.sendall(GET)
        return read_response(connection)[0]


MALFORMED = {
    "garbage": bytes(range(256)) * 4,
    "nothing of a method": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
    "a negative length": b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -5\r\n\r\nhello",
    "a length beyond all": b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999999999999999\r\n\r\nhello",
    "chunked, then not": b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "a blank before the colon": b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length : 5\r\n\r\nhello",
    "a path that is none": b"GET \xff\xfe HTTP/1.1\r\nhost: a\r\n\r\n",
    "NUL in a header": b"GET / HTTP/1.1\r\nhost: a\r\nx: a\x00b\r\n\r\n",
}


@pytest.mark.parametrize("what", MALFORMED)
def test_what_is_not_http_1_1_never_reaches_the_application(server, what):
    bound, app, _ = server
    answer = talk(bound, MALFORMED[what])
    assert status(answer) == 400
    assert answer.lower().count(b"connection: close") == 1
    assert not app.seen


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_a_body_without_end_is_cut_off(server, framing):
    bound, app, _ = server
    head = b"content-length: 100000000" if framing == "length" else b"transfer-encoding: chunked"
    with connect(bound) as connection:
        send_all(connection, b"POST / HTTP/1.1\r\nhost: a\r\n" + head + b"\r\n\r\n")
        sent = 0
        with contextlib.suppress(ConnectionError):
            for _ in range(10_000):
                connection.sendall(b"4000\r\n" + b"x" * 16384 + b"\r\n")
                sent += 16384
        assert sent < 100_000_000
        assert status(read_all(connection)) in (413, None)
    assert len(app.seen) == 1
    assert not app.bodies


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


def test_who_waits_for_leave_to_send_the_body_gets_it(server):
    bound, _, _ = server
    with connect(bound) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n")
        assert re.fullmatch(rb"HTTP/1.1 100 (Continue)?\r\n\r\n", connection.recv(65536))
        connection.sendall(b"hello")
        assert read_response(connection)[1] == b'{"length": 5}'


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


@pytest.mark.parametrize("parser", PARSERS)
def test_an_answer_without_a_body_yet_leaves_all_the_same(loop, parser):
    class Streaming(Sample):
        async def __call__(self, scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await self.release.wait()
            for word in (b"one", b"two"):
                await send({"type": "http.response.body", "body": word, "more_body": True})
            await send({"type": "http.response.body"})

    with using(parser), served(Streaming(), loop=loop) as (bound, _, stop), connect(bound) as connection:
        connection.sendall(GET)
        head = connection.recv(65536)
        assert head.startswith(b"HTTP/1.1 200 OK")
        assert head.endswith(b"\r\n\r\n")
        stop()
        assert read_all(connection) == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"


@pytest.mark.parametrize("parser", PARSERS)
def test_while_there_are_too_many_connections_requests_are_answered_503(loop, parser):
    bounds = Bounds(most_connections=10)
    with using(parser), served(loop=loop, bounds=bounds) as (bound, app, _), contextlib.ExitStack() as open_ones:
        for _ in range(20):
            open_ones.enter_context(connect(bound))
        first = open_ones.enter_context(connect(bound))
        eventually(lambda: status(_asked(bound)) == 503)
        assert not app.seen
        first.sendall(GET)
        open_ones.close()
        eventually(lambda: status(_asked(bound)) == 200)


def _asked(bound):
    return talk(bound, GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))


# Clients that are slow, idle or silent.


@pytest.mark.parametrize("sent", [b"", b"hello"])
@pytest.mark.parametrize("parser", PARSERS)
def test_a_slow_body_is_cut_off_and_the_application_told(loop, parser, sent):
    with using(parser), served(Sample(body_seconds=0.3), loop=loop) as (bound, app, _):
        answer = talk(bound, b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n" + sent)
        assert status(answer) == 413
        eventually(lambda: app.gone == ["/"])


@pytest.mark.parametrize("parser", PARSERS)
def test_an_idle_connection_is_closed(loop, parser):
    with using(parser), served(loop=loop, bounds=Bounds(idle_seconds=1)) as (bound, _, _):
        answer = talk(bound, GET)
        assert answer.count(b"HTTP/1.1 200") == 1


def test_a_held_request_is_not_cut_off(loop):
    bounds = Bounds(idle_seconds=1, stall_seconds=0.3)
    one = served(Sample(body_seconds=0.3), loop=loop, bounds=bounds)
    with one as (bound, app, stop), connect(bound) as connection:
        connection.sendall(post(b"", b"/hold"))
        eventually(lambda: app.seen)
        time.sleep(1.5)
        assert not app.gone
        stop()
        assert status(read_response(connection)[0]) == 200


def test_a_client_that_does_not_read_is_dropped(loop):
    class Flood(Sample):
        async def __call__(self, scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(1000):
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
                self.seen.append(scope["path"])
            await send({"type": "http.response.body"})
            self.gone.append(len(self.seen))  # where the client has gone, `send` returns at once

    with served(Flood(), loop=loop, bounds=Bounds(stall_seconds=1.0)) as (bound, app, _), connect(bound) as connection:
        connection.sendall(GET)
        eventually(lambda: app.seen)
        time.sleep(0.5)
        assert len(app.seen) < 200  # the application waits for the client
        eventually(lambda: app.gone)


@pytest.mark.parametrize("end", [b"", b"connection: close\r\n"])
def test_a_client_that_reads_slowly_gets_everything(end):
    class Large(Sample):
        async def __call__(self, scope, receive, send):
            await send_json(send, 200, b"x" * 20_000_000)

    bounds = Bounds(idle_seconds=1, stall_seconds=0.6)
    with served(Large(), loop="uvloop", bounds=bounds) as (bound, _, _), connect(bound) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n" + end + b"\r\n")
        received, begun = 0, time.monotonic()
        while received < 20_000_000:
            part = connection.recv(1 << 20)
            assert part, f"cut off after {received} bytes"
            received += len(part)
            if time.monotonic() - begun < 1.8:  # three times as long as a client may read nothing at all
                time.sleep(0.02)


@pytest.mark.parametrize("bound", [{"head_bytes": 0}, {"stall_seconds": float("inf")}, {"most_connections": -1}])
def test_bounds_are_checked(bound):
    with pytest.raises(ValueError, match="above 0 and finite"):
        Bounds(**bound)
