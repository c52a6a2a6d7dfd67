"""What a ledger's file tells without being opened: for a look at it, and before anything is asked of anybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from turnout.errors import FileProblem
from turnout.privacy.journal import Disk, Head, entries_of
from turnout.privacy.limit import Limit, read_limit
from turnout.privacy.spending import Spending
from turnout.privacy.witness import Witness


def read_ledger(path: Path) -> tuple[Spending, Limit | None, str]:
    """(what a ledger's lines add up to, what it allows, what is wrong with it). No lock is taken.

    There is no limit if there is no ledger; nothing is wrong: an empty text.
    """
    spending, limit, head, place = Spending(), None, Head(), ""
    for entry in entries_of(path):
        spending.take(entry)
        head, place = Head(entry["number"], entry["hash"]), place_in(entry) or place
        if isinstance(entry.get("limit"), dict):
            limit = read_limit(entry["limit"], limit)
    if limit is None:
        return spending, None, ""
    try:
        note = Witness(Path(place), path, Disk()).read()
    except FileProblem as problem:
        return spending, limit, str(problem)
    if note is None:
        return spending, limit, f"no witness at {place}: an older copy could not be told"
    behind = note.head.number - head.number
    return spending, limit, f"{behind} entries behind its witness {place}: an older copy, or damaged" * (behind > 0)


def limit_with(path: Path, given: Mapping[str, Any], usual: Limit) -> Limit:
    """What a client's owner allows: what is given now, and else as the ledger has it, or else as usual.

    Example:
        >>> limit_with(Path("no such ledger"), {"reports": 20, "epsilon_per_report": None}, Limit(1000, 1.0))
        Limit(reports=20, epsilon_per_report=1.0, releases=1, epsilon_per_release=1.0)
    """
    changes = {name: value for name, value in given.items() if value is not None}
    _, before, _ = read_ledger(path)
    if before is None and "epsilon_per_report" in changes:
        changes = {"epsilon_per_release": None} | changes  # then as per report, unless given
    return replace(before or usual, **changes)


def place_in(entry: Mapping[str, Any]) -> str:
    """Where an entry says that the witness is; ledgers of older turnouts say it in another word."""
    told = entry.get("place") or (entry.get("witness") if entry["entry"] == "opened" else "")
    return str(told or "")


def last_place(entries: Sequence[Mapping[str, Any]]) -> str:
    """Where the last entry that says so has it; empty if none does."""
    return next((told for entry in reversed(entries) if (told := place_in(entry))), "")
