"""Whatever is handed in at an entrance, the message says what was meant, what came, and what to write instead."""

import math

import numpy as np
import pytest

import turnout
from turnout import (
    CappedCoin,
    Clamp,
    Classical,
    IntegralController,
    LearnedMemoized,
    Memoized,
    PaperCoin,
    PolynomialCosts,
    Problem,
    RandomizedResponse,
    SelfTuningController,
    TrackingClamp,
    certificate,
    optimum,
    paper_population,
    plot,
    predict,
    replicate,
    simulate,
)
from turnout.algorithm import mechanism_from_settings
from turnout.settings import Table

NO_NUMBERS = ["1", None, True, [0.5, 0.5], np.array([0.5, 0.5]), math.nan, math.inf, -1.0]
"""None of which any parameter of a mechanism or a controller takes, but the paper coin's list."""

PARAMETERS = {
    "epsilon of clamp": ("epsilon", Clamp),
    "center of clamp": ("center", lambda given: Clamp(1.0, given)),
    "epsilon of randomized response": ("epsilon", RandomizedResponse),
    "epsilon of tracking clamp": ("epsilon", TrackingClamp),
    "floor of tracking clamp": ("floor", lambda given: TrackingClamp(1.0, given)),
    "epsilon of memoized": ("epsilon", lambda given: Memoized(given, 1.0)),
    "price of memoized": ("price", lambda given: Memoized(4.0, given)),
    "epsilon of learned memoized": ("epsilon", LearnedMemoized),
    "price of learned memoized": ("price", lambda given: LearnedMemoized(4.0, given)),
    "beta of capped coin": ("beta", lambda given: CappedCoin(given, 0.5)),
    "cap of capped coin": ("cap", lambda given: CappedCoin(1.0, given)),
    "gain of integral": ("gain", lambda given: IntegralController(given, 1.0)),
    "initial of integral": ("initial", lambda given: IntegralController(0.01, given)),
    "initial of self-tuning": ("initial", SelfTuningController),
}


@pytest.mark.parametrize("bad", NO_NUMBERS, ids=repr)
@pytest.mark.parametrize("parameter", PARAMETERS)
def test_a_parameter_is_one_number_in_its_range(parameter, bad):
    name, make = PARAMETERS[parameter]
    with pytest.raises(ValueError, match=f"^{name} must be .*, got .*: .+"):
        make(bad)


@pytest.mark.parametrize("bad", ["3.5", None, True, np.ones((2, 2)), math.nan, -1.0, [1.0, -1.0]], ids=repr)
def test_the_papers_coin_takes_a_number_or_a_list(bad):
    with pytest.raises(ValueError, match=r"^beta must be .*, got .*: the paper uses"):
        PaperCoin(bad)
    assert PaperCoin([1.0, 2]).beta.tolist() == [1.0, 2.0]


def test_other_limits_of_parameters():
    with pytest.raises(ValueError, match="center must be above 0 and below 1, got 2"):
        Clamp(1, center=2)
    with pytest.raises(ValueError, match="epsilon must be large enough for a box of 53 bits"):
        Clamp(1e-17, center=0.3)
    with pytest.raises(ValueError, match="lag must be 0 or 1, got '0'"):
        IntegralController(1.0, 1.0, lag="0")
    assert Clamp(np.int64(1)).parameters() == Clamp(np.float32(1.0)).parameters() == Clamp(1.0).parameters()


@pytest.mark.parametrize("kind", ["clamp", "randomized-response", "tracking-clamp"])
def test_settings_with_a_list_are_refused_where_one_number_is_for_all(kind):
    with pytest.raises(ValueError, match="epsilon must be one number above 0"):
        mechanism_from_settings(Table({"kind": kind, "epsilon": [0.5, 1.0]}, "mechanism"))


PROBLEM = paper_population(0, 40).problem(20)
SERVER = SelfTuningController()

WRONG = {
    "capacity as text": (lambda: Problem(PROBLEM.costs, capacity="20"), "capacity must be one number .* got '20'"),
    "no capacity": (lambda: Problem(PROBLEM.costs, capacity=None), "capacity must be one number .* got None"),
    "a bare table": (lambda: Problem(np.ones((3, 2)), 1), r"costs must be .* got ndarray: .*PolynomialCosts\("),
    "rows of two lengths": (lambda: PolynomialCosts([[1.0, 2.0], [1.0]], (2, 4)), r"2 numbers .* got 1 for client 1"),
    "a text among numbers": (lambda: PolynomialCosts([[1.0, "x"]], (2, 4)), "2 numbers .* got 'x' for client 0"),
    "rows that are numbers": (lambda: PolynomialCosts([[1.0], 2.0], (2,)), "got 2.0 for client 1: write"),
    "a class of costs": (lambda: Problem(PolynomialCosts, 1), "costs must be .* got the class PolynomialCosts"),
    "swapped": (lambda: simulate(PROBLEM, SERVER, Classical(), 10), "mechanism must be .* got SelfTuningController"),
    "a name": (lambda: simulate(PROBLEM, "clamp", SERVER, 10), r"mechanism must be .* got 'clamp': .*Clamp\("),
    "a class": (lambda: simulate(PROBLEM, Classical, SERVER, 10), "mechanism must be .* got the class Classical"),
    "a gain": (lambda: simulate(PROBLEM, Classical(), 0.1, 10), r"controller must be .* got 0.1: .*SelfTuning"),
    "a class of server": (lambda: simulate(PROBLEM, Classical(), type(SERVER), 10), "controller .* got the class"),
    "a population": (lambda: simulate(paper_population(), Classical(), SERVER, 10), r"got Population: call \.problem"),
    "keep as a dict": (lambda: simulate(PROBLEM, Classical(), SERVER, 9, keep={"every": 1}), r"keep=Keep\("),
    "no keep": (lambda: simulate(PROBLEM, Classical(), SERVER, 9, keep={}), "keep must be a turnout.Keep, got dict"),
    "schedule as a dict": (lambda: simulate(PROBLEM, Classical(), SERVER, 9, schedule={"join": {}}), r"=Schedule\("),
    "averaging as a text": (lambda: simulate(PROBLEM, Classical(), SERVER, 9, averaging="bit"), r"=Averaging\("),
    "seeds as a number": (lambda: replicate(PROBLEM, Classical(), SERVER, 9, seeds=3), r"got 3: write seeds=range\("),
    "a picture of a problem": (lambda: plot(PROBLEM), "runs must be what simulate returned.* got Problem"),
    "a picture by name": (lambda: plot({"one": PROBLEM}), "runs must be what simulate returned.* got Problem"),
    "the optimum of a population": (lambda: optimum(paper_population()), r"got Population: call \.problem"),
    "a forecast of a population": (lambda: predict(paper_population(), Classical()), r"call \.problem\(capacity\)"),
    "a forecast of a name": (lambda: predict(PROBLEM, "clamp"), "mechanism must be .* got 'clamp'"),
    "a goal for a population": (lambda: turnout.Goal(paper_population(), 100, budget=4.0), r"call \.problem"),
    "a certificate of a name": (lambda: certificate("clamp"), "mechanism must be .* got 'clamp'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_of_another_kind_is_refused_with_the_remedy(name):
    call, says = WRONG[name]
    with pytest.raises(ValueError, match=says):
        call()
