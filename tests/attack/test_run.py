"""A run with a mechanism of one's own is attacked too, if it is said which: a run knows its settings alone."""

from dataclasses import dataclass

import numpy as np
import pytest

from turnout import Clamp, Classical, IntegralController, Problem, Trajectory, paper_population, simulate
from turnout.algorithm import Mechanism
from turnout.attack.reports import NotReplayable, reports_of
from turnout.attack.run import attack_run, surrogate_after_stop

PROBLEM, SERVER = paper_population(0, 40).problem(15), IntegralController(0.1, 1.0)


@dataclass(frozen=True)
class Halved(Mechanism):
    """As in docs/add-a-mechanism.md."""

    floor: float
    kind = "halved"

    def parameters(self):
        return (self.floor,)

    @staticmethod
    def response(intent, average, parameters):
        return 0.5 * intent

    @staticmethod
    def limits(average, parameters):
        return parameters[0], 0.5


@pytest.fixture(scope="module")
def run():
    return simulate(PROBLEM, Halved(0.05), SERVER, 300, engine="numpy")


def test_a_mechanism_of_ones_own_is_given(run, tmp_path):
    run.save(tmp_path / "run.npz")
    for one in (run, Trajectory.load(tmp_path / "run.npz")):
        prior, seen = attack_run(one, [0, 300], mechanism=Halved(0.05))
        assert seen.cost < prior.cost


def test_without_it_the_message_says_how(run):
    for given in (None, Clamp(1.0)):
        with pytest.raises(
            ValueError, match=r"mechanism must be given .*'halved'.*: call attack_run\(run, mechanism=…\)"
        ):
            attack_run(run, mechanism=given)


def test_another_one_than_the_runs_is_noticed(run):
    with pytest.raises(NotReplayable, match="differs from round"):
        attack_run(run, mechanism=Halved(0.2))


def test_the_part_before_a_stop_may_be_of_ones_own(run):
    frozen = Problem(surrogate_after_stop(run.average, float(run.signal[-1])), PROBLEM.capacity)
    whole = simulate(frozen, Classical(), SERVER, 50, start=run, engine="numpy")
    bits = reports_of(whole, after=run, mechanism=Halved(0.05)).bits
    assert np.array_equal(bits.sum(axis=1), whole.participants)
    (errors,) = attack_run(whole, [350], after=run, mechanism=Halved(0.05))
    assert errors.rounds == 350
