"""What a closed round says to the devices that reported it."""

from __future__ import annotations

from typing import NamedTuple


class Answered(NamedTuple):
    """A closed round in memory, ready to answer from.

    Attributes:
        codes: by slot.
        closed: when, on the coordinator's clock, at the latest a lie by being too early; None: nobody knows.
    """

    codes: bytes
    closed: float | None
