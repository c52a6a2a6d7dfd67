"""After the last report that a budget allows: act on public data alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from turnout.problem.costs import Array, PolynomialCosts


def surrogate_after_stop(average: Array, signal: float, weights: Any = 1) -> PolynomialCosts:
    """The public costs to act on once the budget is spent, so that nothing more is given away.

    Taking part with the frozen average alone would open the control loop: nobody would answer the signal any more.
    With these costs the intent is min(1, average * signal / signal at the stop), whatever happens later: public, and it
    still answers.

    Args:
        average: the clients' public averages at the stop, shape (clients,). Where averages are not public (a server
            that sees only the sum), a public constant in their place.
        signal: at the stop, above 0.
        weights: what each client brings.

    Example:
        >>> costs = surrogate_after_stop(np.array([0.2, 0.5]), signal=10.0)
        >>> (20.0 * 0.3 / costs.slope(np.array([0.3, 0.3]))).round(3)
        array([0.4, 1. ])
    """
    slope = signal * np.asarray(weights, dtype=np.float64) / np.asarray(average, dtype=np.float64)
    return PolynomialCosts((slope / 2.0)[:, None], (2,))
