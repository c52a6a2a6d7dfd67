"""What an observer knows of each client's cost beforehand: its powers, and the range of each coefficient."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from turnout.errors import invalid
from turnout.problem import Array, PolynomialCosts

_SUMMANDS = {1: 1, 2: 16, 3: 6, 4: 4}
"""Into how many parts the shares of so many terms are cut: 1, 16, 21 and 20 mixtures."""


@dataclass(frozen=True, eq=False)
class CostFamily:
    """The public family of costs: every coefficient is uniform between 0 and a largest value, independently.

    Args:
        powers: of the polynomial costs, ascending.
        largest: the top of each coefficient's range, shape (clients, terms); 0 where a client has no such term.

    Paper: Section III: the observer infers the cost functions and their derivatives.

    Example:
        >>> CostFamily((2, 4), np.array([[40.0, 0.0], [0.0, 20.0]])).unknown.tolist()
        [[True, False], [False, True]]
    """

    powers: tuple[int, ...]
    largest: Array

    def __post_init__(self) -> None:
        largest = np.asarray(self.largest, dtype=np.float64)
        if largest.ndim != 2 or largest.shape[1] != len(self.powers):
            raise invalid(
                "largest", f"of shape (clients, {len(self.powers)})", f"shape {largest.shape}", "one column a power"
            )
        if not np.all(np.isfinite(largest)) or np.any(largest < 0.0) or not np.all(np.any(largest > 0.0, axis=1)):
            allowed = "finite, 0 or more, and above 0 for a term of each client"
            raise invalid("largest", allowed, "another value", "give each client the range of a coefficient")
        if np.max(np.sum(largest > 0.0, axis=1)) > max(_SUMMANDS):
            raise invalid(
                "largest", f"of {max(_SUMMANDS)} terms per client at most", "more", "attack these clients apart"
            )
        object.__setattr__(self, "largest", largest)

    def __repr__(self) -> str:
        return f"CostFamily({len(self.largest)} clients, powers={self.powers})"

    @classmethod
    def around(cls, costs: PolynomialCosts) -> CostFamily:
        """The family that a population seems drawn from: clients with the same terms are of one kind, and each
        coefficient of a kind lies between 0 and its largest one, rounded up to two digits.

        Raises:
            ValueError: a coefficient is negative.

        Example:
            >>> CostFamily.around(PolynomialCosts([[39.7], [3.1]], (2,))).largest.tolist()
            [[40.0], [40.0]]
        """
        coefficients = costs.coefficients
        if np.any(coefficients < 0.0):
            raise invalid("coefficients", "0 or more for an attack", float(coefficients.min()), "give such a family")
        largest = np.zeros(coefficients.shape)
        for members in kinds(coefficients > 0.0):
            largest[members] = _rounded_up(coefficients[members].max(axis=0))
        return cls(costs.powers, largest)

    def __len__(self) -> int:
        return int(self.largest.shape[0])

    @property
    def unknown(self) -> npt.NDArray[np.bool_]:
        """Which coefficients are to be found, shape (clients, terms)."""
        return self.largest > 0.0


def kinds(unknown: npt.NDArray[np.bool_]) -> list[npt.NDArray[np.int64]]:
    """The clients that have the same terms, group by group."""
    different = np.unique(unknown, axis=0)
    return [np.flatnonzero((unknown == terms).all(axis=1)) for terms in different]


def mixtures(terms: int) -> Array:
    """Shares of so many terms that spread evenly over all that add up to 1, shape (mixtures, terms).

    Example:
        >>> mixtures(1).tolist(), mixtures(2)[:2].round(3).tolist()
        ([[1.0]], [[0.031, 0.969], [0.094, 0.906]])
    """
    parts = _SUMMANDS[terms]
    wholes = [whole for whole in itertools.product(range(parts), repeat=terms) if sum(whole) == parts - 1]
    return (np.array(wholes, dtype=np.float64) + 1.0 / terms) / parts


def _rounded_up(values: Array) -> Array:
    """To two digits, upwards."""
    unit = 10.0 ** (np.floor(np.log10(np.where(values > 0.0, values, 1.0))) - 1.0)
    return np.maximum(np.ceil(values / unit - 1e-9) * unit, 0.0)
