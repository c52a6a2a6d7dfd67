"""What an engine is, and the plain way to run rounds with one."""

from __future__ import annotations

from typing import Protocol

from turnout.simulation.book import Book
from turnout.simulation.crowd import Crowd, Newcomers
from turnout.simulation.keep import Keep
from turnout.simulation.measures import Measures, measure
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

    def welcome(self, newcomers: Newcomers, here: Newcomers) -> int:
        """Start the history of newcomers, as `Crowd.welcome`; returns what those bring who take part at once."""
        ...

    def measure(self, keep: Keep, status: Status | None) -> Measures:
        """Measure the clients for a checkpoint."""
        ...

    def gather(self) -> None:
        """Bring the clients' histories into `crowd.state`, from wherever the engine has them."""
        ...

    def close(self) -> None:
        """Give back what the engine holds: the run is over."""
        ...


class AtHome:
    """The part of an engine that moves `crowd.state` itself, where its histories always are."""

    crowd: Crowd

    def welcome(self, newcomers: Newcomers, here: Newcomers) -> int:
        """Start the history of newcomers; returns what those bring who take part at once."""
        return self.crowd.welcome(newcomers, here)

    def measure(self, keep: Keep, status: Status | None) -> Measures:
        """Measure the clients for a checkpoint."""
        return measure(keep, self.crowd.costs, self.crowd.state, status)

    def gather(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


def advance_by_passes(engine: Engine, book: Book, stop: int, most: int | None = None) -> None:
    """Run rounds up to `stop`: each pass draws all rounds whose signal is known, lag + 1 of them."""
    at_once = book.controller.lag + 1 if most is None else min(most, book.controller.lag + 1)
    while book.round < stop:
        first = book.round
        signals = [book.deciding(round) for round in range(first, min(first + at_once, stop))]
        for total in engine.draw(first, signals):
            book.enter(total)
