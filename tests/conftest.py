"""Shared by all tests."""

import pytest

from turnout import IntegralController, Problem, optimum, paper_population


@pytest.fixture(scope="session")
def paper_problem() -> Problem:
    """1200 clients, capacity 600, seed 0."""
    return paper_population(seed=0).problem(capacity=600)


@pytest.fixture(scope="session")
def paper_optimum(paper_problem):
    return optimum(paper_problem)


@pytest.fixture(scope="session")
def paper_server() -> IntegralController:
    return IntegralController(gain=0.0075, initial=0.35)
