"""Sums with noise: an audit's lower bound, the exact law and the account; and every sabotage is refuted.

All audits here have a false-alarm rate of 1e-6, and seeds, so that the outcome is always the same.
"""

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from privacy.test_noisy_sum import exact_epsilon
from statistical.binomial import FALSE_ALARM
from turnout import Classical, Prior, SumNoise, SystemCoins
from turnout.algorithm import Clamp, Mechanism, Memoized
from turnout.audit.claims import Claim, of_sum
from turnout.audit.events import Event, Weighed
from turnout.audit.noisy_sums import NoisySumReporter, noisy_sum_subject
from turnout.audit.reporters import usual_costs
from turnout.privacy import Observer, account_of, total_epsilon_noisy_sum


def seen(sigma=3.0, weights=None, **noise):
    return Observer("noisy-sum", noise=SumNoise(sigma, **noise), weights=weights)


def subject(sigma=3.0, rounds=2, weights=None, mechanism=None, **options):
    return noisy_sum_subject(mechanism or Classical(), seen(sigma, weights), rounds, simulated=True, **options)


def audited(one, trials=100_000, seed=1):
    return one.audit(round(trials / one.share), FALSE_ALARM, seed=seed)


# The attack attains what the theorem allows


@pytest.mark.parametrize(
    ("sigma", "rounds", "weight"), [(3.0, 1, 1), (3.0, 4, 1), (3.0, 2, 3), (10.0, 16, 2), (1.0, 2, 1)]
)
def test_the_lower_bound_is_below_the_exact_law_and_near_it(sigma, rounds, weight):
    outcome = audited(subject(sigma, rounds, [weight, 1, 1]), 200_000)
    assert outcome.verdict == "not refuted", str(outcome)
    for found in outcome.findings:
        exact = exact_epsilon({sigma: rounds}, found.claim.delta, weight)
        assert found.lower <= exact <= found.claim.epsilon * (1 + 1e-9) <= exact * 1.002
        if found.claim.delta == 0.01:
            assert found.lower > 0.75 * exact
        if found.claim.delta == 1e-6:
            assert found.lower > 0.45 * exact  # so rare an event needs more trials


def test_what_one_percent_less_noise_would_show_needs_the_exact_law():
    """An audit sees a tenth: an account for a sigma that is a tenth too large is refuted."""
    one = subject(3.0, 4)
    claims = of_sum(Classical(), seen(3.3), 4)
    assert audited(replace(one, claims=claims), 1_000_000).verdict == "refuted"


def test_more_and_less_noise_in_some_rounds():
    noise = SumNoise(6.0, early=2, early_sigma=2.0)
    one = noisy_sum_subject(Classical(), Observer("noisy-sum", noise=noise), 6, simulated=True)
    (statistic,) = one.statistics
    assert isinstance(statistic, Weighed)
    assert statistic.weights == pytest.approx([1, 1, 1 / 9, 1 / 9, 1 / 9, 1 / 9])
    outcome = audited(one, 200_000)
    middle = outcome.findings[1]
    exact = exact_epsilon({2.0: 2, 6.0: 4}, 0.01)
    assert 0.85 * exact < middle.lower <= exact
    assert str(outcome.worst.event).startswith("the sums together ")


def test_rounds_that_are_not_opened_show_nothing():
    observer = seen(3.0, every=2)
    reporter = NoisySumReporter(Classical(), observer, simulated=True)
    answers = reporter(usual_costs()["cheap"], np.ones(4), 500, 1)[:, :, 0]
    assert np.all(answers[:, [0, 2]] == reporter.reach)
    assert np.ptp(answers[:, 1]) > 0
    outcome = noisy_sum_subject(Classical(), observer, 4, simulated=True).audit(100_000, FALSE_ALARM, seed=2)
    assert outcome.verdict == "not refuted"
    assert outcome.findings[1].lower > 0.75 * exact_epsilon({3.0: 2}, 0.01)


@pytest.mark.parametrize("coins", [None, lambda seed: SystemCoins()], ids=["seeded", "the system's"])
def test_the_noise_of_real_use(coins):
    """`SumNoise.draw`, which simulations do not use, has the promised law; some 10,000 trials of one round.

    The system's coins may find less than the seeded ones by chance; that they find no more is the promise (1e-6).
    """
    more = {} if coins is None else {"coins": coins}
    one = noisy_sum_subject(Classical(), seen(2.0, [2, 1]), 1, **more)
    assert one.share == 0.4
    outcome = audited(one, 10_000, seed=3 if coins is None else None)
    assert outcome.verdict == "not refuted", str(outcome)
    if coins is None:
        assert outcome.findings[1].lower > 0.5 * exact_epsilon({2.0: 1}, 0.01, 2)


@dataclass(frozen=True, eq=False)
class StopsWhenSure(NoisySumReporter):
    """The client is asked no more once what was seen points clearly to one of the two costs."""

    def asked(self, signal, left):
        return signal if not left else np.where(np.abs(2 * sum(left)[:, 0] - len(left)) < 8, signal, 0.0)


@dataclass(frozen=True, eq=False)
class AsksWhenLow(NoisySumReporter):
    """The client is asked where the last opened sum was low."""

    def asked(self, signal, left):
        return signal if not left else np.where(left[-1][:, 0] <= 0, signal, 0.0)


@pytest.mark.parametrize("reporter", [StopsWhenSure, AsksWhenLow])
def test_other_adaptive_signals_show_no_more(reporter):
    plain = subject(3.0, 4, [1, 1, 1])
    adaptive = replace(plain, reporter=reporter(Classical(), seen(3.0, [1, 1, 1]), simulated=True))
    outcome = audited(adaptive, 100_000)
    assert outcome.verdict == "not refuted"
    assert 0.2 < outcome.findings[1].lower < audited(plain, 100_000).findings[1].lower


def test_the_others_follow_the_opened_sums_and_are_known():
    """Different signals for each client: what is left is the same noise around the client's own bit."""
    alone, among = (
        NoisySumReporter(Classical(), seen(3.0, weights), prior=Prior(0.5, 10), simulated=True)
        for weights in (None, [1, 5, 7])
    )
    for cost in ("cheap", "expensive"):
        one, other = (reporter(usual_costs()[cost], np.ones(3), 1000, 4) for reporter in (alone, among))
        np.testing.assert_array_equal(one, other)


def test_boxes_and_releases_have_their_own_smaller_account():
    for mechanism in (Clamp(0.1), Memoized(0.5, price=10.0)):
        outcome = audited(subject(1.0, 2, mechanism=mechanism), 50_000)
        assert outcome.verdict == "not refuted", str(outcome)
        assert outcome.findings[0].claim.epsilon <= 0.5


# Sabotages


@dataclass(frozen=True, eq=False)
class OpensTwice(NoisySumReporter):
    """Draws new noise when a sum is sent again."""

    def seen(self, round, total, known, noise):
        return np.stack([total + noise(again) - known for again in (round, round + 1000)], axis=1)


@dataclass(frozen=True, eq=False)
class SendsAgain(NoisySumReporter):
    """Sends the same opened sum again: the twin of OpensTwice that is right."""

    def seen(self, round, total, known, noise):
        return np.stack([total + noise(round) - known] * 2, axis=1)


@dataclass(frozen=True, eq=False)
class Acknowledges(NoisySumReporter):
    """Says whether the true sum passes a hard limit, which the observer lets the others just reach."""

    def seen(self, round, total, known, noise):
        return np.stack([total + noise(round) - known, total > known], axis=1)


@dataclass(frozen=True, eq=False)
class AcknowledgesOpened(NoisySumReporter):
    """Says whether the opened sum passes a limit: its twin that is right."""

    def seen(self, round, total, known, noise):
        opened = total + noise(round)
        return np.stack([opened - known, opened > known], axis=1)


@dataclass(frozen=True, eq=False)
class SameNoise(NoisySumReporter):
    """Uses the noise of round 0 in all rounds."""

    def seen(self, round, total, known, noise):
        return (total + noise(0) - known)[:, None]


@pytest.mark.parametrize(
    ("reporter", "verdict"),
    [
        (OpensTwice, "refuted"),
        (SendsAgain, "not refuted"),
        (Acknowledges, "refuted"),
        (AcknowledgesOpened, "not refuted"),
        (SameNoise, "refuted"),
    ],
)
def test_a_sabotaged_server_is_caught_and_its_twin_is_not(reporter, verdict):
    healthy = subject(3.0, 2, [2, 1, 1])
    sabotaged = replace(healthy, reporter=reporter(Classical(), seen(3.0, [2, 1, 1]), simulated=True))
    outcome = audited(sabotaged)
    assert outcome.verdict == verdict, str(outcome)
    assert audited(healthy).verdict == "not refuted"


def test_a_sum_that_is_opened_twice_shows_what_twice_the_rounds_would():
    """The observer averages: the bound passes the account of 2 rounds, and stays below that of 4."""
    twice = replace(subject(3.0, 2), reporter=OpensTwice(Classical(), seen(3.0), simulated=True))
    found = audited(twice, 400_000).findings[1]
    assert exact_epsilon({3.0: 2}, 0.01) < found.lower <= exact_epsilon({3.0: 4}, 0.01)


def test_a_weight_that_is_ignored_is_caught():
    heavy = subject(3.0, 2, [3, 1, 1])
    ignored = replace(heavy, claims=of_sum(Classical(), seen(3.0), 2))
    assert audited(heavy).verdict == "not refuted"
    assert audited(ignored).verdict == "refuted"


@dataclass(frozen=True)
class ThinTail(SumNoise):
    """Redraws what is beyond some sigmas."""

    sigmas_kept: float = 2.5

    def draw(self, round, *below):
        while True:
            drawn = super().draw(round, *below)
            if abs(drawn) <= self.sigmas_kept * self.sigma:
                return drawn


@pytest.mark.parametrize("kept", [2.0, 2.5])
def test_a_sampler_with_a_thin_tail_is_caught(kept):
    """By values that the noise cannot reach under the other cost; a heavy client sees the cut soonest."""
    thin = Observer("noisy-sum", noise=ThinTail(3.0, sigmas_kept=kept), weights=[4, 1])
    outcome = audited(noisy_sum_subject(Classical(), thin, 1), 10_000)
    assert outcome.verdict == "refuted", str(outcome)
    assert outcome.worst.other_hits == 0
    whole = Observer("noisy-sum", noise=SumNoise(3.0), weights=[4, 1])
    assert audited(noisy_sum_subject(Classical(), whole, 1), 10_000).verdict == "not refuted"


def test_the_account_of_bounded_noise_holds_and_one_that_ignores_the_bound_is_caught():
    held, delta = Observer("noisy-sum", noise=SumNoise(3.0, bound=9), weights=[4, 1]), 0.05
    for observer, verdict in ((held, "not refuted"), (replace(held, noise=SumNoise(3.0)), "refuted")):
        account = account_of(Classical(), 1, delta, observer)
        claims = (Claim(account.epsilon, 1, delta, against=account.against),)
        outcome = audited(noisy_sum_subject(Classical(), held, 1, simulated=True, claims=claims), 1_000_000)
        assert outcome.verdict == verdict, str(outcome)


@dataclass(frozen=True)
class Box(Mechanism):
    """The intent in a wide box."""

    low: float = 0.02
    high: float = 0.5
    kind = "a box"

    @staticmethod
    def response(intent, average, parameters):
        return intent

    def parameters(self):
        return self.low, self.high

    @staticmethod
    def limits(average, parameters):
        return parameters


def test_high_minus_low_as_a_sensitivity_is_caught():
    """As if a client that is in [0.02, 0.5] moved the sum by 0.48: the noise would then count as 1 / 0.48 times it."""
    one = subject(1.0, 1, mechanism=Box())
    wrong = []
    for delta in (1e-3, 0.01, 0.1):
        account = total_epsilon_noisy_sum(SumNoise(1.0 / (0.5 - 0.02)), 1, delta)
        wrong.append(Claim(account.epsilon, 1, delta, against=account.against))
    outcome = audited(replace(one, claims=tuple(wrong)), 1_000_000)
    assert outcome.verdict == "refuted", str(outcome)
    assert audited(one, 1_000_000).verdict == "not refuted"


# docs/audit.md

ROW = re.compile(r"^\| (\d+) \| (\d+) \| (\d+) \|" + r" ([\d.]+) / ([\d.]+) / ([\d.]+) \|" * 3 + "$", re.MULTILINE)


@pytest.mark.deployment
def test_the_table_of_the_document():
    """The account and the exact law to all digits; some lower bounds too, the others with a tenth of the trials."""
    page = Path(__file__).parents[2] / "docs" / "audit.md"
    rows = [[float(one) for one in row] for row in ROW.findall(page.read_text())]
    assert len(rows) == 5
    for sigma, rounds, weight, *figures in rows:
        one = subject(sigma, int(rounds), [int(weight)])
        outcome = one.audit(1_000_000 if rounds < 4 else 100_000, FALSE_ALARM, seed=1)
        told = zip(figures[::3], figures[1::3], figures[2::3], reversed(outcome.findings), strict=True)
        for account, exact, lower, found in told:
            assert found.claim.epsilon == pytest.approx(account, abs=1.01e-4)
            assert exact_epsilon({sigma: int(rounds)}, found.claim.delta, int(weight)) == pytest.approx(exact, abs=1e-4)
            assert found.lower == pytest.approx(lower, abs=1.01e-4) if rounds < 4 else found.lower <= lower + 0.05
            assert lower <= exact <= account


# The parts


def test_the_statistic_orders_rows_as_the_likelihood_ratio_does():
    (statistic,) = subject(3.0, 3, [2]).statistics
    assert isinstance(statistic, Weighed)
    rows = np.array([[27, 27, 27], [29, 29, 29], [0, 0, 0], [54, 54, 54]])
    codes = statistic.codes(rows)
    assert codes.tolist() == [-math.floor(statistic.least), 6 - math.floor(statistic.least), 0, statistic.steps - 1]
    np.testing.assert_array_equal(codes, statistic.codes(np.repeat(rows, 2, axis=1)))  # two deliveries
    assert (
        str(Event(statistic, np.arange(50, statistic.steps))) == f"the sums together at least {statistic.least + 50:g}"
    )
    assert str(Event(statistic, np.arange(50))) == f"the sums together below {statistic.least + 50:g}"


def test_half_of_the_tested_events_are_of_the_statistic_that_was_asked_for():
    outcome = subject(3.0, 1).audit(20_000, FALSE_ALARM, seed=5)
    assert outcome.tests == 4 * 3
    assert "the sums together" in outcome.findings[0].event


def test_observers_that_make_no_sense():
    with pytest.raises(ValueError, match="observer must be of sums with noise"):
        NoisySumReporter(Classical(), Observer())
    with pytest.raises(ValueError, match="weights up to 20000"):
        NoisySumReporter(Classical(), seen(3.0, [20_000]))


def test_the_name_tells_weight_and_noise():
    assert subject(3.0).name == "classical, sums with noise (sigma 3)"
    assert subject(3.0, weights=[4]).name == "classical, sums with noise (sigma 3), weight 4"
    assert subject(3.0, weights=[4, 1]).name == "classical, sums with noise (sigma 3), weight 4 among 1"
    assert subject(3.0, 1).signals.keys() == {"yes or no"}
