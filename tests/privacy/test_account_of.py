"""The account of a mechanism: the worst of its boxes, against the one or the other observer."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from turnout import Averaging, Classical, PaperCoin
from turnout.algorithm import Clamp, Mechanism, Memoized, TrackingClamp, on_the_coin, widest_box
from turnout.privacy.accounting import total_epsilon
from turnout.privacy.accounts import account_of
from turnout.privacy.observer import OTHERS_REPORT, OWN_BIT, PUBLIC_HISTORY, SUM, TRUSTED_AGGREGATOR, Observer
from turnout.privacy.sum_only import total_epsilon_sum_only

DELTA = 1e-6


def of_sum(honest):
    return Observer(SUM, honest, averaging=Averaging(by="probability"))


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
    assert account_of(Uneven(), 30, DELTA) == total_epsilon(*on_the_coin(0.1, 0.6), 30, DELTA).assuming(OWN_BIT)
    among = {(0.4, 0.5): (0.1, 0.6), (0.1, 0.6): (0.1, 0.5), (0.1, 0.4): (0.1, 0.6)}  # a box that holds all others'
    worst = max(total_epsilon_sum_only(*box, 30, DELTA, 2, others).epsilon for box, others in among.items())
    found = account_of(Uneven(), 30, DELTA, of_sum(2))
    assert found.epsilon == pytest.approx(worst, rel=1e-12)  # ours are whole words of the coin
    assert found.against == "an observer of the sum alone, with 2 honest others"


def test_one_box_against_either_observer():
    box = Clamp(1.0, 0.2).parameters()
    seen, summed = account_of(Clamp(1.0, 0.2), 10, DELTA), account_of(Clamp(1.0, 0.2), 10, DELTA, of_sum(50))
    assert seen == total_epsilon(*box, 10, DELTA)  # type: ignore[call-arg]
    assert summed == total_epsilon_sum_only(*box, 10, DELTA, 50).assuming(TRUSTED_AGGREGATOR, OTHERS_REPORT)  # type: ignore[call-arg]
    assert (seen.against, summed.against) == ("an observer of every report", str(of_sum(50)))
    assert summed.epsilon < seen.epsilon
    nobody = account_of(Clamp(1.0, 0.2), 10, DELTA, of_sum(0))
    assert (nobody.epsilon, nobody.against) == (seen.epsilon, "an observer of the sum alone, with 0 honest others")


def test_a_box_that_moves_gives_away_no_more_than_the_widest():
    found = account_of(TrackingClamp(0.5), 40, DELTA)
    assert found == replace(total_epsilon(*widest_box(0.5), 40, DELTA), epsilon=found.epsilon).assuming(PUBLIC_HISTORY)
    assert found.epsilon == pytest.approx(total_epsilon(*widest_box(0.5), 40, DELTA).epsilon, rel=1e-12)
    with pytest.raises(ValueError, match="averages are not public"):
        account_of(TrackingClamp(0.5), 40, DELTA, of_sum(1000))


@pytest.mark.parametrize("observer", [Observer(), of_sum(1000)], ids=str)
def test_releases_made_once_and_mechanisms_without_a_bound(observer):
    once = account_of(Memoized(4.0, 10.0), 40, DELTA, observer)
    assert (once.epsilon, once.delta, once.rounds, once.against) == (4.0, 0.0, 40, str(observer))
    assert once.how == "one release at joining, pure"
    for mechanism, why in (
        (Classical(), "the probability is the intent itself"),
        (PaperCoin(1.0), 'at intent 1 a "no"'),
    ):
        found = account_of(mechanism, 40, DELTA, observer)
        assert (found.epsilon, found.delta, found.rounds, found.against) == (math.inf, DELTA, 40, str(observer))
        assert found.how.startswith(why)
