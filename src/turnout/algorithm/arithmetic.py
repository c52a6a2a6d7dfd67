"""The few operations, besides + - * /, that a decision consists of.

They are functions of their own because each engine compiles them in its own way; all agree to the
bit, and on what is not a number.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def at_least(value: Any, low: Any) -> Any:
    """The larger of the two; low where the value is not a number.

    Example:
        >>> at_least(np.array([0.2, 0.7, np.nan]), 0.5)
        array([0.5, 0.7, 0.5])
    """
    return np.fmax(value, low)


def at_most(value: Any, high: Any) -> Any:
    """The smaller of the two; high where the value is not a number.

    Example:
        >>> at_most(np.array([0.2, 0.7]), 0.5)
        array([0.2, 0.5])
    """
    return np.fmin(value, high)


def root(value: Any) -> Any:
    """The square root, which every machine rounds alike.

    Example:
        >>> float(root(2.25))
        1.5
    """
    return np.sqrt(value)


def inside(low: Any, value: Any, high: Any) -> Any:
    """The value, kept in [low, high]; low where it is not a number.

    Example:
        >>> inside(0.25, np.array([0.0, 0.5, 1.0, np.nan]), 0.75)
        array([0.25, 0.5 , 0.75, 0.25])
    """
    return at_most(at_least(value, low), high)
