"""Algorithm 1: the server turns the turnout into one public number, the signal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from turnout.algorithm.arithmetic import at_least
from turnout.errors import check_kind, check_number, invalid


class ControllerState(Protocol):
    """What a controller carries from round to round: a named tuple of numbers, one of them the signal."""

    @property
    def signal(self) -> float:
        """Theta(k), what is broadcast."""
        ...


@runtime_checkable
class Controller(Protocol):
    """How the server sets the signal. It sees the total of each round and nothing else.

    `step` gives Theta(k+1) from Theta(k) and the turnout of round k. Round k itself is decided
    by the signal of round k - lag (by the first signal, where there is none so old), so that
    lag + 1 rounds can be drawn before the server must be heard again.
    """

    @property
    def lag(self) -> int:
        """How many rounds old the signal is that decides a round; 1 is the paper's."""
        ...

    def start(self) -> Any:
        """The state before round 0."""
        ...

    def step(self, state: Any, participants: int, capacity: float) -> Any:
        """The state after a round with this turnout."""
        ...

    def settings(self) -> dict[str, Any]:
        """Everything that makes this controller again, as `controller_from_settings` takes it."""
        ...


def check_controller(controller: object) -> None:
    """Refuse what is no controller, at the entrances.

    Example:
        >>> check_controller(0.0075)
        Traceback (most recent call last):
        ...
        ValueError: controller must be a turnout Controller, got 0.0075: give one such as SelfTuningController()
    """
    remedy = "give one such as SelfTuningController()"
    check_kind("controller", controller, Controller, "a turnout Controller", remedy)


def integral_signal(signal: Any, gain: Any, participants: Any, capacity: Any) -> Any:
    """Theta(k+1) = max(0, Theta(k) - tau (sum X_i(k) - C)).

    Paper: Eq. (3). Differs from paper: never below 0, where it could only wind down.
    """
    return at_least(signal - gain * (participants - capacity), 0.0)


class IntegralState(NamedTuple):
    """The state of an `IntegralController`: the signal alone."""

    signal: float


@dataclass(frozen=True)
class IntegralController:
    """The paper's server: it moves the signal against the error of the turnout.

    Args:
        gain: tau, above 0; stable below 1 / (slope of the turnout in the signal).
        initial: Theta(0), 0 or more.

    Paper: Algorithm 1; the lag of one round is Algorithms 2 and 3's: X(k+1) is drawn from Theta(k).

    Example:
        >>> server = IntegralController(gain=0.0075, initial=0.35)
        >>> server.step(server.start(), participants=500, capacity=600)
        IntegralState(signal=1.1)
    """

    gain: float
    initial: float
    lag: int = 1

    def __post_init__(self) -> None:
        remedy = "try 0.0075 for 1200 clients, less for more"
        check_number("gain", self.gain, "above 0 and finite", lambda gain: gain > 0.0, remedy)
        remedy = "give the first signal, such as 0.35"
        check_number("initial", self.initial, "0 or more and finite", lambda initial: initial >= 0.0, remedy)
        if not isinstance(self.lag, (int, np.integer)) or self.lag not in (0, 1):
            raise invalid("lag", "0 or 1", repr(self.lag), "use 1 for the paper's algorithm")

    def start(self) -> IntegralState:
        """Theta(0)."""
        return IntegralState(float(self.initial))

    def step(self, state: IntegralState, participants: int, capacity: float) -> IntegralState:
        """Theta(k+1) from Theta(k) and the turnout of round k."""
        return IntegralState(float(integral_signal(state.signal, self.gain, participants, capacity)))

    def settings(self) -> dict[str, Any]:
        """Everything that makes this controller again."""
        return {"kind": "integral", "gain": self.gain, "initial": self.initial, "lag": self.lag}
