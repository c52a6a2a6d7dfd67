"""Whether a mechanism can bring the capacity: checked before a run begins, where the fleet's size is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from turnout.algorithm import Clamp, Mechanism, widest
from turnout.errors import invalid
from turnout.service import Log, rules_from_settings
from turnout.settings import Table

ROOM = 0.1
"""The room that a box needs on both sides of the capacity, in parts of what it can bring: some devices are away."""

log = Log("coordinator")


def for_a_new_run(given: Mapping[str, Any], capacity: float) -> dict[str, Any]:
    """The settings of a new run: with a hard limit or without one on purpose, and a box that brings the capacity.

    Where the fleet's size is given (`devices`, and `weight`, which is the mean weight of a device) and the box of
    `Clamp` is too far from capacity / devices, it is centred there, unless a centre is given too. Any other mechanism
    that cannot bring the capacity is refused.

    Args:
        given: settings as `rules_from_settings` takes them.
        capacity: what is needed.

    Raises:
        ValueError: the hard limit is missing, or no signal can bring the capacity.
    """
    table = Table(given)
    devices, weight = table.whole("devices", None), table.number("weight", 1.0)
    rules = rules_from_settings(Table(given))  # what is wrong with them comes first
    if "hard_limit" not in given.get("safety", {}):
        remedy = (
            f"give the largest turnout that does no harm, above {capacity:g}: at the end of an outage, or in a fault, "
            "the turnout exceeds the capacity for some rounds, and nothing else stops it; `--hard-limit none` accepts "
            "that"
        )
        raise invalid("--hard-limit (safety.hard_limit in a file)", "a number, or none", "nothing", remedy)
    if devices is None:
        return dict(given)
    if devices < 1 or not weight > 0.0:
        got = f"{devices} of weight {weight:g}"
        raise invalid("--devices", "1 or more, of a weight above 0", got, "give how many the fleet will have")
    most = devices * weight
    if capacity > most:
        whole = f"at most {most:g}, all {devices:,} devices together"
        raise invalid("--capacity", whole, capacity, "need less, or plan for more --devices (or a larger --weight)")
    mechanism, share = rules.mechanism, capacity / most
    if _brings(mechanism, share, ROOM):
        return dict(given)
    if isinstance(mechanism, Clamp) and "center" not in given.get("mechanism", {}):
        center = float(f"{share:.2g}")
        if center < 1.0 and _brings(replace(mechanism, center=center), share, 0.0):
            settings = replace(mechanism, center=center).settings()
            log.info("the box is centred on capacity / devices, which devices learn", center=center, devices=devices)
            return {**given, "mechanism": settings}
    if not _brings(mechanism, share, 0.0):
        raise invalid("--capacity", *_unreachable(mechanism, capacity, devices, weight))
    return dict(given)


def _brings(mechanism: Mechanism, share: float, room: float) -> bool:
    """Whether some signal brings that share of the whole fleet, with room on both sides (but none above everyone)."""
    low, high = (float(chance) for chance in widest(mechanism))
    return low * (1.0 + room) < share and (share <= high * (1.0 - room) or high >= 1.0)


def _unreachable(mechanism: Mechanism, capacity: float, devices: int, weight: float) -> tuple[str, str, str]:
    """(the allowed range, what was given, the remedy): as a share of the fleet and in units."""
    low, high = (float(chance) for chance in widest(mechanism))
    most = devices * weight
    allowed = (
        f"from {low * most:.4g} to {high * most:.4g} ({100 * low:.3g} to {100 * high:.3g} % of {devices:,} devices"
        f"{'' if weight == 1.0 else f' of weight {weight:g}'}), which is what {mechanism.in_words()} can bring"
    )
    remedy = "change the capacity or the number of devices, or take the mechanism of "
    remedy += f"`turnout plan --devices {devices} --capacity {capacity:g}`"
    return allowed, f"{capacity:g} ({100 * capacity / most:.3g} %)", remedy


def fitting_fleet(mechanism: Mechanism, capacity: float) -> str:
    """Which fleets can bring the capacity with this mechanism, in words.

    Example:
        >>> fitting_fleet(Clamp(1.0), 120.0)
        'a turnout of 120 is within reach of fleets of 165 to 446 (the sum of their weights)'
        >>> from turnout.algorithm import Memoized
        >>> fitting_fleet(Memoized(6.0, price=3.0), 120.0)
        'a turnout of 120 is within reach of fleets of 120 or more (the sum of their weights)'
    """
    low, high = (float(chance) for chance in widest(mechanism))
    least = -(-capacity // high)
    sizes = f"{least:g} or more" if low <= 0.0 else f"{least:g} to {max(least, capacity // low):g}"
    return f"a turnout of {capacity:g} is within reach of fleets of {sizes} (the sum of their weights)"
