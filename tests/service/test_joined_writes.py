import asyncio

import pytest

from turnout.service.http.joined_writes import JoinedWrites


class Transport:
    """Takes down what is called; one entry is one packet."""

    def __init__(self):
        self.calls, self.closing = [], False

    def write(self, data):
        self.calls.append(data)

    def writelines(self, parts):
        self.calls.append(b"".join(parts))

    def close(self):
        self.closing = True

    def is_closing(self):
        return self.closing


@pytest.mark.parametrize(
    ("written", "packets"),
    [
        ([b"head", b"body"], [b"headbody"]),
        ([b"head"], [b"head"]),
        ([b"head", b"one", b"two"], [b"headone", b"two"]),
        ([b"head", b"", b"head", b"body"], [b"head", b"headbody"]),
    ],
)
def test_what_is_written_in_one_go_leaves_in_pairs_and_in_order(written, packets):
    async def main():
        transport = Transport()
        joined = JoinedWrites(transport, asyncio.get_running_loop())
        for data in written:
            joined.write(data)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return transport.calls

    assert asyncio.run(main()) == packets


def test_closing_sends_what_is_held_and_nothing_after():
    async def main():
        transport = Transport()
        joined = JoinedWrites(transport, asyncio.get_running_loop())
        joined.write(b"head")
        joined.close()
        assert transport.calls == [b"head"]
        assert joined.is_closing()
        joined.write(b"late")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert transport.calls == [b"head"]

    asyncio.run(main())
