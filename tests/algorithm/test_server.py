import pytest

from turnout import IntegralController
from turnout.algorithm.controllers import controller_from_settings
from turnout.settings import Table


def test_the_signal_moves_against_the_error():
    """Paper: Algorithm 1. Paper: Eq. (3)."""
    server = IntegralController(gain=0.5, initial=3.0)
    state = server.step(server.start(), participants=4, capacity=2.5)
    assert state.signal == 3.0 - 0.5 * 1.5
    assert server.step(state, participants=100, capacity=2.5).signal == 0.0


@pytest.mark.parametrize(
    "bad", [{"gain": 0}, {"gain": -1}, {"gain": float("nan")}, {"gain": float("inf")}, {"initial": -1}, {"lag": 2}]
)
def test_bad_arguments(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        IntegralController(**({"gain": 0.1, "initial": 1.0} | bad))


def test_settings_make_it_again():
    server = IntegralController(0.1, 2.0, lag=0)
    assert controller_from_settings(Table(server.settings())) == server
    with pytest.raises(ValueError, match="'integral' or 'self-tuning'"):
        controller_from_settings(Table({"kind": "magic"}))
