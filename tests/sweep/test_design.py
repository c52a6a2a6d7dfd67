"""Designs: what a sweep expands to, and which ones are refused."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.small_design import SMALL, design, points
from turnout.sweep.design import design_from_settings

# ------------------------------------------------------------------------------------------------ designs

UNIQUE = {"unique": True, "min_size": 1, "max_size": 4}


@settings(max_examples=25, deadline=None)
@given(
    capacities=st.lists(st.integers(1, 40), **UNIQUE),
    gains=st.lists(st.floats(0.01, 0.5), **UNIQUE),
    epsilons=st.lists(st.floats(0.5, 8.0), **UNIQUE),
    betas=st.lists(st.floats(1.0, 6.0), **UNIQUE),
    together=st.lists(st.integers(1, 9), **UNIQUE),
    seeds=st.integers(1, 3),
)
def test_a_grid_is_every_combination_once(capacities, gains, epsilons, betas, together, seeds):
    kinds = [{"kind": "clamp", "epsilon": epsilons}, {"kind": "paper-coin", "beta": betas}]
    moving = {"rounds": [10 * one for one in together], "population.seed": together}
    grid = {"capacity": capacities, "controller": {"gain": gains}, "mechanism": kinds}
    found = design({"seeds": seeds, "grid": grid, "together": [moving]})
    mechanisms = [{"mechanism.kind": "clamp", "mechanism.epsilon": one} for one in epsilons]
    mechanisms += [{"mechanism.kind": "paper-coin", "mechanism.beta": one} for one in betas]
    expected = [
        mechanism
        | {"capacity": capacity, "controller.gain": gain, "rounds": 10 * one, "population.seed": one, "seed": seed}
        for mechanism, capacity, gain, one, seed in itertools.product(
            mechanisms, capacities, gains, together, range(seeds)
        )
    ]
    assert points(found) == expected
    assert len({run.id for run in found.runs}) == len(expected)
    for run in found.runs[:: max(1, len(expected) // 5)]:  # a point is what is run, and nothing else is changed
        assert run.settings["capacity"] == run.point["capacity"]
        assert run.settings["controller"] == {"gain": run.point["controller.gain"], "initial": 0.35}
        assert run.settings["population"] == {"kind": "paper", "clients": 40, "seed": run.point["population.seed"]}
        inner = {name.partition(".")[2]: value for name, value in run.point.items() if name.startswith("mechanism.")}
        assert run.settings["mechanism"] == inner
    assert SMALL["controller"] == {"gain": 0.1, "initial": 0.35}  # and the file's own settings are left alone


def test_a_table_of_its_own_and_a_setting_that_all_share():
    kinds = [{"kind": "clamp"}, {"kind": "randomized-response"}]
    found = design({"grid": {"mechanism": kinds, "mechanism.epsilon": [1, 2]}, "seeds": [7]})
    assert [(run["mechanism.kind"], run["mechanism.epsilon"], run["seed"]) for run in points(found)] == [
        ("clamp", 1, 7),
        ("clamp", 2, 7),
        ("randomized-response", 1, 7),
        ("randomized-response", 2, 7),
    ]


def test_a_value_that_is_a_list():
    memoized = {"kind": "memoized", "epsilon": 4, "price": 9, "levels": [[0.2, 0.9], [0.1, 0.5, 0.9]]}
    found = design({"grid": {"mechanism": [memoized]}})
    assert [run.settings["mechanism"]["levels"] for run in found.runs] == [[0.2, 0.9], [0.1, 0.5, 0.9]]


RANDOM = {
    "samples": 60,
    "seed": 3,
    "capacity": {"integers": [10, 30, 5]},
    "controller.gain": {"loguniform": [0.01, 1.0]},
    "controller.initial": {"uniform": [0.2, 0.6]},
    "population": {"seed": {"choice": [4, 5]}},
}


def test_random_designs_can_be_repeated_and_grow():
    found = design({"random": RANDOM})
    again = design({"random": RANDOM})
    assert [run.id for run in found.runs] == [run.id for run in again.runs]
    more = design({"random": RANDOM | {"samples": 90, "rounds": {"integers": [10, 20]}}})
    for before, after in zip(points(found), points(more), strict=False):
        assert before.items() <= after.items()
    other = design({"random": RANDOM | {"seed": 4}})
    assert points(found)[0] != points(other)[0]
    names = {name: [point[name] for point in points(more)] for name in points(more)[0]}
    assert set(names["capacity"]) == {10, 15, 20, 25, 30}
    assert set(names["population.seed"]) == {4, 5}
    assert set(names["rounds"]) == set(range(10, 21))
    assert all(0.01 <= gain <= 1.0 for gain in names["controller.gain"])
    assert 20 < sum(gain < 0.1 for gain in names["controller.gain"]) < 70  # half of the decades, half of the samples
    assert all(0.2 <= initial <= 0.6 for initial in names["controller.initial"])
    assert np.corrcoef(names["controller.gain"], names["controller.initial"])[0, 1] < 0.5  # each has its own stream


def test_random_tables_and_a_grid_of_samples():
    kinds = [{"kind": "clamp", "epsilon": {"uniform": [1, 2]}}, {"kind": "paper-coin", "beta": {"uniform": [1, 6]}}]
    found = points(design({"random": {"samples": 30, "mechanism": kinds}, "grid": {"capacity": [18, 22]}}))
    assert len(found) == 60
    assert found[:30] == [point | {"capacity": 18} for point in found[30:]]
    clamps = [point for point in found if point["mechanism.kind"] == "clamp"]
    assert 0 < len(clamps) < 60
    assert all(1 <= point["mechanism.epsilon"] < 2 for point in clamps)
    assert all("mechanism.epsilon" not in point for point in found if point not in clamps)


def test_ids_are_those_of_the_settings(tmp_path):
    def only(**changes):
        (run,) = design(**changes).runs
        return run.id

    usual = only()
    assert usual == only(capacity=20.0) == only(keep={"every": 7})
    assert usual == design_from_settings({"sweep": {"seeds": [0]}} | dict(reversed(SMALL.items()))).runs[0].id
    assert len({usual, only(seed=1), only(rounds=21), only(sweep={"last": 5}), only(sweep={"forecast": True})}) == 5
    assert len(design({"grid": {"capacity": [20, 20.0, 21]}}).runs) == 2  # the same run twice is one
    clients = tmp_path / "clients.csv"
    ids = set()
    for coefficient in (1, 2):  # a file counts by what is in it
        clients.write_text("x^2\n" + f"{coefficient}\n" * 40)
        ids.add(only(population={"file": str(clients)}))
    assert len(ids) == 2


BAD = [
    ({"sweep": {"sed": 3}}, "sweep.sed is not a known setting (known: .*seeds.*): did you mean 'seeds'?"),
    (
        {"sweep": {"grid": {"mechansim.epsilon": [1]}}},
        "sweep.grid.mechansim is not a known setting (known: .*mechanism",
    ),
    ({"sweep": {"grid": {"keep.every": [1]}}}, "sweep.grid.keep is not a known setting"),
    ({"sweep": {"grid": {"seed": [1]}}}, "sweep.grid.seed is not a known setting"),
    (
        {"sweep": {"grid": {"mechanism": [{"kind": "clamp", "epsilom": [1]}]}}},
        "mechanism.epsilon is missing",
    ),
    (
        {"sweep": {"grid": {"mechanism": [{"kind": "clamp", "epsilon": [1], "centre": 0.5}]}}},
        "mechanism.centre is not a known setting (known: center, epsilon, kind): did you mean 'center'?",
    ),
    ({"sweep": {"grid": {"mechanism.kind": ["clam"]}}}, "mechanism.kind must be one of classical, .*got 'clam'"),
    ({"sweep": {"grid": {"capacity": []}}}, "sweep.grid.capacity must be a list of one value or more"),
    ({"sweep": {"grid": {"capacity": {"uniform": [1, 2]}}}}, "put distributions under [sweep.random]"),
    ({"sweep": {"grid": {"schedule.away": [{"rounds": [1, 2]}]}}}, "must be a list of values, got a list of tables"),
    ({"sweep": {"grid": {"controller": {"gain": [1]}, "controller.gain": [2]}}}, "gain must be given once, got twice"),
    ({"sweep": {"grid": {"capacity": [1]}, "together": [{"capacity": [2]}]}}, "capacity must be varied in one place"),
    (
        {"sweep": {"together": [{"capacity": [1, 2], "rounds": [3]}]}},
        "together[0] must be lists of equal length, got 2",
    ),
    ({"sweep": {"random": {"capacity": {"uniform": [1, 2]}}}}, "sweep.random.samples is missing"),
    ({"sweep": {"random": {"samples": 0}}}, "samples from 1 up"),
    ({"sweep": {"random": {"samples": 2, "capacity": {"normal": [1, 2]}}}}, "sweep.random.capacity.normal"),
    ({"sweep": {"random": {"samples": 2, "capacity": [1, 2]}}}, "a value, or one of { uniform = [low, high] }"),
    ({"sweep": {"random": {"samples": 2, "capacity": {"uniform": [2, 1]}}}}, "capacity.uniform must be [low, high]"),
    ({"sweep": {"random": {"samples": 2, "capacity": {"loguniform": [0, 1]}}}}, "capacity.loguniform must be"),
    ({"sweep": {"random": {"samples": 2, "capacity": {"integers": [0.5, 1]}}}}, "capacity.integers must be"),
    ({"sweep": {"seeds": 0}}, "sweep.seeds must be 1 or more"),
    ({"sweep": {"seeds": [1, -1]}}, "sweep.seeds must be 1 or more"),
    ({"sweep": {"delta": 1.5}}, "sweep.delta must be from 0 to below 1"),
    ({"sweep": {"last": 0}}, "sweep.last must be 1 or more"),
    ({"sweep": {"seeds": 10**6, "grid": {"capacity": [1, 2]}}}, "sweep must be of at most 1,000,000 runs"),
    ({"sweep": {"grid": {"rounds.x": [1]}}}, "rounds.x must be within a table, got rounds = 20"),
    ({"sweep": 3}, "sweep must be a table"),
    ({}, "sweep is missing"),
]


@pytest.mark.parametrize(("values", "says"), BAD, ids=[says for _, says in BAD])
def test_bad_designs_are_refused_before_anything_runs(values, says):
    with pytest.raises((ValueError, TypeError)) as caught:
        design_from_settings(SMALL | values)
    assert isinstance(caught.value, ValueError)
    position = 0
    for part in says.split(".*"):
        position = str(caught.value).index(part, position)
