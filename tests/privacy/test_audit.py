"""Audits: none of ours is refuted, every sabotaged reporter is, and the bounds are bounds.

All of ours together have a false-alarm rate of 1e-6. Sabotaged reporters are audited at the same rate, with seeds, so
that the outcome is always the same; how much an audit of so many trials can see is asserted as well.
"""

import dataclasses
import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from turnout import Averaging, Classical, PolynomialCosts, SeededCoins, SystemCoins
from turnout.algorithm.mechanism import Mechanism
from turnout.algorithm.mechanisms import MECHANISMS, Clamp, Memoized, TrackingClamp
from turnout.algorithm.thresholds import widest_box
from turnout.client.audited import DurableReporter, durable_subject, ours
from turnout.client.durable import DurableClient
from turnout.privacy.audit import AuditInterrupted, audit
from turnout.privacy.audit_bounds import chance_at_least, chance_at_most, epsilon_at_least, smallest_caught
from turnout.privacy.audit_claims import in_total, of_mechanism, of_sum, per_report
from turnout.privacy.audit_events import _transitions
from turnout.privacy.audit_reporters import (
    MechanismReporter,
    ReporterProblem,
    SumReporter,
    as_reporter,
    usual_costs,
    usual_signals,
)
from turnout.privacy.audit_search import FINALISTS
from turnout.privacy.audit_subjects import mechanism_subject, sum_subject

FALSE_ALARM = 1e-6
EXTREMES = {name: usual_costs()[name] for name in ("cheap", "dear")}


# The bounds


@pytest.mark.parametrize("trials", [1, 7, 60])
@pytest.mark.parametrize("error", [0.2, 0.01, 1e-6])
def test_the_intervals_cover_as_often_as_they_say(trials, error):
    """The exact chance of a bound on the wrong side, at every p that makes it largest: just beside the bounds."""
    lower = np.array([chance_at_least(hits, trials, error) for hits in range(trials + 1)])
    upper = np.array([chance_at_most(hits, trials, error) for hits in range(trials + 1)])
    assert too_often(lower, trials, -1.0) <= error
    assert too_often(1.0 - upper[::-1], trials, -1.0) <= error
    assert too_often(lower, trials, -1.0) >= 0.99 * error  # no wider than needed
    share = np.arange(trials + 1) / trials
    wald = share - 1.6 * np.sqrt(share * (1.0 - share) / trials)  # what a textbook would say
    assert too_often(wald, trials, -1.0) > max(error, 0.05)


def too_often(lower, trials, side):
    places = np.unique(np.clip(np.concatenate([lower + side * 1e-12, np.linspace(0.0, 1.0, 301)]), 0.0, 1.0))
    chances = binom.pmf(np.arange(trials + 1)[:, None], trials, places[None, :])
    return float((chances * (lower[:, None] > places[None, :])).sum(axis=0).max())


def test_the_bound_on_epsilon():
    least = epsilon_at_least(7311, 10_000, 2689, 10_000, 1e-6)
    by_hand = math.log(chance_at_least(7311, 10_000, 5e-7) / chance_at_most(2689, 10_000, 5e-7))
    assert least == by_hand < 1.0
    assert epsilon_at_least(7311, 10_000, 2689, 10_000, 1e-6, delta=0.1) < least
    assert epsilon_at_least(10, 10_000, 5000, 10_000, 1e-6) == 0.0
    assert epsilon_at_least(0, 0, 0, 0, 1e-6) == 0.0
    assert 8.0 < epsilon_at_least(100_000, 100_000, 0, 100_000, 1e-6) < math.log(100_000)
    with pytest.raises(ValueError, match="hits must be from 0 to the 3 trials"):
        chance_at_least(4, 3, 0.1)


def test_power_is_what_it_says():
    """A reporter of the smallest epsilon that is caught with chance 0.99 is caught in nearly all of 30 audits."""
    error = FALSE_ALARM / 20
    true = smallest_caught(1.0, 20_000, error)
    low, random = 1.0 / (1.0 + math.exp(true)), np.random.default_rng(5)

    def caught(low):
        hits, other = random.binomial(20_000, 1.0 - low, 30), random.binomial(20_000, low, 30)
        return sum(epsilon_at_least(a, 20_000, b, 20_000, error) > 1.0 for a, b in zip(hits, other, strict=True))

    assert binom.cdf(caught(low), 30, 0.99) > FALSE_ALARM
    assert caught(1.0 / (1.0 + math.e)) == 0
    assert smallest_caught(1.0, 10, error) == math.inf


def test_the_power_in_the_docs():
    """Rounded upwards."""
    page = Path(__file__).parents[2] / "docs" / "audit.md"
    rows = re.findall(r"^\| ([\d,]+) \| ([\d.]+) \|$", page.read_text(), re.MULTILINE)
    assert len(rows) == 4
    for trials, shown in rows:
        true = smallest_caught(1.0, int(trials.replace(",", "")), FALSE_ALARM / 20)
        assert f"{math.ceil(true * 1000) / 1000:.3f}" == shown


# Ours


SUBJECTS = ours()


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_none_of_ours_is_refuted(subject):
    """The family-wise false-alarm rate over all of them is 1e-6; and a third of the promise would be refuted."""
    outcome = subject.audit(100_000, FALSE_ALARM / len(SUBJECTS), seed=1)
    assert outcome.verdict == "not refuted", str(outcome)
    assert "not refuted" in str(outcome)
    assert outcome.worst.lower > outcome.worst.claim.epsilon / 3.0, str(outcome)


def test_every_certified_mechanism_is_audited():
    names = " ".join(subject.name for subject in SUBJECTS)
    # Each client of learned-memoized is one of memoized, with the channel of its group.
    assert all(kind in names for kind in set(MECHANISMS) - {"classical", "paper-coin", "learned-memoized"})


def test_the_systems_coins_are_audited_too():
    subject = mechanism_subject(Clamp(1.0), 2, coins=lambda seed: SystemCoins())
    assert not subject.audit(100_000, FALSE_ALARM).refuted


@pytest.mark.parametrize("mechanism", [Clamp(1.0), TrackingClamp(0.5)], ids=repr)
def test_a_claim_a_tenth_too_small_is_refuted(mechanism):
    claims = per_report(0.9 * mechanism.epsilon, 2)
    outcome = audit(MechanismReporter(mechanism), claims, trials=200_000, seed=2, false_alarm=FALSE_ALARM)
    assert outcome.verdict == "refuted"
    assert outcome.worst.lower > outcome.worst.claim.epsilon


def test_a_true_claim_is_refuted_no_more_often_than_allowed():
    """60 audits of a reporter that has exactly the claimed epsilon, at a false-alarm rate of 0.2 each."""
    reporter = MechanismReporter(Clamp(1.0))
    signals = {name: usual_signals(2)[name] for name in ("usual", "on and off")}
    times = {"trials": 2000, "explore": 200, "costs": EXTREMES, "signals": signals, "false_alarm": 0.2}
    claims = per_report(1.0, 2)
    refuted = sum(audit(reporter, claims, seed=seed, **times).refuted for seed in range(60))
    assert binom.sf(refuted - 1, 60, 0.2) > FALSE_ALARM
    sabotaged = per_report(0.8, 2)
    assert sum(audit(reporter, sabotaged, seed=seed, **times).refuted for seed in range(60)) > 40


# Sabotaged


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
    assert smallest_caught(1.0, trials, FALSE_ALARM / (4 * len(claims))) < true < 1.014
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


def exact_epsilon(low, high, honest, delta):
    """The least epsilon at delta of one sum, the others all at low: by the binomial distribution itself."""
    others = binom.pmf(np.arange(honest + 1), honest, low)
    p, q = (np.append(others, 0.0) * (1.0 - own) + np.append(0.0, others) * own for own in (high, low))
    below, above = 0.0, 10.0
    for _ in range(60):
        middle = 0.5 * (below + above)
        worst = max(np.maximum(0.0, a - math.exp(middle) * b).sum() for a, b in ((p, q), (q, p)))
        below, above = (below, middle) if worst <= delta else (middle, above)
    return below


@pytest.mark.parametrize(("honest", "least"), [(3, 0.93), (5, 0.9), (10, 0.8)])
def test_the_sum_agrees_with_its_account(honest, least):
    """The lower bound stays below what the sum really tells, which is below the account, and comes near both."""
    mechanism, trials = Clamp(1.0), 200_000
    outcome = sum_subject(mechanism, honest, 1).audit(trials, FALSE_ALARM, seed=10)
    for found in outcome.findings:
        exact = exact_epsilon(*mechanism.parameters(), honest, found.claim.delta)
        assert found.lower <= exact <= found.claim.epsilon * (1.0 + 1e-9)
    assert outcome.findings[0].lower > least * outcome.findings[0].claim.epsilon


@dataclasses.dataclass(frozen=True)
class FewOthers(SumReporter):
    """Counts on five others, and has two."""

    def __call__(self, costs, signals, trials, seed):
        return SumReporter(self.mechanism, 2)(costs, signals, trials, seed)


@dataclasses.dataclass(frozen=True)
class QuietOthers(SumReporter):
    """The others' box is wider than claimed, so that they hardly ever come and hide little."""

    def __call__(self, costs, signals, trials, seed):
        one = MechanismReporter(self.mechanism, averaging=Averaging(by="probability"))
        other = MechanismReporter(Clamp(3.0), averaging=Averaging(by="probability"))
        ids, dear = np.arange(trials, trials * (self.honest + 1)), usual_costs()["dear"]
        crowd = other.bits(dear, signals, ids, SeededCoins(seed)).reshape(trials, self.honest, -1)
        return one(costs, signals, trials, seed) + crowd.sum(axis=1)


@pytest.mark.parametrize("reporter", [FewOthers, QuietOthers])
@pytest.mark.parametrize("rounds", [1, 2])
def test_a_sabotaged_sum_is_caught(reporter, rounds):
    subject = sum_subject(Clamp(1.0), 5, rounds)
    sabotaged = dataclasses.replace(subject, reporter=reporter(Clamp(1.0), 5))
    assert sabotaged.audit(100_000, FALSE_ALARM, seed=11).verdict == "refuted"


def test_neighbours_with_one_coin_are_caught():
    subject = sum_subject(Clamp(1.0), 3, 1)
    shared = dataclasses.replace(subject, reporter=OneCoin(Clamp(1.0), 3))
    assert shared.audit(100_000, FALSE_ALARM, seed=12).verdict == "refuted"


@dataclasses.dataclass(frozen=True)
class OneCoin(SumReporter):
    """All toss the same coin."""

    def __call__(self, costs, signals, trials, seed):
        one = MechanismReporter(self.mechanism, averaging=Averaging(by="probability"))
        return one(costs, signals, trials, seed) + self.honest * one(usual_costs()["dear"], signals, trials, seed)


def test_a_box_that_follows_the_average_has_no_account_of_sums():
    with pytest.raises(ValueError, match="averaging by 'probability'"):
        of_sum(TrackingClamp(1.0), 5, 1)


# Reporters


def test_a_plain_function_is_enough():
    random = np.random.default_rng(13)

    def reporter(costs, signals):
        return random.random(len(signals)) < (0.75 if costs.slope(np.array([0.5]))[0] < 1.0 else 0.25)

    assert audit(reporter, per_report(0.8, 2), trials=3000, seed=13).refuted
    assert not audit(reporter, per_report(math.log(3.0), 2), trials=3000, seed=13).refuted


@pytest.mark.parametrize(
    ("reporter", "says"),
    [
        (lambda costs, signals: [1], r"must be of shape \(2,\)"),
        (lambda costs, signals: [[1], [1, 0]], "must be of shape"),
        (lambda costs, signals: [0, 2], "must be 0 or 1, got 2"),
        (lambda costs, signals: [0.5, 1], r"must be 0 or 1, got 0\.5"),
        (lambda costs, signals: [np.nan, 1], "must be 0 or 1, got nan"),
        (lambda costs, signals: ["yes", "no"], "must be 0 or 1, got type"),
        (lambda costs, signals: 1 / 0, "raised ZeroDivisionError: division by zero"),
    ],
)
def test_reporters_that_do_not_answer(reporter, says):
    with pytest.raises(ReporterProblem, match=says):
        audit(reporter, per_report(1.0, 2), trials=100)


def test_bad_arguments():
    claims = per_report(1.0, 2)
    with pytest.raises(ValueError, match="reporter must be a function, got int"):
        as_reporter(3)
    with pytest.raises(ValueError, match="reporter must be of the form"):
        as_reporter(lambda costs: 1)
    for changes, says in (
        ({"costs": {"one": usual_costs()["dear"]}}, "costs must be two or more"),
        ({"costs": {"a": PolynomialCosts([[1.0], [2.0]], (2,)), "b": usual_costs()["dear"]}}, "each of one client"),
        ({"signals": {"short": [1.0]}}, r"signals must be one or more of shape \(2,\)"),
        ({"trials": 0}, "trials must be"),
        ({"false_alarm": 0.0}, "false_alarm must be"),
    ):
        with pytest.raises(ValueError, match=says):
            audit(MechanismReporter(Clamp(1.0)), claims, **changes)
    with pytest.raises(ValueError, match="claims must be one or more"):
        audit(MechanismReporter(Clamp(1.0)), [*claims, *per_report(1.0, 3)])
    with pytest.raises(ValueError, match="classical must be one with a bound"):
        of_mechanism(Classical(), 2)


def test_the_same_seed_gives_the_same_outcome_and_progress_is_told():
    told = []
    runs = [
        mechanism_subject(Clamp(1.0), 2).audit(3000, 0.1, seed=14, progress=lambda *now: told.append(now))
        for _ in range(2)
    ]
    assert runs[0] == runs[1] != mechanism_subject(Clamp(1.0), 2).audit(3000, 0.1, seed=15)
    assert told[len(told) // 2 - 1][0] == told[len(told) // 2 - 1][1]


def test_ctrl_c_leaves_what_is_done():
    calls = itertools.count()
    honest = MechanismReporter(Clamp(1.0))

    def reporter(costs, signals):
        if next(calls) > 2 * 200 + 2500:
            raise KeyboardInterrupt
        return honest(costs, signals, 1, next(calls))[0]

    only = {"usual": np.ones(1)}
    with pytest.raises(AuditInterrupted) as stop:
        audit(reporter, per_report(0.1, 1), trials=50_000, explore=200, costs=EXTREMES, signals=only, seed=16)
    assert 0 < stop.value.audit.worst.trials < 50_000
    assert issubclass(AuditInterrupted, KeyboardInterrupt)


def test_mechanisms_of_ones_own_are_audited_by_their_box():
    class Half(Mechanism):
        kind = "half"

        @staticmethod
        def response(intent, average, parameters):
            return intent

        @staticmethod
        def limits(average, parameters):
            return 0.4, 0.6

    claims = of_mechanism(Half(), 2)
    assert claims[0].epsilon == pytest.approx(math.log(1.5))
    assert not audit(MechanismReporter(Half()), claims, trials=20_000, seed=17).refuted


def cheap_says_yes(costs, signals):
    """A reporter that tells its cost, nine times in ten."""
    return [(costs.slope(0.5)[0] < 1) ^ (np.random.default_rng().random() < 0.1)]


@pytest.mark.parametrize("number", [1, 2])
def test_the_false_alarm_rate_is_shared_among_all_tests(number):
    """Each of the events that were chosen may raise a false alarm, so each gets its part of the rate."""
    claims = [claim for _ in range(number) for claim in per_report(1.0, 1)[:1]]
    found = audit(cheap_says_yes, claims, trials=1500, seed=3)
    assert found.tests == FINALISTS * number
    for finding in found.findings:
        counts = finding.hits, finding.trials, finding.other_hits, finding.other_trials
        assert finding.lower == epsilon_at_least(*counts, found.false_alarm / found.tests, finding.claim.delta)
        assert finding.trials == finding.other_trials == 1500


@pytest.mark.parametrize(("trials", "explore"), [(200, 100), (3000, 300)])
def test_progress_ends_where_it_said(trials, explore):
    """A tenth of the trials, but at least a hundred, of each cost and signal choose the events."""
    told = []
    costs = {"cheap": PolynomialCosts([[0.1]], (2,)), "dear": PolynomialCosts([[9.0]], (2,))}
    signals = {"one": np.ones(1)}
    found = audit(
        cheap_says_yes, per_report(1.0, 1), trials=trials, costs=costs, signals=signals,
        progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert told[-1] == (2 * (explore + trials), 2 * (explore + trials))
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert 2 * explore in [done for done, _ in told]
    assert found.trials == trials


def test_chances_of_an_answer_after_another():
    """By column, with half a count for what was never seen."""
    found = _transitions(np.array([[0, 1], [0, 1], [0, 0], [1, 1]], dtype=np.uint8), 2)
    first, second = [[3.5 / 5, 1.5 / 5], [0.5, 0.5]], [[1.5 / 4, 2.5 / 4], [0.25, 0.75]]
    np.testing.assert_allclose(found, [first, second])
    three = _transitions(np.array([[2, 0], [2, 2]]), 3)
    np.testing.assert_allclose(three.sum(axis=2), 1.0)
    np.testing.assert_allclose(three[1, 2], [1.5 / 3.5, 0.5 / 3.5, 1.5 / 3.5])


def test_the_usual_signals():
    """A fair server, and those that are not: each different one once, each of the length asked for."""
    found = usual_signals(4, scale=2.0)
    expected = {
        "usual": [2, 2, 2, 2],
        "zero": [0, 0, 0, 0],
        "negative": [-2, -2, -2, -2],
        "huge": [1e300] * 4,
        "infinite": [np.inf] * 4,
        "NaN": [np.nan] * 4,
        "on and off": [0, 2, 0, 2],
        "with NaN": [2, np.nan, 2, np.nan],
        "rising": [0.5, 0.5 * 16 ** (1 / 3), 0.5 * 16 ** (2 / 3), 8],
        "falling": [8, 8 / 16 ** (1 / 3), 8 / 16 ** (2 / 3), 0.5],
    }
    assert list(found) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values)
    alone = usual_signals(1)  # in one round "on and off" is zero, and "with NaN" the usual one
    assert list(alone) == ["usual", "zero", "negative", "huge", "infinite", "NaN", "rising", "falling"]
    assert (alone["rising"].tolist(), alone["falling"].tolist()) == ([0.25], [4.0])
