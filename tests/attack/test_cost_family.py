"""The family of costs that an observer knows: ranges, kinds of clients, and how mixtures spread."""

import numpy as np
import pytest

from turnout import PolynomialCosts
from turnout.attack.cost_family import CostFamily, kinds, mixtures


def test_a_range_is_the_largest_of_a_kind_rounded_up_to_two_digits():
    """Two digits that are there already stay, whatever their rounding in binary."""
    for values, expected in (
        ([39.7, 3.1], 40.0),
        ([40.0, 40.0], 40.0),
        ([40.1], 41.0),
        ([0.123], 0.13),
        ([0.3], 0.3),
        ([0.29], 0.29),
        ([1.0, 0.5], 1.0),
        ([9.95], 10.0),
        ([1234.0], 1300.0),
        ([7.04e-5], 7.1e-5),
    ):
        found = CostFamily.around(PolynomialCosts([[value] for value in values], (2,)))
        np.testing.assert_allclose(found.largest, np.full((len(values), 1), expected), rtol=1e-12)
        assert (len(found), found.powers) == (len(values), (2,))


def test_kinds_are_told_apart_by_which_terms_there_are():
    costs = PolynomialCosts([[3.0, 0.0], [2.0, 5.0], [0.0, 0.5], [8.1, 0.0], [2.5, 0.25]], (2, 4))
    found = CostFamily.around(costs)
    np.testing.assert_allclose(found.largest, [[8.1, 0.0], [2.5, 5.0], [0.0, 0.5], [8.1, 0.0], [2.5, 5.0]], rtol=1e-12)
    assert found.unknown.tolist() == [[True, False], [True, True], [False, True], [True, False], [True, True]]
    assert not np.signbit(found.largest).any()
    groups = sorted(group.tolist() for group in kinds(found.unknown))
    assert groups == [[0, 3], [1, 4], [2]]
    assert [group.tolist() for group in kinds(np.ones((2, 1), bool))] == [[0, 1]]
    assert repr(found) == "CostFamily(5 clients, powers=(2, 4))"


def test_a_family_is_made_of_plain_lists_too():
    found = CostFamily((2, 4), [[1, 0], [0, 0.5]])
    assert found.largest.dtype == np.float64
    assert found.unknown.tolist() == [[True, False], [False, True]]
    assert len(CostFamily((1, 2, 3, 4, 5), [[1, 2, 3, 4, 0], [0, 0, 0, 0, 9]])) == 2  # four terms a client at most


@pytest.mark.parametrize(
    ("largest", "message"),
    [
        ([1.0, 2.0], r"of shape \(clients, 2\), got shape \(2,\)"),
        ([[[1.0, 2.0]]], r"of shape \(clients, 2\), got shape \(1, 1, 2\)"),
        ([[1.0], [2.0]], r"of shape \(clients, 2\), got shape \(2, 1\)"),
        ([[1.0, np.inf]], "finite, 0 or more, and above 0 for a term of each client"),
        ([[1.0, 2.0], [1.0, np.nan]], "finite, 0 or more"),
        ([[1.0, -0.5]], "finite, 0 or more"),
        ([[1.0, 0.0], [0.0, 0.0]], ".* above 0 for a term of each client"),
    ],
)
def test_what_is_no_range_is_refused(largest, message):
    with pytest.raises(ValueError, match=f"largest must be {message}"):
        CostFamily((2, 4), np.array(largest))


def test_five_terms_of_one_client_are_too_many():
    several = np.array([[1.0, 0.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.5, 0.5, 0.5]])
    with pytest.raises(ValueError, match="largest must be of 4 terms per client at most"):
        CostFamily((1, 2, 3, 4, 5), several)


def test_a_negative_coefficient_has_no_family():
    with pytest.raises(ValueError, match=r"coefficients must be 0 or more for an attack, got -1"):
        CostFamily.around(PolynomialCosts([[9.0, -1.0], [9.0, 2.0]], (2, 4)))
    assert CostFamily.around(PolynomialCosts([[0.5, 0.0]], (2, 4))).unknown.tolist() == [[True, False]]


@pytest.mark.parametrize(("terms", "number"), [(1, 1), (2, 16), (3, 21), (4, 20)])
def test_mixtures_spread_evenly_over_the_shares(terms, number):
    found = mixtures(terms)
    assert found.shape == (number, terms)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(found.mean(axis=0), 1.0 / terms, rtol=1e-12)
    assert len({tuple(row) for row in found.round(9).tolist()}) == number
    for order in np.argsort(np.random.default_rng(terms).random((5, terms)), axis=1):  # no term is preferred
        assert {tuple(row) for row in found[:, order].round(9).tolist()} == {
            tuple(row) for row in found.round(9).tolist()
        }
    steps = np.unique(np.diff(np.unique(found[:, 0].round(9))).round(8))
    assert len(steps) <= 1
    if terms > 1:
        assert found.min() == pytest.approx(steps[0] / terms)  # the outermost are as far from the edge as cells are
