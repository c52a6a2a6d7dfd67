"""The server's step: how a round is closed. Simulation, coordinator and Flower all call `server_step`.

A compiled engine runs many rounds in one call. Its loop computes the same `integral_signal` between rounds, which is
all that the step is for an `IntegralController` that hears everyone.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from turnout.algorithm.controllers import Controller


class ServerState(NamedTuple):
    """The server's state between rounds.

    Attributes:
        round: the open one.
        signals: lag + 1 of them: the first decides the open round, the next the round after it, and the last is
            Theta(round). So many rounds can be drawn before the server must be heard again.
        controller: the controller's own state.

    Example:
        >>> from turnout.algorithm import IntegralController
        >>> ServerState.start(IntegralController(gain=0.1, initial=2.0))
        ServerState(round=0, signals=(2.0, 2.0), controller=IntegralState(signal=2.0))
    """

    round: int
    signals: tuple[float, ...]
    controller: Any

    @property
    def deciding(self) -> float:
        """The signal that decides the open round: `lag` rounds old, or the first where none is so old.

        Paper: Algorithms 2 and 3: X(k+1) is drawn from Theta(k).
        """
        return self.signals[0]

    @classmethod
    def start(cls, controller: Controller) -> ServerState:
        """Before round 0."""
        state = controller.start()
        return cls(0, (float(state.signal),) * (controller.lag + 1), state)


class Heard(NamedTuple):
    """What a server knows of a round besides its total.

    Attributes:
        enough: whether the total is the turnout; False where too few reported, or nobody.
        thinning: the mean factor by which a missed round lowers the averages of the missing clients; 1 if none is.
    """

    enough: bool = True
    thinning: float = 1.0


EVERYONE = Heard()
"""Nobody is missing: what a simulation hears."""


def server_step(
    controller: Controller,
    state: ServerState,
    total: float,
    capacity: float,
    heard: Heard = EVERYONE,
    *,
    most_signal: float = math.inf,
) -> ServerState:
    """Close the open round: the controller moves the signal by what was heard.

    Where too few reported, the turnout is unknown, and the signal must not follow it. But averages fall while clients
    are away, and a client with the cost x^p returns with an intent that is x^(2-p) times as high: with the same
    signal, all would participate at once. So the signal falls by the square of the thinning, which is exact for
    p = 4, and for p = 2 costs a few rounds.

    Args:
        controller: how the signal moves.
        state: with the open round.
        total: the weight of the participants.
        capacity: the turnout that is needed.
        heard: what is known besides the total.
        most_signal: the upper bound of the signal.

    Returns:
        The state, with the next round open.

    Paper: Algorithm 1.

    Example:
        >>> from turnout.algorithm import IntegralController
        >>> controller = IntegralController(gain=0.1, initial=2.0)
        >>> state = server_step(controller, ServerState.start(controller), total=20, capacity=30)
        >>> state.round, state.signals
        (1, (2.0, 3.0))
        >>> server_step(controller, state, total=0, capacity=30, heard=Heard(enough=False)).signals
        (3.0, 3.0)
    """
    after = state.controller
    if heard.enough:
        after = controller.step(after, total, capacity)
    elif heard.thinning != 1.0:
        after = after._replace(signal=after.signal * heard.thinning**2)
    if after.signal > most_signal:
        after = after._replace(signal=float(most_signal))
    return ServerState(state.round + 1, (*state.signals[1:], float(after.signal)), after)
