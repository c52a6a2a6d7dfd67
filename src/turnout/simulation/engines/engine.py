"""What an engine is, and the plain way to run rounds with one."""

from __future__ import annotations

from typing import Protocol

from turnout.simulation.book import Book
from turnout.simulation.schedule import Status


class Engine(Protocol):
    """Moves a crowd through rounds. Every engine gives identical results."""

    name: str

    def enter(self, status: Status | None) -> None:
        """Prepare for rounds in which each client has this status; None: all PRESENT."""
        ...

    def draw(self, round: int, signals: list[float]) -> list[int]:
        """Decide rounds `round`, `round + 1`, … by these signals; returns what came in each."""
        ...

    def advance(self, book: Book, stop: int) -> None:
        """Run all rounds up to `stop` with the server in the loop."""
        ...


def advance_by_passes(engine: Engine, book: Book, stop: int, most: int | None = None) -> None:
    """Run rounds up to `stop`: each pass draws all rounds whose signal is known, lag + 1 of them."""
    at_once = book.controller.lag + 1 if most is None else min(most, book.controller.lag + 1)
    while book.round < stop:
        first = book.round
        signals = [book.deciding(round) for round in range(first, min(first + at_once, stop))]
        for total in engine.draw(first, signals):
            book.enter(total)
