"""The JAX engine against the NumPy one: in 64 bits identical, on one device or several; in 32 statistically equal."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from scipy.stats import norm

from conformance.populations import Fixed, mechanisms, options, problems
from conformance.test_engines import assert_identical, run
from statistical.binomial import FALSE_ALARM
from turnout import (
    Averaging,
    Classical,
    IntegralController,
    Keep,
    PaperCoin,
    PolynomialCosts,
    Prior,
    Problem,
    Schedule,
    SeededCoins,
    SelfTuningController,
    paper_population,
    replicate,
    simulate,
)
from turnout.algorithm.mechanism import Mechanism
from turnout.problem.population import drawn_paper_population
from turnout.simulation.engines.engine import JaxOptions
from turnout.simulation.engines.jax import engine as jax_engine
from turnout.simulation.engines.jax.kernel import Rules
from turnout.simulation.engines.jax.layout import Devices
from turnout.simulation.engines.jax.loop import Way, compiled

CLIENTS = 2_000
KEEP = Keep(every=7, histogram=8, averages=[0, 3, CLIENTS - 1])
BY_PROBABILITY = Averaging(by="probability")


def assert_same_run(problem, mechanism, rounds, **more):
    mine = run(problem, mechanism, rounds, "jax", **more)
    assert mine.provenance["engine"] == "jax"
    assert_identical(mine, run(problem, mechanism, rounds, "numpy", **more))


@pytest.mark.parametrize("mechanism", mechanisms(CLIENTS))
def test_every_mechanism(mechanism):
    made = mechanisms(CLIENTS)[mechanism]
    averaging = Averaging() if made.needs_public_average else BY_PROBABILITY
    assert_same_run(problems(CLIENTS)["paper"], made, 61, averaging=averaging, keep=KEEP)


@pytest.mark.parametrize("option", options(CLIENTS))
def test_every_option(option):
    made = mechanisms(CLIENTS)["paper-coin by client"]
    assert_same_run(problems(CLIENTS)["paper"], made, 100, keep=KEEP, **options(CLIENTS)[option])


@pytest.mark.parametrize(("family", "lag"), [("paper", 0), ("weighted", 1), ("linear term", 1), ("odd powers", 0)])
def test_every_family_of_costs_and_lag(family, lag):
    assert_same_run(problems(CLIENTS)[family], Classical(), 61, lag=lag, averaging=BY_PROBABILITY)


@pytest.mark.parametrize("clients", [1, 7, 1030])
def test_sizes_that_are_no_whole_blocks(clients):
    costs = PolynomialCosts(np.random.default_rng(4).uniform(1, 20, (clients, 1)), (2,))
    assert_same_run(Problem(costs, clients / 2), Classical(), 30)


def test_another_controller():
    problem = problems(CLIENTS)["paper"]
    one, other = (
        simulate(problem, PaperCoin(3.5), SelfTuningController(), 40, seed=3, engine=engine)
        for engine in ("jax", "numpy")
    )
    assert_identical(one, other)


@pytest.mark.parametrize("nudge", [0, 1])
def test_ties(nudge):
    """A uniform equal to the probability is no participation; the next number above is."""
    words = SeededCoins(9).words(np.arange(CLIENTS), 1).astype(np.int64)
    plain = Problem(PolynomialCosts(np.full((CLIENTS, 1), 0.5), (2,)), CLIENTS / 2)
    chances = Fixed((words + nudge) * 2.0**-32)
    tied = simulate(plain, chances, IntegralController(0.001, 1.0), 2, seed=9, engine="jax")
    assert tied.participants[1] == nudge * CLIENTS


def test_a_continued_run_goes_on_exactly():
    problem, server = problems(CLIENTS)["paper"], IntegralController(9.0 / CLIENTS, 2.0)
    whole = simulate(problem, Classical(), server, 60, seed=5, engine="numpy")
    half = simulate(problem, Classical(), server, 31, seed=5, engine="jax")
    assert_identical(simulate(problem, Classical(), server, 29, start=half, engine="jax"), whole)


@pytest.fixture
def many(monkeypatch):
    """Treat few clients as many: cut by their terms, drawn and measured on the device."""
    monkeypatch.setattr(jax_engine, "FEW", 1)


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("drawn", [False, True])
def test_many_clients_are_cut_by_terms_and_measured_on_the_device(drawn):
    clients = 4 * 505  # families that begin within a block of four
    problem = (drawn_paper_population if drawn else paper_population)(3, clients).problem(clients / 2)
    keep = Keep(every=20, histogram=8, averages=[5, 0, clients - 1], distance_to=np.linspace(0, 1, clients))
    moves = {"schedule": Schedule(leave={1: slice(0, 700)})} if not drawn else {}
    mine, theirs = (run(problem, PaperCoin(3.5), 61, engine, keep=keep, **moves) for engine in ("jax", "numpy"))
    for name in ("signal", "participants", "histogram", "averages", "largest_distance"):
        np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name), err_msg=name)
    np.testing.assert_array_equal(mine.state.participations, theirs.state.participations)
    np.testing.assert_allclose(mine.cost, theirs.cost, rtol=1e-12)  # the order of additions alone
    np.testing.assert_allclose(mine.mean_distance, theirs.mean_distance, rtol=1e-12)


@pytest.mark.parametrize("bits", [64, 32])
def test_tiles_give_what_the_plain_kernel_gives(monkeypatch, bits):
    """The GPU's path, interpreted: the last tile is not full."""
    problem, choice = problems(CLIENTS)["paper"], JaxOptions(bits=bits)
    plain = run(problem, PaperCoin(3.5), 8, choice)
    monkeypatch.setattr(jax_engine, "Way", lambda tiles, mesh: Way("interpret", mesh))
    monkeypatch.setattr(jax_engine, "Devices", lambda found, unit: Devices(found, jax_engine.TILES[bits]))  # type: ignore[attr-defined]
    tiled = run(problem, PaperCoin(3.5), 8, choice)
    np.testing.assert_array_equal(tiled.signal, plain.signal)
    np.testing.assert_array_equal(tiled.state.participations, plain.state.participations)


def test_replicas_equal_runs_of_their_own():
    problem, server = problems(CLIENTS)["paper"], IntegralController(9.0 / CLIENTS, 2.0)
    for more in ({"averaging": BY_PROBABILITY}, {"start": Prior(0.4, 7.5), "averaging": BY_PROBABILITY}):
        together = replicate(problem, PaperCoin(3.5), server, 40, seeds=[4, 9, 2], engine="jax", keep=KEEP, **more)
        assert "3 replicas in one call" in together[0].provenance["engine_reason"]
        for seed, mine in zip([4, 9, 2], together, strict=True):
            assert mine.provenance["seed"] == seed
            alone = simulate(problem, PaperCoin(3.5), server, 40, seed=seed, engine="numpy", keep=KEEP, **more)
            assert_identical(mine, alone)
    moves = Schedule(leave={10: [1, 2]})  # cannot run in step: one by one
    apart = replicate(problem, Classical(), server, 20, seeds=[1], engine="jax", schedule=moves)
    assert_identical(apart[0], simulate(problem, Classical(), server, 20, seed=1, engine="numpy", schedule=moves))


SEVERAL = """
import numpy as np, jax
assert len(jax.devices()) == 4
from conformance.populations import options, problems
from conformance.test_engines import KEEP, assert_identical, run
from turnout import PaperCoin
from turnout.simulation.engines.jax import engine as jax_engine
from turnout.simulation.engines.engine import JaxOptions
problem = problems(20_000)["paper"]
for option, devices, few in (("by probability", 2, 1), ("all", 3, 1 << 20)):  # cut by terms, and as one
    more = options(20_000)[option]
    reference = run(problem, PaperCoin(3.5), 61, "numpy", keep=KEEP, **more)
    jax_engine.FEW = few
    mine = run(problem, PaperCoin(3.5), 61, JaxOptions(devices=devices), keep=KEEP, **more)
    assert f"{devices} x cpu" in mine.provenance["engine_reason"]
    np.testing.assert_array_equal(mine.signal, reference.signal)
    np.testing.assert_array_equal(mine.state.participations, reference.state.participations)
    np.testing.assert_array_equal(mine.histogram, reference.histogram)
    np.testing.assert_allclose(mine.cost, reference.cost, rtol=1e-12)
print("identical")
"""


def test_several_devices_share_the_clients():
    tests = os.path.dirname(os.path.dirname(__file__))
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "PYTHONPATH": tests, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL], env=os.environ | flags, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "identical", done.stderr


def surprise(engine, mechanism, believed, rounds=30, clients=20_000):
    """How many standard deviations the turnout is off what the exact decision gives to the states that were reached."""
    problem, server = paper_population(1, clients).problem(clients / 2), IntegralController(9.0 / clients, 8.0)
    at = simulate(problem, mechanism, server, 1, seed=2, engine=engine)
    off = variance = 0.0
    for _ in range(rounds):
        before, signal = at.state, at.signal[-1]  # lag 1: decided by the signal of the round before
        at = simulate(problem, mechanism, server, 1, start=at, engine=engine)
        wish = np.minimum(signal * before.average / problem.costs.slope(before.average), 1.0)
        chance = believed.response(wish, before.average, believed.parameters())
        off += at.participants[-1] - chance.sum()
        variance += np.sum(chance * (1.0 - chance))
    return abs(off) / np.sqrt(variance)


def test_32_bits_toss_with_the_exact_probabilities_and_a_wrong_coin_is_noticed():
    """The sum of (bit - probability) is a martingale: normal after 600,000 tosses. The twin has another coin."""
    limit = norm.isf(FALSE_ALARM / 2)
    assert surprise("jax32", PaperCoin(3.5), PaperCoin(3.5)) < limit
    assert surprise("jax32", PaperCoin(3.3), PaperCoin(3.5)) > limit


def test_32_bit_probabilities_differ_by_rounding_alone():
    only = Averaging(remember=1, by="probability")
    problem, mechanism = problems(CLIENTS)["paper"], mechanisms(CLIENTS)["paper-coin by client"]
    runs = [run(problem, mechanism, 2, engine, averaging=only) for engine in ("jax32", "numpy")]
    mine, theirs = (one.state.participations for one in runs)
    assert np.max(np.abs(mine - theirs)) < 2.0**-20
    assert np.any(mine != theirs)  # it is 32 bits


def test_one_bit_is_noticed():
    """The sabotaged twin of the exact mode."""
    problem = problems(CLIENTS)["paper"]
    one = run(problem, PaperCoin(3.5), 40, "jax", averaging=BY_PROBABILITY)
    other = run(problem, PaperCoin(np.nextafter(3.5, 4.0)), 40, "numpy", averaging=BY_PROBABILITY)
    np.testing.assert_array_equal(one.participants, other.participants)
    with pytest.raises(AssertionError):
        assert_identical(one, other)


def test_nothing_is_compiled_in():
    """What is compiled does not grow with the clients: all arrays are arguments."""
    sizes = []
    for blocks in (1_000, 1_000_000):
        lanes = tuple(jax.ShapeDtypeStruct((blocks,), np.float32) for _ in range(4))
        rules = Rules((2, 4), Classical.response, Classical.limits, True, 32, 2, False)
        family = jax_engine.Family((lanes, None), None, (), None, np.uint32(0), (np.uint32(0),), (np.uint32(blocks),))  # type: ignore[attr-defined]
        with jax.enable_x64(True):
            clients = type("SimulatedClients", (), {"coins": SeededCoins(1), "averaging": Averaging()})
            server = jax_engine.server_at(clients, 1, 5, 1.0, 1.0, True, 0.1, 5.0, 1.0)
            text = compiled(rules, Way()).lower((jax_engine.History(lanes, None),), (family,), server).as_text()  # type: ignore[attr-defined]
        sizes.append(len(text.replace(str(blocks), "N")))
    assert sizes[0] == sizes[1]


class Cosine(Mechanism):
    """Uses a function that machines round differently."""

    kind = "cosine"

    @staticmethod
    def response(intent, average, parameters):
        return np.cos(intent)

    @staticmethod
    def limits(average, parameters):
        return 0.0, 1.0


def test_a_mechanism_with_functions_of_its_own_is_refused():
    with pytest.raises(TypeError, match=r"arithmetic alone, got numpy\.cos"):
        run(problems(CLIENTS)["paper"], Cosine(), 3, "jax")
