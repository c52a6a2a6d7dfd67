"""The cost of participation of each client: a convex function of its average."""

from __future__ import annotations

import itertools
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from turnout.errors import invalid

Array = npt.NDArray[np.float64]
Clients = Any  # an index into the clients: an int, a slice, or an array of ints or bools

_SAMPLES = np.linspace(0.0, 1.0, 33)  # where the convexity of a function of unknown form is checked
_CHUNK = 1 << 16  # clients looked at together, so that checks of a million clients need little memory


@runtime_checkable
class Costs(Protocol):
    """The costs of a population; every method is vectorised, first axis = client.

    Write a class with these four methods for costs of your own. It may add
    `inverse_slope(price)`; without it, the inverse is found by bisection.

    Paper: Section III-A, f_i and f_i'.

    Example:
        >>> class Exponential:
        ...     def __init__(self, rate): self.rate = rate
        ...     def __len__(self): return len(self.rate)
        ...     def __getitem__(self, clients): return Exponential(np.atleast_1d(self.rate[clients]))
        ...     def value(self, average): return np.exp(self.rate * average) - 1
        ...     def slope(self, average): return self.rate * np.exp(self.rate * average)
        >>> isinstance(Exponential(np.ones(3)), Costs)
        True
    """

    def __len__(self) -> int:
        """The number of clients."""
        ...

    def __getitem__(self, clients: Clients) -> Costs:
        """The costs of some of the clients: a shard, or a population of one."""
        ...

    def value(self, average: Array) -> Array:
        """f_i(x_i), shape (clients,)."""
        ...

    def slope(self, average: Array) -> Array:
        """f_i'(x_i), shape (clients,)."""
        ...


def polynomial(terms: Any, at: Any, x: Any, factors: Any, gaps: Any, lowest: int) -> Any:
    """Sum over t of factors[t] * terms[t, at] * x^power[t], by Horner's rule.

    Only additions and multiplications in a fixed order, so that NumPy (`at` a slice) and
    a compiled kernel (`at` one client) give the same bits.

    Args:
        terms: coefficients, shape (terms, clients), powers ascending.
        at: which clients.
        x: the average of those clients.
        factors: one number per term.
        gaps: differences of successive powers.
        lowest: the lowest power.
    """
    last = len(factors) - 1
    total = factors[last] * terms[last, at]
    for term in range(last - 1, -1, -1):
        step = x
        for _ in range(gaps[term] - 1):
            step = step * x
        total = total * step + factors[term] * terms[term, at]
    for _ in range(lowest):
        total = total * x
    return total


class PolynomialCosts:
    """f_i(x) = sum over t of coefficients[i, t] * x^powers[t]: fast on every engine.

    Args:
        coefficients: shape (clients, terms), finite.
        powers: whole numbers from 1 up, shared by all clients.

    Raises:
        ValueError: a coefficient is not finite, or a cost is not increasing and
            strictly convex on [0, 1]; names the first such client.

    Paper: Eq. (11), the cost functions of the experiments, is powers (2, 4, 6).

    Example:
        >>> costs = PolynomialCosts([[3.0, 0.0], [1.0, 2.0]], powers=(2, 4))
        >>> costs.value(np.array([0.5, 1.0])), costs.slope(np.array([0.5, 1.0]))
        (array([0.75, 3.  ]), array([ 3., 10.]))
    """

    def __init__(self, coefficients: npt.ArrayLike, powers: tuple[int, ...]) -> None:
        powers = tuple(_check_powers(powers))
        table = _table(coefficients, len(powers))
        if table.ndim != 2 or table.shape[1] != len(powers) or len(table) == 0:
            raise invalid(
                "coefficients",
                f"a table of shape (clients, {len(powers)}), one column per power",
                f"shape {table.shape}",
                "give one row per client and one column per power",
            )
        order = np.argsort(powers, kind="stable")
        self.powers = tuple(powers[t] for t in order)
        # One contiguous row per term: both NumPy and the kernels stream over clients.
        self._terms = np.ascontiguousarray(table.T[order])
        self._terms.flags.writeable = False
        self._prepare()
        self._check()

    def _prepare(self) -> None:
        self.gaps = tuple(int(b - a) for a, b in itertools.pairwise(self.powers))
        self.slope_factors = tuple(float(p) for p in self.powers)

    @property
    def terms(self) -> Array:
        """The coefficients by term, shape (terms, clients), powers ascending."""
        return self._terms

    @property
    def coefficients(self) -> Array:
        """The coefficients by client, shape (clients, terms), in the order of `powers`."""
        return self._terms.T

    def __len__(self) -> int:
        return int(self._terms.shape[1])

    def __getitem__(self, clients: Clients) -> PolynomialCosts:
        if isinstance(clients, (int, np.integer)):
            clients = [clients]
        some = object.__new__(PolynomialCosts)  # already checked as part of the whole
        some.powers = self.powers
        some._terms = self._terms[:, clients]
        some._prepare()
        return some

    def __getstate__(self) -> dict[str, Any]:
        """Contiguous, so that a part can be sent to another process without a copy."""
        return self.__dict__ | {"_terms": np.ascontiguousarray(self._terms)}

    def __repr__(self) -> str:
        return f"PolynomialCosts({len(self)} clients, powers={self.powers})"

    def value(self, average: Array) -> Array:
        """f_i(x_i), shape (clients,)."""
        return self._evaluate(average, (1.0,) * len(self.powers), self.powers[0])

    def slope(self, average: Array) -> Array:
        """f_i'(x_i), shape (clients,)."""
        return self._evaluate(average, self.slope_factors, self.powers[0] - 1)

    def elasticity(self, average: Array) -> Array:
        """x_i * f_i''(x_i) / f_i'(x_i): how fast the slope grows, in per cent for each per cent; average > 0."""
        bends = tuple(p * (p - 1.0) for p in self.powers)
        return self._evaluate(average, bends, self.powers[0] - 1) / self.slope(average)

    def inverse_slope(self, price: npt.ArrayLike) -> Array:
        """The average at which the slope is `price`, clipped to [0, 1], shape (clients,)."""
        price = np.broadcast_to(np.asarray(price, dtype=np.float64), (len(self),))
        if np.any(self._terms < 0.0):
            return bisect_slope(self, price)
        return self._newton(price)

    def _newton(self, price: Array) -> Array:
        # In logarithms a sum of powers is convex and increasing, so that Newton's method from
        # the right never overshoots, and one term alone is solved in a single step.
        average = np.where(price >= self.slope(np.ones(len(self))), 1.0, 0.0)
        inside = np.flatnonzero((average < 1.0) & (price > self.slope(np.zeros(len(self)))))
        part, wanted, x = self[inside], price[inside], np.ones(len(inside))
        for _ in range(200):
            move = np.log(wanted / part.slope(x)) / part.elasticity(x)
            x = np.minimum(x * np.exp(move), 1.0)
            if np.all(np.abs(move) < 1e-15):
                break
        average[inside] = x
        return average

    def _evaluate(self, average: npt.ArrayLike, factors: tuple[float, ...], lowest: int) -> Array:
        average = np.asarray(average, dtype=np.float64)
        terms = self._terms.reshape(*self._terms.shape, *(1,) * (average.ndim - 1))
        return polynomial(terms, slice(None), average, factors, self.gaps, lowest)  # type: ignore[no-any-return]

    def _check(self) -> None:
        for term, power in enumerate(self.powers):
            finite = np.isfinite(self._terms[term])
            if not finite.all():
                client = int(np.argmin(finite))
                raise invalid(
                    "coefficients",
                    "finite numbers",
                    f"{self._terms[term, client]} for client {client}, power {power}",
                    "correct or remove that client",
                )
        with np.errstate(over="ignore"):
            steepest = self.slope(np.ones(len(self))) + self.value(np.ones(len(self)))
        if not np.isfinite(steepest).all():
            client = int(np.argmin(np.isfinite(steepest)))
            raise _not_convex(client, "a cost or slope too large for a number", f"{self.coefficients[client].tolist()}")
        if np.any(self._terms < 0.0):
            check_costs(self)  # may still be convex: look at the slope itself
            return
        bends = np.zeros(len(self), dtype=bool)
        for term, power in enumerate(self.powers):
            if power > 1:
                bends |= self._terms[term] > 0.0
        if not bends.all():
            client = int(np.argmin(bends))
            raise _not_convex(client, "a flat or linear cost", f"coefficients {self.coefficients[client].tolist()}")


def _table(coefficients: npt.ArrayLike, terms: int) -> Array:
    """Coefficients as one array; rows of several lengths, and what is no number, are refused by name."""
    try:
        return np.asarray(coefficients, dtype=np.float64)
    except (TypeError, ValueError):
        rows: Any = coefficients
        odd = next((at for at, row in enumerate(rows) if np.ndim(row) != 1 or len(row) != terms), None)
        if odd is None:
            wrong = next(
                (at, cell) for at, row in enumerate(rows) for cell in row if not isinstance(cell, (int, float))
            )
            got, remedy = f"{wrong[1]!r} for client {wrong[0]}", "give numbers alone"
        elif np.ndim(rows[odd]) == 1:
            got, remedy = f"{len(rows[odd])} for client {odd}", "write 0 for a power that a client does not have"
        else:
            got, remedy = f"{rows[odd]!r} for client {odd}", "write [[3.0], [1.0]] for 3 x^2 and x^2"
        raise invalid("coefficients", f"{terms} numbers for each client, one per power", got, remedy) from None


def check_costs(costs: Costs) -> None:
    """Refuse costs that are not finite, increasing and strictly convex on [0, 1].

    The slope is checked at 33 points. The optimum and the convergence need these assumptions of the paper.

    Raises:
        ValueError: names the first offending client and value.

    Paper: Section III-A, the assumptions on f_i.
    """
    for first in range(0, len(costs), _CHUNK):
        part = costs[slice(first, first + _CHUNK)]
        before = np.full(len(part), -np.inf)
        for number, x in enumerate(_SAMPLES):
            place = np.full(len(part), x)
            slope = np.asarray(part.slope(place))
            finite = np.isfinite(slope) & np.isfinite(part.value(place))
            _refuse(first, ~finite, slope, f"a cost or slope that is not finite at x = {x:g}")
            rising = slope >= 0.0 if number == 0 else slope > 0.0
            _refuse(first, ~rising, slope, f"a falling or flat cost at x = {x:g}")
            _refuse(first, slope <= before, slope, f"a slope that does not increase up to x = {x:g}")
            before = slope


def _refuse(first: int, bad: npt.NDArray[np.bool_], slope: Array, what: str) -> None:
    if bad.any():
        at = int(np.argmax(bad))
        raise _not_convex(first + at, what, f"slope {float(slope[at])!r}")


def _not_convex(client: int, what: str, value: str) -> ValueError:
    return invalid(
        "costs",
        "finite, increasing and strictly convex on [0, 1]",
        f"{what} for client {client} ({value})",
        "give that client a cost whose slope is positive and increases, such as x^2",
    )


def _check_powers(powers: tuple[int, ...]) -> list[int]:
    good = [int(p) for p in powers if float(p).is_integer() and 1 <= p <= 64]
    if len(good) != len(powers) or len(set(good)) != len(good) or not good:
        raise invalid("powers", "different whole numbers from 1 to 64", powers, "use powers such as (2, 4, 6)")
    return good


def inverse_slope(costs: Costs, price: npt.ArrayLike) -> Array:
    """The average at which each slope is `price`, clipped to [0, 1]: closed form or bisection.

    Args:
        costs: any `Costs`; its own `inverse_slope` is used where it has one.
        price: one number, or shape (clients,).

    Example:
        >>> inverse_slope(PolynomialCosts([[1.0], [4.0]], powers=(2,)), 1.0)
        array([0.5  , 0.125])
    """
    own = getattr(costs, "inverse_slope", None)
    if own is not None:
        return np.clip(np.asarray(own(price), dtype=np.float64), 0.0, 1.0)
    return bisect_slope(costs, np.asarray(price, dtype=np.float64))


def bisect_slope(costs: Costs, price: float | Array) -> Array:
    """The average at which each slope is `price`, clipped to [0, 1], by bisection alone."""
    low, high = np.zeros(len(costs)), np.ones(len(costs))
    for _ in range(64):
        middle = 0.5 * (low + high)
        below = costs.slope(middle) < price
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    # The bracket never moves off an end that is the answer.
    average = np.where(costs.slope(np.ones(len(costs))) <= price, 1.0, 0.5 * (low + high))
    return np.where(costs.slope(np.zeros(len(costs))) >= price, 0.0, average)
