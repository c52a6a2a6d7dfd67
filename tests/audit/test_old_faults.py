"""Promises that were false once: an audit refutes each of them made the old way, and not as it is made now.

All audits here have a false-alarm rate of 1e-6, and seeds, so that the outcome is always the same.
"""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from privacy.extreme_costs import EXTREMES
from statistical.binomial import FALSE_ALARM
from turnout import Averaging, ClientState, SeededCoins
from turnout.algorithm import MARGIN, WORDS, Clamp, Memoized, Public, TrackingClamp, growth, widest_box
from turnout.audit.bounds import epsilon_of_words
from turnout.audit.claims import Claim, of_mechanism, of_sum, per_report
from turnout.audit.reporters import MechanismReporter
from turnout.audit.run import audit
from turnout.audit.subjects import (
    ClampByClient,
    hidden_bits_subject,
    mechanism_subject,
    our_mechanisms,
    sum_of,
    sum_subject,
)
from turnout.privacy import Observer, account_of, certificate, least_epsilon, total_epsilon_sum_only

TRIALS = 100_000


def outcome_of(subject, trials=TRIALS, seed=1):
    return subject.audit(trials, FALSE_ALARM, seed=seed)


def sees_it(subject, seed=1):
    """With two costs and fair signals, which are enough for what shows in one sum."""
    few = {"usual": np.ones(subject.claims[0].rounds)}
    return outcome_of(dataclasses.replace(subject, costs=EXTREMES, signals=few), seed=seed)


# 1: weights


@pytest.mark.parametrize("weight", [3, 20])
@pytest.mark.parametrize("others", [5, 10])
def test_an_account_that_ignores_weights_is_refuted(weight, others):
    """A heavy client among light ones: whether it participates is nearly read off the sum."""
    weights = [weight] + [1] * others
    mended = sum_subject(Clamp(1.0), sum_of(others + 1, weights), 1)
    ignored = of_sum(Clamp(1.0), sum_of(others + 1), 1)
    assert mended.values == weight + others + 1
    assert all(old.epsilon < new.epsilon for old, new in zip(ignored[1:], mended.claims[1:], strict=True))
    refuted = sees_it(dataclasses.replace(mended, claims=ignored))
    assert [found.refuted for found in refuted.findings][1:] == [True, True], str(refuted)  # at deltas 0.01 and 0.1
    assert not sees_it(mended).refuted


def test_equal_weights_hide_as_no_weights_do():
    assert of_sum(Clamp(1.0), sum_of(6, [7] * 6), 1) == of_sum(Clamp(1.0), sum_of(6), 1)


# 3: hidden bits


@dataclasses.dataclass(frozen=True)
class TakesBack(Averaging):
    """By the probability, but a "yes" that was not counted is taken back."""

    @property
    def takes_back(self):
        return True


BY_BIT, BY_PROBABILITY, TAKES_BACK = Averaging(), Averaging(by="probability"), TakesBack(by="probability")


def crowd(averaging, honest=30):
    return Observer("sum", honest, averaging=averaging)


@pytest.mark.parametrize(
    ("refuses", "old"), [(False, BY_BIT), (True, TAKES_BACK)], ids=["by the bit", "a refused yes is taken back"]
)
def test_histories_that_hold_hidden_bits_are_caught(refuses, old):
    """The others' second bits tell their first ones, so that the noise of two sums cancels.

    The smallest crowd and the largest delta at which 100,000 trials see it well: 3.65 against an account of 3.33.
    """
    caught = outcome_of(hidden_bits_subject(crowd(old), refuses=refuses))
    assert caught.refuted
    assert (caught.worst.claim.delta, caught.worst.lower > 3.6) == (0.1, True)
    assert not outcome_of(hidden_bits_subject(crowd(BY_PROBABILITY), refuses=refuses)).refuted


def test_no_account_is_given_where_histories_hold_bits():
    with pytest.raises(ValueError, match="carries hidden bits into later sums"):
        of_sum(Clamp(3.0), crowd(BY_BIT), 2)


def joint_law(first, after_yes, after_no):
    """Of two bits: P(1) at first, then given a yes, and given a no; shape (2, 2)."""
    no, yes = np.array([1.0 - after_no, after_no]), np.array([1.0 - after_yes, after_yes])
    return np.stack([(1.0 - first) * no, first * yes])


def law_of_sums(target, other, others):
    """Of two sums of one client and so many others alike, by 2-D convolution, shape (others + 2, others + 2)."""
    first, second = other[1].sum(), other[:, 1] / other.sum(axis=1)
    sums = np.zeros((others + 2, others + 2))
    for yes in range(others + 1):
        later = np.convolve(
            binom.pmf(np.arange(yes + 1), yes, second[1]),
            binom.pmf(np.arange(others - yes + 1), others - yes, second[0]),
        )
        sums[yes, : others + 1] = binom.pmf(yes, others, first) * later
    found = np.zeros_like(sums)
    for one, two in itertools.product((0, 1), repeat=2):
        found[one:, two:] += target[one, two] * sums[: others + 2 - one, : others + 2 - two]
    return found


def exact_epsilon(p, q, delta):
    """The least epsilon at delta of two laws, both ways."""

    def worst(epsilon):
        factor = math.exp(epsilon)
        return max(float(np.maximum(0.0, a - factor * b).sum()) for a, b in ((p, q), (q, p)))

    return least_epsilon(worst, 40.0, delta)


def test_the_exact_law_of_two_sums_that_hold_hidden_bits():
    """5.13 against an account of 4.24, at epsilon 4 per report, 200 others and delta 0.01.

    The others say yes rarely; who did is in the history, and they repeat their bit if they can. The client is one that
    says no and then yes, or yes and then no.
    """
    (low, high), others, delta = widest_box(4.0), 200, 0.01
    account = total_epsilon_sum_only(low, high, 2, delta, others).epsilon
    assert account == pytest.approx(4.24, abs=0.005)
    ways = [joint_law(low, high, high), joint_law(high, low, low)]
    hidden, forgotten = joint_law(low, high, low), joint_law(low, low, low)
    exact, mended = (
        exact_epsilon(law_of_sums(ways[0], other, others), law_of_sums(ways[1], other, others), delta)
        for other in (hidden, forgotten)
    )
    assert exact == pytest.approx(5.13, abs=0.005)
    assert mended <= account < exact


def test_the_exact_law_agrees_with_an_enumeration():
    target, other = joint_law(0.3, 0.8, 0.1), joint_law(0.2, 0.6, 0.5)
    slow = np.zeros((4, 4))
    for bits in itertools.product(itertools.product((0, 1), repeat=2), repeat=3):
        chance = math.prod(law[pair] for law, pair in zip((target, other, other), bits, strict=True))
        slow[tuple(np.sum(bits, axis=0))] += chance
    np.testing.assert_allclose(law_of_sums(target, other, 2), slow, atol=1e-15)


# 4: boxes that differ by client


@pytest.mark.parametrize("others", [5, 10])
def test_an_account_that_gives_the_others_the_clients_box_is_refuted(others):
    """Others whose boxes lie near 0 hardly ever say yes, and hide nobody."""
    low, high = widest_box(1.0)
    boxes = ClampByClient(np.array([low, *[1e-4] * others]), np.array([high, *[2e-4] * others]))
    mended = sum_subject(boxes, sum_of(others + 1), 1)
    alike = of_sum(Clamp(1.0), sum_of(others + 1), 1)
    refuted = sees_it(dataclasses.replace(mended, claims=alike))
    assert [found.refuted for found in refuted.findings][1:] == [True, True], str(refuted)
    assert not sees_it(mended).refuted


# 7: a run that goes on from private averages


@dataclasses.dataclass(frozen=True)
class Continued:
    """Some rounds of clamp, then a tracking clamp by the bit from the averages that these have left."""

    averaging: Averaging
    rounds: int = 3

    def __call__(self, costs, signals, trials, seed):
        coins, clients = SeededCoins(seed), np.arange(trials)
        parts = MechanismReporter(Clamp(1.0), averaging=self.averaging), MechanismReporter(TrackingClamp(1.0))
        state, bits = ClientState(np.full(trials, 0.5), 1.0), []
        for round, signal in enumerate(signals.tolist()):
            part = parts[round >= self.rounds]
            state, some = part.step(costs[np.zeros(trials, int)], state, signal, coins.uniform(clients, round))
            bits.append(some)
        return np.stack(bits, axis=1)


def test_a_tracking_clamp_that_goes_on_from_private_averages_is_caught():
    """Its box follows the average, which held the cost: "pure epsilon 1 per report" is false of its first report."""
    claims = per_report(1.0, 4)[:1]
    caught = audit(Continued(BY_PROBABILITY), claims, trials=TRIALS, seed=1, false_alarm=FALSE_ALARM)
    assert caught.refuted
    assert "answer of round 3" in caught.worst.event  # the first one of the tracking clamp
    assert caught.worst.lower > 1.3
    public = audit(Continued(BY_BIT), claims, trials=TRIALS, seed=1, false_alarm=FALSE_ALARM)
    assert not public.refuted, str(public)


def test_what_the_first_report_after_fifty_rounds_of_private_averages_gives_away():
    """1.54, exactly, from a prior of ten rounds at a half: the box of the one average, and that of the other."""
    averages = np.array([(0.5 * 10 + 50 * chance) / 60 for chance in widest_box(1.0)])
    low, high = TrackingClamp(1.0).box(Public(average=averages))
    assert math.log(high[1] / low[0]) == pytest.approx(1.54, abs=0.005)


def test_no_promise_is_given_where_the_box_would_follow_a_private_average():
    with pytest.raises(ValueError, match="where averages are not public"):
        certificate(TrackingClamp(1.0), Observer(averaging=BY_PROBABILITY))


# 10: the margin


@dataclasses.dataclass(frozen=True)
class SmallMargin(TrackingClamp):
    """Gives up 5e-10 of every epsilon."""

    def parameters(self):
        return float(growth(self.epsilon, less=MARGIN)), float(self.floor)


def with_small_margin(epsilon):
    return mechanism_subject(SmallMargin(epsilon), 1, claims=of_mechanism(TrackingClamp(epsilon), 1))


def test_a_margin_that_no_draw_would_show_is_counted_exactly():
    grid = np.linspace(16.5, 30.0, 28).tolist()
    caught = [epsilon for epsilon in grid if with_small_margin(epsilon).exact()[0].refuted]
    assert len(caught) > 20
    (found,) = with_small_margin(caught[-1]).exact()
    assert (found.exact, found.trials, found.other_trials) == (True, WORDS, WORDS)
    assert found.lower == epsilon_of_words(found.hits, found.other_hits)
    assert f"exact: {found.hits:,} of 2^53 words against {found.other_hits:,}" in str(found)
    assert str(found).startswith("REFUTED")
    outcome = with_small_margin(caught[-1]).audit(2000, FALSE_ALARM, seed=1)
    assert (outcome.verdict, outcome.worst) == ("refuted", found)
    assert not any(one.refuted for one in outcome.findings if not one.exact)  # the draws alone see nothing
    for epsilon in (*grid, 0.1, 1.0, 14.0):
        assert not mechanism_subject(TrackingClamp(epsilon), 1).exact()[0].refuted


@pytest.mark.parametrize("subject", our_mechanisms()[:9], ids=lambda subject: subject.name)
def test_the_words_of_the_real_coin_keep_the_promise_of_each_of_ours_and_reach_it(subject):
    (found,) = subject.exact()
    assert (1.0 - 1e-8) * found.claim.epsilon < found.lower <= found.claim.epsilon
    (sabotaged,) = dataclasses.replace(subject, claims=(dataclasses.replace(found.claim, epsilon=0.99),)).exact()
    assert sabotaged.refuted == (found.claim.epsilon > 0.99)


@dataclasses.dataclass(frozen=True)
class Eager(Memoized):
    """Releases one level by a word more than it may, instead of another."""

    def words_by_level(self, costs, weights=1):
        words = super().words_by_level(costs, weights)
        best = words.argmax(axis=1)
        words[np.arange(len(words)), best] += 10**6
        words[np.arange(len(words)), (best + 1) % words.shape[1]] -= 10**6
        return words


def test_a_release_by_too_many_words_is_counted():
    assert not mechanism_subject(Memoized(4.0, 10.0), 3).exact()[0].refuted
    assert mechanism_subject(Eager(4.0, 10.0), 3).exact()[0].refuted


def test_a_certain_report_is_told_from_a_chance():
    claims = per_report(3.0, 1)
    subject = mechanism_subject(Clamp(1.0), 1, claims=claims)
    assert [found.claim for found in subject.exact()] == [claims[0]]  # nothing is counted of totals

    class Certain(Clamp):
        def parameters(self):
            return 0.0, 1.0

    (found,) = mechanism_subject(Certain(1.0), 1, claims=claims).exact()
    assert (found.lower, found.refuted, found.shown) == (math.inf, True, "inf")


def test_claims_carry_their_assumptions():
    for claims, held in (
        (of_sum(Clamp(1.0), sum_of(6), 1), ", if an aggregator that you trust hides single reports"),
        (of_mechanism(TrackingClamp(1.0), 1), ", if the client's whole history is public"),
        (
            of_mechanism(Memoized(4.0, 10.0), 1),
            ", if the cost is released once, by this mechanism, across all runs and servers",
        ),
    ):
        assert all(held in str(claim) for claim in claims)
    assert " if " not in str(of_mechanism(Clamp(1.0), 1)[0])


def test_a_sum_has_its_claims_from_the_one_account():
    for mechanism, observer in (
        (Clamp(1.0, 0.2), sum_of(9)),
        (Clamp(1.0), sum_of(4, [3, 3, 1, 1])),
        (ClampByClient.around(1.0, [0.5, 0.1, 0.9]), sum_of(3)),
    ):
        for claim in of_sum(mechanism, observer, 1):
            account = account_of(mechanism, 1, claim.delta, observer)
            assert claim == Claim(account.epsilon, 1, claim.delta, "total", 1, account.against, account.assumptions)


def test_what_is_no_mechanism_is_not_counted():
    assert sum_subject(Clamp(1.0), sum_of(3), 1).exact() == []
    assert dataclasses.replace(mechanism_subject(Clamp(1.0), 1), reporter=Continued(BY_BIT)).exact() == []


@pytest.mark.deployment
@pytest.mark.parametrize("seed", range(20))
def test_the_old_faults_are_caught_with_any_seed(seed):
    """And what holds is not refuted: 20 seeds of each, so that a false alarm has a chance of 2e-5 per case in all."""
    heavy = sum_subject(Clamp(1.0), sum_of(21, [20] + [1] * 20), 2)
    ignored = dataclasses.replace(heavy, claims=of_sum(Clamp(1.0), sum_of(21), 2))
    for refuses, old in ((False, BY_BIT), (True, TAKES_BACK)):
        assert outcome_of(hidden_bits_subject(crowd(old), refuses=refuses), seed=seed).refuted
        assert not outcome_of(hidden_bits_subject(crowd(BY_PROBABILITY), refuses=refuses), seed=seed).refuted
    assert outcome_of(ignored, seed=seed).refuted
    assert not outcome_of(heavy, seed=seed).refuted
    for averaging, caught in ((BY_PROBABILITY, True), (BY_BIT, False)):
        found = audit(Continued(averaging), per_report(1.0, 4), trials=TRIALS, seed=seed, false_alarm=FALSE_ALARM)
        assert found.refuted == caught
