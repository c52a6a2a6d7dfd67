"""How the server sets the signal: the paper's controller, one that needs no gain, one for sums with noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from turnout.algorithm.arithmetic import at_least
from turnout.errors import check_kind, check_number, invalid, nearest
from turnout.settings import Table


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
        """The state before round 0: a named tuple of numbers, one of them `signal`, Theta(0)."""
        ...

    def step(self, state: Any, participants: float, capacity: float) -> Any:
        """The state after a round with this turnout."""
        ...

    def scaled(self, state: Any, scale: float) -> Any:
        """The state with the signal multiplied, since others are expected, or another capacity is needed."""
        ...

    def settings(self) -> dict[str, Any]:
        """Everything that makes this controller again, as `controller_from_settings` takes it."""
        ...


def check_controller(controller: object) -> None:
    """Refuse anything but a controller.

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

    def step(self, state: IntegralState, participants: float, capacity: float) -> IntegralState:
        """Theta(k+1) from Theta(k) and the turnout of round k."""
        return IntegralState(float(integral_signal(state.signal, self.gain, participants, capacity)))

    def scaled(self, state: IntegralState, scale: float) -> IntegralState:
        """The state with the signal multiplied."""
        return IntegralState(state.signal * scale)

    def settings(self) -> dict[str, Any]:
        """Everything that makes this controller again."""
        return {"kind": "integral", "gain": self.gain, "initial": self.initial, "lag": self.lag}


_LARGEST_STEP = math.log(10.0)
"""Of the logarithm of the signal: at most ten times more or less in a round. Six rounds bridge a
first guess wrong by a million, and one mistaken step costs one round of too many or too few."""

_REACH = 1e15
"""The signal stays within this factor of the first: while nobody can participate it must not climb for ever,
or it would need as long to fall afterwards."""

_GROWTH, _DECAY = 1.5, 2.0
"""The most by which the gain rises or falls in a round. Falling is halving, as in a bisection; rising
is slower, so that noise alone, whose sign agrees as often as not, lowers the gain."""

_SMALLEST_GAIN = 0.15
"""Averages over some 7 rounds: turnouts then spread sqrt(2 / (2 - 0.15)) = 1.04 times as far as they must
(1.07 with the gain's own noise), and never slower, so that slow drifts are followed."""

_MEMORY = 0.3
"""Of the newest error in the size of errors: long enough to know the noise, short enough to forget
within some twenty rounds how large the errors were while the scale was still unknown."""

_SURPRISE = 5.0
"""An error so many times the usual size is a change: noise does it in one round of some 900."""


class SelfTuningState(NamedTuple):
    """The state of a `SelfTuningController`.

    Attributes:
        signal: Theta(k).
        gain: how far the logarithm of the signal moves for an error of 1.
        error: of the last round, (C - n) / C.
        size: the mean square of the recent errors; 0 before the first.
    """

    signal: float
    gain: float
    error: float
    size: float


@dataclass(frozen=True)
class SelfTuningController:
    """A server that needs the capacity and the turnout alone: there is no gain to choose.

    It moves the logarithm of the signal by gain * error, error = (C - n) / C. An intent is
    min(1, Theta * something), so the turnout n rises by at most n for each unit of log Theta: a
    gain of 1 is stable (on the way up it never overshoots) for any clients. The errors show whether a larger
    gain is safe (many clients are at their limit, or participate by a coin, and do not follow the signal) or a
    smaller one is enough. At the best gain they are unrelated from round to round. So the gain
    rises while they keep their sign (we lag behind), and falls when they alternate (we chase noise,
    or overshoot). Only ratios of errors count: neither N nor the noise need be known.

    Args:
        initial: Theta(0), above 0. Rather too low than too high: then few participate at first, not all.

    Differs from paper: there, tau is fixed, and right for one number of clients and one scale of costs.

    Example:
        >>> server = SelfTuningController(initial=1.0)
        >>> state = server.step(server.start(), participants=300, capacity=600)
        >>> round(state.signal, 3)
        1.649
    """

    initial: float = 1.0

    def __post_init__(self) -> None:
        def fits(initial: float) -> bool:
            return initial / _REACH > 0.0 and math.isfinite(initial * _REACH)

        check_number("initial", self.initial, "above 0 and finite", fits, "give any first signal, such as 1")

    @property
    def lag(self) -> int:
        """0: each round is decided by the newest signal, since a lag would halve the gain that is stable."""
        return 0

    def start(self) -> SelfTuningState:
        """Theta(0), and the gain that is safe for everyone."""
        return SelfTuningState(float(self.initial), 1.0, 0.0, 0.0)

    def step(self, state: SelfTuningState, participants: float, capacity: float) -> SelfTuningState:
        """Theta(k+1) from Theta(k) and the turnout of round k."""
        error, last = max((capacity - participants) / capacity, -_LARGEST_STEP), state.error
        size = state.size + _MEMORY * (error * error - state.size)
        scale = max(error * error, last * last, size)
        agreement = error * last / scale if scale > 0.0 else 0.0  # in [-1, 1]; near 0 for small errors, which are noise
        gain = state.gain * (_GROWTH if agreement > 0.0 else _DECAY) ** agreement
        if (
            error * error > _SURPRISE**2 * state.size
        ):  # clients left or joined, or the capacity changed: as at the start
            gain = max(gain, 1.0)
        if agreement < 0.0:  # we stepped over the goal: a gain above 1 falls to the secant through both rounds
            gain = min(gain, max(1.0, state.gain * abs(last) / (abs(last) + abs(error))))
        gain = max(gain, _SMALLEST_GAIN)
        if gain * abs(error) > _LARGEST_STEP:  # the gain too, or it would wind up where nothing answers
            gain = _LARGEST_STEP / abs(error)
        signal = state.signal * math.exp(gain * error)
        signal = min(max(signal, self.initial / _REACH), self.initial * _REACH)
        return SelfTuningState(signal, gain, error, size)

    def scaled(self, state: SelfTuningState, scale: float) -> SelfTuningState:
        """The state with the signal multiplied."""
        return state._replace(signal=state.signal * scale)

    def settings(self) -> dict[str, Any]:
        """Everything that makes this controller again."""
        return {"kind": "self-tuning", "initial": self.initial}


_FIRST = 4.0
"""The gain is 4 / (k + 4) in round k. With 1 / (k + 1), the signal is the mean of what each round asked for, which is
best for a price that stays. But the balancing price moves while averages find their places, about as c log k does, and
with a / (k + a) the signal lags behind it by c / a. The noise adds a^2 / (2 a - 1) times as much: 2.3 times for 4."""

_AFTER_A_CHANGE, _AGAIN = 20.0, 8.0
"""After a change that the server knows of, the gain begins at 20 floors and falls as 8 / k does. The scaled signal is
about right, but averages then need as many rounds as they are old to find their new places, and the price moves with
them. Of 10 to 20 floors and 4 to 12, these had the smallest error after half of the clients left at half-time."""

_A_CHANGE = 0.05
"""Of the logarithm of the signal: what is expected changed by more than these 5 %."""


class FallingGainState(NamedTuple):
    """The state of a `FallingGainController`.

    Attributes:
        signal: Theta(k).
        rounds: that the gain has been falling for.
        falls: how slowly: the gain is falls / (rounds + falls), or the floor.
    """

    signal: float
    rounds: float
    falls: float = _FIRST


@dataclass(frozen=True)
class FallingGainController:
    """A server for sums with noise: its gain falls as it learns, and does not follow the noise.

    It moves the logarithm of the signal by gain * (C - n) / C, as the self-tuning controller does, but the errors
    decide nothing else: where most of an error is noise, they say nothing about the gain. The gain of an early round k
    is 4 / (k + 4), later it is `floor`. The first price may be wrong by a factor of ten: it is found within some ten
    rounds. After that the floor is the choice between following drifts (within some 1 / floor rounds) and following
    noise (it adds floor / 2 * sigma^2 to the turnout's variance). Where the server knows of a change (members left,
    another capacity), it scales the signal at once, and the gain falls again, slower, from twenty times the floor.

    Args:
        floor: the least gain, above 0 and at most 1; `turnout plan` chooses it.
        initial: Theta(0), above 0: a public guess of the price.
        early: the sums in which the gain falls, best those with less noise; until it is the floor, unless given.

    Differs from paper: there, tau is fixed, and sums are exact.

    Example:
        >>> server = FallingGainController(floor=0.001, initial=10.0)
        >>> state = server.step(server.start(), participants=300, capacity=600)
        >>> round(state.signal, 2), state.rounds
        (16.49, 1.0)
    """

    floor: float
    initial: float = 1.0
    early: int | None = None

    def __post_init__(self) -> None:
        remedy = "try 10 / rounds, or let turnout plan choose"
        check_number("floor", self.floor, "above 0 and at most 1", lambda floor: 0.0 < floor <= 1.0, remedy)
        SelfTuningController(self.initial)  # the same range
        if self.early is not None and not (isinstance(self.early, (int, np.integer)) and self.early >= 1):
            allowed = "a whole number from 1 up, or left out"
            raise invalid("early", allowed, repr(self.early), "give the early rounds of the noise")

    @property
    def lag(self) -> int:
        """0: each round is decided by the newest signal."""
        return 0

    def gain(self, rounds: float, falls: float = _FIRST) -> float:
        """After it has been falling for so many rounds."""
        return max(self.floor, falls / (rounds + falls))

    def start(self) -> FallingGainState:
        """Theta(0), and a gain of 1."""
        return FallingGainState(float(self.initial), 0.0)

    def step(self, state: FallingGainState, participants: float, capacity: float) -> FallingGainState:
        """Theta(k+1) from Theta(k) and the sum of round k."""
        step = self.gain(state.rounds, state.falls) * (capacity - participants) / capacity
        signal = state.signal * math.exp(min(max(step, -_LARGEST_STEP), _LARGEST_STEP))
        signal = min(max(signal, self.initial / _REACH), self.initial * _REACH)
        rounds = state.rounds + 1.0
        if rounds == self.early and state.falls == _FIRST:
            rounds = max(rounds, _FIRST / self.floor)
        return FallingGainState(signal, rounds, state.falls)

    def gains(self, rounds: int) -> list[float]:
        """Of the first rounds, where nothing changes."""
        early = math.inf if self.early is None else self.early
        return [self.gain(float(round)) if round < early else self.floor for round in range(rounds)]

    def scaled(self, state: FallingGainState, scale: float) -> FallingGainState:
        """The state with the signal multiplied, and a gain that falls again, if that is a change worth it."""
        if 1.0 / (1.0 + _A_CHANGE) <= scale <= 1.0 + _A_CHANGE:
            return state._replace(signal=state.signal * scale)
        gain = min(1.0, max(self.gain(state.rounds, state.falls), _AFTER_A_CHANGE * self.floor))
        return FallingGainState(state.signal * scale, _AGAIN / gain - _AGAIN, _AGAIN)

    def settings(self) -> dict[str, Any]:
        """Everything that makes this controller again."""
        early = {} if self.early is None else {"early": self.early}
        return {"kind": "falling-gain", "floor": self.floor, "initial": self.initial, **early}


def controller_from_settings(table: Table) -> Controller:
    """A controller from its table: `kind`, and its parameters by name.

    Example:
        >>> controller_from_settings(Table({"kind": "integral", "gain": 0.0075, "initial": 0.35}))
        IntegralController(gain=0.0075, initial=0.35, lag=1)
        >>> controller_from_settings(Table({"kind": "self-tuning"}))
        SelfTuningController(initial=1.0)
    """
    kind = table.text("kind", "integral")
    controller: Controller
    if kind == "integral":
        controller = IntegralController(table.number("gain"), table.number("initial"), table.whole("lag", 1))
    elif kind == "self-tuning":
        controller = SelfTuningController(table.number("initial", 1.0))
    elif kind == "falling-gain":
        controller = FallingGainController(
            table.number("floor"), table.number("initial", 1.0), table.whole("early", None)
        )
    else:
        kinds = ("integral", "self-tuning", "falling-gain")
        remedy = nearest(kind, kinds, "use one of these names")
        raise invalid(table.path("kind"), f"one of {', '.join(map(repr, kinds))}", f"{kind!r}", remedy)
    table.finish()
    return controller
