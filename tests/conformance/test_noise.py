"""Runs with noise on the sum: identical on every engine, bit for bit, also in two parts and as replicas.

That runs without noise are what they were, golden.json holds; it has cases with noise too.
"""

from functools import lru_cache

import numpy as np
import pytest

from conformance.populations import noisy
from conformance.test_engines import assert_identical
from simulation.test_ray_engine import Pretended, sharded
from turnout import Keep, SumNoise, Trajectory, replicate, simulate
from turnout.simulation import continuation, set_up

ROUNDS = 100
MANY, FEW = 20_000, 2_000  # enough for two threads; enough for the others
NAMES = tuple(noisy(FEW))
SOME = (
    "integral, early",
    "integral, movement",
    "self-tuning, weights",
    "falling-gain, half leave",
    "integral, bounded, two aggregators",
)
"""Where another engine is slow to start: golden.json is compared on all engines with all cases."""
STOPS = (1, 20, 60, 80)
"""Where a run is cut: after the first round, the early ones, and just before changes."""

CHANGES = {"integral, half leave": (59, 60, 80), "falling-gain, movement": (40, 70, 71, 90)}

pytestmark = pytest.mark.filterwarnings("ignore:the turnout swings")  # bits are compared, not turnouts


def keep(clients):
    return Keep(every=7, histogram=8, averages=[0, 3, clients - 1])


def run(name, clients, engine, rounds=ROUNDS, **more):
    problem, mechanism, controller, options = noisy(clients)[name]
    return simulate(problem, mechanism, controller, rounds, seed=9, engine=engine, **options | more)


@lru_cache
def reference(name, clients):
    """By the readable engine."""
    return run(name, clients, "numpy", keep=keep(clients))


def assert_same(one, other):
    """As runs without noise, and in what the server saw."""
    assert_identical(one, other)
    np.testing.assert_array_equal(one.seen, other.seen)
    assert one.controller_numbers == other.controller_numbers
    assert one.provenance["noise"] == other.provenance["noise"]


@pytest.mark.parametrize("name", NAMES)
def test_the_server_sees_the_total_plus_the_noise_where_it_is_opened(name):
    found, (*_, options) = reference(name, FEW), noisy(FEW)[name]
    noise = options["noise"]
    opened = np.array([noise.is_opened(round) for round in range(ROUNDS)])
    added = noise.seeded(9, 0, ROUNDS)
    np.testing.assert_array_equal(found.seen, np.where(opened, found.participants + added, np.nan))
    np.testing.assert_array_equal(found.server.opened, np.flatnonzero(opened))
    assert not np.array_equal(found.seen, found.participants)
    if "schedule" not in options:  # the signal moves by opened sums alone
        assert not np.any(np.diff(found.signal)[~opened[:-1]])


@pytest.mark.parametrize("name", NAMES)
def test_numba(name):
    for threads in (1, 2):
        assert_same(run(name, MANY, "numba", threads=threads, keep=keep(MANY)), reference(name, MANY))


@pytest.mark.parametrize("name", SOME)
def test_jax(name):
    assert_same(run(name, FEW, "jax", keep=keep(FEW)), reference(name, FEW))


@pytest.mark.parametrize("name", SOME)
def test_shards(name):
    """On a cluster that is only pretended, where shards are lost; a golden case runs on Ray's own nodes."""
    problem, mechanism, controller, options = noisy(FEW)[name]
    given = {key: options.get(key) for key in ("start", "schedule", "averaging", "noise")}
    setup = set_up(problem, mechanism, controller, ROUNDS, 9, keep=keep(FEW), **given)
    cluster = Pretended(every=37)
    assert_same(sharded(setup, 3, cluster), reference(name, FEW))
    assert cluster.losses > 0


@pytest.mark.parametrize(
    ("name", "engine"), [*((name, "numpy") for name in NAMES), *((name, "numba") for name in SOME), (SOME[0], "jax")]
)
def test_two_parts_are_one_run(name, engine, tmp_path):
    """The stop moves on with the case; the first part goes through a file."""
    stop = STOPS[NAMES.index(name) % len(STOPS)]
    part = run(name, FEW, engine, stop, keep=keep(FEW))
    part.save(tmp_path / "part.npz")
    problem, mechanism, controller, _ = noisy(FEW)[name]
    for before in (part, Trajectory.load(tmp_path / "part.npz")):
        np.testing.assert_array_equal(before.seen, reference(name, FEW).seen[:stop])
        assert_same(
            simulate(problem, mechanism, controller, ROUNDS - stop, start=before, engine=engine), reference(name, FEW)
        )
    assert_same(continuation(before, ROUNDS - stop, engine).go(), reference(name, FEW))


@pytest.mark.parametrize(("name", "stop"), [(name, stop) for name in CHANGES for stop in CHANGES[name]])
def test_a_change_is_known_wherever_a_run_is_cut(name, stop):
    """The signal is scaled in the round before a change, also where that is the last round of a part."""
    part = run(name, FEW, "numpy", stop, keep=keep(FEW))
    problem, mechanism, controller, _ = noisy(FEW)[name]
    assert_same(simulate(problem, mechanism, controller, ROUNDS - stop, start=part), reference(name, FEW))


@pytest.mark.parametrize("engine", ["numba", "jax"])
@pytest.mark.parametrize("name", ["integral, early", "falling-gain, half leave"])
def test_replicas_are_the_single_runs(name, engine):
    problem, mechanism, controller, options = noisy(FEW)[name]
    runs = replicate(problem, mechanism, controller, 40, seeds=[4, 9, 2], engine=engine, **options)
    for seed, found in zip([4, 9, 2], runs, strict=True):
        assert_same(found, simulate(problem, mechanism, controller, 40, seed=seed, engine="numpy", **options))
    assert not np.array_equal(runs[0].seen - runs[0].participants, runs[1].seen - runs[1].participants)


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_noise_that_is_off_by_one_in_one_round_is_noticed(engine, monkeypatch):
    """The sabotaged twin of this suite."""
    seeded = SumNoise.seeded

    def off(self, seed, first, stop):
        return seeded(self, seed, first, stop) + (np.arange(first, stop) == 50)

    right = reference("integral", FEW)
    monkeypatch.setattr(SumNoise, "seeded", off)
    wrong = run("integral", FEW, engine, keep=keep(FEW))
    np.testing.assert_array_equal(wrong.participants[:52], right.participants[:52])  # a lag of one round
    assert wrong.seen[50] == right.seen[50] + 1
    with pytest.raises(AssertionError):
        assert_same(wrong, right)
