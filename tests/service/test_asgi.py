import asyncio
import time

import pytest

from turnout.service.http.asgi import NO_STORE, BodyReader, send_json


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
    async def main():
        return await BodyReader(5).read(receiver(*messages))

    assert asyncio.run(main()) == body


@pytest.mark.parametrize("first", [None, part(b"12")])
def test_a_body_that_does_not_arrive_in_time_is_given_up_and_the_task_goes_on(first):
    async def main():
        reader, parts = BodyReader(5, seconds=0.05), [first] if first else []

        async def receive():
            if parts:
                return parts.pop()
            await asyncio.Event().wait()

        begun = time.monotonic()
        slow = asyncio.create_task(reader.read(receive))
        quick = await reader.read(receiver(part(b"123", False)))
        found = await asyncio.wait_for(slow, 20)
        assert 0.05 <= time.monotonic() - begun < 10
        assert not slow.cancelled()
        await asyncio.sleep(0.1)
        assert reader._timer is None  # nobody to look after: no timer
        return quick, found

    assert asyncio.run(main()) == (b"123", None)


def test_a_server_that_ends_cancels_the_reading():
    async def main():
        reading = asyncio.create_task(BodyReader(5).read(asyncio.Event().wait))
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
        return reading.cancelled()

    assert asyncio.run(main())


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
