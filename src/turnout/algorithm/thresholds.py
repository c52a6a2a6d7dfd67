"""Boxes that keep their promise for a real coin: exact integers out of 2^53, never a rounded float.

A real client compares 53 random bits with its probability. With low = a / 2^53 and high = b / 2^53 the
two inequalities of pure differential privacy are statements about integers,

    b <= e^epsilon a   and   2^53 - a <= e^epsilon (2^53 - b),

and they are made to hold exactly. A float such as 1 / (1 + exp(epsilon)) breaks them for some epsilon.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from turnout.errors import check_number, invalid

WORDS = 2**53
"""How many different words the real coin has."""

_DOWN = Context(prec=60, rounding=ROUND_FLOOR)  # not the caller's, which may have fewer digits


def check_epsilon(epsilon: float, name: str = "epsilon") -> None:
    """Refuse a per-report epsilon that is not a positive number of a usable size."""
    allowed, remedy = "above 0 and at most 30", "values from 0.1 to 8 are usual"
    check_number(name, epsilon, allowed, lambda given: 0.0 < given <= 30.0, remedy)


def check_center(center: float) -> None:
    """Refuse a box's centre that is no probability inside (0, 1)."""
    allowed, remedy = "above 0 and below 1", "try capacity / clients"
    check_number("center", center, allowed, lambda given: 0.0 < given < 1.0, remedy)


def growth(epsilon: float, less: Decimal = Decimal()) -> Decimal:
    """e^epsilon, less a share of it, rounded down: a bound that holds for it holds for the true number."""
    below = _DOWN.next_minus(_DOWN.exp(Decimal(float(epsilon))))  # the exponential is rounded to the nearest
    return _DOWN.multiply(below, _DOWN.subtract(1, less))


def on_the_coin(low: float, high: float) -> tuple[float, float]:
    """A box as a real coin has it: a probability p is the chance of ceil(p 2^53) of its 2^53 words.

    Example:
        >>> on_the_coin(0.25, 0.75), on_the_coin(0.1, 0.3)[1] > 0.3
        ((0.25, 0.75), True)
    """
    return math.ceil(low * WORDS) / WORDS, math.ceil(high * WORDS) / WORDS


def holds(low: int, high: int, epsilon: float) -> bool:
    """Whether a box of integers keeps both inequalities, exactly.

    Example:
        >>> holds(WORDS // 4, 3 * WORDS // 4, 1.1), holds(WORDS // 4, 3 * WORDS // 4, 1.09)
        (True, False)
    """
    return _holds(low, high, growth(epsilon))


def _holds(low: int, high: int, factor: Decimal) -> bool:
    if not 0 < low <= high < WORDS:
        return False
    return high <= _DOWN.multiply(factor, Decimal(low)) and WORDS - low <= _DOWN.multiply(factor, Decimal(WORDS - high))


def keeps(low: npt.ArrayLike, high: npt.ArrayLike, epsilon: float) -> bool:
    """Whether boxes (one, or one for each client) keep both inequalities on the real coin, exactly.

    Example:
        >>> keeps(*widest_box(1.0), 1.0), keeps(0.25, [0.5, 0.75], 1.0)
        (True, False)
    """
    factor = growth(epsilon)
    words = np.broadcast_arrays(*(np.ceil(np.asarray(end, dtype=np.float64) * WORDS) for end in (low, high)))
    boxes = {*zip(*(end.ravel().tolist() for end in words), strict=True)}
    return all(_holds(int(least), int(most), factor) for least, most in boxes)


@lru_cache(maxsize=1024)
def widest_box(epsilon: float, center: float = 0.5) -> tuple[float, float]:
    """The widest legal box around a centre, as floats that hold integers over 2^53 exactly.

    Low and high lie at equal distance from the centre in log-odds, as far as both inequalities
    allow. With o the centre's odds and E = e^epsilon, low = o / (o + z) and high = o z / (1 + o z), where
    z is the root of z^2 - m (E - 1) z - E = 0 for m = min(o, 1 / o).

    Args:
        epsilon: per report, above 0.
        center: in (0, 1).

    Example:
        >>> low, high = widest_box(1.0)
        >>> round(low, 4), round(high, 4), low + high
        (0.2689, 0.7311, 1.0)
    """
    check_epsilon(epsilon)
    check_center(center)
    factor = growth(epsilon)
    with localcontext(_DOWN):
        around = Decimal(float(center))
        odds = around / (1 - around)
        middle = min(odds, 1 / odds) * (factor - 1)
        reach = (middle + (middle * middle + 4 * factor).sqrt()) / 2
        low = int((WORDS * odds / (odds + reach)).to_integral_value(ROUND_CEILING))
        high = int((WORDS * odds * reach / (1 + odds * reach)).to_integral_value(ROUND_FLOOR))
    if not holds(low, high, epsilon):  # rounded inwards they keep the promise, unless low is above high
        raise invalid("epsilon", "large enough for a box of 53 bits around the centre", epsilon, "raise it")
    return low / WORDS, high / WORDS
