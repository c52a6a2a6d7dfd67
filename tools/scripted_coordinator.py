"""A coordinator that is told what to answer, and a device in a process of its own that may be killed and started again.

For tools/device_conformance.py; the standard library is enough.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PATIENCE = 20.0
"""Seconds within which a device must have done what it should."""

CODE, TOKEN, RUN = "a-code-of-the-suite", "token-of-the-conformance-suite", "conformance"
YES, NO = 1e6, 0.0
"""Signals that make a "yes" or a "no" all but certain."""

DROP = "drop"
"""The connection ends without an answer."""

Value = dict[str, Any]
Reply = Any
"""(status, value or bytes, seconds of Retry-After), DROP, or None: as usual."""


@dataclass
class Request:
    """One request as it arrived."""

    at: float
    method: str
    path: str
    body: Value
    token: str | None


@dataclass
class Coordinator:
    """A coordinator of one device. A round closes as soon as it is reported; from round `last` on reports are held.

    Attributes:
        signal: of a round.
        odd: what to answer a request instead of the usual, or None; called before everything else.
        more: unknown fields, added to every message.
    """

    signal: Callable[[int], float] = lambda round: YES if round % 2 == 0 else NO
    last: int = 3
    lease: float = 0.0
    counts: Callable[[int, bool], bool] = lambda round, bit: True
    odd: Callable[[Request], Reply] = lambda request: None
    welcome: Value = field(default_factory=dict)
    more: Value = field(default_factory=dict)
    open: int = 0
    left: bool = False
    epsilon: float = 30.0

    def __post_init__(self) -> None:
        self.requests: list[Request] = []
        self.bits: dict[int, bool] = {}
        self.released = threading.Event()
        self.lock = threading.RLock()

    def offer(self) -> Value:
        """The open round."""
        return {"round": self.open, "signal": self.signal(self.open)} | self.more

    def answer(self, request: Request) -> Reply:
        """What a device is answered."""
        with self.lock:
            self.requests.append(request)
            reply = self.odd(request)
            if reply is not None:
                return reply
        if request.path == "/v1/report" and request.body.get("round", 0) >= self.last:
            self.released.wait(60)
            return DROP
        with self.lock:
            return self.usual(request)

    def usual(self, request: Request) -> Reply:
        """What a coordinator of its kind answers."""
        if request.path == "/v1/enrol":
            mechanism = {"kind": "clamp", "epsilon": self.epsilon, "center": 0.5}
            made = {"version": 1, "run": RUN, "token": TOKEN, "weight": 1, "prior_average": 0.5, "prior_rounds": 10}
            made |= {"remember": None, "by": "bit", "mechanism": mechanism, "offer": self.offer()}
            return 201, made | self.welcome | self.more
        if request.token != TOKEN or self.left:
            return 401, {"error": "token", "message": "no device has this token"}
        if request.path == "/v1/leave":
            self.left = True
            return 200, {"left": True}
        if request.path == "/v1/round":
            return 200, {"run": RUN} | self.offer()
        return self._report(request.body["round"], request.body["participates"])

    def _report(self, round: int, bit: bool) -> Reply:
        if round > self.open:
            return self.conflict("ahead")
        outcome = "confirmed" if round in self.bits else "closed"
        if round == self.open:
            outcome, self.open = "accepted", self.open + 1
            self.bits.setdefault(round, bit)
        if self.bits.get(round, bit) != bit:
            return self.conflict("conflict")
        return 200, self.settled(round, bit, outcome)

    def settled(self, round: int, bit: bool, outcome: str = "accepted") -> Value:
        """The answer to a report."""
        counted = round in self.bits and self.counts(round, bit)
        made = {"round": round, "outcome": outcome, "counted": counted, "next": self.offer()}
        return made | {"lease": self.lease if counted and bit else 0.0} | self.more

    def conflict(self, error: str) -> Reply:
        """A report that cannot be taken."""
        return 409, {"error": error, "message": "the suite says so", "next": self.offer()} | self.more

    def of(self, path: str) -> list[Request]:
        """The requests for a path."""
        with self.lock:
            return [request for request in self.requests if request.path == path]

    def reports(self) -> list[tuple[int, bool]]:
        """(round, bit) of every report, in the order of arrival."""
        return [(request.body["round"], request.body["participates"]) for request in self.of("/v1/report")]

    def bits_of(self, round: int) -> list[bool]:
        """All bits that were reported for a round."""
        return [bit for number, bit in self.reports() if number == round]


def _server(coordinator: Coordinator) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            at = time.time()
            size = int(self.headers.get("Content-Length", 0))
            raw = self.rfile.read(size)
            if len(raw) < size:  # the device was killed while it sent: no coordinator would read that
                self.close_connection = True
                return
            token = self.headers.get("Authorization", "").removeprefix("Bearer ") or None
            body = json.loads(raw) if raw else {}
            reply = coordinator.answer(Request(at, self.command, self.path, body, token))
            if reply == DROP:
                self.close_connection = True
                return
            status, value, *wait = reply
            content = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            for seconds in wait:
                self.send_header("Retry-After", str(seconds))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            pass

    return Server(("127.0.0.1", 0), Handler)


class Scene:
    """A coordinator, and a device that may be killed and started again; `with` ends both.

    Args:
        template: the command that starts the device.
        coordinator: scripted.
        reports: what the owner allows.
        epsilon: per report, likewise.
        cost: coefficients and powers.
    """

    def __init__(
        self,
        template: str,
        coordinator: Coordinator,
        reports: int = 1000,
        epsilon: float = 30.0,
        cost: tuple[list[float], list[int]] = ([3.0], [2]),
    ) -> None:
        self._template, self.coordinator, self._reports, self._epsilon = template, coordinator, reports, epsilon
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.folder = Path(self._home.name)
        self._events = self.folder / "events"
        self._write("cost.json", json.dumps({"coefficients": cost[0], "powers": cost[1]}))
        note = f'echo "$(date +%s.%N) {{}}" >> {self._events}\n'
        pid = self.folder / "pid"
        self._write("start", f"#!/bin/sh\n{note.format('start')}echo $$ > {pid}\nexec sleep 60\n", 0o755)
        self._write("stop", f"#!/bin/sh\n{note.format('stop')}{{ kill $(cat {pid}); }} 2>/dev/null || true\n", 0o755)
        self._server = _server(coordinator)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Scene:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.coordinator.released.set()
        self.kill()
        subprocess.run([self.folder / "stop"], check=False)
        self._server.shutdown()
        self._server.server_close()
        self._home.cleanup()

    def _write(self, name: str, text: str, mode: int = 0o600) -> None:
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)

    def start(self) -> None:
        """Start the device, or start it again."""
        here: dict[str, object] = {name: self.folder / name for name in ("start", "stop")}
        values = here | {
            "folder": self.folder / "device",
            "url": f"http://127.0.0.1:{self._server.server_port}",
            "code": CODE,
        }
        values |= {"cost": self.folder / "cost.json", "reports": self._reports, "epsilon": self._epsilon}
        command = re.sub(r"\{(\w+)\}", lambda found: str(values[found[1]]), self._template)
        log = (self.folder / "log").open("ab")
        environment = os.environ | {"XDG_STATE_HOME": str(self.folder / "state")}
        self.process = subprocess.Popen(
            shlex.split(command), stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment
        )
        log.close()

    def kill(self) -> None:
        """-9."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def until(self, true: Callable[[], Any], what: str, seconds: float | None = None) -> None:
        """Wait until something has happened."""
        seconds = seconds or PATIENCE
        end = time.monotonic() + seconds
        while not true():
            if time.monotonic() > end:
                log = (self.folder / "log").read_text(errors="replace")[-2000:]
                raise AssertionError(f"within {seconds:g} s the device must have {what}. It said:\n{log}")
            time.sleep(0.01)

    def ended(self, what: str) -> int:
        """Wait until the device's process has ended; its status."""
        process = self.process
        assert process is not None
        self.until(lambda: process.poll() is not None, what)
        return int(process.returncode)

    def reported(self, round: int, times: int = 1) -> None:
        """Wait until a round was reported so often."""
        self.until(lambda: len(self.coordinator.bits_of(round)) >= times, f"reported round {round}, {times} times")

    def events(self, kind: str) -> list[float]:
        """When work was started or ended."""
        text = self._events.read_text() if self._events.exists() else ""
        return [float(line.split()[0]) for line in text.splitlines() if line.endswith(f" {kind}")]
