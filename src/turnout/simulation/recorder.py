"""Collects checkpoints while a run goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.simulation.keep import Keep
from turnout.simulation.measures import Measures


@dataclass
class Recorder:
    """Collects checkpoints while a run goes on."""

    keep: Keep
    rounds: list[int] = field(default_factory=list)
    rows: dict[str, list[Any]] = field(default_factory=dict)

    def is_due(self, round: int) -> bool:
        """Whether the state after this round is recorded."""
        return round % self.keep.every == 0

    def next_due(self, round: int) -> int:
        """The first round from this one on that is recorded."""
        return -(-round // self.keep.every) * self.keep.every

    def note(self, round: int, measured: Callable[[], Measures], *, last: bool = False) -> None:
        """Record the state after a round, if it is due or the last, and not recorded yet.

        Args:
            round: the round.
            measured: measures the clients as they are; called only if the round is recorded.
            last: whether the run ends here.
        """
        if round >= 0 and (last or self.is_due(round)) and (not self.rounds or self.rounds[-1] < round):
            row = measured().row()
            self.rounds.append(round)
            for name, value in row.items():
                self.rows.setdefault(name, []).append(value)

    def columns(self) -> dict[str, npt.NDArray[Any] | None]:
        """The record as arrays, None for what was not asked for."""
        keep = self.keep
        asked = {
            "cost": keep.cost,
            "mean_distance": keep.distance_to is not None,
            "largest_distance": keep.distance_to is not None,
            "histogram": keep.histogram > 0,
            "averages": keep.averages is not None,
        }
        return {name: np.array(self.rows.get(name, [])) if wanted else None for name, wanted in asked.items()}

    def resume(self, rounds: npt.NDArray[np.int64], columns: dict[str, npt.NDArray[Any] | None]) -> None:
        """Take over an earlier record; a last checkpoint that an unbroken run would not have is dropped."""
        usual = [self.is_due(int(round)) for round in rounds]
        self.rounds = [int(round) for round in rounds[usual]]
        for name, values in columns.items():
            self.rows[name] = [None] * len(self.rounds) if values is None else list(values[usual])
