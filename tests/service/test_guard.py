"""The guard of the operator's listener alone, with a clock of its own: how often an address may guess."""

import asyncio
import base64

import pytest

from service.fake_operated import PASSWORD, PASSWORD_HASH
from turnout.service.operator.guard import Guard


@pytest.fixture
def guess(monkeypatch):
    monkeypatch.setattr("turnout.service.operator.guard.matches", lambda password, stored: password == PASSWORD)
    now = [0.0]

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    guard = Guard(app, PASSWORD_HASH, clock=lambda: now[0])

    def guess(password, address="192.0.2.7", at=None):
        now[0] = now[0] if at is None else at
        credentials = base64.b64encode(f"operator:{password}".encode())
        headers = [(b"host", b"localhost"), (b"authorization", b"Basic " + credentials)]
        scope = {"type": "http", "method": "GET", "path": "/", "headers": headers, "client": (address, 1)}
        said = []

        async def send(message):
            said.append(message)

        asyncio.run(guard(scope, None, send))
        return said[0]["status"], dict(said[0]["headers"]).get(b"retry-after")

    return guess


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
