"""The intent, kept in a box: the best that any mechanism with that box can do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from turnout.algorithm.mechanism import Mechanism, Planned, Recipe
from turnout.algorithm.thresholds import check_center, check_epsilon, widest_box


@dataclass(frozen=True)
class Clamp(Mechanism):
    """P(X=1) = the intent, clipped to the widest legal box around a centre.

    Pure epsilon per report, for any two costs and any signals (docs/proofs/clamp.md). In the long run
    the averages solve the problem with x in the box: no mechanism with that box can do better.

    Args:
        epsilon: per report, above 0.
        center: of the box, in (0, 1): 0.5, or capacity / clients where that is far from 0.5.

    Example:
        >>> from turnout.algorithm import Public
        >>> Clamp(epsilon=1.0).probability([0.0, 0.5, 1.0], Public()).round(3)
        array([0.269, 0.5  , 0.731])
    """

    epsilon: float
    center: float = 0.5
    kind = "clamp"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_center(self.center)
        self.parameters()  # refuses what leaves no box of 53 bits

    @classmethod
    def recipes(cls, given: Planned) -> Iterable[Recipe]:
        """Centred at 0.5; and at the average that meets the capacity, where that differs."""
        yield Recipe(cls, cls.kind)
        if abs(given.share - 0.5) > 0.02:
            center = float(given.share)
            yield Recipe(lambda epsilon: cls(epsilon, center), f"{cls.kind} around {center:.3g}")

    def parameters(self) -> tuple[Any, ...]:
        """The box."""
        return widest_box(self.epsilon, self.center)

    @staticmethod
    def response(intent: Any, average: Any, parameters: Any) -> Any:
        """The intent itself; the box does the rest."""
        return intent

    @staticmethod
    def limits(average: Any, parameters: Any) -> tuple[Any, Any]:
        """The box itself."""
        low, high = parameters
        return low, high
