"""A coordinator of one device in a few lines, without a clock or a disk, and wires that lose what they carry."""

import json
import random
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from turnout.service.agent.connection import Reply
from turnout.service.network import Unreachable

TOKEN = "t" * 43
CLAMP = {"kind": "clamp", "epsilon": 1.0, "center": 0.5}


class FakeCoordinator:
    """A round closes as soon as the device has reported.

    Attributes:
        books: {round: (bit, counted)}, the coordinator's truth.
        received: every request as (method, path, body, token).
        welcome: fields of the welcome that differ from the usual.
        holds, holds_after_yes: keep reports waiting for `release`, always or once work is on.
        scripted: answers (status, body) or functions of the request, used up before it thinks for itself.
    """

    def __init__(
        self, *, lease=0.0, counts=lambda round, bit: True, signal=lambda round: 2.0, code="GOOD-CODE", **welcome
    ):
        self.code = code
        self.lease, self.counts, self.signal, self.welcome = lease, counts, signal, welcome
        self.open, self.books, self.received, self.scripted = 0, {}, [], []
        self.nonces, self.left, self.headers = [], False, []
        self.lock = threading.RLock()
        self.held, self.release = threading.Event(), threading.Event()
        self.holds = self.holds_after_yes = False

    def offer(self):
        return {"round": self.open, "signal": self.signal(self.open)}

    def handle(self, method, path, body, token):
        with self.lock:
            self.received.append((method, path, body, token))
            if self.scripted:
                answer = self.scripted.pop(0)
                answer = answer(method, path, body) if callable(answer) else answer
                if answer is not None:
                    return answer
        after_yes = self.holds_after_yes and self.books.get(self.open - 1) == (True, True)
        if path == "/v1/report" and (self.holds or after_yes):
            self.held.set()
            self.release.wait(30)
        with self.lock:
            if path == "/v1/enrol":
                return self.enrol(json.loads(body))
            if token != TOKEN or self.left:
                return 401, {"error": "token", "message": "unknown token"}
            if path == "/v1/leave":
                self.left = True
                return 200, {"left": True}
            if path == "/v1/round":
                return 200, {"run": self.welcome.get("run", "run"), **self.offer()}
            return self.report(json.loads(body))

    def enrol(self, asked):
        if asked["code"] != self.code or (self.nonces and self.nonces[0] != asked["nonce"]):
            return 403, {"error": "code", "message": "no such code"}
        self.nonces.append(asked["nonce"])
        usual = {"version": 1, "run": "run", "token": TOKEN, "weight": 1, "prior_average": 0.5, "prior_rounds": 10}
        usual |= {"remember": None, "by": "bit", "mechanism": CLAMP, "offer": self.offer()}
        return 201, usual | self.welcome

    def report(self, report):
        round, bit = report["round"], report["participates"]
        if report["run"] != self.welcome.get("run", "run"):
            return 409, {"error": "run", "message": "another run", "next": self.offer()}
        if round > self.open:
            return 409, {"error": "ahead", "message": "not open yet", "next": self.offer()}
        outcome = "confirmed"
        if round == self.open:
            self.books[round] = (bit, self.counts(round, bit))
            self.open, outcome = self.open + 1, "accepted"
        if round not in self.books:
            return 200, self.answer(round, "closed", False)
        if self.books[round][0] != bit:
            return 409, {"error": "conflict", "message": "another bit", "next": self.offer()}
        return 200, self.answer(round, outcome, self.books[round][1])

    def answer(self, round, outcome, counted):
        works = counted and self.books[round][0]
        lease = self.lease if works else 0.0
        return {"round": round, "outcome": outcome, "counted": counted, "lease": lease, "next": self.offer()}

    def reports(self):
        return [json.loads(body) for _, path, body, _ in self.received if path == "/v1/report"]


class DirectWire:
    """No network at all."""

    def __init__(self, coordinator):
        self.coordinator, self.stopped = coordinator, False

    def send(self, method, path, body, token):
        if self.stopped:
            raise Unreachable("stopped")
        status, value, *rest = self.coordinator.handle(method, path, body, token)
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        return Reply(status, content, *rest)

    def cut(self):
        self.stopped = True
        self.coordinator.release.set()

    def close(self):
        pass


class ChaoticWire(DirectWire):
    """Requests and replies are lost, doubled, repeated much later, and replies come in the wrong order."""

    def __init__(self, coordinator, seed):
        super().__init__(coordinator)
        self.random, self.requests, self.replies, self.faults = random.Random(seed), [], [], 0

    def send(self, method, path, body, token):
        request = (method, path, body, token)
        self.requests = [*self.requests[-20:], request]
        kind = self.random.randrange(10)
        self.faults += kind < 6
        if kind == 0:
            raise Unreachable("the request was lost")
        if kind == 1:
            super().send(*request)
            raise Unreachable("the reply was lost")
        if kind == 2:
            super().send(*request)  # doubled
        if kind == 3:
            super().send(*self.random.choice(self.requests))  # an old one arrives only now
        if kind == 4 and self.replies:
            return self.random.choice(self.replies)  # an old reply
        if kind == 5:
            return Reply(self.random.choice([500, 502, 503, 429]), b"<html>", 1.0)
        reply = super().send(*request)
        if path != "/v1/enrol":
            self.replies = [*self.replies[-20:], reply]
        return reply


@contextmanager
def served(coordinator):
    """The URL of a coordinator on a real socket."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet

        def do_GET(self):
            self.do_POST()

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or None
            coordinator.headers.append(dict(self.headers))
            token = self.headers.get("Authorization", "").removeprefix("Bearer ") or None
            status, value, *rest = coordinator.handle(self.command, self.path, body, token)
            if status == 0:  # the connection dies without an answer
                self.close_connection = True
                return
            content = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            if rest:
                self.send_header("Retry-After", str(rest[0]))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_):
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        coordinator.release.set()
        server.shutdown()
        server.server_close()
        thread.join()
