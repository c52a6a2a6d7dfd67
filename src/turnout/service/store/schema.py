"""The tables of a store, alike in SQLite and PostgreSQL; their versions; their rows as records and back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from turnout.service import ClosedRound, Position, RulesVersion, pack_codes, unpack_codes
from turnout.service.store.store import Change, Code, Control, Device, Names, Run, StoreProblem

Row = tuple[Any, ...]

NAMES = ("label", "site", "note")

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "run": {"one": "INTEGER PRIMARY KEY CHECK (one = 1)", "name": "TEXT", "settings": "TEXT", "begun_at": "REAL"},
    "state": {
        "one": "INTEGER PRIMARY KEY CHECK (one = 1)",
        "round": "WHOLE",
        "offered": "REAL",
        "controller": "TEXT",
        "switched_on": "BYTES",
        "capacity": "REAL",
        "mode": "TEXT",
        "revision": "WHOLE",
        "presence": "BYTES NULL",
    },
    "devices": {
        "slot": "INTEGER PRIMARY KEY",
        "token": "BYTES",
        "weight": "WHOLE",
        "joined": "WHOLE",
        "left_in": "WHOLE NULL",
        "revision": "WHOLE",
        **dict.fromkeys(NAMES, "TEXT"),
    },
    "codes": {
        "code": "BYTES PRIMARY KEY",
        "weight": "WHOLE",
        "expires_at": "REAL NULL",
        "nonce": "BYTES NULL",
        "slot": "WHOLE NULL",
        "voided_at": "REAL NULL",
        **dict.fromkeys(NAMES, "TEXT"),
    },
    "books": {
        "round": "INTEGER PRIMARY KEY",
        "signal": "REAL",
        "capacity": "REAL",
        "slots": "WHOLE",
        "codes": "BYTES",
        "participants": "WHOLE",
        "demand": "WHOLE",
        "members": "WHOLE",
        "heard": "WHOLE",
        "frozen": "WHOLE",
        "seconds": "REAL",
        "closed_at": "REAL",
        "expected": "WHOLE NULL",
        "beyond_reach": "WHOLE NULL",
    },
    "log": {"line": "INTEGER PRIMARY KEY", "at": "REAL", "who": "TEXT", "what": "TEXT", "detail": "TEXT"},
    "rules": {"number": "INTEGER PRIMARY KEY", "since": "WHOLE", "settings": "TEXT", "at": "REAL", "who": "TEXT"},
    "trimmed": {"first_kept": "INTEGER PRIMARY KEY", "at": "REAL", "who": "TEXT", "summary": "BYTES"},
}
"""Every table with its columns; nothing is NULL unless it says so. A copy of a run is a copy of these.

`rules` has the versions after the first, which is in `run`. A row of `trimmed` sums up the closed rounds before
`first_kept`, which are deleted in the same transaction."""

ADDED_TO = {"books": "round", "log": "line", "rules": "number", "trimmed": "first_kept"}
"""Tables that are only ever added to, and their keys: the database itself refuses to change or delete their rows. Of
`books` alone, those rounds may be deleted that a row of `trimmed` sums up."""

SQLITE_TYPES = {"WHOLE": "INTEGER", "BYTES": "BLOB", "REAL": "REAL"}
POSTGRES_TYPES = {"WHOLE": "BIGINT", "BYTES": "BYTEA", "REAL": "DOUBLE PRECISION", "INTEGER": "BIGINT"}

MIGRATIONS: dict[int, Sequence[str]] = {
    1: [
        "ALTER TABLE state ADD COLUMN presence BYTES",
        "ALTER TABLE books ADD COLUMN expected WHOLE",
        "ALTER TABLE books ADD COLUMN beyond_reach WHOLE",
        *(
            f"ALTER TABLE {table} ADD COLUMN {name} TEXT NOT NULL DEFAULT ''"
            for table in ("devices", "codes")
            for name in NAMES
        ),
        "ALTER TABLE codes ADD COLUMN voided_at REAL",
        "CREATE TABLE rules (number INTEGER PRIMARY KEY, since WHOLE NOT NULL, settings TEXT NOT NULL, "
        "at REAL NOT NULL, who TEXT NOT NULL)",
        "CREATE TABLE trimmed (first_kept INTEGER PRIMARY KEY, at REAL NOT NULL, who TEXT NOT NULL, "
        "summary BYTES NOT NULL)",
    ],
}
"""Statements that bring version v to v + 1, by v; `WHOLE`, `BYTES` and `REAL` stand for the database's own types."""


class Tables(Protocol):
    """The tables within one transaction; `?` stands for a value in both databases."""

    def all(self, sql: str, *values: object) -> list[Row]:
        """Every row of a query."""
        ...

    def one(self, sql: str, *values: object) -> Row | None:
        """The first row of a query."""
        ...

    def do(self, sql: str, *values: object) -> int:
        """Carry out a statement; how many rows it changed."""
        ...

    def many(self, sql: str, rows: Iterable[Row]) -> None:
        """Carry out a statement once for each row."""
        ...

    def stream(self, sql: str) -> Iterator[Row]:
        """The rows of a query that may be larger than memory."""
        ...


def _spelt(sql: str, types: Mapping[str, str]) -> str:
    """A statement with the database's own names of the types.

    Example:
        >>> _spelt("ALTER TABLE log ADD COLUMN host BYTES", SQLITE_TYPES)
        'ALTER TABLE log ADD COLUMN host BLOB'
    """
    return re.sub(r"[A-Z]+", lambda word: types.get(word[0], word[0]), sql)


def creation(types: Mapping[str, str]) -> list[str]:
    """The statements that make the tables, without the triggers, which differ by database."""
    statements = ["CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)"]
    for table, columns in COLUMNS.items():
        parts = (
            f"{name} {kind}" + ("" if "NULL" in kind or "KEY" in kind else " NOT NULL")
            for name, kind in columns.items()
        )
        statements.append(_spelt(f"CREATE TABLE {table} ({', '.join(parts)})", types))
    return [*statements, "CREATE INDEX devices_by_revision ON devices (revision)"]


def insertion(table: str, also: str = "") -> str:
    """The statement that adds a row with all columns."""
    columns = COLUMNS[table]
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))}) {also}"


def selection(table: str, rest: str = "") -> str:
    """The query for all columns."""
    return f"SELECT {', '.join(COLUMNS[table])} FROM {table} {rest}"


def migrate(
    tables: Tables,
    found: int,
    wanted: int,
    types: Mapping[str, str],
    place: str,
    triggers: Mapping[int, Sequence[str]] | None = None,
) -> None:
    """Bring the tables from the version found to the one wanted, within the transaction that found it.

    Args:
        tables: of the store.
        found, wanted: the versions.
        types: the database's own names of the types.
        place: for messages.
        triggers: statements that follow `MIGRATIONS`, by version: triggers differ by database.

    Raises:
        StoreProblem: they are of a newer version, or of one from which no way leads.
    """
    if found > wanted:
        raise StoreProblem(
            f"{place}: the store's version must be at most {wanted}, got {found}: it is newer than this turnout; update"
        )
    for version in range(found, wanted):
        if version not in MIGRATIONS:
            raise StoreProblem(f"{place}: version {version} cannot be changed to {wanted}: use the turnout of its time")
        for statement in MIGRATIONS[version]:
            tables.do(_spelt(statement, types))
        for statement in (triggers or {}).get(version, ()):
            tables.do(statement)
    if found != wanted:
        tables.do("UPDATE meta SET value = ? WHERE name = 'schema'", str(wanted))


def run_row(run: Run) -> Row:
    """For table `run`."""
    return (1, run.name, json.dumps(dict(run.settings)), float(run.begun_at))


def run_of(row: Row) -> Run:
    """From table `run`."""
    return Run(row[1], json.loads(row[2]), row[3])


POSITION = ("round", "offered", "controller", "switched_on", "presence")
"""The columns of table `state` that a closed round changes."""


def position_values(position: Position) -> Row:
    """The columns `POSITION`."""
    controller = {name: float(value) for name, value in position.controller.items()}
    packed = bytes(position.on), bytes(position.presence)
    return (int(position.round), float(position.offered), json.dumps(controller), *packed)


def position_of(state: Row) -> Position:
    """From table `state`."""
    return Position(state[1], state[2], json.loads(state[3]), bytes(state[4]), bytes(state[8] or b""))


def control_of(state: Row) -> Control:
    """From table `state`."""
    return Control(state[5], state[6], state[7])


def device_of(row: Row) -> Device:
    """From table `devices`."""
    slot, token, weight, joined, left, revision, *names = row
    return Device(slot, bytes(token), weight, joined, left, revision, Names(*names))


def device_row(device: Device) -> Row:
    """For table `devices`."""
    fixed = (device.slot, device.token, device.weight, device.joined, device.left, device.revision)
    return (*fixed, *names_values(device.names))


def names_values(names: Names) -> Row:
    """The columns `NAMES`."""
    return (names.label, names.site, names.note)


def code_of(row: Row) -> Code:
    """From table `codes`; the nonce stays there."""
    code, weight, expires_at, _, slot, voided_at, *names = row
    return Code(bytes(code), weight, expires_at, slot, voided_at, Names(*names))


def code_row(code: Code, nonce: bytes | None = None) -> Row:
    """For table `codes`."""
    return (code.code, code.weight, code.expires_at, nonce, code.slot, code.voided_at, *names_values(code.names))


def closed_row(closed: ClosedRound) -> Row:
    """For table `books`; four slots per byte."""
    return (
        int(closed.round),
        float(closed.signal),
        float(closed.capacity),
        len(closed.codes),
        pack_codes(closed.codes),
        int(closed.participants),
        int(closed.demand),
        int(closed.members),
        int(closed.heard),
        int(closed.frozen),
        float(closed.seconds),
        float(closed.closed_at),
        int(closed.expected),
        int(closed.beyond_reach),
    )


def closed_of(row: Row) -> ClosedRound:
    """From table `books`."""
    round, signal, capacity, slots, packed, participants, demand, members, heard, frozen, *rest = row
    seconds, closed_at, expected, beyond_reach = rest
    codes = unpack_codes(bytes(packed), slots)
    counts, seen = (participants, demand, members, heard), (int(expected or 0), bool(beyond_reach))
    return ClosedRound(round, signal, capacity, codes, *counts, bool(frozen), seconds, closed_at, *seen)


def version_of(row: Row) -> RulesVersion:
    """From table `rules`."""
    number, since, settings, at, who = row
    return RulesVersion(number, since, json.loads(settings), at, who)


def version_row(version: RulesVersion) -> Row:
    """For table `rules`."""
    return (version.number, version.since, json.dumps(dict(version.settings)), float(version.at), version.who)


def change_of(row: Row) -> Change:
    """From table `log`."""
    return Change(*row[1:])
