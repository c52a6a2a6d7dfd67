"""Algorithm 3: the paper's privacy coin. A client that does not want to participate may do so anyway."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnout.algorithm.mechanism import Mechanism
from turnout.errors import invalid
from turnout.problem import Array


def coin_probability(beta: Any) -> Any:
    """p = (beta / 2) exp(-beta): at most 0.184, at beta = 1.

    Paper: Eq. (8).

    Example:
        >>> round(float(coin_probability(3.5)), 4)
        0.0528
    """
    return beta / 2.0 * np.exp(-beta)


@dataclass(frozen=True)
class PaperCoin(Mechanism):
    """P(X=1) = p + (1 - p) intent with p = (beta / 2) exp(-beta).

    Only a "yes" is deniable: a "no" proves that the client did not want to participate. So this is no
    differential privacy for the report; the certified mechanisms are.

    Args:
        beta: above 0, one number or shape (clients,). More privacy means a beta nearer 1.

    Paper: Algorithm 3, Eqs. (8) to (10).

    Example:
        >>> from turnout.algorithm import Public
        >>> PaperCoin(beta=1.0).probability([0.0, 0.5, 1.0], Public()).round(3)
        array([0.184, 0.592, 1.   ])
    """

    beta: float | Array
    kind = "paper-coin"
    unbounded = 'at intent 1 a "no" cannot happen'

    def __post_init__(self) -> None:
        beta = np.asarray(self.beta)
        alike = beta.ndim < 2 or beta.shape[1:] == (1,)  # a column: each client against many costs at once
        if not alike or beta.dtype.kind not in "iuf":
            allowed = "a number above 0, or a list with one per client"
            got = repr(self.beta) if alike else f"shape {beta.shape}"
            raise invalid("beta", allowed, got, "the paper uses 3.5, 2.5, 1.5 and 1")
        beta = beta.astype(np.float64)
        good = np.isfinite(beta) & (beta > 0.0)
        if not np.all(good):
            got = str(beta) if beta.ndim == 0 else f"{beta[np.argmin(good)]} for client {int(np.argmin(good))}"
            raise invalid("beta", "above 0 and finite", got, "the paper uses 3.5, 2.5, 1.5 and 1")
        if np.any(beta < 1.0):
            warnings.warn(
                f"beta below 1 makes the coin smaller again: {beta.min():g} brings {coin_probability(beta.min()):.3f}, "
                "1 brings 0.184; use a beta from 1 up",
                stacklevel=3,
            )
        object.__setattr__(self, "beta", float(beta) if beta.ndim == 0 else beta)

    def __repr__(self) -> str:
        if not isinstance(self.beta, np.ndarray):
            return f"PaperCoin(beta={self.beta})"
        return f"PaperCoin(beta={self.beta.min():g} to {self.beta.max():g}, one for each of {self.beta.size} clients)"

    def parameters(self) -> tuple[Any, ...]:
        """The coin's probability."""
        return (coin_probability(self.beta),)

    @staticmethod
    def response(intent: Any, average: Any, parameters: Any) -> Any:
        """Participate by the intent, or else by the coin."""
        (coin,) = parameters
        return coin + (1.0 - coin) * intent

    @staticmethod
    def limits(average: Any, parameters: Any) -> tuple[Any, Any]:
        """From the coin alone to certainty."""
        (coin,) = parameters
        return coin, 1.0
