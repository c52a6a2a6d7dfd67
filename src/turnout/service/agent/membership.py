"""What a device keeps about its enrolment: one small private file, written before anything is asked for.

And what can be read of it and of the ledger beside it, for `turnout join --status`.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from turnout.algorithm import MECHANISMS, Averaging, Mechanism, Prior
from turnout.client import DELTA, LEDGER, ROUNDS, has_reported, read_ledger, reports_on_file
from turnout.errors import FileProblem, invalid
from turnout.files import Disk, InUse, entries_of
from turnout.service import Proposal, ProtocolProblem, Welcome, read_json
from turnout.service.agent.work import MARKER, PROCESS_FILE, left_over

FILE, PENDING, LOCK = "agent.json", "enrolling.json", "agent.lock"
"""What a device keeps once it has enrolled, while it is asking, and while an agent runs."""


@dataclass(frozen=True)
class Membership:
    """An enrolment, asked for or made.

    Attributes:
        url: of the coordinator.
        code: the one-time code, to ask again with if the answer was lost.
        nonce: drawn once and stored before the first request: the same one again is the same device.
        welcome: the coordinator's answer; None as long as there is none.
        ledger: where the device's ledger is, if it is not in its folder.
        agreed: the version of the rules that it has agreed to since; None: that of the welcome.
    """

    url: str
    code: str = field(repr=False)
    nonce: str = field(repr=False)
    welcome: Welcome | None = None
    ledger: str = ""
    agreed: Proposal | None = None

    @property
    def proposed(self) -> Mapping[str, Any]:
        """The settings of the mechanism that this device has last agreed to, or is about to."""
        assert self.welcome is not None
        return self.welcome.mechanism if self.agreed is None else self.agreed.mechanism

    @property
    def rules(self) -> str:
        """The name of the version of the rules that they are from."""
        assert self.welcome is not None
        return (self.welcome if self.agreed is None else self.agreed).offer.rules

    @property
    def round_seconds(self) -> float | None:
        """The length of rounds by these rules, which says how long a number of reports lasts; None: it was not said."""
        assert self.welcome is not None
        newest = None if self.agreed is None else self.agreed.round_seconds
        return self.welcome.round_seconds if newest is None else newest

    @classmethod
    def load(cls, folder: Path, name: str = FILE) -> Self | None:
        """The one on file; None if there is none.

        Raises:
            FileProblem: the file cannot be read, or holds something else.
        """
        path = folder / name
        try:
            found = read_json(path.read_bytes())
            texts = [found[name] for name in ("url", "code", "nonce")]
            if not all(isinstance(text, str) for text in texts):
                raise ValueError("url, code and nonce must be texts")
            welcome = Welcome.read(found) if "run" in found else None
            agreed = Proposal.read(found["agreed"]) if "agreed" in found else None
            return cls(texts[0], texts[1], texts[2], welcome, str(found.get("ledger", "")), agreed)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, ProtocolProblem) as error:
            raise FileProblem(
                f"{path}: not the file of an enrolment ({error}): restore it, or remove it and enrol with a new code"
            ) from error

    def save(self, folder: Path, disk: Disk) -> None:
        """Put it on file, mode 0600; on return it is durable.

        Raises:
            FileProblem: it cannot be written.
        """
        path = folder / (PENDING if self.welcome is None else FILE)
        body: dict[str, Any] = {"url": self.url, "code": self.code, "nonce": self.nonce}
        body |= {"ledger": self.ledger} if self.ledger else {}
        if self.welcome is not None:
            body |= self.welcome.body()
        if self.agreed is not None:
            body["agreed"] = self.agreed.body()
        try:
            disk.put(path, json.dumps(body, indent=1).encode() + b"\n")
        except OSError as error:
            raise FileProblem(
                f"{path}: cannot be written ({error.strerror}): free space, or make the folder writable"
            ) from error

    def welcomed(self, welcome: Welcome) -> Self:
        """The same with its answer.

        Raises:
            ProtocolProblem: its prior or averaging are none that a history can start from.
        """
        made = replace(self, welcome=welcome)
        try:
            made.start()
        except ValueError as error:
            raise ProtocolProblem(f"the coordinator's welcome cannot be used: {error}") from None
        return made

    def start(self) -> tuple[Prior, Averaging]:
        """The public start of the device's history, and how it moves."""
        assert self.welcome is not None
        welcome = self.welcome
        return Prior(welcome.prior_average, welcome.prior_rounds), Averaging(welcome.remember, welcome.by)


def enrolled(folder: Path, url: str, code: str | None, ask: Callable[[str, str], Welcome], disk: Disk) -> Membership:
    """The enrolment on file, or a new one: what will be asked with is on file before it is asked.

    Args:
        folder: the device's.
        url: of the coordinator.
        code: the one-time code; None, or the one it enrolled with: continue. Another one: enrol again.
        ask: hands a code and a nonce in, and returns the welcome.
        disk: the durable steps.

    Raises:
        ValueError: it is not enrolled and there is no code, or it enrolled elsewhere.
    """
    known, pending = Membership.load(folder), Membership.load(folder, PENDING)
    if known is not None and (pending is None or pending.nonce == known.nonce) and code in (None, known.code):
        if known.url != url:
            remedy = f"give that one; if the coordinator has moved, correct url in {folder / FILE}"
            raise invalid("url", f"{known.url}, where this device has enrolled", url, remedy)
        return known
    if pending is None or code not in (None, pending.code) or pending.url != url:
        if code is None:
            raise invalid("code", "the one-time code of the operator", "none", "give --code, to enrol this device")
        pending = Membership(url, check_code(code), secrets.token_urlsafe(24))
        pending.save(folder, disk)
    made = pending.welcomed(ask(pending.code, pending.nonce))
    made.save(folder, disk)
    (folder / PENDING).unlink(missing_ok=True)
    return made


def make_folder(folder: str | Path) -> Path:
    """The device's folder, made with mode 0700 if it is missing.

    Raises:
        FileProblem: it cannot be.
    """
    path = Path(folder)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FileProblem(f"{path}: no such folder can be made ({error.strerror}): name another") from error
    return path


def check_code(code: str) -> str:
    """A one-time code as it was typed, without spaces around it.

    Raises:
        ProtocolProblem: no code can look like that.
    """
    code = code.strip()
    if not code:
        raise ProtocolProblem("the code must be the operator's, got an empty one: see that what should print it did")
    if not re.fullmatch(r"[\x21-\x7e]{4,200}", code):
        raise ProtocolProblem("the code must be 4 to 200 letters and digits: copy it as the operator gave it")
    return code


def take_folder(folder: Path) -> int:
    """Lock a folder for this agent; the lock lasts as long as the descriptor is open.

    Raises:
        InUse: another agent has it.
        FileProblem: it cannot be written.
    """
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise FileProblem(f"{folder / LOCK}: cannot be written ({error.strerror}): make it writable") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise InUse(f"{folder}: another agent runs in this folder: stop it, or name another folder") from None
    return lock


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
        found |= {"joined": welcome.offer.round, "round_seconds": membership.round_seconds}
        found |= {"uses_reports": not MECHANISMS.get(str(membership.proposed.get("kind")), Mechanism).releases_once}
        found |= {"rules": membership.rules, "mechanism": dict(membership.proposed)}
        found |= _rounds(folder / welcome.run / ROUNDS)
    working = _small(folder / MARKER)
    pid = left_over(folder / PROCESS_FILE)
    found |= {"working": None if working is None else working.get("round")}
    found |= {"process": None if pid is None else {"pid": pid}}
    facts = ledger_facts(path)
    return found | (facts if "ledger_problem" in facts else _older_ledger(folder, path) or facts)


def _older_ledger(folder: Path, ledger: Path) -> dict[str, Any]:
    """A ledger that counts fewer reports than the device's rounds hold is an older copy, whatever its witness says."""
    spending, limit, _ = read_ledger(ledger)
    made = reports_on_file(folder)
    if limit is None or made <= spending.spent:
        return {}
    told = (
        f"it counts {spending.spent:,} reports, and the rounds in {folder} hold {made:,}: an older copy of both files"
    )
    return {"ledger": str(ledger), "ledger_problem": told}


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
