"""The one decision, against the paper's text written out in plain Python."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from problem.test_costs import Exponential
from turnout import (
    Averaging,
    Classical,
    ClientState,
    IntegralController,
    PaperCoin,
    PolynomialCosts,
    Prior,
    Problem,
    SeededCoins,
    client_step,
    simulate,
)
from turnout.algorithm.client import SMALLEST_AVERAGE
from turnout.algorithm.mechanism import Public


def the_papers_text(a, beta, tau, initial, capacity, rounds, seed):
    """Algorithms 1 and 3 for costs a_i x^2, word by word, with the paper's indices."""
    n = len(a)
    p = 0.0 if beta is None else beta / 2 * math.exp(-beta)
    draw = [[float(u) for u in SeededCoins(seed).uniform(range(n), k)] for k in range(rounds)]
    X, theta = [[1] * n], [initial]
    for k in range(rounds - 1):
        x = [sum(X[step][i] for step in range(k + 1)) / (k + 1) for i in range(n)]
        sigma = [min(1.0, theta[k] * x[i] / (2 * a[i] * x[i])) for i in range(n)]
        X.append([int(draw[k + 1][i] < sigma[i] + (1 - sigma[i]) * p) for i in range(n)])  # both coins at once
        theta.append(max(0.0, theta[k] - tau * (sum(X[k]) - capacity)))
    return theta, [sum(bits) for bits in X]


@pytest.mark.parametrize("beta", [None, 3.5, 1.0])
@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_the_papers_text(beta, engine):
    """Paper: Algorithm 1. Paper: Algorithm 2. Paper: Algorithm 3. Paper: Eq. (3). Paper: Eq. (4)."""
    a = [1.0, 2.0, 3.0, 5.0, 8.0, 13.0]
    problem = Problem(PolynomialCosts([[value] for value in a], (2,)), 3)
    mechanism = Classical() if beta is None else PaperCoin(beta)
    run = simulate(problem, mechanism, IntegralController(0.2, 4.0), 60, seed=11, engine=engine)
    theta, totals = the_papers_text(a, beta, 0.2, 4.0, 3, 60, 11)
    np.testing.assert_allclose(run.signal, theta, rtol=1e-12)
    assert run.participants.tolist() == totals


def test_golden_trace():
    """Pins the lag: X(k+1) is drawn from Theta(k) and x(k); Theta(k+1) uses the total of X(k).

    Paper: Algorithm 1.
    """
    problem = Problem(PolynomialCosts([[1.0], [2.0], [3.0], [5.0]], (2,)), 2)
    run = simulate(problem, PaperCoin(3.5), IntegralController(0.5, 4.0), 8, seed=3, engine="numpy")
    assert run.participants.tolist() == GOLDEN_TOTALS
    assert run.signal.tolist() == GOLDEN_SIGNAL


GOLDEN_TOTALS = [4, 3, 3, 3, 3, 0, 1, 2]
GOLDEN_SIGNAL = [4.0, 3.0, 2.5, 2.0, 1.5, 1.0, 2.0, 2.5]


@given(
    st.integers(0, 2**32), st.floats(0, 50), st.sampled_from(["bit", "probability"]), st.sampled_from([None, 1, 7.5])
)
def test_a_real_client_is_a_population_of_one(seed, signal, by, remember):
    generator = np.random.default_rng(seed)
    costs = PolynomialCosts(generator.uniform(0.1, 5, (6, 2)), (1, 3))
    mechanism, averaging = PaperCoin(generator.uniform(1, 4, 6)), Averaging(remember, by)
    weights = generator.integers(1, 5, 6)
    state = ClientState(generator.uniform(0, 3, 6), generator.uniform(3, 9, 6))
    uniform = generator.random(6)
    options = {"averaging": averaging}
    together, came, *_ = client_step(costs, mechanism, state, signal, uniform, weights=weights, **options)
    for i in range(6):
        one = ClientState(state.participations[i : i + 1], state.rounds[i : i + 1])
        alone, bit, *_ = client_step(
            costs[i], mechanism[i], one, signal, uniform[i : i + 1], weights=weights[i : i + 1], **options
        )
        assert bit[0] == came[i]
        assert alone.participations[0] == together.participations[i]
        assert alone.rounds[0] == together.rounds[i]


@pytest.mark.parametrize("signal", [0.0, -1.0, 1e-300, 1e300, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("past", [0.0, 1e-300, 1e-12, 0.5, 3.0])
@pytest.mark.parametrize(
    "costs",
    [
        PolynomialCosts([[1.0], [1e-300], [1e300]], (2,)),  # f'(0) = 0
        PolynomialCosts([[1.0], [2.0], [1e-300]], (6,)),  # f'(0) = 0 and flat there
        PolynomialCosts([[1.0, 1.0], [1e6, 1e-9], [1e-9, 1.0]], (1, 2)),  # f'(0) > 0
        Exponential([0.1, 1.0, 10.0]),
    ],
)
def test_no_signal_and_no_history_makes_nonsense(signal, past, costs):
    """Any signal and average gives a valid report, without a warning (warnings are errors here)."""
    for mechanism in (Classical(), PaperCoin(1.0)):
        state = ClientState(np.full(3, past), 3.0)
        after, came, *_ = client_step(costs, mechanism, state, signal, np.array([0.0, 0.5, 0.999]))
        assert np.all(np.isfinite(after.participations))
        assert came.dtype == bool
        low, high = mechanism.box(Public(average=state.average))
        only = Averaging(remember=1, by="probability")
        step = client_step(costs, mechanism, state, signal, np.zeros(3), averaging=only)
        np.testing.assert_array_equal(step.state.participations, step.probability)
        assert np.all((step.intent >= 0.0) & (step.intent <= 1.0))
        assert np.all((step.probability >= low) & (step.probability <= high))
        if np.isnan(signal) or signal <= 0:
            assert np.all(step.probability == low)


def test_averages_never_reach_zero():
    state = ClientState(np.zeros(2), 5.0)
    assert np.all(state.average == SMALLEST_AVERAGE)


def test_forgetting_keeps_the_average_and_fades_the_past():
    """Paper: Eq. (1), where nothing is forgotten."""
    averaging = Averaging(remember=10)
    state = ClientState(np.array([10.0]), 10.0)
    for _ in range(10):
        state = state.after(np.zeros(1), averaging)
    assert state.rounds == 10
    assert state.average[0] == pytest.approx(0.9**10)
    full = ClientState(np.array([1.0]), 1.0)
    for bit in (1, 0, 1, 1):
        full = full.after(np.array([float(bit)]), Averaging())
    assert full.participations[0] == 4
    assert full.rounds == 5


@pytest.mark.parametrize("bad", [{"remember": 0}, {"remember": np.nan}, {"by": "coin"}])
def test_bad_averaging(bad):
    with pytest.raises(ValueError, match="must be"):
        Averaging(**bad)


@pytest.mark.parametrize("bad", [(0.0, 10), (-0.1, 10), (1.01, 10), (np.nan, 10), (0.5, 0), (0.5, -1), (0.5, np.inf)])
def test_bad_priors(bad):
    with pytest.raises(ValueError, match=r"prior (average|rounds) must be"):
        Prior(*bad)


def test_a_prior_may_be_anything_up_to_certainty_and_is_worth_ten_rounds():
    assert Prior(1.0, rounds=0.5).average == 1.0
    assert Prior(0.25).rounds == 10


def test_an_average_counts_as_no_less_than_a_full_history_of_a_billion_rounds():
    """So a client that came never can still come when the price rises; and no real average is touched."""
    assert ClientState(np.array([0.0, 1.0]), 2.0**30).average.tolist() == [2.0**-30, 2.0**-30]
    assert ClientState(np.array([1.0]), 2.0**29).average[0] == 2.0**-29
    costs = PolynomialCosts([[1.0, 1.0]], (1, 2))  # f'(0) = 1
    wish, *_ = client_step(
        costs, Classical(), ClientState(np.zeros(1), 9.0), 2.0**29, np.zeros(1), averaging=Averaging(1, "probability")
    )
    assert wish.participations[0] == pytest.approx(0.5)


def test_averages_by_probability_hold_no_trace_of_the_bit():
    costs, state = PolynomialCosts([[1.0], [1.0]], (2,)), ClientState(np.ones(2), 2.0)
    after, came, *_ = client_step(
        costs, PaperCoin(1.0), state, 0.5, np.array([0.0, 0.99]), averaging=Averaging(by="probability")
    )
    assert came.tolist() == [True, False]
    assert after.participations[0] == after.participations[1] == pytest.approx(1.0 + 0.388, abs=1e-3)
    after, *_ = client_step(costs, PaperCoin(1.0), state, 0.5, np.array([0.0, 0.99]))
    assert after.participations.tolist() == [2.0, 1.0]


def test_a_tie_is_a_no():
    """`uniform < probability`: of 2^32 words exactly probability 2^32 say yes, so a probability of 0 never does."""
    costs, state = PolynomialCosts([[1.0], [1.0]], (2,)), ClientState(np.ones(2), 2.0)
    _, came, *_ = client_step(costs, Classical(), state, 1.0, np.array([0.5, np.nextafter(0.5, 0.0)]))
    assert came.tolist() == [False, True]
    _, came, *_ = client_step(costs, Classical(), state, 0.0, np.zeros(2))
    assert not came.any()


def test_a_weight_counts_in_the_intent():
    costs, state = PolynomialCosts([[1.0], [1.0]], (2,)), ClientState(np.ones(2), 2.0)
    after, *_ = client_step(
        costs, Classical(), state, 0.2, np.ones(2), weights=np.array([1, 3]), averaging=Averaging(1, "probability")
    )
    np.testing.assert_allclose(after.participations, [0.1, 0.3])
    assert after.rounds == 1
