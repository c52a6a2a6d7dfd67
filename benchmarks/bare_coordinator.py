"""What a coordinator costs at the least: a bare ASGI application with held requests and one commit a round.

    python benchmarks/bare_coordinator.py DEVICES PORT FILE

It parses every report, holds it until all devices have reported, commits the round to SQLite, and answers all with the
same small JSON. It knows no device, checks nothing and decides nothing; it speaks the protocol, so that a fleet
cannot tell.
"""

import asyncio
import gc
import json
import secrets
import sqlite3
import sys

import uvicorn

OPTIONS = {"loop": "uvloop", "http": "httptools", "access_log": False, "log_level": "warning", "lifespan": "off"}
MORE = {"timeout_keep_alive": 120, "backlog": 16384, "ws": "none"}
WELCOME = {"version": 1, "run": "bare", "weight": 1, "prior_average": 0.5, "prior_rounds": 10.0, "remember": None}
WELCOME |= {"by": "bit", "mechanism": {"kind": "paper-coin", "beta": 3.5}}


def application(devices, file):
    """An ASGI application for so many devices, with its books in a file."""
    books = sqlite3.connect(file, isolation_level=None)
    books.execute("PRAGMA journal_mode=WAL")
    books.execute("PRAGMA synchronous=FULL")
    books.execute("CREATE TABLE IF NOT EXISTS rounds (round INTEGER PRIMARY KEY, total INTEGER)")
    round, here, total, closed = 0, 0, 0, asyncio.Event()
    answer = b""

    async def body(receive):
        parts, more = b"", True
        while more:
            message = await receive()
            parts, more = parts + message.get("body", b""), message.get("more_body", False)
        return json.loads(parts)

    async def report(receive):
        nonlocal round, here, total, closed, answer
        said, until = await body(receive), closed
        here, total = here + 1, total + bool(said["participates"])
        if here == devices:
            with books:
                books.execute("INSERT INTO rounds VALUES (?, ?)", (round, total))
            following = {"round": round + 1, "signal": 1.0}
            told = {"round": round, "outcome": "accepted", "counted": True, "lease": 10.0, "next": following}
            answer = json.dumps(told).encode()
            round, here, total, closed = round + 1, 0, 0, asyncio.Event()
            until.set()
        else:
            await until.wait()
        return answer

    async def answering(scope, receive, send):
        if scope["path"] == "/v1/report":
            status, reply = 200, await report(receive)
        else:
            await body(receive)
            offer = {"offer": {"round": round, "signal": 1.0}}
            status, reply = 201, json.dumps(WELCOME | offer | {"token": secrets.token_urlsafe(32)}).encode()
        length = (b"content-length", b"%d" % len(reply))
        headers = [(b"content-type", b"application/json"), length]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": reply})

    return answering


def calm_collector():
    """As our coordinator has it: thousands of held requests are no garbage, and looking through them is most of the work."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


if __name__ == "__main__":
    if "--calm" in sys.argv:
        calm_collector()
    uvicorn.run(application(int(sys.argv[1]), sys.argv[3]), port=int(sys.argv[2]), **OPTIONS, **MORE)
