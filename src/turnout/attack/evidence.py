"""The reports of a run, and what they say about costs: the likelihood of a candidate.

It is computed by the very code that clients decide with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from turnout.algorithm import Averaging, ClientState, Mechanism, Prior, Public, intent
from turnout.errors import invalid
from turnout.problem import Array, PolynomialCosts

Indices = npt.NDArray[np.int64]

_WIDTH = 0.01
"""Rounds of a client are counted together where signal and odds of its average agree to so much (relative)."""

_LEAST = 1e-12
"""No report counts as less likely: rounds that are counted together must not rule out the truth."""

_LARGEST = 1e12
"""No signal counts as larger: all clients participate by then."""

_BLOCK = 1000
"""Rounds taken in together."""


@dataclass(frozen=True, eq=False)
class Reports:
    """The signals and all reports of a run.

    Args:
        signals: the signal that decided each round, shape (rounds,): with the paper's lag, that of the round before.
        bits: X_i(k), 0 or 1, shape (rounds, clients).

    Example:
        >>> Reports(np.array([0.35, 0.35]), np.array([[1, 1, 1], [1, 0, 1]])).rounds
        2
    """

    signals: Array
    bits: npt.NDArray[np.uint8]

    def __post_init__(self) -> None:
        bits = np.asarray(self.bits)
        if bits.ndim != 2 or np.shape(self.signals) != bits.shape[:1]:
            got = f"shapes {np.shape(self.signals)} and {bits.shape}"
            raise invalid(
                "signals and bits", "of shapes (rounds,) and (rounds, clients)", got, "give one row per round"
            )
        if np.any((bits != 0) & (bits != 1)):
            raise invalid("bits", "0 or 1", sorted(np.unique(bits).tolist())[:5], "give who participated")
        object.__setattr__(self, "bits", bits.astype(np.uint8, copy=False))
        object.__setattr__(self, "signals", np.asarray(self.signals, dtype=np.float64))

    def __repr__(self) -> str:
        return f"Reports({self.rounds} rounds of {self.clients} clients)"

    @property
    def rounds(self) -> int:
        """How many rounds were seen."""
        return int(self.bits.shape[0])

    @property
    def clients(self) -> int:
        """How many clients report."""
        return int(self.bits.shape[1])

    def first(self, rounds: int) -> Reports:
        """The first rounds alone."""
        return Reports(self.signals[:rounds], self.bits[:rounds])


class ReportEvidence:
    """What reports say where clients act on their costs.

    A report is decided by the signal and the average, both public, and the cost. So rounds of one client in which both
    are nearly the same are counted together, and of ten thousand rounds some hundred cells are left.

    Args:
        mechanism, weights: as for `client_step`.
    """

    def __init__(self, mechanism: Mechanism, weights: Any = 1) -> None:
        self.mechanism = mechanism
        self.weights = weights
        self._parts: list[_Cells] = []

    def add(self, signals: Array, averages: Array, bits: npt.NDArray[np.uint8]) -> None:
        """Take more rounds in: signals (rounds,), averages and bits (rounds, clients)."""
        yes = bits.astype(np.float64).ravel()
        signal = np.broadcast_to(np.nan_to_num(signals, posinf=_LARGEST)[:, None], bits.shape).ravel()
        client: Indices = np.broadcast_to(np.arange(bits.shape[1]), bits.shape).ravel()
        self._parts.append(_merge(_Cells(client, yes, 1.0 - yes, signal, averages.ravel())))

    @property
    def cells(self) -> _Cells:
        """All that was seen so far."""
        if not self._parts:
            return _Cells(np.empty(0, np.int64), *(np.empty(0) for _ in range(4)))
        if len(self._parts) > 1:
            self._parts = [_merge(_Cells(*(np.concatenate(column) for column in zip(*self._parts, strict=True))))]
        return self._parts[0]

    def log_likelihood(self, clients: Indices, units: PolynomialCosts, scale: Array) -> Array:
        """How likely the reports are for candidate costs, scale * unit: the sum over rounds of log P(X | candidate).

        Args:
            clients: which, shape (n,).
            units: candidates of unit scale, n * mixtures of them, client by client.
            scale: shape (n, points).

        Returns:
            Shape (n, mixtures, points).
        """
        mixtures, points = len(units) // len(clients), scale.shape[1]
        total = np.zeros((len(clients), mixtures, points))
        if not len(self.cells.client):
            return total
        first, stop = (np.searchsorted(self.cells.client, clients + more) for more in (0, 1))
        their = np.concatenate([np.arange(*ends) for ends in zip(first, stop, strict=True)])
        client, yes, no, signal, average = (column[their][:, None] for column in self.cells)
        owner, edges = np.repeat(np.arange(len(clients)), stop - first), np.cumsum(stop - first) - (stop - first)
        weight = self.weights if np.ndim(self.weights) == 0 else self.weights[client]
        mechanism, public = self.mechanism[client], Public(average=average)
        for mixture in range(mixtures):
            unit = units[owner * mixtures + mixture].slope(average)
            with np.errstate(all="ignore"):
                wanted = intent(signal, weight, average, unit * scale[owner])
            chance = mechanism.probability(wanted, public)
            for count, of in ((yes, chance), (no, 1.0 - chance)):
                found = np.log(np.maximum(of, _LEAST, out=of), out=of)
                total[:, mixture] += np.add.reduceat(np.multiply(found, count, out=of), edges, axis=0)
        return total


def evidence_at(
    reports: Reports,
    checkpoints: list[int],
    mechanism: Mechanism,
    weights: Any,
    start: Prior | None,
    averaging: Averaging,
    stop: int | None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[tuple[int, ReportEvidence, Array]]:
    """At each checkpoint: (rounds, the evidence of that many rounds, the averages after them), in one pass.

    Reports from round `stop` on are decided from public data, and are passed over. Progress is told as (rounds taken
    in, rounds in all).
    """
    evidence = ReportEvidence(mechanism, weights)
    done, state = 0, None
    for checkpoint in checkpoints:
        until = checkpoint if stop is None else min(checkpoint, stop)
        while done < until:
            block = min(until, done + _BLOCK)
            averages, state = _public_averages(reports, start, averaging, done, block, state)
            decided = slice(1, None) if done == 0 and start is None else slice(None)
            evidence.add(reports.signals[done:block][decided], averages[decided], reports.bits[done:block][decided])
            done = block
            if progress is not None:
                progress(done, checkpoints[-1])
        if state is None:
            _, state = _public_averages(reports, start, averaging, 0, 0, None)
        yield checkpoint, evidence, state.average


def _public_averages(
    reports: Reports, start: Prior | None, averaging: Averaging, first: int, stop: int, state: ClientState | None
) -> tuple[Array, ClientState]:
    """Each client's average before it decides, as anyone works it out who sees its reports.

    With averaging by the probability the true average is the client's own secret, and the running mean of its
    reports stands in for it.

    Returns:
        Averages of rounds first to stop, shape (stop - first, clients), and the state after them.
    """
    moves = Averaging(averaging.remember)
    if state is None:
        begin, rounds = (1.0, 1.0) if start is None else (start.participations, start.rounds)
        state = ClientState(np.full(reports.clients, begin), float(rounds))
    averages = np.empty((stop - first, reports.clients))
    for round in range(first, stop):
        averages[round - first] = state.average
        if round > 0 or start is not None:  # the paper's round 0 is the start itself
            state = state.after(reports.bits[round].astype(np.float64), moves)
    return averages, state


class _Cells(NamedTuple):
    """Rounds of one client in which signal and average were nearly the same, counted together; shape (cells,) each."""

    client: Indices
    yes: Array
    no: Array
    signal: Array
    average: Array


def _merge(cells: _Cells) -> _Cells:
    """One cell for all that agree to `_WIDTH`, with their mean signal and average; sorted by client."""
    count = cells.yes + cells.no
    near = np.clip(cells.average, 1e-9, 1.0 - 1e-4)
    by_average = np.rint(np.log(near / (1.0 - near)) / _WIDTH).astype(np.int64) + (1 << 15)
    by_signal = np.rint(np.log(np.clip(cells.signal, 1e-9, _LARGEST)) / _WIDTH).astype(np.int64)  # a few thousand
    key = (cells.client << 32) + (by_average << 16) + by_signal
    keys, place = np.unique(key, return_inverse=True)
    total = np.bincount(place, weights=count).astype(np.float64)
    yes = np.bincount(place, weights=cells.yes).astype(np.float64)
    signal, average = (np.bincount(place, weights=count * one) / total for one in (cells.signal, cells.average))
    return _Cells(np.asarray(keys >> 32), yes, total - yes, signal, average)
