import math

import pytest

from turnout import IntegralController, SelfTuningController
from turnout.algorithm.controllers import controller_from_settings
from turnout.settings import Table


def test_the_signal_moves_against_the_error():
    """Paper: Algorithm 1. Paper: Eq. (3)."""
    server = IntegralController(gain=0.5, initial=3.0)
    state = server.step(server.start(), participants=4, capacity=2.5)
    assert state.signal == 3.0 - 0.5 * 1.5
    assert server.step(state, participants=100, capacity=2.5).signal == 0.0


@pytest.mark.parametrize(
    "bad",
    [
        *({"gain": gain} for gain in (0, -1, math.nan, math.inf)),
        *({"initial": initial} for initial in (-1, -0.5, math.nan, math.inf)),
        *({"lag": lag} for lag in (2, -1)),
    ],
)
def test_bad_arguments(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
        IntegralController(**({"gain": 0.1, "initial": 1.0} | bad))


def test_settings_make_it_again():
    server = IntegralController(0.1, 2.0, lag=0)
    assert controller_from_settings(Table(server.settings())) == server
    with pytest.raises(ValueError, match="'integral' or 'self-tuning'"):
        controller_from_settings(Table({"kind": "magic"}))


def test_the_first_signal_may_be_zero_and_the_papers_lag_is_one():
    server = IntegralController(gain=0.5, initial=0)
    assert server.start().signal == 0.0
    assert isinstance(server.start().signal, float)
    assert (server.lag, IntegralController(0.5, 1.0, lag=0).lag) == (1, 0)
    assert server.settings() == {"kind": "integral", "gain": 0.5, "initial": 0, "lag": 1}


def test_settings_have_usual_values_and_none_too_many():
    plain = {"gain": 0.5, "initial": 1.0}
    assert controller_from_settings(Table(plain)) == IntegralController(0.5, 1.0, lag=1)
    assert controller_from_settings(Table({"kind": "self-tuning"})) == SelfTuningController(1.0)
    with pytest.raises(ValueError, match="gian is not a known setting"):
        controller_from_settings(Table(plain | {"gian": 1.0}))
