"""A certificate is never below what brute force finds, and equals it where we say so."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from turnout import Averaging, Classical, ClientState, PaperCoin, PolynomialCosts, client_step
from turnout.algorithm import CappedCoin, Clamp, Mechanism, Memoized, Public, RandomizedResponse, TrackingClamp
from turnout.privacy.certificates import box_epsilon, certificate
from turnout.privacy.lemma import lemma_epsilon
from turnout.privacy.observer import PUBLIC_HISTORY, Observer

GRID = np.concatenate([[0.0, 1e-12, 1e-6, 1.0 - 1e-6, 1.0, np.nan], np.linspace(0, 1, 101)])
AVERAGES = np.concatenate([[1e-9, 0.001, 0.999, 1.0], np.linspace(0.01, 0.99, 99)])


def brute_force(mechanism):
    """The largest log ratio of a report's probability over pairs of intents, for the same public average."""
    worst = 0.0
    for average in AVERAGES:
        yes = mechanism.probability(GRID, Public(average=np.full(len(GRID), average), signal=1.0))
        with np.errstate(divide="ignore"):
            for report in (np.log(yes), np.log1p(-yes)):
                worst = max(worst, float(np.max(report) - np.min(report)))
    return worst


@pytest.mark.parametrize(
    "mechanism",
    [
        *(
            made(epsilon)
            for made in (RandomizedResponse, Clamp, TrackingClamp)
            for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0)
        ),
        Clamp(1.0, 0.1),
        Clamp(1.0, 1e-4),
        Clamp(3.0, 0.9),
        CappedCoin(1.0, 0.5),
        CappedCoin(3.5, 0.9),
    ],
    ids=repr,
)
def test_certified_is_the_supremum(mechanism):
    found, promised = brute_force(mechanism), certificate(mechanism).epsilon
    assert promised >= found
    assert promised == pytest.approx(found, abs=1e-9)
    if hasattr(mechanism, "epsilon"):
        assert found <= mechanism.epsilon
        assert promised == pytest.approx(mechanism.epsilon, abs=2e-9)


@pytest.mark.parametrize("mechanism", [RandomizedResponse(1.0), Clamp(1.0, 0.2), CappedCoin(1.0, 0.7)], ids=repr)
def test_any_two_costs_and_any_signals(mechanism):
    """Through the whole decision: two costs, the same public history, hostile signals."""
    generator = np.random.default_rng(0)
    bound = certificate(mechanism).epsilon
    for signal in (0.0, 1e-9, 0.3, 1.0, 10.0, 1e9, np.inf, np.nan, -5.0):
        costs = PolynomialCosts(np.exp(generator.normal(0, 5, (400, 2))), (1, 3))
        yes = client_step(costs, mechanism, ClientState(np.full(400, 3.0), 10.0), signal, np.zeros(400)).probability
        for report in (np.log(yes), np.log1p(-yes)):
            assert report.max() - report.min() <= bound


def test_infinite_with_a_reason():
    for mechanism, why in ((Classical(), "the intent itself"), (PaperCoin(1.0), 'a "no" cannot happen')):
        found = certificate(mechanism)
        assert math.isinf(found.epsilon)
        assert why in str(found)
    assert math.isinf(brute_force(PaperCoin(1.0)))
    assert box_epsilon(0.5, 1.0) == math.inf


def test_a_lifetime():
    found = certificate(Memoized(4.0, 10.0))
    assert (found.epsilon, found.per) == (4.0, "lifetime")


def test_the_lemmas_counterexample():
    """beta = 1, intent 0.05 against 0.9: the Lemma says 0.252, the truth is 2.251."""
    coin = 0.5 * math.exp(-1.0)
    assert lemma_epsilon(0.05, coin) == pytest.approx(0.252, abs=0.001)
    yes = PaperCoin(1.0).probability(np.array([0.05, 0.9]), Public())
    exact = max(abs(math.log(yes[1] / yes[0])), abs(math.log((1 - yes[0]) / (1 - yes[1]))))
    assert exact == pytest.approx(2.251, abs=0.001)


def test_a_combination_without_a_guarantee_is_refused():
    with pytest.raises(ValueError, match="its box follows the average, so that the box itself would give it away"):
        certificate(TrackingClamp(1.0), Observer(averaging=Averaging(by="probability")))
    # what would go wrong: the box itself tells centres apart
    low, high = TrackingClamp(1.0).box(Public(average=np.array([0.05, 0.95])))
    assert box_epsilon(low.min(), high.max()) > 3


@dataclass(frozen=True)
class Around(Mechanism):
    """A mechanism of one's own, whose box follows the average: [0.1, 0.3] at 0, [0.5, 0.7] at 1."""

    kind = "around"
    needs_public_average = True

    @staticmethod
    def response(intent, average, parameters):
        return intent

    @staticmethod
    def limits(average, parameters):
        return 0.1 + 0.4 * average, 0.3 + 0.4 * average


def test_a_mechanism_of_ones_own_is_certified_by_its_worst_box():
    found = certificate(Around())
    assert found.epsilon == pytest.approx(math.log(3.0))  # where the average is 0
    assert (found.per, found.against) == ("report", "an observer of every report")
    assert box_epsilon([0.1, 0.4], [0.2, 0.6]) == pytest.approx(math.log(2.0))
    assert box_epsilon(0.25, [0.5, 0.75]) == pytest.approx(math.log(3.0))


def test_a_certificate_says_per_what_and_against_whom():
    assert str(certificate(Clamp(0.5, 0.2))).startswith(
        "pure epsilon 0.5 per report, against an observer of every report ("
    )
    assert f"against an observer of every report, if {PUBLIC_HISTORY} (" in str(certificate(TrackingClamp(0.5)))
    assert str(certificate(Classical())) == "no bound per report: the probability is the intent itself"
    assert certificate(PaperCoin(1.0)).per == certificate(CappedCoin(1.0, 0.5)).per == "report"
    assert "the box [0.1839, 0.592]" in str(certificate(CappedCoin(1.0, 0.5)))
    assert certificate(TrackingClamp(1.0), Observer()).epsilon == 1.0
    assert certificate(Clamp(1.0), Observer(averaging=Averaging(by="probability"))).epsilon == 1.0


@dataclass(frozen=True)
class Sudden(Mechanism):
    """A mechanism of one's own whose box is wide in a narrow range of averages alone."""

    first: float
    last: float
    kind = "sudden"
    needs_public_average = True

    def parameters(self):
        return self.first, self.last

    @staticmethod
    def response(intent, average, parameters):
        return intent

    @staticmethod
    def limits(average, parameters):
        wide = (parameters[0] <= average) & (average <= parameters[1])
        return np.where(wide, 0.2, 0.4), np.where(wide, 0.8, 0.6)


@pytest.mark.parametrize(
    "where", [(0.0, 0.0), (1e-12, 1e-6), (0.1234, 0.124), (0.75, 0.75), (1 - 1e-6, 1 - 1e-12), (1.0, 1.0)]
)
def test_a_box_that_is_wide_for_few_averages_is_found(where):
    """At both ends, just beside them, and at every multiple of 1/2000 between."""
    assert certificate(Sudden(*where)).epsilon == pytest.approx(math.log(4.0))
    assert certificate(Sudden(2.0, 3.0)).epsilon == pytest.approx(math.log(1.5))  # no average is there


class Unsaid(Around):
    """It follows the average too, and does not say so."""

    needs_public_average = False


def test_a_box_that_follows_the_average_unsaid_gets_no_certificate():
    """Rather than that of the box around some average."""
    with pytest.raises(ValueError, match=r"Unsaid\.needs_public_average must be True where .*, got False: set it"):
        certificate(Unsaid())
