"""The operator's lists of devices, sites and codes, a page at a time; and one device or code by what it is called.

They say who is here, never what a device decided.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from turnout.errors import invalid
from turnout.service import tag_of
from turnout.service.coordinator.enrolment import GONE_AFTER, LEFT, STATES, Roll, hashed
from turnout.service.store import CODE_STATES, LONGEST_NAME, Code, Device, Store

PAGE = 50
"""Devices or codes on a page."""

MOST_SITES = 500
"""On the page; the command line lists all."""

ALL = "all"
"""Of whatever state."""

_SHORTEST_TAG = 4  # characters: fewer would be found in the tags of too many devices
_NAMED = 10  # devices that a refusal lists

T = TypeVar("T")


def device_list(
    roll: Roll,
    *,
    state: str = ALL,
    number: int | None = None,
    site: str | None = None,
    search: str = "",
    page: int | None = 1,
) -> dict[str, Any]:
    """A page of the roll, by ascending number, and how many devices there are of each state.

    Args:
        roll: the devices.
        state: one of `turnout.service.coordinator.enrolment.STATES`, or `ALL`.
        number: only this device, if there is one.
        site: only those of this site; "" is of none.
        search: only those with this number, tag (or its first four characters or more), or with this text in their
            label or site; whichever it names exactly come first.
        page: from 1; beyond the last it is the last, since a list may have become shorter while it was read. None: all.

    Returns:
        `counts` by state, of all that number, site and search leave; `found`, how many of them have the state; `page`
        and `pages` of `size`; `devices` of this page, each with number, tag, label, site, note, weight, joined (its
        first round), left (the first round without it, or None), missed (rounds in a row without a report, or None if
        it left) and state.

    Raises:
        ValueError: there is no such state or page, or the search is longer than a name.

    Example:
        >>> device_list(Roll())["counts"]
        {'here': 0, 'gone': 0, 'left': 0}
    """
    _check_state(state, STATES)
    wanted = _wanted(search)
    ranks = {slot: _rank(roll[slot], wanted) for slot in range(len(roll)) if number in (None, slot)}
    states = {
        slot: roll.state(slot)
        for slot, rank in ranks.items()
        if rank is not None and (site is None or roll[slot].names.site == site)
    }
    counts = Counter(states.values())
    found = sorted((slot for slot, its in states.items() if state in (ALL, its)), key=lambda slot: (ranks[slot], slot))
    return {
        "counts": {name: counts[name] for name in STATES},
        **_paged("devices", found, page, lambda slot: _device_line(roll, slot, states[slot])),
    }


def site_list(roll: Roll) -> list[dict[str, Any]]:
    """Every site by name, with how many of its devices have each state; those of no site are the last, named "".

    Example:
        >>> site_list(Roll())
        []
    """
    counts = Counter((roll[slot].names.site, roll.state(slot)) for slot in range(len(roll)))
    sites = sorted({site for site, _ in counts}, key=lambda site: (not site, _folded(site), site))
    return [{"site": site} | {state: counts[site, state] for state in STATES} for site in sites]


def code_list(
    codes: Iterable[Code],
    now: float,
    *,
    state: str = ALL,
    site: str | None = None,
    search: str = "",
    page: int | None = 1,
) -> dict[str, Any]:
    """A page of the codes, the unused ones first, then by site and label; arguments and answer as of `device_list`.

    Args:
        codes: all of the store.
        now: the wall clock, which says what has expired.
        state: one of `turnout.service.store.CODE_STATES`, or `ALL`.
        site: only those for this site.
        search: the beginning of a tag, or a text in the label or site.
        page: from 1; None: all.

    Returns:
        As of `device_list`; `codes` each have tag, state, weight, expires_at (None: never), device (the number of the
        one that has used it, or None), label, site and note. Never the code itself, which nobody has.
    """
    _check_state(state, CODE_STATES)
    wanted, states = _wanted(search), {}
    for code in codes:
        in_names = any(wanted in _folded(text) for text in (code.names.label, code.names.site))
        if (site is None or code.names.site == site) and (not wanted or in_names or code.tag.startswith(wanted)):
            states[code] = code.state(now)
    counts = Counter(states.values())

    def order(code: Code) -> tuple[object, ...]:
        return CODE_STATES.index(states[code]), _folded(code.names.site), _folded(code.names.label), code.tag

    found = sorted((code for code, its in states.items() if state in (ALL, its)), key=order)
    return {
        "counts": {name: counts[name] for name in CODE_STATES},
        **_paged("codes", found, page, lambda code: _code_line(code, states[code])),
    }


def roll_of(store: Store) -> Roll:
    """The devices of a store, where no coordinator tells who is here: by its last closed rounds.

    Raises:
        StoreProblem: the store failed.
    """
    rounds = list(store.history(max(0, store.position().round - GONE_AFTER)))
    roll = Roll()
    roll.take(store.devices())  # after the rounds: so it has all devices that they have
    for closed in rounds:
        roll.note(closed.codes)
    return roll


def one_device(roll: Roll, called: str) -> Device:
    """The one device with this number, tag or label, whatever its case; of members, before those that have left.

    Raises:
        ValueError: there is none, or there are several, which are listed.

    Example:
        >>> one_device(Roll(), "charger 4")
        Traceback (most recent call last):
        ...
        ValueError: device must be the number, tag or label of one, got 'charger 4': see `turnout operate devices`
    """
    wanted, allowed = _folded(called), "the number, tag or label of one"
    everyone = [roll[slot] for slot in range(len(roll))]
    named = [device for device in everyone if wanted in _exact(device)]
    found = [device for device in named if device.left is None] or named
    if len(found) == 1:
        return found[0]
    if found:
        got = f"{called!r}, which {len(found)} devices have: {_told(map(_described, found))}"
        raise invalid("device", allowed, got, "give the tag, or the number, of the one that you mean")
    similar = [device for device in everyone if wanted and wanted in _folded(device.names.label)]
    if similar:
        raise invalid("device", allowed, repr(called), f"give the whole label: {_told(map(_described, similar))}")
    raise invalid("device", allowed, repr(called), "see `turnout operate devices`")


def one_code(codes: Sequence[Code], called: str) -> Code:
    """The one code with this tag or label, or the code itself; an unused one before used and void ones.

    Raises:
        ValueError: there is none, or there are several, which are listed.

    Example:
        >>> one_code([], "charger 4")
        Traceback (most recent call last):
        ...
        ValueError: code must be a tag, a label or the code itself, got 'charger 4': see `turnout operate codes --list`
    """
    allowed, remedy = "a tag, a label or the code itself", "see `turnout operate codes --list`"
    wanted, itself = _folded(called), hashed(called.strip())
    named = [code for code in codes if itself == code.code or wanted in (code.tag, _folded(code.names.label) or None)]
    found = [code for code in named if code.slot is None and code.voided_at is None] or named
    if len(found) == 1:
        return found[0]
    if not found:
        got = repr(called) if len(called) <= LONGEST_NAME["label"] else f"{len(called)} characters"
        raise invalid("code", allowed, got, remedy)
    many = _told(f"{code.tag} ({code.names.label!r}{_at(code.names.site)})" for code in found)
    raise invalid("code", allowed, f"{called!r}, which {len(found)} codes have: {many}", "give the tag of one")


def _check_state(state: str, states: Sequence[str]) -> None:
    if state not in (ALL, *states):
        raise invalid("state", f"one of {', '.join((ALL, *states))}", repr(state[:20]), "use one of these")


def _wanted(search: str) -> str:
    """What is searched for, as names are compared."""
    if len(search) > LONGEST_NAME["label"]:
        allowed = f"of at most {LONGEST_NAME['label']} characters"
        raise invalid("search", allowed, len(search), "give a part of a label or site, a tag or a number")
    return _folded(search)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip().casefold()


def _exact(device: Device) -> tuple[str, ...]:
    """What names a device alone, as far as the operator has taken care."""
    label = _folded(device.names.label)
    return (str(device.slot), tag_of(device.token), *([label] if label else []))


def _rank(device: Device, wanted: str) -> int | None:
    """0: it is named so; 1: a part of its label, site or tag is; None: it is not searched for."""
    if not wanted or wanted in _exact(device):
        return 0
    has_tag = len(wanted) >= _SHORTEST_TAG and tag_of(device.token).startswith(wanted)
    return 1 if has_tag or wanted in _folded(device.names.label) or wanted in _folded(device.names.site) else None


def _paged(name: str, found: Sequence[T], page: int | None, line: Any) -> dict[str, Any]:
    """A page of what was found, and where it is."""
    if page is not None and page < 1:
        raise invalid("page", "1 or more", page, "begin with page 1")
    size = max(1, len(found)) if page is None else PAGE
    pages = max(1, -(-len(found) // size))
    page = min(page or 1, pages)
    shown = [line(one) for one in found[size * (page - 1) : size * page]]
    return {"found": len(found), "page": page, "pages": pages, "size": size, name: shown}


def _device_line(roll: Roll, slot: int, state: str) -> dict[str, Any]:
    device = roll[slot]
    line = {"number": slot, "tag": tag_of(device.token), **asdict(device.names), "weight": device.weight}
    missed = None if state == LEFT else roll.missed[slot]
    return line | {"joined": device.joined, "left": device.left, "missed": missed, "state": state}


def _code_line(code: Code, state: str) -> dict[str, Any]:
    line = {"tag": code.tag, "state": state, "weight": code.weight, "expires_at": code.expires_at}
    return line | {"device": code.slot, **asdict(code.names)}


def _described(device: Device) -> str:
    label = f"{device.names.label!r}, " if device.names.label else ""
    return f"device {device.slot} ({label}tag {tag_of(device.token)}{_at(device.names.site)})"


def _at(site: str) -> str:
    return f", site {site!r}" if site else ""


def _told(many: Iterable[str]) -> str:
    said = list(many)
    return ", ".join(said[:_NAMED]) + (f", and {len(said) - _NAMED} more" if len(said) > _NAMED else "")
