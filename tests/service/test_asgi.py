import asyncio

import pytest

from turnout.service.http.asgi import NO_STORE, read_body, send_json


def receiver(*messages):
    left = iter(messages)

    async def receive():
        return next(left)

    return receive


def part(body, more=True):
    return {"type": "http.request", "body": body, "more_body": more}


GONE = {"type": "http.disconnect"}


@pytest.mark.parametrize(
    ("messages", "body"),
    [
        ([part(b"12345", False)], b"12345"),
        ([{"type": "http.request"}], b""),
        ([part(b"123456", False)], None),
        ([part(b"12"), part(b"34"), part(b"5", False)], b"12345"),
        ([part(b"12"), part(b"34"), part(b"56", False)], None),
        ([part(b"12"), part(b"3456")], None),  # and no more is read
        ([part(b""), part(b""), {"type": "http.request", "body": b""}], b""),
        ([GONE], None),
        ([part(b"12"), GONE], None),
    ],
)
def test_a_body_is_read_up_to_its_bound(messages, body):
    assert asyncio.run(read_body(receiver(*messages), 5)) == body


@pytest.mark.parametrize("length", [0, 2, 1023, 1024, 100_000])
def test_an_answer_says_its_type_and_length(length):
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(send_json(send, 200, b"x" * length, (NO_STORE,)))
    start, body = sent
    headers = dict(start["headers"])
    assert (start["type"], start["status"]) == ("http.response.start", 200)
    assert headers[b"content-length"] == str(length).encode()
    assert headers[b"content-type"] == b"application/json"
    assert headers[b"cache-control"] == b"no-store"
    assert body == {"type": "http.response.body", "body": b"x" * length}
