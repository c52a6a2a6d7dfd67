"""Clients that are slow, idle or silent: cut off in time, and the others served."""

import contextlib
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
    read_response,
    send_all,
    served,
    status,
    talk,
)
from turnout.service.http.asgi import send_json
from turnout.service.http.gate import Bounds

QUICK = Bounds(head_seconds=0.3, body_seconds=0.3)
QUICK_AFTER = Bounds(idle_seconds=0.3, stall_seconds=0.3)


@pytest.fixture(params=LOOPS)
def loop(request):
    return request.param


def test_a_slow_head_is_cut_off(loop):
    with served(loop=loop, bounds=QUICK) as (bound, app, _), connect(bound) as connection:
        answer = b""
        connection.settimeout(0.05)
        for letter in b"GET / HTTP/1.1\r\nx: " + b"y" * 400:  # 0.05 s each: 20 s in all
            send_all(connection, bytes([letter]))
            with contextlib.suppress(TimeoutError):
                answer = connection.recv(65536)
                break
        assert status(answer) == 408
        assert not app.seen


def test_blank_lines_do_not_keep_a_connection_alive(loop):
    with served(loop=loop, bounds=QUICK) as (bound, _, _), connect(bound) as connection:
        connection.settimeout(0.05)
        closed = False
        for _ in range(400):
            try:
                connection.sendall(b"\r\n")
                closed = connection.recv(65536) == b"" or closed
            except TimeoutError:
                continue
            except ConnectionError:
                closed = True
            if closed:
                break
        assert closed


def test_a_slow_body_is_cut_off_and_the_application_told(loop):
    with served(loop=loop, bounds=QUICK) as (bound, app, _):
        answer = talk(bound, b"POST / HTTP/1.1\r\ncontent-length: 100\r\n\r\nhello")
        assert status(answer) == 408
        eventually(lambda: app.gone == ["/"])


@pytest.mark.parametrize("first", [b"", GET])
def test_an_idle_connection_is_closed(loop, first):
    with served(loop=loop, bounds=QUICK_AFTER if first else QUICK) as (bound, _, _):
        answer = talk(bound, first)
        assert status(answer) == (200 if first else None)
        assert answer.count(b"HTTP/1.1") == len(first) // len(GET)
        eventually(lambda: not bound.gate.connections)


def test_a_held_request_is_not_cut_off_and_an_idle_bound_starts_with_the_answer(loop):
    with served(loop=loop, bounds=QUICK_AFTER) as (bound, app, stop), connect(bound) as connection:
        connection.sendall(post(b"", b"/hold"))
        eventually(lambda: app.seen)
        time.sleep(1.0)
        assert not app.gone
        stop()
        assert status(read_response(connection)[0]) == 200


def test_a_client_that_does_not_read_is_dropped(loop):
    with served(loop=loop, bounds=QUICK_AFTER) as (bound, _, _), connect(bound) as connection:
        connection.sendall(post(b"", b"/flood"))
        eventually(lambda: bound.gate.refused["stalled"] == 1)
        eventually(lambda: not bound.gate.connections)


@pytest.mark.parametrize("end", [b"", b"connection: close\r\n"])
def test_a_client_that_reads_slowly_gets_everything(end):
    class Large(Sample):
        async def __call__(self, scope, receive, send):
            await send_json(send, 200, b"x" * 20_000_000)

    bounds = Bounds(idle_seconds=0.6, stall_seconds=0.6)
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
