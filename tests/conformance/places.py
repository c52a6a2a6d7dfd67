"""Where the suite of the stores finds new stores of each kind, and what it writes into them."""

import sqlite3
from pathlib import Path

import numpy as np

from service.postgres import server
from turnout.service import NO, YES, ClosedRound, Position
from turnout.service.store import schema, store
from turnout.service.store.backup import open_store
from turnout.service.store.store import Enrolment, Run

RUN = Run("chargers", {"mechanism": {"kind": "clamp", "epsilon": 1.0}, "wait_for": 3}, 1234.5)
START = Position(0, 0.35, {"signal": 0.35, "gain": 1e-300}, b"")


class Places:
    """New locations of one kind, and what was opened there."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder, self.count, self.opened = kind, folder, 0, []

    def new(self) -> str:
        self.count += 1
        return str(self.folder / f"run-{self.count}.db") if self.kind == "sqlite" else server().database()

    def open(self, location: str, create: bool = False) -> store.Store:
        opened = open_store(location, create=create)
        self.opened.append(opened)
        return opened

    def begun(self, location: str | None = None, capacity: float = 600.0) -> store.Store:
        opened = self.open(location or self.new(), create=True)
        opened.begin(RUN, START, capacity)
        return opened

    def sql(self, location: str, statement: str) -> list[tuple]:
        """What somebody does who opens the database by hand."""
        if self.kind != "sqlite":
            return server().sql(location, statement.replace("main.", "turnout."))
        connection = sqlite3.connect(location, isolation_level=None)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()


def hashed(number: int) -> bytes:
    return number.to_bytes(32, "big")


def request(code: int, nonce: int = 0, token: int = 0) -> Enrolment:
    return Enrolment(hashed(code), hashed(1000 + nonce), hashed(2000 + token))


def codes(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint8)


def closed(round: int, reports: np.ndarray) -> ClosedRound:
    return ClosedRound(round, 0.4, 600.0, reports, 3, 4, 5, 6, False, 9.5, 1e9)


def after(round: int) -> Position:
    return Position(round + 1, 0.5, {"signal": 0.6}, b"\x81")


def close(kept: store.Store, rounds: int = 1) -> None:
    for _ in range(rounds):
        round = kept.position().round
        kept.close_round(closed(round, codes(YES, NO)), after(round))


def same(one: ClosedRound | None, other: ClosedRound) -> bool:
    return one is not None and schema.closed_row(one) == schema.closed_row(other) and one.codes.dtype == np.uint8


def everything(kept: store.Store) -> tuple:
    books = [schema.closed_row(row) for row in kept.history()]
    return kept.run(), kept.position(), kept.control(), kept.devices(), books, kept.changes()
