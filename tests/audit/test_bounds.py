"""What counts say for certain: the bounds are bounds, no wider than needed, and the power is what it says."""

import math
import re
import sys
from decimal import Decimal, localcontext
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from statistical.binomial import FALSE_ALARM
from turnout.audit.bounds import (
    chance_at_least,
    chance_at_most,
    epsilon_at_least,
    epsilon_of_words,
    guessed_epsilon,
    smallest_detected,
)
from turnout.errors import MissingExtra


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


@pytest.mark.parametrize("error", [0.3, 1e-3, 1e-6])
def test_bounds_are_where_the_tail_has_the_chance_of_an_error(error):
    """By the binomial distribution itself; moved outwards by 1e-9 of themselves, so that rounding cannot matter."""
    for hits, trials in ((1, 1), (1, 50), (17, 50), (50, 50), (999, 1000)):
        lower = chance_at_least(hits, trials, error) / (1.0 - 1e-9)
        assert binom.sf(hits - 1, trials, lower) == pytest.approx(error, rel=1e-9)
        assert binom.sf(hits - 1, trials, chance_at_least(hits, trials, error)) < error
    for hits, trials in ((0, 1), (0, 50), (17, 50), (30, 50), (1, 1000)):
        upper = chance_at_most(hits, trials, error) / (1.0 + 1e-9)
        assert binom.cdf(hits, trials, upper) == pytest.approx(error, rel=1e-9)
        assert binom.cdf(hits, trials, chance_at_most(hits, trials, error)) < error


def test_a_chance_is_never_above_one():
    most = [chance_at_most(hits, 10**10, 1e-15) for hits in (10**10 - 1, 10**10)]
    assert most == [1.0, 1.0]
    assert [chance_at_least(0, trials, 0.1) for trials in (0, 5)] == [0.0, 0.0]
    assert [chance_at_most(trials, trials, 0.1) for trials in (0, 5)] == [1.0, 1.0]


def test_the_bound_on_epsilon():
    least = epsilon_at_least(7311, 10_000, 2689, 10_000, 1e-6)
    by_hand = math.log(chance_at_least(7311, 10_000, 5e-7) / chance_at_most(2689, 10_000, 5e-7))
    assert least == by_hand < 1.0
    less = epsilon_at_least(7311, 10_000, 2689, 10_000, 1e-6, delta=0.1)
    assert math.exp(less) == pytest.approx(math.exp(least) - 0.1 / chance_at_most(2689, 10_000, 5e-7))
    assert epsilon_at_least(7311, 10_000, 2689, 10_000, 1e-6, delta=0.0) == least
    assert epsilon_at_least(10, 10_000, 5000, 10_000, 1e-6) == 0.0
    assert epsilon_at_least(7311, 10_000, 2689, 10_000, 1e-6, delta=0.9) == 0.0
    assert epsilon_at_least(0, 0, 0, 0, 1e-6) == 0.0
    assert 8.0 < epsilon_at_least(100_000, 100_000, 0, 100_000, 1e-6) < math.log(100_000)


@pytest.mark.parametrize("error", [0.0, 1.0, -0.1, np.nan])
def test_a_bound_needs_a_rate_of_error(error):
    for bound in (chance_at_least, chance_at_most):
        with pytest.raises(ValueError, match="error must be above 0 and below 1"):
            bound(1, 3, error)


@pytest.mark.parametrize("hits", [-1, 4])
def test_an_event_happens_in_some_of_the_trials(hits):
    for bound in (chance_at_least, chance_at_most):
        with pytest.raises(ValueError, match="hits must be from 0 to the 3 trials"):
            bound(hits, 3, 0.1)


@pytest.mark.parametrize(("hits", "trials", "other_hits", "other_trials"), [
    (1, 1, 0, 1), (7, 9, 2, 50), (731, 1000, 269, 900), (40, 40, 1, 30),
])  # fmt: skip
@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_the_cautious_guess_is_three_standard_errors_away(hits, trials, other_hits, other_trials, delta):
    """Wilson's bounds: the p whose own standard error, three times, reaches what was seen."""
    steps = np.linspace(0.0, 1.0, 500_001)

    def reached(hits, trials):
        return steps[np.abs(steps - hits / trials) <= 3.0 * np.sqrt(steps * (1.0 - steps) / trials) + 1e-15]

    least, most = reached(hits, trials).min() - delta, reached(other_hits, other_trials).max()
    (guess,) = guessed_epsilon(np.array([hits]), trials, np.array([other_hits]), other_trials, delta)
    assert guess == pytest.approx(math.log(least / most), abs=1e-5 / least)


def test_the_guess_of_what_never_happened():
    """It is the worst of all, and so is one that delta alone explains; none of it warns."""
    for hits, trials, delta in ((0, 0, 0.0), (0, 1, 0.0), (0, 10_007, 0.0), (10, 1000, 0.1)):
        assert guessed_epsilon(hits, trials, 5, 10, delta) == -np.inf
    never = guessed_epsilon(np.array([5, 9]), 10, 0, 0, 0.0)  # the other cost was never drawn: as one trial without it
    np.testing.assert_allclose(never, guessed_epsilon(np.array([5, 9]), 10, 0, 1, 0.0))
    assert never[0] < 0.0


# The power


@pytest.mark.parametrize("claimed", [0.1, 1.0, 2.5])
@pytest.mark.parametrize("trials", [1000, 30_000, 200_000])
def test_the_smallest_that_is_caught(claimed, trials):
    """Caught with a chance of 0.99 however the counts fall, and hardly less is not; worked out from the counts."""
    true = smallest_detected(claimed, trials, 1e-6)

    def is_caught(true):
        yes = math.exp(true) / (1.0 + math.exp(true))
        few, many = binom.ppf(0.005, trials, yes), binom.ppf(0.995, trials, 1.0 - yes)
        return epsilon_at_least(int(few), trials, int(many), trials, 1e-6) > claimed

    assert is_caught(true)
    assert not is_caught(true * (1.0 - 1.0001e-4))
    assert smallest_detected(claimed, trials, 1e-6, chance=0.5) < true < smallest_detected(claimed, trials, 1e-9)


def test_a_claim_that_no_counts_exceed_is_never_refuted():
    most = epsilon_at_least(500, 500, 0, 500, 0.01)
    assert smallest_detected(most, 500, 0.01) == math.inf
    assert 0.999 * most < smallest_detected(0.999 * most, 500, 0.01) < math.inf
    assert smallest_detected(1.0, 10, FALSE_ALARM) == math.inf


def test_power_is_what_it_says():
    """The smallest epsilon that is detected with probability 0.99 is detected in nearly all of 30 audits."""
    error = FALSE_ALARM / 20
    true = smallest_detected(1.0, 20_000, error)
    low, random = 1.0 / (1.0 + math.exp(true)), np.random.default_rng(5)

    def caught(low):
        hits, other = random.binomial(20_000, 1.0 - low, 30), random.binomial(20_000, low, 30)
        return sum(epsilon_at_least(a, 20_000, b, 20_000, error) > 1.0 for a, b in zip(hits, other, strict=True))

    assert binom.cdf(caught(low), 30, 0.99) > FALSE_ALARM
    assert caught(1.0 / (1.0 + math.e)) == 0


def test_the_power_in_the_docs():
    """Rounded upwards."""
    page = Path(__file__).parents[2] / "docs" / "audit.md"
    rows = re.findall(r"^\| ([\d,]+) \| ([\d.]+) \|$", page.read_text(), re.MULTILINE)
    assert len(rows) == 4
    for trials, shown in rows:
        true = smallest_detected(1.0, int(trials.replace(",", "")), FALSE_ALARM / 20)
        assert f"{math.ceil(true * 1000) / 1000:.3f}" == shown


def test_without_scipy_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    with pytest.raises(MissingExtra, match=r"an audit needs scipy, .*turnout\[lab\]"):
        chance_at_least(1, 3, 0.1)
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(MissingExtra, match=r"the power of an audit needs scipy, .*turnout\[lab\]"):
        smallest_detected(1.0, 100, 0.1)


@pytest.mark.parametrize(
    ("words", "other"), [(2**53, 1), (2**53 - 1, 2**53 - 2), (3, 2), (6584790284608188, 2422408970132804), (843, 842)]
)
def test_counts_of_words_give_a_lower_bound_that_is_next_to_the_truth(words, other):
    """Compared in 100 digits: never above the logarithm of the ratio, and within two roundings of it."""
    with localcontext(prec=100):
        true, found = (Decimal(words) / Decimal(other)).ln(), Decimal(epsilon_of_words(words, other))
        assert found <= true <= Decimal(math.nextafter(math.nextafter(float(found), math.inf), math.inf))
    assert epsilon_of_words(other, words) == epsilon_of_words(other, other) == 0.0
    assert epsilon_of_words(words, 0) == math.inf
