"""The server's step: how a round is closed. Simulation, coordinator and Flower all call `server_step`.

A compiled engine runs many rounds in one call. Its loop computes the same `integral_signal` between rounds, which is
all that the step is for an `IntegralController` while the capacity is in reach and the same clients are expected.
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
        enough: whether a quorum reported; else the total says nothing.
        reach: None where those who are expected can bring the capacity on average; else (least, most) that they can
            bring: their boxes' lowest sum is above the capacity, or their highest below it.
        share: the part of the expected weight that was heard; this part of the capacity is asked of it.
        scale: what the signal is multiplied by, since others are expected in the next round.
    """

    enough: bool = True
    reach: tuple[float, float] | None = None
    share: float = 1.0
    scale: float = 1.0

    def aim(self, total: float, capacity: float) -> float | None:
        """What the controller aims at; None: it does not move.

        Out of reach, no signal is enough. Where the capacity is too low, the controller aims at a tenth above the
        least. Where it is too high, who is missing may be back soon: the controller only moves up, to a third of what
        is possible.

        Example:
            >>> Heard(reach=(40.0, 100.0)).aim(50, 120), Heard(reach=(40.0, 100.0)).aim(70, 120)
            (60.0, None)
            >>> Heard(reach=(40.0, 100.0)).aim(70, 30), Heard(reach=(40.0, 100.0)).aim(45, 30)
            (46.0, 46.0)
        """
        if not (self.enough and self.share > 0.0):
            return None
        if self.reach is None:
            return capacity * self.share
        least, most = self.reach
        if capacity <= least:
            return (least + 0.1 * (most - least)) * self.share
        third = (least + (most - least) / 3.0) * self.share
        return third if total < third else None


def in_reach(capacity: float, least: float, most: float) -> bool:
    """Whether some signal brings the capacity on average.

    Args:
        capacity: what is needed.
        least: the average turnout that a falling signal approaches, and does not reach.
        most: the highest average turnout; sums are rounded, so a trifle more is still reached.

    Example:
        >>> in_reach(30, 20.0, 30.0), in_reach(30, 30.0, 80.0), in_reach(31, 20.0, 30.0)
        (True, False, False)
    """
    return least < capacity <= most * (1.0 + 1e-12)


EVERYONE = Heard()
"""Nobody is missing: what a simulation hears where its schedule keeps nobody away."""


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

    It does not move where too few reported: the turnout is unknown. Nor, but for the exception of `Heard.aim`, where
    those who are expected cannot bring the capacity: no signal would, and one that rises all the while must fall as far
    afterwards, with everyone participating until it has. In both cases the controller's state is what it was before,
    and so is the signal, but for the scale: where half are gone, the others are asked for twice as much, and when all
    are back, for as much as before. The products of the scales of an absence and of a return cancel, apart from the
    caution for averages that have fallen meanwhile (see `Presence`).

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
        >>> server_step(controller, state, total=9, capacity=30, heard=Heard(reach=(0.0, 20.0), scale=2.0)).signals
        (3.0, 6.0)
    """
    after = state.controller
    aim = heard.aim(total, capacity)
    if aim is not None:
        after = controller.step(after, total, aim)
    if heard.scale != 1.0:
        after = controller.scaled(after, heard.scale)
    if after.signal > most_signal:
        after = after._replace(signal=float(most_signal))
    return ServerState(state.round + 1, (*state.signals[1:], float(after.signal)), after)
