import numpy as np
import pytest

from turnout import PaperCoin
from turnout.privacy.lemma import combined_epsilon, lemma_epsilon, network_epsilon


def test_the_papers_formula():
    """With Theta x = sigma f', the paper's expression in beta, Theta, x and f' is ours.

    Paper: Lemma IV.1.
    """
    beta, theta, x, slope = 2.5, 3.0, 0.4, 5.0
    paper = np.log((theta * x * (2 * np.exp(beta) - beta) + beta * slope) / ((slope - theta * x) * beta))
    assert lemma_epsilon(theta * x / slope, beta / 2 * np.exp(-beta)) == pytest.approx(paper)


def test_it_is_the_deniability_of_a_yes():
    intent, coin = 0.3, 0.1
    wanted_not = (1 - intent) * coin / (intent + (1 - intent) * coin)
    assert lemma_epsilon(intent, coin) == pytest.approx(-np.log(wanted_not))


def test_the_sum_over_clients():
    """Paper: Theorem IV.2."""
    assert combined_epsilon(np.array([0.2, 0.3]), 0.1) == pytest.approx(sum(lemma_epsilon(np.array([0.2, 0.3]), 0.1)))
    assert combined_epsilon(np.array([0.2, 1.0]), 0.1) == np.inf


def test_a_beta_below_one_is_warned_of():
    with pytest.warns(UserWarning, match="beta below 1 makes the coin smaller again: 0.1 brings 0.045"):
        PaperCoin(0.1)


def test_saturated_clients_are_counted_not_averaged():
    """Paper: Theorem IV.3."""
    mean, saturated = network_epsilon(np.array([0.2, 1.0, 1.0]), 0.1)
    assert mean == pytest.approx(float(lemma_epsilon(0.2, 0.1)))
    assert saturated == 2
    assert network_epsilon(np.ones(3), 0.1) == (np.inf, 3)
