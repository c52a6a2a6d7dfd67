"""The guard of the operator's listener alone, with a clock of its own: how often an address may guess."""

import asyncio
import base64
import json

import pytest

from service.fake_operated import PASSWORD, PASSWORD_HASH
from turnout.service.operator.guard import Guard


@pytest.fixture
def guess(monkeypatch):
    monkeypatch.setattr("turnout.service.operator.guard.matches", lambda password, stored: password == PASSWORD)
    now = [0.0]

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    guard = Guard(app, PASSWORD_HASH, clock=lambda: now[0])

    def guess(password, address="192.0.2.7", at=None):
        now[0] = now[0] if at is None else at
        credentials = base64.b64encode(f"operator:{password}".encode())
        headers = {b"host": b"localhost", b"authorization": b"Basic " + credentials}
        start, _ = asked(guard, "/", headers, address)
        return start["status"], dict(start["headers"]).get(b"retry-after")

    guess.guard = guard  # type: ignore[attr-defined]
    return guess


def asked(guard, path, headers, address="192.0.2.7"):
    """The messages of an answer."""
    scope = {"type": "http", "method": "GET", "path": path, "headers": list(headers.items()), "client": (address, 1)}
    said = []

    async def send(message):
        said.append(message)

    asyncio.run(guard(scope, None, send))
    return said


def test_guesses_come_back_slowly_and_addresses_are_apart(guess):
    assert [guess("wrong") for _ in range(8)] == [(401, None)] * 8
    assert guess("wrong") == (429, b"10")
    assert guess(PASSWORD) == (429, b"10")
    assert guess("wrong", "192.0.2.8") == (401, None)
    assert guess("wrong", at=10.5) == (401, None)
    assert guess("wrong") == (429, b"10")
    assert [guess("wrong", at=1000.0)[0] for _ in range(9)] == [401] * 8 + [429]


def test_right_passwords_cost_nothing(guess):
    assert [guess("wrong")[0] for _ in range(7)] == [401] * 7
    assert [guess(PASSWORD)[0] for _ in range(20)] == [200] * 20
    assert [guess("wrong")[0] for _ in range(2)] == [401, 429]


def test_wrong_passwords_and_lock_outs_are_logged_with_the_address_and_counted(guess, caplog):
    faults = []
    guess.guard.count = faults.append
    for second in range(4):
        for _ in range(3):
            guess("wrong", "192.0.2.7" if second < 3 else "192.0.2.8", at=2.0 * second)
    guess(PASSWORD, "192.0.2.9")
    said = [(record.levelname, record.message, record.turnout_fields) for record in caplog.records]
    wrong, out = "wrong password", "locked out after wrong passwords"
    assert said == [
        ("WARNING", wrong, {"address": "192.0.2.7", "times": 1}),
        ("WARNING", wrong, {"address": "192.0.2.7", "times": 3}),  # two of the seconds before, and this one
        ("WARNING", wrong, {"address": "192.0.2.7", "times": 3}),
        ("WARNING", out, {"address": "192.0.2.7", "times": 1}),
        ("WARNING", wrong, {"address": "192.0.2.8", "times": 2}),
    ]
    assert faults == [wrong] * 8 + [out] + [wrong] * 3


def test_health_is_told_under_any_name_and_nothing_else_is(guess):
    headers = {b"host": b"myserver:18461"}
    assert asked(guess.guard, "/healthz", headers)[0]["status"] == 200
    for path in ("/", "/metrics", "/healthz/", "/api/snapshot"):
        start, body = asked(guess.guard, path, headers)
        assert start["status"] == 400
        assert "--operator-name" in json.loads(body["body"])["message"]
