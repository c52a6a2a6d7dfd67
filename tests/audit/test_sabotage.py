"""Every sabotaged reporter is refuted.

All audits here have a false-alarm rate of 1e-6, and seeds, so that the outcome is always the same; how much an audit of
so many trials can see is asserted as well.
"""

import dataclasses
import math

import numpy as np
import pytest

from privacy.extreme_costs import EXTREMES
from statistical.binomial import FALSE_ALARM
from turnout import Averaging, SeededCoins, SystemCoins
from turnout.algorithm import Clamp, Memoized, widest_box
from turnout.audit.bounds import smallest_detected
from turnout.audit.claims import in_total, of_mechanism, per_report
from turnout.audit.durable import DurableReporter, durable_subject
from turnout.audit.reporters import MechanismReporter, SumReporter, usual_costs, usual_signals
from turnout.audit.run import audit
from turnout.audit.subjects import sum_of, sum_subject
from turnout.client import DurableClient


class BiasedCoins(SeededCoins):
    """5 % too small."""

    def uniform(self, clients, round, purpose=0):
        return 0.95 * super().uniform(clients, round, purpose)


class ReusedCoins(SeededCoins):
    """The first round's, for ever."""

    def uniform(self, clients, round, purpose=0):
        return super().uniform(clients, 0, purpose)


@dataclasses.dataclass(frozen=True)
class WiderClamp(Clamp):
    """Its low threshold is 1 % too small."""

    def parameters(self):
        low = 0.99 * widest_box(self.epsilon)[0]
        return low, 1.0 - low


def leaky_at(bad):
    """A clamp, but for one signal: there a cheap cost says yes a third more often than it may."""
    honest = MechanismReporter(Clamp(1.0))

    def reporter(costs, signals, trials, seed):
        bits = honest(costs, signals, trials, seed)
        low, high = widest_box(1.4)
        chance = high if costs.slope(np.array([0.5]))[0] < 1.0 else low
        leak = np.random.default_rng(seed).random(bits.shape) < chance
        return np.where((signals == bad) | (np.isnan(signals) & np.isnan(bad)), leak, bits)

    return reporter


def flipped_again(costs, signals, trials, seed):
    honest = MechanismReporter(Clamp(1.0))
    return np.stack([honest(costs, signals, trials, seed + again) for again in (0, 1)], axis=2)


def test_a_biased_coin_is_caught():
    reporter = MechanismReporter(Clamp(1.0), coins=BiasedCoins)
    assert audit(reporter, of_mechanism(Clamp(1.0), 4), trials=100_000, seed=3).verdict == "refuted"


@pytest.mark.parametrize("bad", [0.0, -1.0, 1e300, np.inf, np.nan])
def test_a_leak_at_one_signal_only_is_caught(bad):
    outcome = audit(leaky_at(bad), per_report(1.0, 3), trials=50_000, seed=4)
    assert outcome.verdict == "refuted"
    said = {0.0: ("zero", "on and off"), -1.0: ("negative",), 1e300: ("huge",), np.inf: ("infinite",)}
    assert any(name in outcome.worst.event for name in said.get(bad, ("NaN",)))
    assert not audit(leaky_at(12345.0), per_report(1.0, 3), trials=50_000, seed=4).refuted  # a signal nobody sends
    signals = usual_signals(3) | {"theirs": np.full(3, 12345.0)}
    assert audit(leaky_at(12345.0), per_report(1.0, 3), trials=50_000, signals=signals, seed=4).refuted


def test_a_flip_on_retry_is_caught():
    outcome = audit(flipped_again, per_report(1.0, 2, retries=True), trials=20_000, seed=5)
    assert outcome.verdict == "refuted"
    totals = [found for found in outcome.findings if found.claim.of == "total" and found.claim.delta == 0.0]
    assert totals[0].refuted  # and not only because nothing new was promised
    stored = MechanismReporter(Clamp(1.0))
    same = audit(
        lambda costs, signals, trials, seed: np.repeat(stored(costs, signals, trials, seed)[:, :, None], 2, axis=2),
        per_report(1.0, 2, retries=True),
        trials=20_000,
        seed=5,
    )
    assert same.verdict == "not refuted"


class Forgetful(DurableClient):
    """Tosses again when it is asked again."""

    def decide(self, round, signal):
        if self._store.find(round) is None:
            return super().decide(round, signal)
        return self._toss(round, signal, self._store.before(round)).participates


@pytest.mark.parametrize(
    ("changes", "caught"),
    [({"client": Forgetful, "coins": lambda seed: SystemCoins()}, ["retry"]), ({"reports": 2}, ["after"])],
    ids=["flips", "overspends"],
)
def test_a_durable_client_that_flips_on_retry_or_overspends_is_caught(changes, caught):
    claims = [claim for claim in durable_subject(reports=1, rounds=2).claims if claim.of in ("retry", "after")]
    reporter = dataclasses.replace(DurableReporter(Clamp(2.0), reports=1), **changes)
    only = {"costs": EXTREMES, "signals": {"usual": np.ones(2)}}
    outcome = audit(reporter, claims, trials=400, **only, seed=6, false_alarm=FALSE_ALARM)
    assert [found.claim.of for found in outcome.findings if found.refuted] == caught, str(outcome)


def test_a_threshold_off_by_one_per_cent_is_caught():
    """Epsilon per report is 1.0138 instead of 1; four million trials see 1.0091 with chance 0.99."""
    trials, claims = 4_000_000, of_mechanism(Clamp(1.0), 1)
    low = WiderClamp(1.0).parameters()[0]
    true = math.log((1.0 - low) / low)
    assert smallest_detected(1.0, trials, FALSE_ALARM / (4 * len(claims))) < true < 1.014
    outcome = audit(
        MechanismReporter(WiderClamp(1.0)), claims, trials=trials, costs=EXTREMES, seed=7, false_alarm=FALSE_ALARM
    )
    assert outcome.verdict == "refuted"
    assert 1.0 < outcome.findings[0].lower <= true


def test_reused_coins_are_caught():
    outcome = audit(MechanismReporter(Clamp(1.0), coins=ReusedCoins), of_mechanism(Clamp(1.0), 4), seed=8)
    assert outcome.verdict == "refuted"


def test_a_lifetime_release_made_twice_is_caught():
    one = MechanismReporter(Memoized(2.0, 10.0))

    def twice(costs, signals, trials, seed):
        half = len(signals) // 2
        return np.hstack([one(costs, signals[:half], trials, seed), one(costs, signals[half:], trials, seed + 1)])

    claims, signals = in_total(2.0, 12), usual_signals(12, 10.0)
    assert audit(twice, claims, signals=signals, trials=50_000, seed=9).verdict == "refuted"
    assert audit(one, claims, signals=signals, trials=50_000, seed=9).verdict == "not refuted"


# Only the sum


@dataclasses.dataclass(frozen=True, eq=False)
class FewOthers(SumReporter):
    """Counts on five others, and has two."""

    def __call__(self, costs, signals, trials, seed):
        return SumReporter(self.mechanism, sum_of(3))(costs, signals, trials, seed)


@dataclasses.dataclass(frozen=True, eq=False)
class QuietOthers(SumReporter):
    """The others' box is wider than claimed, so that they hardly ever participate and hide little."""

    def __call__(self, costs, signals, trials, seed):
        one = MechanismReporter(self.mechanism, averaging=Averaging(by="probability"))
        other = MechanismReporter(Clamp(3.0), averaging=Averaging(by="probability"))
        ids, expensive = np.arange(trials, trials * (self.observer.honest + 1)), usual_costs()["expensive"]
        crowd = other.bits(expensive, signals, ids, SeededCoins(seed)).reshape(trials, self.observer.honest, -1)
        return one(costs, signals, trials, seed) + crowd.sum(axis=1)


@dataclasses.dataclass(frozen=True, eq=False)
class OneCoin(SumReporter):
    """All toss the same coin."""

    def __call__(self, costs, signals, trials, seed):
        one = MechanismReporter(self.mechanism, averaging=Averaging(by="probability"))
        expensive = one(usual_costs()["expensive"], signals, trials, seed)
        return one(costs, signals, trials, seed) + self.observer.honest * expensive


@pytest.mark.parametrize("reporter", [FewOthers, QuietOthers])
@pytest.mark.parametrize("rounds", [1, 2])
def test_a_sabotaged_sum_is_caught(reporter, rounds):
    subject = sum_subject(Clamp(1.0), sum_of(6), rounds)
    sabotaged = dataclasses.replace(subject, reporter=reporter(Clamp(1.0), sum_of(6)))
    assert sabotaged.audit(100_000, FALSE_ALARM, seed=11).verdict == "refuted"


def test_neighbours_with_one_coin_are_caught():
    subject = sum_subject(Clamp(1.0), sum_of(4), 1)
    shared = dataclasses.replace(subject, reporter=OneCoin(Clamp(1.0), sum_of(4)))
    assert shared.audit(100_000, FALSE_ALARM, seed=12).verdict == "refuted"
