"""How much memory is there: what does not fit is refused before it starts."""

from __future__ import annotations

import os
from pathlib import Path

from turnout.errors import invalid


def free_memory() -> int | None:
    """Bytes that this machine can still give; None where it does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def check_room(what: str, needed: int, there: int | None, where: str, remedy: str) -> None:
    """Refuse what needs more bytes than there are.

    Example:
        >>> check_room("10 clients", 3 * 2**30, 2**30, "on the device", "use fewer")
        Traceback (most recent call last):
        ...
        ValueError: 10 clients must be at most 1.0 GiB (what is free on the device), got 3.0 GiB: use fewer
    """
    if there is not None and needed > there:
        allowed = f"at most {there / 2**30:,.1f} GiB (what is free {where})"
        raise invalid(what, allowed, f"{needed / 2**30:,.1f} GiB", remedy)
