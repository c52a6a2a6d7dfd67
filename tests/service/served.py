"""A listener in a thread of its own, and bare sockets against it."""

import asyncio
import contextlib
import datetime
import socket
import threading
import time
from pathlib import Path
from typing import Any

from turnout.service.http.asgi import CLOSE, BodyReader, send_json
from turnout.service.http.listeners import Listener, serve_listeners

PATIENCE = 20.0
"""Seconds after which a test gives up; nothing here needs a tenth of it."""

LOOPS = ("asyncio", "uvloop")
GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


class Sample:
    """An application that counts what it sees: /hold waits for `release` or a disconnect, all else echoes."""

    def __init__(self, body_seconds=10.0):
        self.seen, self.gone, self.bodies, self.headers = [], [], [], []
        self.release = None  # made in the server's loop
        self._bodies = BodyReader(2048, body_seconds)

    async def __call__(self, scope, receive, send):
        self.seen.append(scope["path"])
        self.headers.append(scope["headers"])
        body = await self._bodies.read(receive)
        if scope["path"] == "/hold":
            waits = [asyncio.create_task(self.release.wait()), asyncio.create_task(receive())]
            done, left = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for task in left:
                task.cancel()
            if waits[1] in done:
                self.gone.append("/hold")
                return
        if scope["path"] == "/flood":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(1000):
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        if body is None:
            self.gone.append(scope["path"])
            await send_json(send, 413, b'{"error": "size"}', (CLOSE,))
        else:
            self.bodies.append(body)
            await send_json(send, 200, b'{"length": %d}' % len(body))


@contextlib.contextmanager
def served(app=None, *, loop="asyncio", **listener):
    """The application behind one listener; gives the `Bound` listener, the application and a way to stop."""
    app = Sample() if app is None else app
    ready = threading.Event()
    state: dict[str, Any] = {}

    async def main():
        state["loop"], state["stop"] = asyncio.get_running_loop(), asyncio.Event()
        app.release = asyncio.Event()

        def bound(listeners):
            state["bound"] = listeners["devices"]
            ready.set()

        async def stopping():
            app.release.set()

        one = {"devices": Listener(app, **listener)}
        times = {"closing_seconds": 2, "certificate_seconds": 0.02}
        await serve_listeners(one, bound=bound, stopping=stopping, stop=state["stop"], **times)

    def run():
        factory = None
        if loop == "uvloop":
            import uvloop

            factory = uvloop.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(PATIENCE)

    def stop():
        state["loop"].call_soon_threadsafe(state["stop"].set)

    try:
        yield state["bound"], app, stop
    finally:
        stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def connect(bound):
    """A bare connection."""
    return socket.create_connection(("127.0.0.1", bound.port), timeout=PATIENCE)


def read_all(connection):
    """Everything until the server closes; a reset counts as the end."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def send_all(connection, data):
    """Send what the server takes: it may close in the middle."""
    with contextlib.suppress(ConnectionError):
        connection.sendall(data)


def talk(bound, data):
    """Send, and read until the server closes."""
    with connect(bound) as connection:
        send_all(connection, data)
        return read_all(connection)


def read_response(connection):
    """One response with a content-length."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        assert part, data
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return head, body


def eventually(condition):
    """Wait until it holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.01)


def self_signed(folder: Path):
    """A certificate for localhost and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "certificate.pem", folder / "key.pem"


def post(body, path=b"/", headers=b""):
    return b"POST %s HTTP/1.1\r\nHost: here\r\n%scontent-length: %d\r\n\r\n%s" % (path, headers, len(body), body)


def status(answer):
    return int(answer.split(b" ", 2)[1]) if answer else None
