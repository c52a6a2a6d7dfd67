"""The devices as their operator reads them: a page at a time, of one state, or one by its number.

Whether a device has been heard lately is here; what it said, its token and its history are not.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from turnout.errors import invalid
from turnout.service.coordinator.roll import LEFT, STATES, Roll
from turnout.service.protocol import tag_of

PAGE = 50
"""Devices on a page."""

ALL = "all"
"""Of whatever state."""


def device_list(roll: Roll, *, state: str = ALL, number: int | None = None, page: int = 1) -> dict[str, Any]:
    """A page of the roll, by ascending number, and how many devices there are of each state.

    Args:
        roll: the devices.
        state: one of `turnout.service.coordinator.roll.STATES`, or `ALL`.
        number: only this device, if there is one.
        page: from 1; beyond the last it is the last, since a list may have become shorter while it was read.

    Returns:
        `counts` by state, of all devices; `found`, how many are asked for; `page` and `pages` of `size`;
        `devices` of this page, each with slot, tag, weight, joined (its first round), left (the first round without
        it, or None), missed (rounds in a row without a report, or None if it left) and state.

    Raises:
        ValueError: there is no such state or page.

    Example:
        >>> device_list(Roll())["counts"]
        {'here': 0, 'gone': 0, 'left': 0}
    """
    if state not in (ALL, *STATES):
        raise invalid("state", f"one of {', '.join((ALL, *STATES))}", repr(state[:20]), "use one of these")
    if page < 1:
        raise invalid("page", "1 or more", page, "begin with page 1")
    states = [roll.state(slot) for slot in range(len(roll))]
    counts = Counter(states)
    found = [slot for slot, its in enumerate(states) if state in (ALL, its) and number in (None, slot)]
    pages = max(1, -(-len(found) // PAGE))
    page = min(page, pages)
    return {
        "counts": {name: counts[name] for name in STATES},
        "found": len(found),
        "page": page,
        "pages": pages,
        "size": PAGE,
        "devices": [_line(roll, slot, states[slot]) for slot in found[PAGE * (page - 1) : PAGE * page]],
    }


def _line(roll: Roll, slot: int, state: str) -> dict[str, Any]:
    device = roll[slot]
    line = {"slot": slot, "tag": tag_of(device.token), "weight": device.weight, "joined": device.joined}
    return line | {"left": device.left, "missed": None if state == LEFT else roll.missed[slot], "state": state}
