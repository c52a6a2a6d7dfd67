import math

import pytest

from turnout import IntegralController, SelfTuningController
from turnout.algorithm import Heard, ServerState, server_step
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
    with pytest.raises(ValueError, match="one of 'integral', 'self-tuning', 'falling-gain'"):
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


@pytest.mark.parametrize("lag", [0, 1])
def test_a_round_is_decided_by_the_signal_of_so_many_rounds_ago(lag):
    """Paper: Algorithms 2 and 3: X(k+1) is drawn from Theta(k)."""
    controller = IntegralController(gain=0.5, initial=3.0, lag=lag)
    state, newest, deciding, ahead = ServerState.start(controller), [], [], []
    for round, total in enumerate([4, 1, 0, 9, 2]):
        assert state.round == round
        newest.append(state.controller.signal)
        deciding.append(state.deciding)
        ahead.append(state.signals)
        state = server_step(controller, state, total, capacity=2.5)
    assert newest == [3.0, 2.25, 3.0, 4.25, 1.0]
    assert deciding == [newest[max(0, round - lag)] for round in range(5)]
    assert all(len(signals) == lag + 1 and signals[-1] == newest[round] for round, signals in enumerate(ahead))
    for round in range(5 - lag):  # what is said of rounds ahead comes true
        assert list(ahead[round]) == deciding[round : round + lag + 1]


def test_a_user_may_have_a_longer_lag():
    class Late(SelfTuningController):
        lag = 3

    controller, deciding, newest = Late(), [], []
    state = ServerState.start(controller)
    for total in (9, 3, 7, 1, 0, 12):
        deciding.append(state.deciding)
        newest.append(state.controller.signal)
        state = server_step(controller, state, total, 5.0)
    assert deciding == [newest[max(0, round - 3)] for round in range(6)]


@pytest.mark.parametrize(
    "controller", [IntegralController(0.5, 3.0), SelfTuningController(3.0)], ids=["integral", "self"]
)
def test_a_server_that_heard_too_little_holds_its_signal(controller):
    before = server_step(controller, ServerState.start(controller), 4, 5.0)
    held = server_step(controller, before, 0, 5.0, Heard(enough=False))
    assert held.controller == before.controller
    assert (held.round, held.signals[-1]) == (2, before.signals[-1])
    assert held.deciding == before.signals[-1]
    beyond = server_step(controller, before, 0, 5.0, Heard(reach=(-2.0, -1.0), scale=2.0))
    assert beyond.controller == before.controller._replace(signal=2.0 * before.controller.signal)
    assert beyond.signals[-1] == beyond.controller.signal
    nobody = server_step(controller, before, 0, 5.0, Heard(share=0.0))
    assert nobody.controller == before.controller


@pytest.mark.parametrize(
    "controller", [IntegralController(0.5, 3.0), SelfTuningController(3.0)], ids=["integral", "self"]
)
def test_those_who_are_heard_are_asked_for_their_share(controller):
    before = ServerState.start(controller)
    met = server_step(controller, before, 3, 6.0, Heard(share=0.5))
    assert met.signals[-1] == before.signals[-1]
    assert server_step(controller, before, 2, 6.0, Heard(share=0.5)).signals[-1] > before.signals[-1]
    assert server_step(controller, before, 4, 6.0, Heard(share=0.5)).signals[-1] < before.signals[-1]
    assert server_step(controller, before, 4, 6.0, Heard()) == server_step(controller, before, 4, 6.0)


@pytest.mark.parametrize("heard", [Heard(), Heard(enough=False), Heard(enough=False, scale=0.99)])
def test_the_signal_is_bounded_whatever_was_heard(heard):
    controller = IntegralController(0.5, 3.0)
    after = server_step(controller, ServerState.start(controller), 0, 5.0, heard, most_signal=2)
    assert after.signals == (3.0, 2.0)
    assert after.controller.signal == 2.0
    assert isinstance(after.controller.signal, float)
    assert server_step(controller, ServerState.start(controller), 0, 5.0, heard, most_signal=99.0).signals[-1] < 99.0
