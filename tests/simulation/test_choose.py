"""Which engine runs, why, and what is refused before it starts."""

import importlib.util
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from turnout import Classical, IntegralController, Keep, PaperCoin, Problem, paper_population, simulate
from turnout.errors import MissingExtra
from turnout.problem import drawn_paper_population
from turnout.simulation.engines import choose
from turnout.simulation.engines import engine as engines
from turnout.simulation.engines.engine import JaxOptions
from turnout.simulation.engines.jax import engine as jax_engine

SERVER = IntegralController(0.01, 1.0)
LEAN = Keep(cost=False, state=False)


class Exponential:
    def __init__(self, rate):
        self.rate = rate

    def __len__(self):
        return len(self.rate)

    def __getitem__(self, clients):
        return Exponential(np.atleast_1d(self.rate[clients]))

    def value(self, average):
        return np.exp(self.rate * average) - 1

    def slope(self, average):
        return self.rate * np.exp(self.rate * average)


def why(problem, engine="auto", **more):
    return simulate(problem, Classical(), SERVER, 3, engine=engine, **more).provenance["engine_reason"]


def test_auto_says_what_it_chose_and_why(monkeypatch):
    problem = paper_population(0, 40).problem(20)
    assert why(problem) == "numba: the fastest installed"
    assert "only PolynomialCosts are compiled" in why(Problem(Exponential(np.ones(5)), 2))
    monkeypatch.setattr(choose, "_WORTH_A_GPU", 40)
    assert why(problem) == "numba: the fastest installed"  # there is no GPU
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(platform="gpu")])
    clients = problem.costs
    name, reason = choose._best(clients, problem.costs, True)
    assert (name, reason) == ("jax", "jax: there is a GPU, and with 40 clients it is worth its start")


@pytest.mark.parametrize(
    ("engine", "library", "extra"), [("jax", "jax", "gpu"), ("ray", "ray", "cluster"), ("numba", "numba", "lab")]
)
def test_a_missing_library_names_its_extra(monkeypatch, engine, library, extra):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == library else found(name))
    with pytest.raises(MissingExtra, match=rf"turnout\[{extra}\]"):
        why(paper_population(0, 40).problem(20), engine)


def test_what_an_engine_cannot_run():
    problem = Problem(Exponential(np.ones(5)), 2)
    for engine in ("numba", "jax", JaxOptions(bits=32)):
        with pytest.raises(ValueError, match="only PolynomialCosts are compiled"):
            why(problem, engine)
    with pytest.raises(ValueError, match="engine must be one of auto, numpy, numba, jax, jax32, ray"):
        why(problem, "abacus")
    with pytest.raises(ValueError, match="devices must be at most 1 "):
        why(paper_population(0, 40).problem(20), JaxOptions(devices=1000))


@pytest.mark.parametrize("engine", ["numpy", "numba", "auto", "jax", "jax32"])
def test_a_population_too_large_for_the_memory_is_refused_at_once(engine):
    problem = drawn_paper_population(clients=4 * 10**12).problem(1e12)
    with pytest.raises(
        ValueError, match=r"memory of 4,000,000,000,000 clients must be at most .* GiB .*, got .* GiB: use "
    ):
        simulate(problem, PaperCoin(3.5), SERVER, 10, engine=engine, keep=LEAN)


def test_a_device_without_room_and_a_state_without_room(monkeypatch):
    problem = paper_population(0, 4000).problem(2000)
    device = SimpleNamespace(platform="gpu", memory_stats=lambda: {"bytes_limit": 90_000, "bytes_in_use": 80_000})
    assert jax_engine.free_on([device, device]) == 20_000
    monkeypatch.setattr(jax_engine, "free_on", lambda devices: 20_000)
    with pytest.raises(ValueError, match="use engine='jax32', more devices, or fewer clients"):
        why(problem, "jax")
    monkeypatch.undo()
    monkeypatch.setattr("turnout.simulation.run.free_memory", lambda: 30_000)
    with pytest.raises(ValueError, match=r"final state of 4,000 clients .* use keep=Keep\(state=False\)"):
        why(problem, "jax")
    assert why(problem, "jax", keep=LEAN).startswith("jax, as asked")


def test_free_memory_is_known_here():
    free = engines.free_memory()
    assert free is None or 2**20 < free < 2**50
    engines.check_memory("anything", 2**60, None, "nowhere known", "go on")


def test_drawn_costs_run_alike_on_every_engine():
    problem = drawn_paper_population(5, 400).problem(200)
    runs = [simulate(problem, Classical(), SERVER, 30, engine=engine) for engine in ("numpy", "numba", "jax")]
    for run in runs[1:]:
        np.testing.assert_array_equal(run.signal, runs[0].signal)
        np.testing.assert_array_equal(run.cost, runs[0].cost)
