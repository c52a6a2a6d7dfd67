"""Where a device stands, read from its files alone: no lock is taken, the agent may run meanwhile."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from turnout.client.durable import LEDGER, ROUNDS, has_reported
from turnout.errors import FileProblem
from turnout.privacy.journal import entries_of
from turnout.privacy.ledger import DELTA
from turnout.privacy.ledger_file import read_ledger
from turnout.service.agent.command_work import left_over
from turnout.service.agent.lease import MARKER
from turnout.service.agent.membership import LOCK, PENDING, Membership


def read_status(folder: str | Path, ledger: str | Path | None = None) -> dict[str, Any]:
    """A device's state for its own user: no cost, no intent, no probability.

    Args:
        folder: the device's.
        ledger: the file, if it is not in the folder.

    Raises:
        FileProblem: there is no device in this folder.
    """
    folder = Path(folder)
    membership = Membership.load(folder) if folder.is_dir() else None
    waiting = (folder / PENDING).exists()
    path = ledger_of(folder, ledger)
    if membership is None and not waiting and path.exists():  # such as a Flower client's
        return {"folder": str(folder), "enrolled": False, "running": None} | ledger_facts(path)
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
    return found | ledger_facts(path)


def ledger_of(folder: Path, given: str | Path | None = None) -> Path:
    """Where the ledger of the device in a folder is: as given, as the folder has it, or in it."""
    known = Membership.load(folder) if folder.is_dir() else None
    return Path(given or (known.ledger if known is not None else "") or folder / LEDGER)


def ledger_facts(path: Path) -> dict[str, Any]:
    """What a ledger allows and what is spent, from its lines; or nothing if there is no ledger."""
    spending, limit, problem = read_ledger(path)
    if limit is None:
        return {"ledger_problem": "there is none, though this device has reported"} if has_reported(path.parent) else {}
    if problem:
        return {"ledger": str(path), "ledger_problem": problem}
    total = spending.total(DELTA)
    return {
        "ledger": str(path),
        "reports_spent": spending.spent,
        "releases_made": len(spending.releases),
        "total_epsilon": total.epsilon,
        "delta": total.delta,
        "account": repr(total),
        "assumptions": list(total.assumptions),
        "limit_reports": limit.reports,
        "limit_epsilon_per_report": limit.epsilon_per_report,
        "limit_releases": limit.releases,
        "limit_epsilon_per_release": limit.for_release,
    }


def _rounds(path: Path) -> dict[str, Any]:
    decided: dict[int, bool] = {}
    counted: dict[int, Any] = {}
    lost, stopped = 0, None
    for entry in entries_of(path):
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


def _small(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


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
