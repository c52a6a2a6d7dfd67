"""A compiled kernel is kept on disk by its name: the name must change with all that it is compiled from."""

from dataclasses import dataclass

import numpy as np
import pytest

from turnout import IntegralController, paper_population, simulate
from turnout.algorithm import Mechanism
from turnout.simulation.engines.numba.kernel import _fingerprint


def function(text="x * SCALE", **constants):
    exec(f"def decide(x):\n    return {text}", constants)
    return constants["decide"]


def test_the_name_of_a_kernel_changes_with_description_code_and_constants():
    usual = _fingerprint("paper-coin", function(SCALE=2.0))
    assert usual == _fingerprint("paper-coin", function(SCALE=2.0))
    assert usual != _fingerprint("clamp", function(SCALE=2.0))
    assert usual != _fingerprint("paper-coin", function("x + SCALE", SCALE=2.0))
    assert usual != _fingerprint("paper-coin", function(SCALE=3.0))


@dataclass(frozen=True)
class ManyParameters(Mechanism):
    """Any number of them, some one a client."""

    first: float = 0.1
    second: float = 0.2
    third: object = 0.9
    fourth: float = 0.4
    fifth: float = 0.95
    kind = "many parameters"

    def parameters(self):
        return self.first, self.second, self.third, self.fourth, self.fifth

    @staticmethod
    def response(intent, average, parameters):
        return intent * parameters[2]

    @staticmethod
    def limits(average, parameters):
        return parameters[0] * parameters[1] * parameters[3], parameters[4]


@pytest.mark.parametrize("third", [0.9, np.linspace(0.5, 1.0, 40)], ids=["shared", "by client"])
def test_a_mechanism_may_have_any_number_of_parameters(third):
    problem, server = paper_population(0, 40).problem(20), IntegralController(0.2, 0.35)
    runs = [simulate(problem, ManyParameters(third=third), server, 60, engine=name) for name in ("numpy", "numba")]
    assert np.array_equal(runs[0].participants, runs[1].participants)
    assert np.array_equal(runs[0].signal, runs[1].signal)
