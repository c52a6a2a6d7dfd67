"""Warner's randomized response, on the intent: a straight line between the two ends of the box."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from turnout.algorithm.mechanism import Mechanism
from turnout.algorithm.thresholds import check_epsilon, widest_box


@dataclass(frozen=True)
class RandomizedResponse(Mechanism):
    """P(X=1) = low + (high - low) intent, with low = 1 / (1 + e^epsilon) and high = 1 - low.

    Pure epsilon per report, for any two costs and any signals (docs/proofs/randomized-response.md). `Clamp` has the
    same promise and costs less.

    Args:
        epsilon: per report, above 0.

    Example:
        >>> from turnout.algorithm import Public
        >>> RandomizedResponse(epsilon=2.0).probability([0.0, 0.5, 1.0], Public()).round(3)
        array([0.119, 0.5  , 0.881])
    """

    epsilon: float
    kind = "randomized-response"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    def parameters(self) -> tuple[Any, ...]:
        """The box."""
        return widest_box(self.epsilon)

    @staticmethod
    def response(intent: Any, average: Any, parameters: Any) -> Any:
        """Along the line from low to high."""
        low, high = parameters
        return low + (high - low) * intent

    @staticmethod
    def limits(average: Any, parameters: Any) -> tuple[Any, Any]:
        """The box itself."""
        low, high = parameters
        return low, high
