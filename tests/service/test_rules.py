"""What is fixed when a run begins: read from a plan's file, checked, and the same again from the store."""

from __future__ import annotations

import json

import pytest

from turnout import Averaging, IntegralController, PaperCoin, Prior, SelfTuningController
from turnout.algorithm import Clamp, LearnedMemoized, Memoized
from turnout.service.rules import Rules, Safety, Timing, rules_from_settings
from turnout.settings import Table


@pytest.mark.parametrize(
    "rules",
    [
        Rules(Clamp(1.0), SelfTuningController(), Safety("absent")),
        Rules(
            PaperCoin(3.5),
            IntegralController(0.0075, 0.35),
            Safety("last", 700.0, 0.25, 40.0),
            Prior(0.3, 5),
            Averaging(200, "probability"),
            Timing(60, 70, 60, 20),
            wait_for=12,
            delta=1e-9,
        ),
        Rules(Memoized(6.0, price=9.97, levels=(0.2, 0.9)), SelfTuningController(2.0), Safety("absent")),
    ],
    ids=["usual", "all", "memoized"],
)
def test_rules_are_the_same_again_from_a_store(rules: Rules) -> None:
    kept = json.loads(json.dumps(rules.settings()))
    again = rules_from_settings(Table(kept))
    assert again.settings() == rules.settings()
    assert again.timing == rules.timing
    assert again.safety == rules.safety


def test_a_plan_s_file_is_enough_but_for_the_one_choice_that_has_no_default() -> None:
    plan = {
        "population": {"kind": "paper"},
        "rounds": 10,
        "capacity": 600,
        "controller": {"gain": 0.01, "initial": 1.0},
    }
    told = r"--missing \(safety\.missing in a file\) must be absent or last, got nothing: absent if .*, last if"
    with pytest.raises(ValueError, match=told):
        rules_from_settings(Table(plan))
    with pytest.raises(ValueError, match="must be absent or last, got 'gone'"):
        Safety("gone")
    rules = rules_from_settings(Table(plan | {"safety": {"missing": "last"}}))
    assert isinstance(rules.controller, IntegralController)
    assert rules.mechanism == Clamp(1.0)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"safety": {"missing": "absent", "quorum": 1.5}}, "quorum must be from 0 to 1"),
        ({"safety": {"missing": "absent", "hard_limit": -1}}, "hard_limit must be 0 or more"),
        ({"safety": {"missing": "absent", "most_signal": 0}}, "most_signal must be above 0"),
        ({"safety": {"missing": "absent", "hardlimit": 3}}, "did you mean 'hard_limit'"),
        ({"timing": {"round": -1}}, "round must be 0 seconds or more"),
        ({"timing": {"round": 10, "deadline": 5}}, "deadline must be at least"),
        ({"timing": {"lease": -5}}, "lease must be above 0"),
        ({"timing": {"hold": 0.01}}, "hold must be from 0.1"),
        ({"timing": {"lease": 0}}, "lease must be above 0 seconds, got 0.0: leave it out"),
        ({"timing": {"deadline": 0}}, "deadline must be above 0 seconds, got 0.0: leave it out"),
        ({"mechanism": {"kind": "paper-coin", "beta": [1.0, 2.0]}}, "beta must be one number for the whole fleet"),
        (
            {"mechanism": {"kind": "tracking-clamp", "epsilon": 1}, "averaging": {"by": "probability"}},
            "its box follows the average",
        ),
        ({"safety": {}, "safty": {"missing": "absent"}}, "safty is not a known setting .* did you mean 'safety'"),
        ({"wait_for": -1}, "wait_for must be 0 or more"),
        ({"observer": "nobody"}, "observer must be 'every-report' or 'sum'"),
        (
            {"observer": "sum"},
            "must be by 'probability', got 'bit': a history that moves by the bit carries hidden bits",
        ),
        (
            {"observer": "sum", "averaging": {"by": "probability"}, "safety": {"missing": "last"}},
            "must be 'absent', got 'last': a silent client's last bit is repeated in later sums",
        ),
        (
            {"observer": "sum", "mechanism": {"kind": "tracking-clamp", "epsilon": 1}},
            "its box follows the average",
        ),
        ({"mechanism": {"kind": "learned-memoized", "epsilon": 4, "price": 1.0}}, "a device can use by itself"),
    ],
)
def test_wrong_rules_are_refused_with_a_remedy(values: dict, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        rules_from_settings(Table({"safety": {"missing": "absent"}} | values))


def test_a_promise_against_the_sum_leaves_the_coordinators_view_as_it_is() -> None:
    values = {"safety": {"missing": "absent"}, "averaging": {"by": "probability"}, "honest": 30}
    plain, rules = (rules_from_settings(Table(values | more)) for more in ({}, {"observer": "sum"}))
    assert [observer.sees for observer in plain.observers] == ["every-report"]
    assert [observer.sees for observer in rules.observers] == ["every-report", "sum"]
    assert rules.settings() == plain.settings() | {"observer": "sum"}
    assert rules_from_settings(Table(json.loads(json.dumps(rules.settings())))) == rules


def test_a_mechanism_that_needs_everyone_is_refused() -> None:
    with pytest.raises(ValueError, match="memoized with its price"):
        Rules(LearnedMemoized(4.0, 1.0), SelfTuningController(), Safety("absent"))


def test_a_controller_without_a_kind_is_the_self_tuning_one_with_what_was_set() -> None:
    rules = rules_from_settings(Table({"safety": {"missing": "absent"}, "controller": {"initial": 0.01}}))
    assert rules.controller == SelfTuningController(0.01)
    with pytest.raises(ValueError, match="did you mean 'initial'"):
        rules_from_settings(Table({"safety": {"missing": "absent"}, "controller": {"inital": 0.01}}))
