"""One bracketed search, for prices and signals alike."""

from __future__ import annotations

import math
from collections.abc import Callable


def rising_root(excess: Callable[[float], float], guess: float, tolerance: float) -> float:
    """The positive root of a rising function, by the Illinois method in the logarithm.

    Args:
        excess: negative below the root, positive above.
        guess: where to start; any positive number.
        tolerance: an excess no larger counts as none.
    """
    low = high = max(guess, 1e-300)
    below = above = excess(low)
    factor = 1.05
    while below > 0.0 and low > 1e-290:
        high, above, low = low, below, low / factor
        below, factor = excess(low), min(factor**2, 1e30)
    while above < 0.0 and high < 1e290:
        low, below, high = high, above, high * factor
        above, factor = excess(high), min(factor**2, 1e30)
    last, root = 0.0, high if abs(above) < abs(below) else low
    for _ in range(100):
        if abs(min(-below, above, key=abs)) <= tolerance or below >= above:
            break
        share = min(max(below / (below - above), 1e-3), 1.0 - 1e-3)
        root = low * math.exp(share * math.log(high / low))
        value = excess(root)
        if abs(value) <= tolerance or not low < root < high:
            break
        if value > 0.0:
            high, above, below = root, value, below * (0.5 if last > 0.0 else 1.0)
        else:
            low, below, above = root, value, above * (0.5 if last < 0.0 else 1.0)
        last = value
    return root
