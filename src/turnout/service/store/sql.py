"""The methods of a store, in SQL that SQLite and PostgreSQL share; each adds its transactions."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from turnout.errors import invalid
from turnout.service import (
    HEAVIEST,
    MISSING,
    YES,
    ClosedRound,
    Codes,
    Position,
    RulesVersion,
    RulesVersions,
    Summary,
    differences,
)
from turnout.service.store import store
from turnout.service.store.schema import (
    COLUMNS,
    POSITION,
    Row,
    Tables,
    change_of,
    closed_of,
    closed_row,
    code_of,
    code_row,
    control_of,
    device_of,
    device_row,
    insertion,
    names_values,
    position_of,
    position_values,
    run_of,
    run_row,
    selection,
    version_of,
    version_row,
)
from turnout.service.store.store import (
    DRAINING,
    MODES,
    PAUSED,
    RUNNING,
    STOPPED,
    UNUSED,
    AlreadyBegun,
    Change,
    Code,
    Control,
    Device,
    Enrolment,
    Names,
    OtherTables,
    Run,
    StaleRound,
    StoreProblem,
    check_capacity,
)

_PAGE = 256  # closed rounds that are read at a time
_FIRST = 16  # closed rounds in which a device is searched

_NO_CODE = Code(b"", 0, -math.inf)  # for whoever asks with a code that was never made

T = TypeVar("T")


class SqlStore:
    """The methods of `turnout.service.store.store.Store` that need no more than a transaction.

    Attributes:
        place: where it is, for messages; without a password.
    """

    shared = False
    place: str

    def _write(self, work: Callable[[Tables], T], *, again: bool = False) -> T:
        """Carry out work as one transaction, with no other writer; `again`: it may be done twice without harm."""
        raise NotImplementedError

    def _read(self, work: Callable[[Tables], T]) -> T:
        """Carry out work on a snapshot of the store."""
        raise NotImplementedError

    def _take_time(self, tables: Tables) -> None:
        """This transaction waits for something else than the store: it is not ended for that."""

    def _check_version(self, tables: Tables, lock: str = "") -> None:
        """Check that no newer turnout has changed the tables; `lock` keeps other writers out."""
        found = tables.one(f"SELECT value FROM meta WHERE name = 'schema' {lock}")
        if found != (str(store.SCHEMA),):
            raise OtherTables(f"{self.place}: another turnout has changed the tables: start again with that version")

    def _codes(self, tables: Tables, codes: Sequence[bytes]) -> dict[bytes, Row]:
        """The rows of these codes that there are."""
        sql = selection("codes", "WHERE code = ?")
        return {code: row for code in codes if (row := tables.one(sql, code)) is not None}

    def begin(self, run: Run, position: Position, capacity: float) -> None:
        """Start the run, in mode RUNNING; refused if the store has one."""
        check_capacity(capacity)

        def work(tables: Tables) -> None:
            if tables.one("SELECT name FROM run"):
                raise AlreadyBegun(f"{self.place}: a run is stored here already: continue it, or give another place")
            tables.do(insertion("run"), *run_row(run))
            round, offered, controller, on, presence = position_values(position)
            tables.do(insertion("state"), 1, round, offered, controller, on, float(capacity), RUNNING, 0, presence)

        self._write(work)

    def run(self) -> Run | None:
        """The run; None before `begin`."""
        row = self._read(lambda tables: tables.one(selection("run")))
        return None if row is None else run_of(row)

    def position(self) -> Position:
        """Where the run stands."""
        return position_of(self._read(self._state))

    def control(self) -> Control:
        """What the operator has set."""
        return control_of(self._read(self._state))

    def change(self, who: str, *, capacity: float | None = None, mode: str | None = None) -> Control:
        """Set one of them or both; the log has the old and new values, or nothing if they are the same."""
        if capacity is not None:
            check_capacity(capacity, None)
        if mode is not None and mode not in MODES:
            raise invalid("mode", f"one of {', '.join(MODES)}", repr(mode), "'paused' closes no round until 'running'")

        def work(tables: Tables) -> Control:
            state = self._state(tables)
            old = control_of(state)
            if capacity is not None:
                self._check_limits(tables, capacity, position_of(state).round)
            new = replace(
                old,
                capacity=old.capacity if capacity is None else float(capacity),
                mode=mode or old.mode,
            )
            return self._set_control(tables, old, new, who)

        return self._write(work, again=True)

    def rules(self, after: int = 0) -> list[RulesVersion]:
        """The versions of the rules with a number above `after`, the oldest first; the first is the run's own."""
        return self._read(lambda tables: self._versions(tables, after))

    def change_rules(self, settings: Mapping[str, Any], after: int, who: str, since: int = 0) -> RulesVersion:
        """Make a new version of the rules; the audit log has what differs. The same settings change nothing.

        Raises:
            StoreProblem: somebody else has made a version since.
            ValueError: the hard limit would be below the capacity, or `wait_for` would change after the first round.
        """

        def work(tables: Tables) -> RulesVersion:
            state, newest = self._state(tables), self._versions(tables)[-1]
            changes = list(differences(newest.settings, settings))
            if not changes:
                return newest
            if newest.number != after:
                raise StoreProblem(f"{self.place}: the rules were changed meanwhile: look at them, and try again")
            if position_of(state).round > 0 and any(name == "wait_for" for name, _, _ in changes):
                has, wanted = newest.settings.get("wait_for"), settings.get("wait_for")
                remedy = "it holds until the first round closes, and never again: leave it as it is"
                raise invalid("wait_for", f"{has}, as the first round had it", wanted, remedy)
            first = max(position_of(state).round + 1, since)  # and those that are still to come never hold
            made = RulesVersion(newest.number + 1, first, dict(settings), time.time(), who)
            tables.do(insertion("rules"), *version_row(made))
            control = control_of(state)
            self._check_limits(tables, control.capacity, position_of(state).round)
            tables.do("UPDATE state SET revision = ?", control.revision + 1)
            told = ", ".join(f"{name} {_short(one)} -> {_short(other)}" for name, one, other in changes)
            _note(tables, who, "rules", f"version {made.number} from round {first} on: {told}")
            return made

        return self._write(work, again=True)

    def _versions(self, tables: Tables, after: int = 0) -> list[RulesVersion]:
        later = [version_of(row) for row in tables.all(selection("rules", "WHERE number > ? ORDER BY number"), after)]
        row = None if after else tables.one(selection("run"))
        if row is None:
            return later
        run = run_of(row)
        return [RulesVersion(1, 0, run.settings, run.begun_at, "run begun"), *later]

    def _check_limits(self, tables: Tables, capacity: float, round: int) -> None:
        """No capacity is above a hard limit that is in force, or will be."""
        versions = RulesVersions(self._versions(tables))
        coming = [version for version in versions.in_force(math.inf) if version.since > round]
        for version in (versions.at(round), *coming):
            limit = version.settings.get("safety", {}).get("hard_limit")
            if limit is not None and capacity > limit:
                where = f" from round {version.since} on" if version.since > round else ""
                remedy = "lower the one or raise the other: `turnout operate capacity`, `turnout operate rules`"
                raise invalid("capacity", f"at most the hard limit of {limit:g}{where}", f"{capacity:g}", remedy)

    def add_codes(
        self, codes: Sequence[bytes], weight: int, expires_at: float | None, who: str, names: Sequence[Names] = ()
    ) -> None:
        """Make one-time codes valid (by their hashes), with names for each or for none; the log has how many, of what
        weight.
        """
        if not isinstance(weight, int) or not 1 <= weight <= HEAVIEST:
            allowed = f"a whole number from 1 to {HEAVIEST:,}"
            raise invalid("weight", allowed, weight, "1, or what the device draws in watts")
        if names and len(names) != len(codes):
            raise invalid("names", f"one for each of the {len(codes)} codes", len(names), "give one for each, or none")
        names = [name.checked() for name in names]
        each = zip(codes, names or [Names()] * len(codes), strict=True)
        made = [Code(code, weight, expires_at, names=name) for code, name in each]

        def work(tables: Tables) -> None:
            self._state(tables)
            if self._codes(tables, codes) or len(set(codes)) < len(codes):
                raise StoreProblem(f"{self.place}: a code is there already: draw new ones, none of these was added")
            tables.many(insertion("codes"), map(code_row, made))
            _note(tables, who, "codes", f"{len(codes)} of weight {weight}{_named(names)}")

        self._write(work)

    def codes(self) -> list[Code]:
        """Every code that was ever made, by its hash."""
        return [code_of(row) for row in self._read(lambda tables: tables.all(selection("codes", "ORDER BY code")))]

    def void_code(self, code: bytes, who: str) -> Code:
        """The code is good for nobody any more; again, it changes nothing.

        Raises:
            ValueError: there is no such code, or a device has used it.
        """

        def work(tables: Tables) -> Code:
            self._state(tables)
            row = self._codes(tables, [code]).get(code)
            if row is None:
                raise invalid(
                    "code", "one of the store's", code.hex()[:12], "`turnout operate codes --list` lists them"
                )
            found = code_of(row)
            if found.slot is not None:
                got = f"{found.tag}, which device {found.slot} has used"
                raise invalid("code", "one that no device has used", got, f"`turnout operate revoke {found.slot}`")
            if found.voided_at is not None:
                return found
            voided = replace(found, voided_at=time.time())
            tables.do("UPDATE codes SET voided_at = ? WHERE code = ?", voided.voided_at, code)
            _note(tables, who, "voided", f"code {found.tag}{_named([found.names])}")
            return voided

        return self._write(work, again=True)

    def enrol(self, requests: Sequence[Enrolment], now: float) -> list[Device | None]:
        """Enrol many at once, with the names of their codes; None for a code that is unknown, expired, void, used with
        another nonce, or of who left.
        """

        def work(tables: Tables) -> list[Device | None]:
            state = self._state(tables)
            rows = self._codes(tables, [request.code for request in requests])
            known = {code: (code_of(row), row[3]) for code, row in rows.items()}
            count = tables.one("SELECT count(*) FROM devices") or (0,)
            slots, revision = count[0], control_of(state).revision
            changed: dict[int, Device] = {}
            enrolled: list[Device | None] = []
            for request in requests:
                code, nonce = known.get(request.code, (_NO_CODE, b""))
                device = None
                if code.state(now) == UNUSED:
                    joined = position_of(state).round
                    device = Device(slots, request.token, code.weight, joined, None, revision + 1, code.names)
                    known[request.code] = (replace(code, slot=slots), request.nonce)
                    slots += 1
                elif code.slot is not None and bytes(nonce) == request.nonce:
                    device = changed.get(code.slot) or self._device(tables, code.slot)
                    joined = position_of(state).round  # it never received its token: its history starts now
                    if device.token == request.token and self._was_heard(tables, device):
                        joined = device.joined  # it did: this is an old request, delivered again
                    again = replace(device, token=request.token, joined=joined, revision=revision + 1)
                    device = again if device.left is None else None
                if device:
                    changed[device.slot] = device
                    revision += 1
                enrolled.append(device)
            renew = (
                "ON CONFLICT (slot) DO UPDATE SET token = excluded.token, joined = excluded.joined, "
                "revision = excluded.revision"
            )
            tables.many(insertion("devices", renew), map(device_row, changed.values()))
            used = ((nonce, code.slot, code.code) for code, nonce in known.values() if code.slot in changed)
            tables.many("UPDATE codes SET nonce = ?, slot = ? WHERE code = ?", used)
            tables.do("UPDATE state SET revision = ?", revision)
            return enrolled

        return self._write(work, again=True)

    def devices(self, after: int = -1) -> list[Device]:
        """Those whose revision is above `after`, by slot."""
        sql = selection("devices", "WHERE revision > ? ORDER BY slot")
        return [device_of(row) for row in self._read(lambda tables: tables.all(sql, after))]

    def rename(
        self, slot: int, who: str, *, label: str | None = None, site: str | None = None, note: str | None = None
    ) -> Device:
        """Change what a device is called; the log has the old and new names, or nothing if they are the same.

        Raises:
            ValueError: there is no such device, or a name is too long or not plain text.
        """
        given = {"label": label, "site": site, "note": note}
        named = {name: text for name, text in given.items() if text is not None}

        def work(tables: Tables) -> Device:
            state, device = self._state(tables), self._device(tables, slot)
            old, new = device.names, replace(device.names, **named).checked()
            if new == old:
                return device
            renamed = replace(device, names=new, revision=control_of(state).revision + 1)
            sql = "UPDATE devices SET label = ?, site = ?, note = ?, revision = ? WHERE slot = ?"
            tables.do(sql, *names_values(new), renamed.revision, slot)
            tables.do("UPDATE state SET revision = ?", renamed.revision)
            pairs = ((name, getattr(old, name), getattr(new, name)) for name in given)
            changes = (f"{name} {was!r} -> {now!r}" for name, was, now in pairs if was != now)
            _note(tables, who, "renamed", f"device {slot}: {', '.join(changes)}")
            return renamed

        return self._write(work, again=True)

    def withdraw(self, slot: int, who: str, what: str, why: str = "") -> Device:
        """The device is no member from the open round on (`what`: "left", "revoked"); again, it changes nothing.
        The log also has why, in words.

        Raises:
            ValueError: there is no such device.
        """

        def work(tables: Tables) -> Device:
            state, device = self._state(tables), self._device(tables, slot)
            if device.left is not None:
                return device
            left = replace(device, left=position_of(state).round, revision=control_of(state).revision + 1)
            sql = "UPDATE devices SET left_in = ?, revision = ? WHERE slot = ?"
            tables.do(sql, left.left, left.revision, slot)
            tables.do("UPDATE state SET revision = ?", left.revision)
            _note(tables, who, what, f"device {slot}{f': {why}' if why else ''}{_named([device.names])}")
            return left

        return self._write(work, again=True)

    def merge(self, round: int, codes: Codes) -> Codes:
        """What it was given: only one coordinator uses such a store."""
        return codes

    def end_lead(self, silent: float) -> bool:
        """False: nobody else can lead such a store."""
        return False

    def close_round(self, closed: ClosedRound, position: Position) -> None:
        """Store the closed round and open the next, in one transaction. In mode DRAINING or STOPPED it becomes PAUSED.

        But if the operator stopped the run while the round was being closed with participants, the mode stays
        STOPPED, and holds for the next round.

        Raises:
            StaleRound: the round is not the open one.
        """
        self._write(lambda tables: self._close_round(tables, closed, position))

    def _close_round(self, tables: Tables, closed: ClosedRound, position: Position) -> None:
        if position.round != closed.round + 1:
            raise invalid("position", f"at round {closed.round + 1}", position.round, "give the one that `close` made")
        sql = f"UPDATE state SET {', '.join(f'{name} = ?' for name in POSITION)} WHERE round = ?"
        if not tables.do(sql, *position_values(position), int(closed.round)):
            raise StaleRound(
                f"{self.place}: the open round must be {closed.round}, got {position_of(self._state(tables)).round}: "
                "another coordinator has closed it; read the position again"
            )
        tables.do(insertion("books"), *closed_row(closed))
        control, acknowledged = control_of(self._state(tables)), bool((closed.codes == YES).any())
        if control.mode == DRAINING or (control.mode == STOPPED and not acknowledged):
            self._set_control(tables, control, replace(control, mode=PAUSED), "coordinator")

    def closed(self, round: int) -> ClosedRound | None:
        """A closed round."""
        row = self._read(lambda tables: tables.one(selection("books", "WHERE round = ?"), int(round)))
        return None if row is None else closed_of(row)

    def history(self, first: int = 0) -> Iterator[ClosedRound]:
        """The closed rounds from a round on, in order, a page at a time.

        Raises:
            StoreProblem: rounds that were still to be read have been trimmed meanwhile.
        """
        sql = selection("books", f"WHERE round >= ? ORDER BY round LIMIT {_PAGE}")
        page = self._read(partial(_page, sql=sql, first=first))
        while page:
            yield from map(closed_of, page)
            first = page[-1][0] + 1
            page = self._read(partial(_page, sql=sql, first=first))
            if page and page[0][0] != first:
                raise StoreProblem(f"{self.place}: rounds were trimmed while they were read: read them again")

    def snapshot(self, work: Callable[[store.Store], T]) -> T:
        """Carry out work that only reads: all that it reads is as it was at one time. It may be done more than once."""

        def read(tables: Tables) -> T:
            self._take_time(tables)
            return work(_Snapshot(self.place, tables))

        return self._read(read)

    def summary(self) -> Summary:
        """Of the closed rounds that are not stored any more."""
        return self._read(self._summary)

    def trim(self, summary: Summary, who: str) -> None:
        """Store the summary and delete the rounds before its first, in one transaction; the audit log has how many.

        Raises:
            StoreProblem: others have trimmed meanwhile, or these are not closed rounds.
        """

        def work(tables: Tables) -> None:
            before, first = self._summary(tables).first_kept, summary.first_kept
            if first == before:
                return  # done already, before the connection broke
            if summary.totals.get("rounds") != first or not before < first < position_of(self._state(tables)).round:
                raise StoreProblem(f"{self.place}: rounds were trimmed meanwhile: look, and try again")
            tables.do(insertion("trimmed"), first, time.time(), who, summary.pack())
            tables.do("DELETE FROM books WHERE round < ?", first)
            told = f"rounds {before} to {first - 1}: summed up, and deleted"
            _note(tables, who, "trimmed", told)

        self._write(work, again=True)

    def _summary(self, tables: Tables) -> Summary:
        row = tables.one("SELECT summary FROM trimmed ORDER BY first_kept DESC LIMIT 1")
        return Summary() if row is None else Summary.unpack(bytes(row[0]))

    def changes(self, first: int = 0) -> list[Change]:
        """The audit log from a line on; the first has number 0."""
        sql = selection("log", "WHERE line >= ? ORDER BY line")
        return [change_of(row) for row in self._read(lambda tables: tables.all(sql, first))]

    def pour(self, target: SqlStore, restored_by: str | None = None) -> None:
        """Copy a snapshot of everything into a store without a run; all of it or nothing.

        Args:
            target: where.
            restored_by: who restores the run: then it is paused, and the target's log has both.
        """

        def put(tables: Tables, copy: Tables) -> None:
            if copy.one("SELECT name FROM run"):
                raise StoreProblem(f"{target.place}: a run is stored here already: give a new place")
            for table in COLUMNS:
                copy.many(insertion(table), tables.stream(selection(table, "ORDER BY 1")))
            if restored_by:
                state = target._state(copy)
                _note(copy, restored_by, "restored", f"as of round {position_of(state).round}")
                control = control_of(state)
                target._set_control(copy, control, replace(control, mode=PAUSED), restored_by)

        def take(tables: Tables) -> None:
            self._take_time(tables)
            self._state(tables)
            target._write(lambda copy: put(tables, copy))

        self._read(take)

    def _state(self, tables: Tables) -> Row:
        row = tables.one(selection("state"))
        if row is None:
            raise StoreProblem(f"{self.place}: the store must hold a run, got an empty one: `turnout serve` begins one")
        return row

    def _device(self, tables: Tables, slot: int) -> Device:
        row = tables.one(selection("devices", "WHERE slot = ?"), slot)
        if row is None:
            raise invalid("slot", "a device's number", slot, "`turnout operate devices` lists them")
        return device_of(row)

    def _was_heard(self, tables: Tables, device: Device) -> bool:
        """Whether it has reported since it joined; a device that has its token does so in one of the first rounds."""
        if self._summary(tables).was_heard(device.slot, device.joined):
            return True
        rows = tables.all(selection("books", f"WHERE round >= ? ORDER BY round LIMIT {_FIRST}"), device.joined)
        return any(closed_of(row).code(device.slot) != MISSING for row in rows)

    def _set_control(self, tables: Tables, old: Control, new: Control, who: str) -> Control:
        if new == old:
            return old
        new = replace(new, revision=old.revision + 1)
        sql = "UPDATE state SET capacity = ?, mode = ?, revision = ?"
        tables.do(sql, new.capacity, new.mode, new.revision)
        if new.capacity != old.capacity:
            _note(tables, who, "capacity", f"{old.capacity:.15g} -> {new.capacity:.15g}")
        if new.mode != old.mode:
            _note(tables, who, "mode", f"{old.mode} -> {new.mode}")
        return new


class _Snapshot(SqlStore):
    """A store as it was at one time: within one transaction that reads."""

    def __init__(self, place: str, tables: Tables) -> None:
        self.place, self._tables = place, tables

    def _read(self, work: Callable[[Tables], T]) -> T:
        return work(self._tables)

    def _write(self, work: Callable[[Tables], T], *, again: bool = False) -> T:
        raise StoreProblem(f"{self.place}: a snapshot is only read: change the store itself")

    def lead(self) -> bool:
        return False

    def backup(self, path: Path) -> None:
        raise StoreProblem(f"{self.place}: a snapshot is only read: make the copy of the store itself")

    def close(self) -> None:
        """The store ends it."""


def _page(tables: Tables, sql: str, first: int) -> list[Row]:
    return tables.all(sql, first)


def _note(tables: Tables, who: str, what: str, detail: str) -> None:
    """Add a line to the audit log."""
    last = tables.one("SELECT max(line) FROM log")
    line = 0 if last is None or last[0] is None else last[0] + 1
    tables.do(insertion("log"), line, time.time(), who, what, detail)


def _short(value: object) -> str:
    """A setting in the audit log; a list is not written out."""
    if value is None:
        return "none"
    return (
        f"{value:g}" if isinstance(value, float) else f"{len(value)} numbers" if isinstance(value, list) else f"{value}"
    )


def _named(names: Sequence[Names]) -> str:
    """The names of codes or of a device, as the end of a line of the log.

    Example:
        >>> _named([Names("charger 4", "hall 2"), Names("charger 5", "hall 2")])
        ", labels 'charger 4' to 'charger 5', site 'hall 2'"
    """
    labels = [name.label for name in names if name.label]
    sites = sorted({name.site for name in names if name.site})
    called = (
        f", label {labels[0]!r}" if len(labels) == 1 else f", labels {labels[0]!r} to {labels[-1]!r}" if labels else ""
    )
    return called + (f", site {sites[0]!r}" if len(sites) == 1 else f", {len(sites)} sites" if sites else "")
