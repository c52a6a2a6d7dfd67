"""Where a run is stored: SQLite, or PostgreSQL for several coordinators.

A round is stored before it is acknowledged; `open_store` takes a path or an address.
"""

from turnout.service.store.backup import open_store, restore
from turnout.service.store.schema import SQLITE_TYPES, creation
from turnout.service.store.sql import SqlStore
from turnout.service.store.sqlite import SqliteStore, SqliteTables, back_up
from turnout.service.store.store import (
    CODE_STATES,
    LONGEST_NAME,
    MODES,
    PAUSED,
    RUNNING,
    SCHEMA,
    STOPPED,
    TAKEN,
    USUAL_HOURS,
    AlreadyBegun,
    Change,
    Code,
    Control,
    Device,
    Enrolment,
    Names,
    NotBegun,
    OtherTables,
    OutOfStep,
    Run,
    StaleRound,
    Store,
    StoreProblem,
    check_capacity,
)

__all__ = [
    "CODE_STATES",
    "LONGEST_NAME",
    "MODES",
    "PAUSED",
    "RUNNING",
    "SCHEMA",
    "SQLITE_TYPES",
    "STOPPED",
    "TAKEN",
    "USUAL_HOURS",
    "AlreadyBegun",
    "Change",
    "Code",
    "Control",
    "Device",
    "Enrolment",
    "Names",
    "NotBegun",
    "OtherTables",
    "OutOfStep",
    "Run",
    "SqlStore",
    "SqliteStore",
    "SqliteTables",
    "StaleRound",
    "Store",
    "StoreProblem",
    "back_up",
    "check_capacity",
    "creation",
    "open_store",
    "restore",
]


def __dir__() -> list[str]:
    return __all__
