"""Mechanisms of one's own: what is derived from ours is certified by its own box; what cannot be checked is said."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from turnout.algorithm import WORDS, Clamp, Mechanism, Memoized, OneRelease, TrackingClamp, widest_box
from turnout.privacy.accounting import report_epsilon
from turnout.privacy.certificates import box_epsilon, certificate
from turnout.privacy.observer import OWN_BIT, OWN_BOXES, OWN_CHANNEL, OWN_PROBABILITY, PUBLIC_HISTORY, RELEASED_ONCE


class Wider(Clamp):
    """Derived from one of ours, with another box."""

    def parameters(self):
        return 0.01, 0.99


class WiderTracking(TrackingClamp):
    """The same where the box follows the average."""

    @staticmethod
    def limits(average, parameters):
        return average * 0.01, 1.0 - (1.0 - average) * 0.01


class Careless(Clamp):
    """Leaves its own box."""

    def probability(self, intent, public, memory=None):
        return np.asarray(intent)


@dataclass(frozen=True)
class Channel(OneRelease):
    """A channel from elsewhere."""

    epsilon: float = 2.0
    kind = "channel"

    def enrol(self, costs, uniform, weights=1, share=None):
        return costs


class ReleasesMore(Clamp):
    """A box, and a release that nobody has bounded."""

    def enrol(self, costs, uniform, weights=1, share=None):
        return costs


def test_what_is_derived_has_the_certificate_of_its_own_box():
    assert certificate(Clamp(1.0)).epsilon == 1.0
    assert certificate(Wider(1.0)).epsilon == pytest.approx(math.log(99.0))
    assert certificate(WiderTracking(1.0)).epsilon > 4.0
    assert certificate(ReleasesMore(1.0)).epsilon == math.inf


def test_what_cannot_be_checked_is_said():
    assert certificate(Memoized(2.0, 1.0)).assumptions == (RELEASED_ONCE,)
    assert certificate(Channel()).assumptions == (RELEASED_ONCE, OWN_BIT, OWN_CHANNEL)
    assert certificate(Careless(1.0)).assumptions == (OWN_BIT, OWN_PROBABILITY)
    assert f"against an observer of every report, if {OWN_BIT}, and {OWN_PROBABILITY} (" in str(
        certificate(Careless(1.0))
    )
    assert certificate(TrackingClamp(1.0)).assumptions == (PUBLIC_HISTORY,)
    assert certificate(WiderTracking(1.0)).assumptions == (PUBLIC_HISTORY, OWN_BIT, OWN_BOXES)


def test_a_box_counts_as_the_words_of_the_real_coin():
    """Exactly, in whole words: with the ends as they are, the bound of many narrow boxes was too small."""
    random, below = np.random.default_rng(1), 0
    for low in random.uniform(0.001, 0.4, 300):
        high = low * (1.0 + random.uniform(1e-9, 1e-6))
        yes, no = (math.ceil(Fraction(end) * WORDS) for end in (high, low))
        truth = max(Fraction(yes, no), Fraction(WORDS - no, WORDS - yes))
        exact = math.log1p(float(truth - 1))
        assert box_epsilon(low, high) >= exact
        below += report_epsilon(low, high) < exact
    assert below > 20  # the twin


class Fixed(Mechanism):
    """A box in the middle of nowhere."""

    kind = "fixed"

    @staticmethod
    def response(intent, average, parameters):
        return intent

    @staticmethod
    def limits(average, parameters):
        return 0.1, 0.3


def test_a_mechanism_that_keeps_to_the_rules_needs_no_further_assumption():
    assert certificate(Fixed()).assumptions == (OWN_BIT,)
    assert certificate(Fixed()).epsilon == pytest.approx(math.log(3.0))


E = "2.71828182845904523536028747135266249775724709369995"


@dataclass(frozen=True)
class Stating(Mechanism):
    """A box, one or many, and what it says of it."""

    epsilon: object
    low: object
    high: object
    kind = "stating"

    def parameters(self):
        return self.low, self.high

    @staticmethod
    def response(intent, average, parameters):
        return intent

    @staticmethod
    def limits(average, parameters):
        return parameters


def test_what_is_stated_is_repeated_only_if_the_box_keeps_it_to_the_word():
    low, high = widest_box(1.0)
    assert certificate(Stating(1.0, low, high)).epsilon == 1.0
    assert certificate(Stating(2, low, high)).epsilon == 2.0  # a bound too
    for more in range(1, 4):  # words, at each end
        words = round(low * WORDS) - more, round(high * WORDS) + more
        found = certificate(Stating(1.0, words[0] / WORDS, words[1] / WORDS)).epsilon
        assert (found == 1.0) == (Fraction(words[1], words[0]) <= Fraction(E))
    assert found > 1.0
    assert certificate(Stating(0.5, 0.1, 0.3)).epsilon == pytest.approx(math.log(3.0))
    many = certificate(Stating(1.0, np.array([low, 0.25]), np.array([high, 0.75])))  # one of them does not
    assert many.epsilon == pytest.approx(math.log(3.0))
    assert certificate(Stating(30.0, 0.0, 0.5)).epsilon == math.inf


@pytest.mark.parametrize("stated", [math.nan, math.inf, -1.0, 0.0, 31.0, None, "1", np.array([1.0])])
def test_what_is_stated_and_means_nothing_is_left_to_the_box(stated):
    assert certificate(Stating(stated, 0.25, 0.75)).epsilon == pytest.approx(math.log(3.0))


class TakesTheName(TrackingClamp):
    """Says that it is ours."""

    kind = "tracking-clamp"


class SaysALifetime(Clamp):
    """States the epsilon of a release, and releases nothing."""

    release_epsilon = 0.1


def test_a_name_brings_no_proof_and_a_word_no_lifetime():
    assert certificate(TakesTheName(1.0)).assumptions == (PUBLIC_HISTORY, OWN_BIT, OWN_BOXES)
    assert certificate(TakesTheName(1.0)).epsilon == 1.0  # at the averages that were looked at
    assert (certificate(SaysALifetime(1.0)).epsilon, certificate(SaysALifetime(1.0)).per) == (1.0, "report")
