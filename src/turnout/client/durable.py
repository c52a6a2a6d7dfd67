"""One real client, on its own disk: reserve, toss, store, report, and never toss twice for a round.

Why a crash is safe at every point. `decide` takes three durable steps in this order: (1) the report is
reserved in the ledger, (2) the coin is tossed, in memory alone, (3) the bit is stored; then it is
returned, to be reported.

- Crash before or in (1): no coin was tossed. A reservation that was written nevertheless is spent.
- Crash after (1) and before (3) is complete: the round has a reservation and no bit. A coin may have been
  tossed, but its bit was never sent. It is never tossed again: the round is lost (`RoundLost`).
- Crash after (3): the bit is on file, and is returned verbatim whenever the round is asked for again.

So a bit that was reported is stored and reserved, a round has at most one bit, and the coins tossed are at
most the reservations. A store that was restored from an older copy shows as several reservations
without a bit, a ledger that was lost as bits without a reservation: both are refused.

Coins are made from the ledger's secret key and from run, round, signal and history. So a copy of all files that was
restored unnoticed repeats its bit when it is asked the same again. What remains possible: whoever can restore all
files (ledger, witness, rounds) *and* choose another signal gets another report about the same round, as often as that
is done; and a cost that has changed in between may show as another bit.
"""

from __future__ import annotations

import json
import math
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from turnout.algorithm import (
    Averaging,
    ClientState,
    Coins,
    KeyedCoins,
    Mechanism,
    Prior,
    client_step,
    inside,
)
from turnout.client.ledger import BudgetSpent, Ledger
from turnout.client.limit import as_round
from turnout.client.store import Decision, OnFile, RoundLost, RoundPassed, RoundStore, Stop
from turnout.errors import TurnoutError, invalid
from turnout.files import Disk
from turnout.privacy import Account, Observer, certificate, kind_of
from turnout.problem import ENROLMENT, Array, Costs, PolynomialCosts

LEDGER, ROUNDS = "ledger.jsonl", "rounds.jsonl"
"""A client's ledger in its folder, unless it is elsewhere; and a run's file, in the run's folder."""

DATUM = "the cost of taking part"
"""The private datum of every client's ledger."""


class Stopped(TurnoutError):
    """The budget is spent and the client leaves: it participates no more."""


class StoreRolledBack(TurnoutError):
    """The client's store is older than its ledger: bits that were reported are not on file."""


@dataclass(frozen=True)
class Terms:
    """What a server says when a client joins a run; all of it is public.

    Args:
        run: the run's name, unique among all servers.
        prior: the public average that its history starts from.
        averaging: how its history moves.
        weight: of the client.
        joined: the round it joined at; rounds missed from there on count. None: from its first decision.

    Example:
        >>> Terms("night-shift", Prior(0.5)).averaging
        Averaging(remember=None, by='bit')
    """

    run: str
    prior: Prior
    averaging: Averaging = Averaging()  # noqa: RUF009 (frozen)
    weight: float = 1
    joined: int | None = None


@dataclass(frozen=True)
class Seams:
    """What tests replace.

    Args:
        coins: where randomness comes from; by default the ledger's secret key (see `KeyedCoins`).
        client_id: the client's number, for seeded coins.
        disk: the durable steps.
    """

    coins: Coins | None = None
    client_id: int = 0
    disk: Disk = field(default_factory=Disk)


class DurableClient:
    """A client that survives crashes and restarts, for one run; close it or use `with`.

    Args:
        folder: where its store is; must exist, and is for this client in this run alone.
        costs: its own private cost, a population of one; `act_on` changes it. None: it acts on what the ledger has as
            released, and releases nothing.
        mechanism: how intent becomes a probability. Its certificate is made here. Where it releases once at joining,
            and the ledger has a release already, the client acts on that one, whatever the price now.
        ledger: the open ledger of the private cost; may be shared by several runs and processes.
        terms: the run, and how its history starts and moves.
        after_stop: "leave", or "follow": act on public data alone.
        follow_at: the public constant to follow at instead of the average. In averaging by probability the
            average is not public, and this is the prior's unless given.
        seams: for tests.

    Raises:
        StoreRolledBack: the store is older than the ledger.
        LedgerRolledBack: the ledger is older than the store, and was opened without `spend_missing`.
        InUse: another process has this folder.
        BudgetSpent: the owner's limit does not allow what the mechanism releases at joining.
        ValueError: its certificate is above the owner's limit, or it has none and the ledger was not opened for that.

    Example:
        >>> import tempfile, turnout
        >>> from turnout.client import Limit
        >>> costs = turnout.PolynomialCosts([[3.0]], powers=(2,))
        >>> with tempfile.TemporaryDirectory() as home:
        ...     limit, witness = Limit(100, 1.0), f"{home}/witness"
        ...     with Ledger.open(f"{home}/cost.jsonl", datum="cost", limit=limit, witness=witness) as ledger:
        ...         terms = Terms("a", turnout.Prior(0.5))
        ...         with DurableClient(home, costs, turnout.Clamp(1.0), ledger=ledger, terms=terms) as client:
        ...             bit = client.decide(0, signal=2.0)
        ...             client.decide(0, signal=9.0) == bit, ledger.spent
        (True, 1)
    """

    def __init__(
        self,
        folder: str | Path,
        costs: Costs | None,
        mechanism: Mechanism,
        *,
        ledger: Ledger,
        terms: Terms,
        after_stop: str = "leave",
        follow_at: float | None = None,
        seams: Seams = Seams(),  # noqa: B008 (frozen)
    ) -> None:
        self._costs, self._mechanism, self._ledger, self._seams = costs, mechanism, ledger, seams
        self._terms, prior, averaging = terms, terms.prior, terms.averaging
        self._promise = certificate(mechanism, Observer(averaging=averaging))
        self._kind = kind_of(mechanism, self._promise.epsilon)
        self._made = json.dumps(settings_of(mechanism), sort_keys=True)  # as coins have it
        self._after_stop = after_stop
        self._check(follow_at)
        self._follow_at = prior.average if follow_at is None and averaging.by == "probability" else follow_at
        self._mutex = threading.RLock()
        start = ClientState(np.array([prior.participations]), float(prior.rounds))
        settings = {
            "run": terms.run,
            "client": seams.client_id,
            "prior": [float(prior.average), float(prior.rounds)],
            "averaging": [averaging.remember, averaging.by],
        }
        self._store = RoundStore(Path(folder, ROUNDS), settings, start, averaging, terms.joined, seams.disk)
        try:
            self._settle()
            self._memory = self._released()  # not before the ledger is known to have all that was released
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        last = "no round yet" if self._store.last is None else f"last round {self._store.last}"
        return f"DurableClient(run {self._terms.run!r}, {self._mechanism}, {last})"  # never its cost, nor its history

    def __enter__(self) -> DurableClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the store; the ledger stays open, it is the caller's."""
        self._store.close()

    @property
    def acts_on_release(self) -> bool:
        """Whether it acts on what was released, so that its cost matters no more."""
        return self._memory is not None

    def act_on(self, costs: Costs) -> None:
        """From now on this is the cost: measured again, or changed. It is the same private datum, in the same ledger.

        No file is touched, so that nothing outside the coin tells whether it has changed.
        """
        _check_single(costs)
        self._costs = costs

    def decide(self, round: int, signal: float) -> bool:
        """Whether to participate in a round. The bit is on file before this returns: report it, nothing else.

        Args:
            round: from 0, never going back.
            signal: the server's public number. Any float gives a valid report, also NaN, infinite, negative.

        Returns:
            The bit; the stored one, verbatim, if the round was decided before, whatever the signal now.

        Raises:
            RoundLost: the client may have crashed after the toss; there is no report, and never will be.
            RoundPassed: the round is older than the last one, and not on file.
            Stopped: the budget is spent and the client leaves.
            FileProblem: a disk is full or read-only. At most this round is lost.
        """
        round, signal = as_round(round), _float(signal)
        with self._mutex:
            stored = self._store.find(round)
            if stored is None:
                stored = self._decide_now(round, signal)
            if stored.kind == "lost":
                raise RoundLost(
                    f"round {round} of {self._terms.run!r} was lost in a crash: report nothing, wait for the next"
                )
            return stored.participates

    def acknowledge(self, round: int, counted: bool) -> None:
        """What the server did with a report: if it was not counted, the history has it as not participating.

        Until this is called a report moves the history as counted. Call it before the next `decide`
        and both sides' histories agree in every round; later, they agree from then on.

        Raises:
            RoundPassed: the round is not on file (any more).
            RoundLost: the server counted a round that this client has lost.
            Conflict: it was acknowledged the other way before.
        """
        with self._mutex:
            self._store.acknowledge(as_round(round), bool(counted))

    def status(self) -> dict[str, Any]:
        """Where the client stands, for its own user: no cost, no intent, no probability.

        The average is there only if it is public, that is in averaging by the bit.
        """
        with self._mutex:
            last, stop = self._store.last, self._store.stop
            decision = None if last is None else self._store.find(last)
            public = self._terms.averaging.by == "bit" and last is not None
            return {
                "run": self._terms.run,
                "last_round": last,
                "participates": decision is not None and decision.participates,
                "acknowledged": None if decision is None else decision.counted,
                "average": float(self._store.before(last + 1).average[0]) if public and last is not None else None,
                "lost_rounds": self._store.lost(),
                "stopped_at": None if stop is None else stop.round,
                "after_stop": self._after_stop,
                "reports_spent": self._ledger.spent,
                "reports_remaining": self._ledger.remaining,
                "limit_reports": self._ledger.limit.reports,
                "limit_epsilon_per_report": self._ledger.limit.epsilon_per_report,
            }

    def _check(self, follow_at: float | None) -> None:
        if self._mechanism.needs_population:
            remedy = "use memoized, with the channel and the price that the server has learned"
            raise invalid("mechanism", "one that a client can use by itself", self._mechanism.kind, remedy)
        if self._costs is not None:
            _check_single(self._costs)
        if self._after_stop not in ("leave", "follow"):
            raise invalid("after_stop", "'leave' or 'follow'", repr(self._after_stop), "'leave' is the safe choice")
        if follow_at is not None and not 0.0 <= follow_at <= 1.0:
            raise invalid("follow_at", "from 0 to 1", follow_at, "use a public constant, such as capacity / clients")
        if not self._terms.weight > 0:
            raise invalid("weight", "above 0", self._terms.weight, "use 1 unless clients have different weights")
        if self._promise.per == "lifetime":
            return  # the ledger refuses a release that its owner does not allow
        allowed, epsilon = self._ledger.limit.epsilon_per_report, self._promise.epsilon
        if epsilon > allowed and not (math.isinf(epsilon) and self._ledger.accepts_uncertified):
            remedy = (
                "use a certified mechanism within the limit, or change the ledger's limit with the person's consent"
            )
            raise invalid("epsilon_per_report", f"at most the ledger's {allowed}", epsilon, remedy)

    def _released(self) -> Costs | None:
        """What the mechanism has released about the cost: once, across all runs, servers, prices and folders.

        If the ledger has a release, that is what the client acts on. Only if a release is due is one made; it is in
        the ledger, together with what it released, before anything follows from it.
        """
        if not self._mechanism.releases_once:
            return None
        settings = settings_of(self._mechanism)
        with self._ledger.turn():
            if self._costs is not None and self._ledger.release_is_due(settings):
                self._ledger.check_release(self._promise.epsilon)
                self._ledger.release(self._promise.epsilon, settings, self._draw_release(settings, self._costs))
            found = self._ledger.last_release
        if found is None:
            raise BudgetSpent(
                "the cost was released before, and what was released is lost: nothing may be released again unless its "
                "owner agrees to another release (limit releases, turnout join --releases)"
            )
        self._store.released(found)
        released = found["released"]
        parts = np.array([released["coefficients"]]) * (self._terms.weight / released["weight"])
        return PolynomialCosts(parts, tuple(released["powers"]))

    def _draw_release(self, settings: dict[str, Any], costs: Costs) -> dict[str, Any]:
        # Whichever run it is for: a restored copy that joins another one releases the same.
        made = ("release", self._ledger.releases, self._made, float(self._terms.weight))
        coins = self._seams.coins or KeyedCoins(self._ledger.key, made)
        draw = coins.uniform([self._seams.client_id], 0, ENROLMENT)
        found = self._mechanism.enrol(costs, draw, self._terms.weight)
        if not isinstance(found, PolynomialCosts):
            remedy = "return PolynomialCosts from enrol: what is released is written to the ledger"
            raise invalid(f"what {self._mechanism.kind} releases", "PolynomialCosts", type(found).__name__, remedy)
        return {
            "coefficients": found.coefficients[0].tolist(),
            "powers": list(found.powers),
            "weight": float(self._terms.weight),
        }

    def _settle(self) -> None:
        """After a crash one round can have a reservation without a bit: it is lost. None can have the reverse."""
        self._ledger.account_for(self._terms.run, self._store.tossed(), self._store.folded)
        for release in self._store.releases:
            self._ledger.account_for_release(release)
        pending = self._pending()
        if len(pending) > 1:
            raise StoreRolledBack(
                f"the client's store ends at round {self._store.last} of {self._terms.run!r}, its ledger has "
                f"reservations for {len(pending)} later rounds: an older copy was restored, or another folder of this "
                "device is in the same run. Restore the newest, or join a new run"
            )
        self._lose(pending)

    def _pending(self) -> list[int]:
        last = self._store.last
        return self._ledger.reserved(self._terms.run, after=-1 if last is None else last)

    def _lose(self, rounds: list[int]) -> None:
        for round in rounds:
            self._store.add(_lost(round))

    def _decide_now(self, round: int, signal: float) -> Decision:
        last = self._store.last
        if last is not None and round <= last:
            raise RoundPassed(
                f"round must be above {last}, the last one of {self._terms.run!r}, got {round}: it has passed"
            )
        passed = self._ledger.passed(self._terms.run)
        if round <= passed:
            raise RoundPassed(
                f"round must be above {passed}, up to which this client may have reported in {self._terms.run!r} "
                f"before its files were lost, got {round}: wait for a later one"
            )
        self._store.tidy()
        self._lose([lost for lost in self._pending() if lost <= round])
        lost = self._store.find(round)
        if lost is not None:
            return lost
        state = self._store.before(round)
        try:
            decision = self._toss(round, signal, state) if self._reserve(round) else _lost(round)
        except BudgetSpent as spent:
            decision = self._stop(round, signal, state, spent)
        self._store.add(decision)
        return decision

    def _reserve(self, round: int) -> bool:
        """Whether a coin may be tossed; with a memory the report holds nothing that was not released at joining."""
        if self._memory is not None:
            return True
        kind = self._kind
        box = None if kind.low is None or kind.high is None else (kind.low, kind.high)
        return self._ledger.reserve(self._terms.run, round, kind.epsilon, box=box).new

    def _uniform(self, kind: str, round: int, signal: float, state: ClientState) -> Array:
        """All that the probability depends on, but for the cost, is in the coin: a coin serves one probability."""
        if self._seams.coins is not None:
            return self._seams.coins.uniform([self._seams.client_id], round)
        acting = "" if self._memory is None else repr(self._store.releases[-1])
        history = (float(state.participations[0]), float(np.max(state.rounds)), self._terms.averaging.by)
        now = (kind, self._terms.run, self._made, acting, float(self._terms.weight), signal, *history)
        return KeyedCoins(self._ledger.key, now).uniform([self._seams.client_id], round)

    def _toss(self, round: int, signal: float, state: ClientState) -> Decision:
        before = ClientState(state.participations, state.rounds, self._memory)
        uniform = self._uniform("tossed", round, signal, state)
        costs = self._costs if self._memory is None else self._memory
        assert costs is not None  # one of them is there
        terms = self._terms
        step = client_step(
            costs, self._mechanism, before, signal, uniform, weights=terms.weight, averaging=terms.averaging
        )
        bit = bool(step.participates[0])
        moved = float(bit) if terms.averaging.by == "bit" else float(step.probability[0])
        epsilon = 0.0 if self._memory is not None else self._kind.epsilon
        return Decision(round, "tossed", bit, moved, signal, epsilon=epsilon)

    def _stop(self, round: int, signal: float, state: ClientState, spent: BudgetSpent) -> Decision:
        """After the stop: min(1, average * signal / signal then), all public, and it still follows the signal."""
        stop = self._store.stop
        if stop is None:
            average = float(state.average[0]) if self._follow_at is None else self._follow_at
            stop = Stop(round, average, signal if 0.0 < signal < math.inf else self._store.usable_signal())
            self._store.stopped(stop)
        if self._after_stop == "leave":
            raise Stopped(f"{spent} (it has left {self._terms.run!r} for good)") from spent
        # The rule of `surrogate_after_stop`, without its costs: not even a last bit may come from this client's own
        # average, and any signal of a hostile server will do.
        with np.errstate(all="ignore"):
            intent = stop.average * (1.0 if stop.signal is None else np.float64(signal) / stop.signal)
        probability = float(inside(0.0, intent, 1.0))
        followed = f"followed {stop.average!r} {stop.signal!r}"
        bit = bool(self._uniform(followed, round, signal, state)[0] < probability)
        return Decision(
            round, "followed", bit, float(bit) if self._terms.averaging.by == "bit" else probability, signal
        )


def account_for_all(ledger: Ledger, folder: Path) -> None:
    """Compare a ledger with every run that a folder has on file, also those that are not open.

    Raises:
        LedgerRolledBack: some reports, or a release, are not counted; with `spend_missing` they are from now on.
    """
    for path in sorted(folder.glob(f"*/{ROUNDS}")):
        found = OnFile.read(path)
        if found is not None:
            ledger.account_for(found.run, found.tossed, found.folded)
            for release in found.releases:
                ledger.account_for_release(release)


def has_reported(folder: Path) -> bool:
    """Whether a folder has on file that any of its runs has reported or released something."""
    found = filter(None, (OnFile.read(path) for path in sorted(folder.glob(f"*/{ROUNDS}"))))
    return any(one.tossed or one.folded or one.releases for one in found)


def reports_on_file(folder: Path) -> int:
    """How many reports all runs of a folder have on file, those that were folded included."""
    found = filter(None, (OnFile.read(path) for path in sorted(folder.glob(f"*/{ROUNDS}"))))
    return sum(len(one.tossed) + one.folded.total() for one in found)


def settings_of(mechanism: Mechanism) -> dict[str, Any]:
    """As they are read back from a ledger."""
    return dict(json.loads(json.dumps(mechanism.settings(), default=float)))


def at_most(ledger: Ledger, mechanism: Mechanism, epsilon: float, delta: float) -> Account:
    """The total epsilon at delta of a ledger, once all that its limit still allows is spent with this mechanism.

    Args:
        ledger: with all that was given away before, in other runs too.
        mechanism: of the future reports.
        epsilon: its certificate's, per report or for a lifetime.
        delta: the slack (see `Account`).
    """
    if not mechanism.releases_once:
        return ledger.account(delta, {kind_of(mechanism, epsilon): ledger.remaining})
    return ledger.account(delta, releasing=[epsilon] if ledger.release_is_due(settings_of(mechanism)) else [])


def _check_single(costs: Costs) -> None:
    if len(costs) != 1:
        raise invalid("costs", "of one client", f"{len(costs)} clients", "give costs[i], a population of one")


def _lost(round: int) -> Decision:
    return Decision(round, "lost", False, 0.0, math.nan)


def _float(signal: float) -> float:
    try:
        return float(signal)
    except (TypeError, ValueError, OverflowError):
        raise invalid("signal", "a number", repr(signal), "give the server's signal as a float") from None
