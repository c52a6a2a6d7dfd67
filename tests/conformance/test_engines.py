"""Every engine gives the identical trajectory, bit for bit, whatever is simulated.

To add an engine: name it in ENGINES.
"""

import numpy as np
import pytest

from conformance.populations import Fixed, mechanisms, options, problems
from turnout import (
    Averaging,
    Classical,
    IntegralController,
    Keep,
    PaperCoin,
    PolynomialCosts,
    Problem,
    SeededCoins,
    paper_population,
    simulate,
)
from turnout.simulation.trajectory import _COLUMNS

ENGINES = [("numba", 1), ("numba", 2)]
CLIENTS = 20_000  # more than one tile of the kernels, and enough for two threads
KEEP = Keep(every=7, histogram=8, averages=[0, 3, 19_999])


def run(problem, mechanism, rounds, engine, threads=None, *, lag=1, gain=9.0, **more):
    per_client = gain * problem.capacity / problem.most / len(problem) / (problem.most / len(problem)) ** 2
    server = IntegralController(per_client, 2.0, lag)
    return simulate(problem, mechanism, server, rounds, seed=9, engine=engine, threads=threads, **more)


def assert_identical(one, other):
    for name in ("signal", "participants", "capacity", "checkpoints", *_COLUMNS):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert (mine is None) == (theirs is None)
        if mine is not None:
            np.testing.assert_array_equal(mine, theirs, err_msg=name)
    if one.state is not None:
        np.testing.assert_array_equal(one.state.participations, other.state.participations)
        np.testing.assert_array_equal(one.state.rounds, other.state.rounds)


@pytest.mark.parametrize(("engine", "threads"), ENGINES)
class TestEngine:
    """The conformance suite of an engine against the NumPy one."""

    @pytest.mark.parametrize("mechanism", mechanisms(CLIENTS))
    @pytest.mark.parametrize("option", options(CLIENTS))
    def test_every_mechanism_and_option(self, engine, threads, mechanism, option):
        given = options(CLIENTS)[option], mechanisms(CLIENTS)[mechanism]
        averaging = given[0].get("averaging", Averaging())
        if given[1].needs_public_average and averaging.by == "probability":
            with pytest.raises(ValueError, match="where averages are not public"):
                run(problems(CLIENTS)["paper"], given[1], 5, engine, threads, **given[0])
            return
        problem = problems(CLIENTS)["paper"]
        reference = run(problem, given[1], 120, "numpy", keep=KEEP, **given[0])
        assert_identical(run(problem, given[1], 120, engine, threads, keep=KEEP, **given[0]), reference)

    @pytest.mark.parametrize("family", problems(CLIENTS))
    @pytest.mark.parametrize("lag", [0, 1])
    def test_every_family_of_costs_and_lag(self, engine, threads, family, lag):
        problem, mechanism = problems(CLIENTS)[family], mechanisms(CLIENTS)["paper-coin by client"]
        more = {"averaging": Averaging(by="probability"), "lag": lag}
        assert_identical(
            run(problem, mechanism, 61, engine, threads, **more), run(problem, mechanism, 61, "numpy", **more)
        )

    @pytest.mark.parametrize("clients", [4, 8, 1020, 1028, 16384, 16388])
    def test_sizes_around_the_edges_of_blocks_and_tiles(self, engine, threads, clients):
        problem = paper_population(2, clients).problem(clients / 2)
        for rounds in (1, 2, 3, 30):
            assert_identical(
                run(problem, Classical(), rounds, engine, threads), run(problem, Classical(), rounds, "numpy")
            )

    def test_the_probabilities_themselves(self, engine, threads):
        """Remembering one round, by the probability, leaves in the state the probability alone."""
        problem = problems(CLIENTS)["paper"]
        only = Averaging(remember=1, by="probability")
        for rounds in (2, 3, 4, 50):
            mechanism = mechanisms(CLIENTS)["paper-coin by client"]
            mine = run(problem, mechanism, rounds, engine, threads, averaging=only).state.participations
            theirs = run(problem, mechanism, rounds, "numpy", averaging=only).state.participations
            np.testing.assert_array_equal(mine, theirs)
            assert len(np.unique(mine)) > CLIENTS // 4  # not all saturated: real probabilities were compared

    @pytest.mark.parametrize("nudge", [0, 1])
    def test_ties(self, engine, threads, nudge):
        """A uniform equal to the probability is no participation; the next number above is."""
        words = SeededCoins(9).words(np.arange(CLIENTS), 1).astype(np.int64)
        costs = PolynomialCosts(np.full((CLIENTS, 1), 0.5), (2,))  # slope 1 at average 1
        by_weight = Problem(costs, 10.0 * CLIENTS, np.maximum(words + nudge, 1))
        settings = {"seed": 9, "engine": engine, "threads": threads}
        run = simulate(by_weight, Classical(), IntegralController(1e-30, 2.0**-32), 2, **settings)
        assert run.participants[1] == nudge * by_weight.most
        chances = Fixed((words + nudge) * 2.0**-32)
        plain = Problem(costs, CLIENTS / 2)
        run = simulate(plain, chances, IntegralController(0.001, 1.0), 2, **settings)
        assert run.participants[1] == nudge * CLIENTS


@pytest.mark.parametrize("mechanism", ["classical", "paper-coin", "average-box"])
def test_sixty_million_client_rounds(mechanism):
    problem, rounds = problems(CLIENTS)["paper"], 3_000
    assert CLIENTS * rounds >= 6e7
    made = mechanisms(CLIENTS)[mechanism]
    more = {"averaging": Averaging(by="probability")}
    assert_identical(run(problem, made, rounds, "numba", 2, **more), run(problem, made, rounds, "numpy", **more))


def test_one_bit_is_noticed():
    """The sabotaged twin: a coin that is off by its last bit gives equal counts, and fails this suite."""
    problem, more = problems(CLIENTS)["paper"], {"averaging": Averaging(by="probability")}
    right, wrong = PaperCoin(3.5), PaperCoin(np.nextafter(3.5, 4.0))
    one, other = run(problem, right, 60, "numba", **more), run(problem, wrong, 60, "numpy", **more)
    np.testing.assert_array_equal(one.participants, other.participants)
    with pytest.raises(AssertionError):
        assert_identical(one, other)
