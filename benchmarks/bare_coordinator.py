"""What a coordinator costs at the least: a bare ASGI application with held requests and one commit a round.

    python benchmarks/bare_coordinator.py DEVICES FILE PORT [calm]

It parses every report, holds it until all devices have reported, commits the round to SQLite, and answers all with the
same small JSON. It knows no device, checks nothing and decides nothing. It speaks the protocol, so that a fleet cannot
tell. `calm`: Python's garbage collector is set as our coordinator sets its own.
"""

import asyncio
import gc
import json
import secrets
import sqlite3
import sys

import uvicorn

OPTIONS = {"loop": "uvloop", "http": "httptools", "ws": "none", "lifespan": "off", "access_log": False}
OPTIONS |= {"log_level": "warning", "timeout_keep_alive": 120, "backlog": 65_535}
WELCOME = {"version": 1, "run": "bare", "weight": 1, "prior_average": 0.5, "prior_rounds": 10.0, "remember": None}
WELCOME |= {"by": "bit", "mechanism": {"kind": "clamp", "epsilon": 1.0}}
JSON = (b"content-type", b"application/json")


class Bare:
    """The application: one open round, and all who wait for it to close."""

    def __init__(self, devices, file):
        self.devices = devices
        self.books = sqlite3.connect(file, isolation_level=None)
        self.books.execute("PRAGMA journal_mode=WAL")
        self.books.execute("PRAGMA synchronous=FULL")
        self.books.execute("CREATE TABLE rounds (round INTEGER PRIMARY KEY, total INTEGER)")
        self.offer, self.here, self.total = {"round": 0, "signal": 1.0}, 0, 0
        self.closed, self.answer = asyncio.Event(), b""

    async def __call__(self, scope, receive, send):
        if scope["path"] == "/v1/report":
            status, reply = 200, await self.report(json.loads(await body(receive)))
        elif scope["path"] == "/v1/round":
            status, reply = 200, json.dumps({"run": "bare"} | self.offer).encode()
        else:
            await body(receive)
            told = WELCOME | {"offer": self.offer, "token": secrets.token_urlsafe(32)}
            status, reply = 201, json.dumps(told).encode()
        headers = [JSON, (b"content-length", b"%d" % len(reply))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": reply})

    async def report(self, said):
        closed = self.closed
        self.here, self.total = self.here + 1, self.total + said["participates"]
        if self.here < self.devices:
            await closed.wait()
        else:
            self.close()
        return self.answer

    def close(self):
        number = self.offer["round"]
        self.books.execute("INSERT INTO rounds VALUES (?, ?)", (number, self.total))  # a transaction by itself
        self.offer, self.here, self.total = {"round": number + 1, "signal": 1.0}, 0, 0
        told = {"round": number, "outcome": "accepted", "counted": True, "lease": 10.0, "next": self.offer}
        self.answer = json.dumps(told).encode()
        self.closed, closed = asyncio.Event(), self.closed
        closed.set()


async def body(receive):
    message = await receive()
    parts = message["body"]
    while message["more_body"]:
        message = await receive()
        parts += message["body"]
    return parts


def main(devices, file, port, calm):
    if calm:
        gc.collect()
        gc.freeze()
        gc.set_threshold(100_000, 20, 100)
    uvicorn.run(Bare(devices, file), port=port, **OPTIONS)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), "calm" in sys.argv)
