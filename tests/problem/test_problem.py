import numpy as np
import pytest

from turnout import PaperCoin, PolynomialCosts, Problem, check_feasible, paper_population

COSTS = PolynomialCosts([[1.0], [2.0], [3.0]], (2,))


@pytest.mark.parametrize("capacity", [0, -1, 3.01, np.nan, np.inf])
def test_impossible_capacities(capacity):
    with pytest.raises(ValueError, match="capacity must be above 0 and at most 3"):
        Problem(COSTS, capacity)


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ([1, 2], r"of shape \(3,\)"),
        ([1, 0, 2], "0 for client 1"),
        ([1, 2, 2.5], "2.5 for client 2"),
        ([1, -4, 2], "-4 for client 1"),
        ([1.0, np.nan, 2], "nan for client 1"),
    ],
)
def test_bad_weights_name_the_client(weights, says):
    with pytest.raises(ValueError, match=says):
        Problem(COSTS, 1, np.array(weights))


def test_weights_count_toward_capacity():
    problem = Problem(COSTS, 9, np.array([2, 3, 5]))
    assert problem.most == 10
    with pytest.raises(ValueError, match="at most 10"):
        Problem(COSTS, 11, np.array([2, 3, 5]))
    assert problem.cost(np.array([1.0, 0.5, 0.0])) == 1.5


def test_feasibility_knows_what_the_coin_alone_brings():
    with pytest.raises(ValueError, match=r"above 220\.7 .* got 150"):
        check_feasible(paper_population().problem(150), PaperCoin(1.0))
    check_feasible(paper_population().problem(221), PaperCoin(1.0))
    with pytest.raises(ValueError, match="one for each of the 1200 clients, got 3 numbers"):
        check_feasible(paper_population().problem(600), PaperCoin(np.ones(3)))
