"""Fewer, larger packets: the head and the body of an answer in one."""

from __future__ import annotations

import asyncio
from typing import Any


class JoinedWrites(asyncio.Transport):
    """A transport for answers: what is written in one go leaves as one packet, so that head and body need one call.

    Args:
        transport: the connection's.
        loop: its loop.
    """

    __slots__ = ("_held", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport, self._loop = transport, loop
        self._held: bytes | None = None

    def write(self, data: Any) -> None:
        """Hold this until the next one comes, or until the application lets go of the loop."""
        held = self._held
        if held is None:
            self._held = data
            self._loop.call_soon(self.flush)
        else:
            self._held = None
            # Not writelines: in some releases of Python 3.12 and 3.13 it forgets to pause an application whose client
            # does not read.
            self._transport.write(b"".join((held, data)))

    def flush(self) -> None:
        """Send what is held, if there is still somebody."""
        held, self._held = self._held, None
        if held is not None and not self._transport.is_closing():
            self._transport.write(held)

    def close(self) -> None:
        """Send what is held, then close."""
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether the connection is at its end."""
        return self._transport.is_closing()
