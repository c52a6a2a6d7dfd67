"""The account of a mechanism: the worst of its boxes, against the one or the other observer."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from turnout import Classical, PaperCoin
from turnout.algorithm.mechanism import Mechanism
from turnout.algorithm.mechanisms import Clamp, Memoized, TrackingClamp
from turnout.algorithm.thresholds import widest_box
from turnout.privacy.account_of import account_of
from turnout.privacy.accounting import total_epsilon
from turnout.privacy.sum_only import total_epsilon_sum_only

DELTA = 1e-6
SUM = "an observer of the sum alone, with 1,000 honest others"


@dataclass(frozen=True)
class Uneven(Mechanism):
    """A box of its own for each of three clients; the middle one gives away most, the first one least."""

    kind = "uneven"

    @staticmethod
    def response(intent, average, parameters):
        return intent

    @staticmethod
    def limits(average, parameters):
        return np.array([0.4, 0.1, 0.1]), np.array([0.5, 0.6, 0.4])


def test_the_worst_client_counts_against_either_observer():
    assert account_of(Uneven(), 30, DELTA) == total_epsilon(0.1, 0.6, 30, DELTA)
    assert account_of(Uneven(), 30, DELTA, honest=7) == total_epsilon_sum_only(0.1, 0.6, 30, DELTA, 7)


def test_one_box_against_either_observer():
    box = Clamp(1.0, 0.2).parameters()
    seen, summed = account_of(Clamp(1.0, 0.2), 10, DELTA), account_of(Clamp(1.0, 0.2), 10, DELTA, honest=50)
    assert seen == total_epsilon(*box, 10, DELTA)
    assert (seen.against, summed.against) == ("an observer of every report", SUM.replace("1,000", "50"))
    assert summed.epsilon < seen.epsilon
    nobody = account_of(Clamp(1.0, 0.2), 10, DELTA, honest=0)
    assert (nobody.epsilon, nobody.against) == (seen.epsilon, "an observer of the sum alone, with 0 honest others")


def test_a_box_that_moves_gives_away_no_more_than_the_widest():
    assert account_of(TrackingClamp(0.5), 40, DELTA) == total_epsilon(*widest_box(0.5), 40, DELTA)
    with pytest.raises(ValueError, match="which is then private"):
        account_of(TrackingClamp(0.5), 40, DELTA, honest=1000)


@pytest.mark.parametrize(("honest", "against"), [(None, "an observer of every report"), (1000, SUM)])
def test_releases_made_once_and_mechanisms_without_a_bound(honest, against):
    once = account_of(Memoized(4.0, 10.0), 40, DELTA, honest)
    assert (once.epsilon, once.delta, once.rounds, once.against) == (4.0, 0.0, 40, against)
    assert once.how == "one release at joining, pure"
    for mechanism, why in (
        (Classical(), "the probability is the intent itself"),
        (PaperCoin(1.0), 'at intent 1 a "no"'),
    ):
        found = account_of(mechanism, 40, DELTA, honest)
        assert (found.epsilon, found.delta, found.rounds, found.against) == (math.inf, DELTA, 40, against)
        assert found.how.startswith(why)
