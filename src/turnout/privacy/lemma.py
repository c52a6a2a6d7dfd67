"""The paper's Lemma: a diagnostic of how deniable a "yes" is. It is not a differential-privacy guarantee."""

from __future__ import annotations

from typing import Any

import numpy as np

from turnout.problem import Array


def lemma_epsilon(intent: Any, coin: Any) -> Array:
    """The paper's epsilon_i(k) per report: ln((p + (1 - p) sigma) / ((1 - sigma) p)); infinite where intent is 1.

    It is -ln P(the client did not want to participate | it participated): it is about a "yes" alone. A "no" proves
    that the client did not want to participate, whatever the coin. The value depends on the intent, so publishing it
    would disclose the intent. Only a simulation, or the client itself, may compute it.

    Args:
        intent: sigma_i, shape (clients,).
        coin: p_i, one number or shape (clients,).

    Paper: Lemma IV.1.

    Example:
        >>> lemma_epsilon(np.array([0.05, 1.0]), coin=0.184).round(3)
        array([0.252,   inf])
    """
    intent = np.asarray(intent, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log((coin + (1.0 - coin) * intent) / ((1.0 - intent) * coin)))


def combined_epsilon(intent: Any, coin: Any) -> float:
    """The paper's sequential combination: the sum over clients of one round's values; infinite if one is.

    If one client's cost changes, the largest value counts, not the sum. This is the paper's number, not a promise.

    Paper: Theorem IV.2.

    Example:
        >>> round(combined_epsilon(np.array([0.05, 0.05]), coin=0.184), 3)
        0.503
    """
    return float(np.sum(lemma_epsilon(intent, coin)))


def network_epsilon(intent: Any, coin: Any) -> tuple[float, int]:
    """The paper's mean over the network, taken over clients whose value is finite; and how many are not.

    Paper: Theorem IV.3. Differs from paper: with one client at intent 1 the mean itself is infinite, so
    such clients are counted instead.

    Example:
        >>> network_epsilon(np.array([0.0, 0.0, 1.0]), coin=0.1)
        (0.0, 1)
    """
    values = lemma_epsilon(intent, coin)
    finite = np.isfinite(values)  # without a coin none is finite: the report is the intent itself
    return (float(values[finite].mean()) if finite.any() else float("inf")), int(np.sum(~finite))
