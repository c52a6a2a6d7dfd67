"""A box that follows the client's own average, which an observer of every report knows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from turnout.algorithm.arithmetic import inside, root
from turnout.algorithm.mechanism import Mechanism, Planned, Recipe
from turnout.algorithm.thresholds import check_epsilon, growth
from turnout.errors import check_number

MARGIN = Decimal("5e-10")
"""The least share of e^epsilon that is given up, so that the rounding of floats and of the real coin's 53 bits stays
inside it."""


@lru_cache(maxsize=1024)
def margin(epsilon: float, floor: float) -> Decimal:
    """The share of e^epsilon that is given up: max(MARGIN, 2^-52 (e^epsilon + e^(epsilon / 2) / floor)).

    The rarer answer may have as few as 2^53 e^-epsilon of the coin's words, so that one word more or less weighs the
    more the larger epsilon is. The bound is proven in docs/proofs/tracking-clamp.md.

    Example:
        >>> margin(12.0, 0.005) == MARGIN, f"{margin(16.0, 0.005):.2g}", f"{margin(30.0, 0.005):.2g}"
        (True, '2.1e-9', '0.0024')
    """
    rare = float(growth(epsilon)) + float(growth(0.5 * epsilon)) / floor
    return max(MARGIN, Decimal(2.0**-52 * rare))


@dataclass(frozen=True)
class TrackingClamp(Mechanism):
    """P(X=1) = the intent, clipped to the widest legal box around the client's public average.

    Pure epsilon per report *given the average* (docs/proofs/tracking-clamp.md): only against an
    observer of every report, who knows the average. The exact optimum stays a fixed point. A small
    epsilon per report is not a small total: it grows with the rounds.

    Args:
        epsilon: per report, above 0.
        floor: the box's centre stays in [floor, 1 - floor]; at 0 and 1 the box would close.

    Example:
        >>> import numpy as np
        >>> from turnout.algorithm import Public
        >>> TrackingClamp(epsilon=1.0).probability([0.0, 0.0], Public(average=np.array([0.5, 0.9]))).round(3)
        array([0.269, 0.837])
    """

    epsilon: float
    floor: float = 0.005
    kind = "tracking-clamp"
    needs_public_average = True

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_number("floor", self.floor, "from 0.0001 to below 0.5", lambda floor: 1e-4 <= floor < 0.5, "try 0.005")

    @classmethod
    def recipes(cls, given: Planned) -> Iterable[Recipe]:
        """With a longer prior than usual, not near 0 or 1: its box starts around the prior's average."""
        yield Recipe(cls, cls.kind, start=(min(0.9, max(0.1, given.share)), 20))

    def parameters(self) -> tuple[Any, ...]:
        """e^epsilon, less the margin, and the floor."""
        return float(growth(self.epsilon, less=margin(self.epsilon, self.floor))), float(self.floor)

    @staticmethod
    def response(intent: Any, average: Any, parameters: Any) -> Any:
        """The intent itself; the box does the rest."""
        return intent

    @staticmethod
    def limits(average: Any, parameters: Any) -> tuple[Any, Any]:
        """As in `widest_box`, around the average."""
        factor, floor = parameters
        center = inside(floor, average, 1.0 - floor)
        odds = center / (1.0 - center)
        middle = inside(0.0, odds, 1.0 / odds) * (factor - 1.0)
        reach = (middle + root(middle * middle + 4.0 * factor)) * 0.5
        return odds / (odds + reach), odds * reach / (1.0 + odds * reach)
