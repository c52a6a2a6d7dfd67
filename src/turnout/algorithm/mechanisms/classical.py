"""Algorithm 2: no privacy. A client takes part with exactly its intent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from turnout.algorithm.mechanism import Mechanism


@dataclass(frozen=True)
class Classical(Mechanism):
    """P(X=1) = intent. Optimal in the long run, and no privacy at all.

    Paper: Algorithm 2, the classical algorithm (QoSPA).

    Example:
        >>> from turnout.algorithm import Public
        >>> Classical().probability([0.2, 1.5], Public())
        array([0.2, 1. ])
    """

    kind = "classical"
    unbounded = "the probability is the intent itself"

    @staticmethod
    def response(intent: Any, average: Any, parameters: Any) -> Any:
        """The intent itself."""
        return intent

    @staticmethod
    def limits(average: Any, parameters: Any) -> tuple[Any, Any]:
        """Anything from 0 to 1."""
        return 0.0, 1.0
