"""What every mechanism must do. To add one: a line in ENTRIES."""

import numpy as np
import pytest

from turnout import Classical, PaperCoin
from turnout.algorithm import (
    MECHANISMS,
    CappedCoin,
    Clamp,
    LearnedMemoized,
    Memoized,
    RandomizedResponse,
    TrackingClamp,
    mechanism_from_settings,
)
from turnout.algorithm.mechanism import Public
from turnout.algorithm.mechanisms.paper_coin import coin_probability
from turnout.settings import Table

ENTRIES = [
    Classical(),
    PaperCoin(3.5),
    PaperCoin(np.array([3.5, 1.0, 2.2])),
    CappedCoin(1.0, 0.8),
    RandomizedResponse(0.5),
    Clamp(1.0),
    Clamp(1.0, 1e-4),
    TrackingClamp(0.5),
    Memoized(4.0, 10.0),
    Memoized(4.0, 10.0, (0.2, 0.5, 0.9), (0.02, 0.03, 0.02)),
    LearnedMemoized(4.0, 10.0),
    LearnedMemoized(4.0, 10.0, (0.2, 0.5, 0.9), (0.02, 0.03, 0.02)),
]


def test_every_mechanism_has_an_entry():
    assert {entry.kind for entry in ENTRIES} == set(MECHANISMS)


@pytest.mark.parametrize("mechanism", ENTRIES, ids=repr)
class TestMechanism:
    @pytest.fixture
    def public(self):
        return Public(average=np.array([0.1, 0.5, 1.0]), signal=1.0)

    def test_stays_in_its_box_and_rises_with_intent(self, mechanism, public):
        low, high = mechanism.box(public)
        assert np.all((low >= 0) & (low <= high) & (high <= 1))
        before = np.full(3, -1.0)
        for intent in np.linspace(0, 1, 101):
            chance = mechanism.probability(np.full(3, intent), public)
            assert np.all((chance >= low) & (chance <= high))
            assert np.all(chance >= before)
            before = chance

    @pytest.mark.parametrize("intent", [np.nan, -1.0, -np.inf, 0.0])
    def test_nonsense_gives_low(self, mechanism, public, intent):
        low, _ = mechanism.box(public)
        np.testing.assert_array_equal(mechanism.probability(np.full(3, intent), public), np.broadcast_to(low, 3))

    @pytest.mark.parametrize("intent", [1.0, 2.0, np.inf])
    def test_more_than_one_is_one(self, mechanism, public, intent):
        np.testing.assert_array_equal(
            mechanism.probability(np.full(3, intent), public), mechanism.probability(np.ones(3), public)
        )

    def test_one_client_is_cut_out(self, mechanism, public):
        intents = np.array([0.2, 0.5, 0.7])
        whole = mechanism.probability(intents, public)
        for client in range(3):
            one = Public(average=public.average[client : client + 1], signal=1.0)
            assert mechanism[client].probability(intents[client : client + 1], one)[0] == whole[client]

    def test_settings_make_it_again(self, mechanism, public):
        again = mechanism_from_settings(Table(mechanism.settings()))
        np.testing.assert_array_equal(
            again.probability(np.full(3, 0.3), public), mechanism.probability(np.full(3, 0.3), public)
        )


def test_the_papers_coin():
    """Paper: Eq. (8)."""
    assert coin_probability(1.0) == pytest.approx(0.18394, abs=1e-5)
    assert coin_probability(3.5) == pytest.approx(0.05285, abs=1e-5)
    assert coin_probability(0.1) < coin_probability(3.5) < coin_probability(1.0)


@pytest.mark.parametrize(
    ("beta", "says"), [(0, "0.0"), (-1, "-1"), (np.nan, "nan"), (np.inf, "inf"), ([1.0, 0.0], "0.0 for client 1")]
)
def test_bad_beta(beta, says):
    with pytest.raises(ValueError, match="beta must be above 0") as refusal:
        PaperCoin(np.array(beta) if isinstance(beta, list) else beta)
    assert says in str(refusal.value)


def test_unknown_mechanisms_and_parameters():
    with pytest.raises(ValueError, match="one of classical, paper-coin"):
        mechanism_from_settings(Table({"kind": "coin"}, "mechanism"))
    with pytest.raises(ValueError, match=r"mechanism\.bta is not a known setting"):
        mechanism_from_settings(Table({"kind": "paper-coin", "beta": 1, "bta": 2}, "mechanism"))
