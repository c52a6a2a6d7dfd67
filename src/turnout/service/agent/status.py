"""Where a device stands, read from its files alone: no lock is taken, the agent may run meanwhile."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from turnout.errors import FileProblem
from turnout.privacy.ledger import Limit
from turnout.service.agent.command_work import left_over
from turnout.service.agent.lease import MARKER
from turnout.service.agent.membership import LOCK, PENDING, Membership

LEDGER, ROUNDS = "ledger.jsonl", "rounds.jsonl"


def read_status(folder: str | Path) -> dict[str, Any]:
    """A device's state for its own user: no cost, no intent, no probability.

    Raises:
        FileProblem: there is no device in this folder.
    """
    folder = Path(folder)
    membership = Membership.load(folder) if folder.is_dir() else None
    waiting = (folder / PENDING).exists()
    if membership is None and not waiting:
        raise FileProblem(f"{folder}: no device has joined from here: turnout join URL --folder {folder}")
    found: dict[str, Any] = {"folder": str(folder), "enrolled": membership is not None, "running": _locked(folder)}
    if membership is not None and membership.welcome is not None:
        welcome = membership.welcome
        found |= {"url": membership.url, "run": welcome.run, "tag": welcome.tag, "weight": welcome.weight}
        found |= {"joined": welcome.offer.round}
        found |= {"mechanism": dict(welcome.mechanism)} | _rounds(folder / welcome.run / ROUNDS)
    working = _small(folder / MARKER)
    found |= {"working": None if working is None else working.get("round"), "process": left_over(folder)}
    return found | ledger_facts(folder)


def ledger_facts(folder: Path) -> dict[str, Any]:
    """The ledger's limit and what is spent, or nothing if there is no ledger."""
    spent, limit = 0, None
    for entry in _lines(folder / LEDGER):
        if entry.get("entry") == "reserved":
            spent += 1
        elif entry.get("entry") == "missing":
            spent += int(entry["reports"])
        if isinstance(entry.get("limit"), dict):
            limit = entry["limit"]
    if limit is None:
        return {}
    return {
        "reports_spent": spent,
        "limit_reports": int(limit["reports"]),
        "limit_epsilon_per_report": float(limit["epsilon_per_report"]),
    }


def known_limit(folder: Path) -> Limit | None:
    """What the ledger in a folder allows; None if there is none."""
    facts = ledger_facts(folder)
    return Limit(facts["limit_reports"], facts["limit_epsilon_per_report"]) if facts else None


def _rounds(path: Path) -> dict[str, Any]:
    decided: dict[int, bool] = {}
    counted: dict[int, Any] = {}
    lost, stopped = 0, None
    for entry in _lines(path):
        if entry.get("entry") == "decided":
            decided[entry["round"]], counted[entry["round"]] = entry["participates"], entry["counted"]
            lost += entry["kind"] == "lost"
        elif entry.get("entry") == "acknowledged":
            counted[entry["round"]] = entry["counted"]
        elif entry.get("entry") == "stopped":
            stopped = entry["round"]
    last = max(decided, default=None)
    return {
        "last_round": last,
        "participates": None if last is None else decided[last],
        "acknowledged": None if last is None else counted[last],
        "rounds_on_file": len(decided),
        "participations_on_file": sum(bit and counted[round] is True for round, bit in decided.items()),
        "lost_rounds": lost,
        "stopped_at": stopped,
    }


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole entries of a journal that may be growing."""
    try:
        with open(path, "rb") as file:
            for line in file:
                try:
                    entry = json.loads(line)
                except ValueError:
                    return
                if isinstance(entry, dict):
                    yield entry
    except OSError:
        return


def _small(path: Path) -> dict[str, Any] | None:
    return next(_lines(path), None)


def _locked(folder: Path) -> bool | None:
    """Whether an agent holds the folder's lock, as the system tells it; None where it does not."""
    try:
        status = os.stat(folder / LOCK)
        table = Path("/proc/locks").read_text()
    except FileNotFoundError as error:
        return None if "locks" in str(error.filename) else False
    except OSError:
        return None
    return any("FLOCK" in line and f":{status.st_ino} " in line for line in table.splitlines())
