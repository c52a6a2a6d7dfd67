"""For boxes chosen during the run: a filter that says, before each report, whether the total still holds.

If boxes are chosen from what earlier reports revealed, an account as if they had been planned is false. A Rényi
filter stays valid (Feldman and Zrnic 2021, Lécuyer 2021; docs/proofs/accounting.md).
"""

from __future__ import annotations

import math
from typing import Any, Self

from turnout.errors import TurnoutError, invalid
from turnout.privacy.accounting import EVERYTHING, UNIT, Account, check_box, check_delta, report_epsilon

ROUNDING = 1e-9
"""The limit may be exceeded by this share, so that rounding does not forbid the last of n reports of epsilon / n."""


def renyi_epsilon(low: float, high: float, order: float) -> float:
    """Rényi divergence per report of the box, of an order above 1, the greater of both directions, rounded upwards.

    ln(sum of P^order Q^(1 - order)) / (order - 1), taken as a sum of terms that are never negative. An order of
    infinity gives the pure epsilon per report.

    Example:
        >>> round(renyi_epsilon(0.475, 0.525, 2.0), 5), round(renyi_epsilon(0.475, 0.525, math.inf), 5)
        (0.00998, 0.10008)
    """
    pure = report_epsilon(low, high)
    if not order > 1.0:
        raise invalid("order", "above 1", order, "give a Rényi order such as 8")
    if math.isinf(order) or math.isinf(pure) or pure == 0.0 or order * pure > 600.0:
        return pure
    both = (_excess(high, low, order), _excess(low, high, order))
    return min(pure, math.log1p(max(both)) / (order - 1.0) * (1.0 + 1e-9))


def renyi_to_epsilon(divergence: float, order: float, delta: float) -> float:
    """The total epsilon at delta that a Rényi divergence of an order gives, rounded upwards.

    divergence + (ln(1 / delta) + (order - 1) ln(1 - 1/order) - ln(order)) / (order - 1), at least 0.

    Example:
        >>> round(renyi_to_epsilon(0.5, order=8.0, delta=1e-6), 4)
        2.043
    """
    if math.isinf(order) or math.isinf(divergence):
        return divergence
    extra = (-math.log(delta) - math.log(order)) / (order - 1.0) + math.log1p(-1.0 / order)
    return max(0.0, divergence + extra + 1e-14 * (abs(divergence) + abs(extra)))


class RenyiFilter:
    """Says how many reports keep a total epsilon at delta, if their boxes are chosen during the run.

    Against an observer of every report who chooses signals and boxes from all it has seen. The promise is the limit,
    for the whole sequence up to the stop; `spent_epsilon` before it is an indication, not a promise.

    Args:
        epsilon: the largest total.
        delta: the slack (see `Account`); split evenly over the finite orders.
        orders: Rényi orders above 1, fixed ahead; by default the one at which many small reports last longest. The
            sum of pure epsilons is always watched too, and costs no delta.

    Example:
        >>> watch = RenyiFilter(epsilon=8.0, delta=1e-6)
        >>> reports = 0
        >>> while watch.allows(0.45, 0.55):
        ...     watch.spend(0.45, 0.55)
        ...     reports += 1
        >>> reports > 8.0 / report_epsilon(0.45, 0.55), watch.spent_epsilon() <= 8.0
        (True, True)
    """

    def __init__(self, epsilon: float, delta: float, orders: tuple[float, ...] | None = None) -> None:
        check_delta(delta)
        if not epsilon > 0.0:
            raise invalid("epsilon", "a total above 0", epsilon, "give the largest total that is allowed")
        if orders is not None and not all(1.0 < order < math.inf for order in orders):
            raise invalid("orders", "finite and above 1", orders, "give Rényi orders such as (4.0, 16.0)")
        self.epsilon = float(epsilon)
        self.delta = float(delta)
        if delta == 0.0:
            orders = ()
        elif orders is None:
            orders = (_best_order(epsilon, delta),)
        self.orders = (*(float(order) for order in orders), math.inf)
        self.spent = [0.0 for _ in self.orders]
        self.reports = 0

    def allows(self, low: float, high: float) -> bool:
        """Whether one more report from this box keeps the total."""
        check_box(low, high)
        return self._total(self._after(low, high)) <= self.epsilon * (1.0 + ROUNDING)

    def spend(self, low: float, high: float) -> None:
        """Count one report; call it before the coin is tossed.

        Raises:
            TurnoutError: the report is not allowed; nothing is counted.
        """
        if not self.allows(low, high):
            raise TurnoutError(
                f"total epsilon {self.epsilon} at delta {self.delta} against {EVERYTHING} allows no further report "
                f"from the box [{low}, {high}]: stop reporting, or choose a narrower box"
            )
        self.spent = self._after(low, high)
        self.reports += 1

    def spent_epsilon(self) -> float:
        """An indication: the total epsilon at delta of the reports so far; at most the limit times 1 + ROUNDING."""
        return self._total(self.spent)

    def account(self) -> Account:
        """The promise, if every report is allowed by this filter: the limit, over the reports so far."""
        return Account(self.epsilon * (1.0 + ROUNDING), self.delta, self.reports, EVERYTHING, "Rényi filter")

    def state(self) -> dict[str, Any]:
        """Everything, as plain numbers and lists; `from_state` makes the filter again."""
        finite = list(self.orders[:-1])
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "orders": finite,
            "spent": list(self.spent),
            "reports": self.reports,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """The filter that `state` described."""
        made = cls(state["epsilon"], state["delta"], tuple(state["orders"]))
        spent = [float(value) for value in state["spent"]]
        if len(spent) != len(made.orders) or not all(value >= 0.0 for value in spent):
            raise invalid("spent", f"{len(made.orders)} numbers of at least 0", spent, "give a state as it was saved")
        made.spent, made.reports = spent, int(state["reports"])
        return made

    def _after(self, low: float, high: float) -> list[float]:
        costs = [renyi_epsilon(low, high, order) for order in self.orders]
        return [a + b if b == 0.0 else math.nextafter(a + b, math.inf) for a, b in zip(self.spent, costs, strict=True)]

    def _total(self, spent: list[float]) -> float:
        share = self.delta / max(1, len(self.orders) - 1)
        return min(renyi_to_epsilon(value, order, share) for value, order in zip(spent, self.orders, strict=True))


def _excess(above: float, below: float, order: float) -> float:
    """Sum of P^order Q^(1 - order), less 1, for P("yes") = above and Q("yes") = below."""
    total = 0.0
    for q, part in ((below, (above - below) / below), (1.0 - below, (below - above) / (1.0 - below))):
        grown = math.expm1(order * (math.log1p(part) if part > -1.0 else -math.inf))
        total += q * max(0.0, grown - order * part)
    return total + 64.0 * UNIT * order * abs(above - below)


def _best_order(epsilon: float, delta: float) -> float:
    """The order at which many small reports last longest: the greatest (epsilon - conversion) / order."""
    grid = [1.0 + math.exp(0.02 * step) for step in range(-300, 500)]
    return max(grid, key=lambda order: (epsilon - renyi_to_epsilon(1e3, order, delta) + 1e3) / order)
