"""The record of a fleet: every round's bits and acknowledgements, requests, faults, times."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.bool_]


@dataclass(eq=False)
class SeenRound:
    """One round as the devices saw it; every array has shape (devices,).

    Attributes:
        round: from 0.
        signal: what it was decided on.
        decided: who has a bit on file for it.
        bits: these bits.
        answered: who has an answer to its report.
        counted: whose answer says that the report counts.
        first_answer, last_answer: seconds on a clock that never goes back; 0 before any.
    """

    round: int
    signal: float
    decided: Bits
    bits: Bits
    answered: Bits
    counted: Bits
    first_answer: float = 0.0
    last_answer: float = 0.0

    @classmethod
    def opened(cls, round: int, signal: float, devices: int) -> SeenRound:
        """Before anyone has decided."""
        decided, bits, answered, counted = np.zeros((4, devices), np.bool_)
        return cls(round, signal, decided, bits, answered, counted)

    def __repr__(self) -> str:
        return f"SeenRound({self.round}: signal {self.signal:.4g}, {int(self.decided.sum())} decided)"

    @property
    def acknowledged(self) -> Bits:
        """Who participates: a "yes" that counts, shape (devices,)."""
        return self.bits & self.counted

    @property
    def seconds(self) -> float:
        """From the first answer to the last."""
        return self.last_answer - self.first_answer


@dataclass(eq=False)
class FleetRecord:
    """The record of a fleet.

    Attributes:
        devices: how many there are.
        run: the run's name; "" before anyone was welcome.
        weights: shape (devices,).
        tokens: by device, "" for one that never enrolled; with them a test finds a device in the coordinator's store.
        rounds: the rounds that are kept, by number, ascending.
        requests: sent, also again.
        reconnects: connections that had to be made again.
        faults: how often something went wrong, by name.
        seconds: of the whole run.
        interrupted: whether it was stopped before its time.
    """

    devices: int
    run: str = ""
    weights: npt.NDArray[np.int64] = field(default_factory=lambda: np.ones(0, np.int64))
    tokens: list[str] = field(default_factory=list)
    rounds: dict[int, SeenRound] = field(default_factory=dict)
    requests: int = 0
    reconnects: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    interrupted: bool = False
    _spans_before: list[float] = field(default_factory=list, repr=False)

    def __repr__(self) -> str:
        faults = f", {self.faults.total()} faults" if self.faults else ""
        return f"FleetRecord({self.devices} devices, {len(self.rounds)} rounds kept, {self.requests} requests{faults})"

    @property
    def spans(self) -> list[float]:
        """Of every round, also those not kept: seconds from its first answer to its last."""
        return self._spans_before + [seen.seconds for seen in self.rounds.values() if seen.answered.any()]

    @property
    def enrolled(self) -> int:
        """How many devices have a token."""
        return sum(map(bool, self.tokens))

    @property
    def signals(self) -> npt.NDArray[np.float64]:
        """What the kept rounds were decided on, shape (rounds,)."""
        return np.array([seen.signal for seen in self.rounds.values()])

    @property
    def bits(self) -> Bits:
        """The bits of the kept rounds, shape (rounds, devices); False also where there is none."""
        return self._table([seen.bits for seen in self.rounds.values()])

    @property
    def acknowledged(self) -> Bits:
        """Of these, what counts, shape (rounds, devices)."""
        return self._table([seen.acknowledged for seen in self.rounds.values()])

    @property
    def participants(self) -> npt.NDArray[np.int64]:
        """The weight that was acknowledged in each kept round, shape (rounds,)."""
        return self.acknowledged @ self.weights

    def seen(self, round: int, signal: float, keep: int | None) -> SeenRound:
        """A round, opened if it is new; the oldest is forgotten beyond `keep`."""
        if round not in self.rounds:
            self.rounds[round] = SeenRound.opened(round, signal, self.devices)
            if keep is not None and len(self.rounds) > keep:
                oldest = self.rounds.pop(min(self.rounds))
                self._spans_before += [oldest.seconds] if oldest.answered.any() else []
        return self.rounds[round]

    def finish(self, interrupted: bool) -> None:
        """The run is over for now."""
        self.interrupted = interrupted
        self.rounds = dict(sorted(self.rounds.items()))

    def summary(self) -> dict[str, Any]:
        """The few numbers to show at the end, as JSON holds them."""
        spans, answered = self.spans, [seen for seen in self.rounds.values() if seen.answered.any()]
        p50, p99 = (float(np.quantile(spans, share)) if spans else None for share in (0.5, 0.99))
        return {
            "run": self.run,
            "devices": self.devices,
            "enrolled": self.enrolled,
            "rounds": len(spans),
            "last_round": answered[-1].round if answered else None,
            "last_participants": int(answered[-1].acknowledged @ self.weights) if answered else None,
            "requests": self.requests,
            "requests_per_second": self.requests / self.seconds if self.seconds else 0.0,
            "answers_p50_seconds": p50,
            "answers_p99_seconds": p99,
            "reconnects": self.reconnects,
            "faults": dict(self.faults),
            "seconds": self.seconds,
            "interrupted": self.interrupted,
        }

    def json(self) -> str:
        """The summary for machines."""
        return json.dumps(self.summary())

    def _table(self, rows: list[Bits]) -> Bits:
        return np.array(rows, np.bool_).reshape(len(rows), self.devices)
