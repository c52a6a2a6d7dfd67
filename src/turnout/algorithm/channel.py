"""The best private channel from a client's cost to a level at which it takes part.

A channel releases one of a few public levels. Whatever the cost, level o is released with a probability between
`least[o]` and e^epsilon least[o]: that alone is pure epsilon, for any two costs. Inside these limits a
client's best choice is simple: it ranks the levels by f(o) - price w o, with a public price, and gives the
best levels their largest probability (the others keep the least). So a channel consists of levels, least
probabilities, and a price.

Which least probabilities are best for a population is a linear programme, solved here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.errors import MissingExtra, invalid
from turnout.problem import Array


@dataclass(frozen=True, eq=False)
class Channel:
    """Levels, their least probabilities, and the price at which clients rank them.

    Attributes:
        epsilon: total, pure: probabilities of one level differ by at most e^epsilon between any two costs.
        levels: averages in [0, 1], shape (levels,).
        least: the least probability of each level, shape (levels,); sum(least) <= 1 <= e^epsilon sum(least).
        price: what a unit of participation is worth.
        worth: of the types that it was designed for, what a unit of probability costs each, shape (types,): the dual
            variables of the programme, from which bounds are made.
    """

    epsilon: float
    levels: Array
    least: Array
    price: float
    worth: Array | None = None

    def __repr__(self) -> str:
        return f"Channel(total epsilon {self.epsilon:g}, {len(self.levels)} levels, price {self.price:.4g})"

    def chances(self, burden: Array) -> Array:
        """The probability of each level, for types to which the levels cost `burden`; both of shape (types, levels).

        Example:
            >>> channel = Channel(np.log(4.0), np.array([0.2, 0.8]), np.array([0.2, 0.2]), price=1.0)
            >>> channel.chances(np.array([[0.0, 1.0], [1.0, 0.0]])).round(2)
            array([[0.8, 0.2],
                   [0.2, 0.8]])
        """
        order = np.argsort(burden, axis=1, kind="stable")
        extra = np.expm1(self.epsilon) * self.least[order]
        before = np.cumsum(extra, axis=1) - extra
        filled = np.clip(1.0 - self.least.sum() - before, 0.0, extra)
        found = np.empty_like(burden)
        np.put_along_axis(found, order, self.least[order] + filled, axis=1)
        return found


def best_channel(
    values: Array, share: Array, weights: Array, epsilon: float, levels: Array, mean: float, groups: Any = None
) -> Channel | list[Channel]:
    """The channel with the smallest expected cost whose levels average `mean`: a linear programme.

    Minimise sum_i share_i sum_o T_io f_i(o) over T with rows that sum to 1, sum_i share_i w_i sum_o T_io o = mean, and
    least_o <= T_io <= e^epsilon least_o.

    Args:
        values: f_i(o), what each level costs each type, shape (types, levels).
        share: of the population, of each type, shape (types,); they sum to 1.
        weights: of each type, shape (types,).
        epsilon: total, pure.
        levels: to choose from, in [0, 1], shape (levels,); those that do not help are dropped.
        mean: the weight that a client must add on average.
        groups: the public group of each type, from 0 up, shape (types,): a channel for each; None: one for all.

    Returns:
        The channel; a list, one per group, where groups are given.
    """
    group = np.zeros(len(values), np.int64) if groups is None else np.asarray(groups)
    number = int(group.max()) + 1
    least, price, worth = _solve(values, share, weights, epsilon, levels, mean, group)
    found = [_tidy(epsilon, levels, least[one], price, worth) for one in range(number)]
    return found[0] if groups is None else found


def _tidy(epsilon: float, levels: Array, least: Array, price: float, worth: Array) -> Channel:
    """Without the levels that are not used; the solver's rounding must not leave a row that cannot sum to 1."""
    used = least > 1e-9 * least.sum()
    kept, here = least[used], levels[used]
    if len(here) == 1:  # a very small epsilon, or no choice: all clients do the same, and two levels are as good as one
        reach = np.minimum(0.01, 0.5 * here)  # levels stay in (0, 1]
        here, kept = np.append(here - reach, np.minimum(1.0, here + reach)), np.append(0.5 * kept, 0.5 * kept)
    kept = kept * max(1.0, (1.0 + 1e-9) / (kept.sum() * np.exp(epsilon)))
    return Channel(epsilon, here, kept / max(1.0, kept.sum() * (1.0 + 1e-12)), price, worth)


def _solve(
    values: Array,
    share: Array,
    weights: Array,
    epsilon: float,
    levels: Array,
    mean: float,
    group: npt.NDArray[np.int64],
) -> tuple[Array, float, Array]:
    """(least of each group and level, price, worth of each type), by SciPy's interior-point solver."""
    try:
        from scipy import sparse
        from scipy.optimize import linprog
    except ImportError:
        raise MissingExtra("the best channel", library="scipy", extra="lab") from None
    types, outputs = values.shape
    number = int(group.max()) + 1
    scale = float(np.sum(share[:, None] * values) / outputs) or 1.0
    every = sparse.identity(types * outputs, format="csr")
    columns = (group[:, None] * outputs + np.arange(outputs)[None, :]).ravel()
    own = sparse.csr_matrix(
        (np.ones(types * outputs), (np.arange(types * outputs), columns)), shape=(types * outputs, number * outputs)
    )
    bounds = sparse.vstack([sparse.hstack([-every, own]), sparse.hstack([every, -np.exp(epsilon) * own])], format="csr")
    brought = (share * weights)[:, None] * levels[None, :]
    rows = sparse.hstack(
        [
            sparse.vstack(
                [sparse.kron(sparse.identity(types), np.ones((1, outputs))), sparse.csr_matrix(brought.reshape(1, -1))]
            ),
            sparse.csr_matrix((types + 1, number * outputs)),
        ],
        format="csr",
    )
    objective = np.concatenate([(share[:, None] * values / scale).ravel(), np.zeros(number * outputs)])
    solved = linprog(
        objective,
        A_ub=bounds,
        b_ub=np.zeros(bounds.shape[0]),
        A_eq=rows,
        b_eq=np.append(np.ones(types), mean),
        bounds=(0.0, None),
        method="highs-ipm",
    )
    if not solved.success:
        raise invalid("mean", "what the levels can reach", mean, "give levels on both sides of it")
    dual = solved.eqlin.marginals * scale
    return solved.x[types * outputs :].reshape(number, outputs), float(dual[-1]), dual[:-1] / share
