"""What the coordinator stores, and the interface of its stores."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from turnout.errors import TurnoutError, invalid
from turnout.service import ClosedRound, Codes, Position, RulesVersion, Summary

Result = TypeVar("Result")

SCHEMA = 2
"""The version of the tables; an older store is brought up to it on opening, a newer one is refused."""

RUNNING, DRAINING, PAUSED, STOPPED = "running", "draining", "paused", "stopped"
MODES = (RUNNING, DRAINING, PAUSED, STOPPED)
"""Rounds close; the open one closes, then paused; none closes; the open one is closed at once with nobody
acknowledged, then none closes."""

TAKEN = "another coordinator has this store: stop it first, or use PostgreSQL for several"

USUAL_HOURS = 24.0
"""How long new one-time codes are valid, by default."""


class StoreProblem(TurnoutError):
    """The store cannot be read or written, is in use by another process, or of a newer version.

    Example:
        >>> issubclass(StoreProblem, TurnoutError)
        True
    """


class NotBegun(StoreProblem):
    """There is no store, or no run in it: perhaps not yet, if `turnout serve` is just making it.

    Example:
        >>> issubclass(NotBegun, StoreProblem)
        True
    """


class AlreadyBegun(StoreProblem):
    """There is a run in the store, perhaps since a moment ago.

    Example:
        >>> issubclass(AlreadyBegun, StoreProblem)
        True
    """


class OtherTables(StoreProblem):
    """Another version of turnout has changed the tables: this process must end, and start with that version.

    Example:
        >>> issubclass(OtherTables, StoreProblem)
        True
    """


class OutOfStep(StoreProblem):
    """What this process knows of the run is not what the store has: it must end, and start again.

    Example:
        >>> issubclass(OutOfStep, StoreProblem)
        True
    """


class StaleRound(StoreProblem):
    """The round is not the open one any more: another process has closed it. Nothing was written.

    Example:
        >>> issubclass(StaleRound, StoreProblem)
        True
    """


@dataclass(frozen=True)
class Run:
    """What a store is about; it never changes.

    Attributes:
        name: of the run.
        settings: the rules that it began with, as `Rules.settings` gives them; `Store.rules` has the later versions.
        begun_at: the wall clock, seconds since 1970.
    """

    name: str
    settings: Mapping[str, Any]
    begun_at: float


@dataclass(frozen=True)
class Control:
    """What the operator may change while it runs.

    Attributes:
        capacity: the turnout that is needed in each round.
        mode: one of `MODES`.
        revision: increased by every change of these or of a device.
    """

    capacity: float
    mode: str
    revision: int


def check_capacity(capacity: float, hard_limit: float | None = None) -> None:
    """Refuse a capacity that no run can have, at its beginning and later.

    Raises:
        ValueError: it is not above 0, or above the hard limit.

    Example:
        >>> check_capacity(4.0, hard_limit=3.0)
        Traceback (most recent call last):
        ...
        ValueError: capacity must be at most the hard limit of 3, got 4: give a lower capacity, or a higher hard limit
    """
    if not 0.0 < capacity < math.inf:
        raise invalid("capacity", "above 0 and finite", capacity, "give the turnout that is needed in each round")
    if hard_limit is not None and capacity > hard_limit:
        remedy = "give a lower capacity, or a higher hard limit"
        raise invalid("capacity", f"at most the hard limit of {hard_limit:g}", f"{capacity:g}", remedy)


LONGEST_NAME = {"label": 60, "site": 60, "note": 200}
"""Characters of each of a device's names, at most."""


@dataclass(frozen=True)
class Names:
    """What the operator calls a device: plain text, in one line, without spaces around it.

    Args:
        label: such as "charger 4"; two devices may have the same.
        site: where it is.
        note: anything else.

    Example:
        >>> Names(" charger 4 ", site="hall 2").checked()
        Names(label='charger 4', site='hall 2', note='')
        >>> Names("two\\nlines").checked()
        Traceback (most recent call last):
        ...
        ValueError: label must be of printed characters alone, got 'two\\nlines': write it in one line of plain text
    """

    label: str = ""
    site: str = ""
    note: str = ""

    def checked(self) -> Names:
        """The same as a store accepts it; what it has stored is not checked again.

        Raises:
            ValueError: one is too long, or has characters that are not printed.
        """
        found = {}
        for name, value in asdict(self).items():
            text = unicodedata.normalize("NFC", value).strip()
            if not text.isprintable():
                remedy = "write it in one line of plain text"
                raise invalid(name, "of printed characters alone", repr(text[:80]), remedy)
            if len(text) > LONGEST_NAME[name]:
                remedy = "shorten it, or put the rest into the note" if name != "note" else "shorten it"
                raise invalid(name, f"of at most {LONGEST_NAME[name]} characters", f"{len(text)}", remedy)
            found[name] = text
        return Names(**found)


UNUSED, USED, EXPIRED, VOID = CODE_STATES = "unused", "used", "expired", "void"
"""What a code can be: good for one device, used by one, too old, or voided by the operator."""


@dataclass(frozen=True)
class Code:
    """A one-time code; nobody has the code itself any more.

    Attributes:
        code: its SHA-256.
        weight: of the device that enrols with it.
        expires_at: the wall clock, seconds since 1970; None: never.
        slot: the device that has used it, or None.
        voided_at: when the operator voided it, or None.
        names: that the device gets.
    """

    code: bytes
    weight: int
    expires_at: float | None
    slot: int | None = None
    voided_at: float | None = None
    names: Names = Names()

    @property
    def tag(self) -> str:
        """The first twelve letters and digits of its hash: by these it is listed and voided."""
        return self.code.hex()[:12]

    def state(self, now: float) -> str:
        """One of `CODE_STATES`, at this wall clock."""
        if self.slot is not None:
            return USED
        if self.voided_at is not None:
            return VOID
        return UNUSED if self.expires_at is None or now < self.expires_at else EXPIRED


@dataclass(frozen=True)
class Device:
    """A device that has enrolled.

    Attributes:
        slot: its number in the run, from 0; given once.
        token: the SHA-256 of its token.
        weight: how much it adds to the turnout.
        joined: the round that was open when it enrolled: its first.
        left: the round that was open when it left or was revoked: the first without it; None: a member.
        revision: of its last change.
        names: what the operator calls it.
    """

    slot: int
    token: bytes
    weight: int
    joined: int
    left: int | None
    revision: int
    names: Names = Names()


@dataclass(frozen=True)
class Enrolment:
    """A device's request to join; all hashed, SHA-256.

    Attributes:
        code: the one-time code.
        nonce: the device's own secret. A second request with the same code and nonce gets the new token in place of
            the old, and joins again, since the first answer may have been lost; unless the token is the same and has
            been used: then it is an old request, delivered again. A second request with the code alone is refused.
        token: the token that it will have.
    """

    code: bytes
    nonce: bytes
    token: bytes


@dataclass(frozen=True)
class Change:
    """A line of the audit log; lines are only added, never changed.

    Attributes:
        at: the wall clock, seconds since 1970.
        who: such as "operator page" or "command line".
        what: such as "capacity" or "revoked".
        detail: such as "600 -> 400" or "device 17".
    """

    at: float
    who: str
    what: str
    detail: str


class Store(Protocol):
    """Where a run is stored. Every method is one transaction: on return it is durable, on an error nothing has changed.

    Calls come from one thread at a time. `shared` stores serve several coordinators at once; there, reports
    are put together by `merge`, and only the one that leads closes rounds.

    Raises:
        StoreProblem: from every method, if the store fails; the message says why and what to do.

    Example:
        >>> from turnout.service.store import SqliteStore
        >>> SqliteStore.shared
        False
    """

    shared: bool

    def begin(self, run: Run, position: Position, capacity: float) -> None:
        """Start the run, in mode RUNNING; refused if the store has one."""
        ...

    def run(self) -> Run | None:
        """The run; None before `begin`."""
        ...

    def position(self) -> Position:
        """Where the run stands."""
        ...

    def control(self) -> Control:
        """What the operator has set."""
        ...

    def change(self, who: str, *, capacity: float | None = None, mode: str | None = None) -> Control:
        """Set one of them or both; the audit log has the old and new values."""
        ...

    def rules(self, after: int = 0) -> list[RulesVersion]:
        """The versions of the rules with a number above `after`, the oldest first; the first is the run's own."""
        ...

    def change_rules(self, settings: Mapping[str, Any], after: int, who: str, since: int = 0) -> RulesVersion:
        """Make a new version of the rules; the audit log has what differs. The same settings change nothing.

        Args:
            settings: all of them, as `Rules.settings` gives them.
            after: the number of the newest version, which these were made from.
            who: for the audit log.
            since: the first round under it; at least the one after the open one.

        Returns:
            The newest version.

        Raises:
            StoreProblem: somebody else has made a version since.
            ValueError: the hard limit would be below the capacity.
        """
        ...

    def add_codes(
        self, codes: Sequence[bytes], weight: int, expires_at: float | None, who: str, names: Sequence[Names] = ()
    ) -> None:
        """Make one-time codes valid (by their hashes), with names for each or for none; the log has how many, of what
        weight.
        """
        ...

    def codes(self) -> list[Code]:
        """Every code that was ever made, by its hash."""
        ...

    def void_code(self, code: bytes, who: str) -> Code:
        """The code is good for nobody any more; again, it changes nothing. A used one is refused."""
        ...

    def enrol(self, requests: Sequence[Enrolment], now: float) -> list[Device | None]:
        """Enrol many at once, with the names of their codes; None for a code that is unknown, expired, void, or used
        with another nonce.
        """
        ...

    def devices(self, after: int = -1) -> list[Device]:
        """Those whose revision is above `after`, by slot."""
        ...

    def rename(
        self, slot: int, who: str, *, label: str | None = None, site: str | None = None, note: str | None = None
    ) -> Device:
        """Change what a device is called; the audit log has the old and new names."""
        ...

    def withdraw(self, slot: int, who: str, what: str, why: str = "") -> Device:
        """The device is no member from the open round on (`what`: "left", "revoked"); again, it changes nothing.
        The log also has why, in words."""
        ...

    def merge(self, round: int, codes: Codes) -> Codes:
        """Add these reports (MISSING, NO or YES by slot) to those of other coordinators and return all; the first
        report of a device counts. A store that is not shared returns what it was given.
        """
        ...

    def close_round(self, closed: ClosedRound, position: Position) -> None:
        """Store the closed round and open the next, in one transaction. In mode DRAINING or STOPPED it becomes PAUSED;
        STOPPED stays if the round has participants: the operator's stop was too late for it.

        Raises:
            StaleRound: the round is not the open one.
        """
        ...

    def closed(self, round: int) -> ClosedRound | None:
        """A closed round."""
        ...

    def history(self, first: int = 0) -> Iterator[ClosedRound]:
        """The closed rounds from a round on, in order; a `StoreProblem` if those that follow are trimmed meanwhile."""
        ...

    def snapshot(self, work: Callable[[Store], Result]) -> Result:
        """Carry out work that only reads: all that it reads is as it was at one time. It may be done more than once."""
        ...

    def summary(self) -> Summary:
        """Of the closed rounds that are not stored any more."""
        ...

    def trim(self, summary: Summary, who: str) -> None:
        """Store the summary and delete the rounds before its first, in one transaction; the audit log has how many.

        Raises:
            StoreProblem: others have trimmed meanwhile, or these are not closed rounds.
        """
        ...

    def changes(self, first: int = 0) -> list[Change]:
        """The audit log from a line on; lines are numbered from 0, without gaps."""
        ...

    def lead(self) -> bool:
        """Whether this process is the one that closes rounds; if no process does, it tries to."""
        ...

    def end_lead(self, silent: float) -> bool:
        """Take the lead from a process that has not asked for it for so many seconds; whether there was one."""
        ...

    def backup(self, path: Path) -> None:
        """A complete copy in one new file, while it runs."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...
