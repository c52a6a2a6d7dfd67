"""The paper's coin with a bound: no intent counts as more than a cap, so that a "no" is deniable, too."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from turnout.algorithm.arithmetic import at_most
from turnout.algorithm.mechanism import Mechanism
from turnout.algorithm.mechanisms.paper_coin import coin_probability
from turnout.algorithm.thresholds import WORDS
from turnout.errors import check_number


@dataclass(frozen=True)
class CappedCoin(Mechanism):
    """P(X=1) = p + (1 - p) min(intent, cap) with p = (beta / 2) exp(-beta).

    Pure epsilon per report of its box [p, p + (1 - p) cap] (docs/proofs/capped-coin.md); p is at most 0.184, so that
    no cap brings it below 1.49 without giving up most of the intent.

    Args:
        beta: above 0, as for `PaperCoin`.
        cap: in (0, 1).

    Example:
        >>> from turnout.algorithm import Public
        >>> CappedCoin(beta=1.0, cap=0.8).probability([0.0, 0.5, 1.0], Public()).round(3)
        array([0.184, 0.592, 0.837])
    """

    beta: float
    cap: float
    kind = "capped-coin"

    def __post_init__(self) -> None:
        remedy = "the paper uses 3.5, 2.5, 1.5 and 1"
        check_number("beta", self.beta, "above 0 and at most 30", lambda beta: 0.0 < beta <= 30.0, remedy)
        remedy = "at 1 this would be the paper's coin, which has no bound"
        check_number("cap", self.cap, "above 0 and below 1", lambda cap: 0.0 < cap < 1.0, remedy)

    def parameters(self) -> tuple[Any, ...]:
        """The coin and the cap, and the box in whole words of the real coin."""
        coin = float(coin_probability(self.beta))
        low = math.floor(coin * WORDS) / WORDS
        high = min(math.ceil((coin + (1.0 - coin) * self.cap) * WORDS), WORDS - 1) / WORDS
        return low, high, self.cap

    @staticmethod
    def response(intent: Any, average: Any, parameters: Any) -> Any:
        """Participate by the capped intent, or else by the coin."""
        low, _, cap = parameters
        return low + (1.0 - low) * at_most(intent, cap)

    @staticmethod
    def limits(average: Any, parameters: Any) -> tuple[Any, Any]:
        """From the coin alone to the coin with the capped intent."""
        low, high, _ = parameters
        return low, high
