"""Costs that are never stored: each coefficient is a pure function of the client's number.

A billion clients need no memory until someone asks for some of them, and an engine can make them where it needs them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from turnout.errors import invalid
from turnout.problem.costs import Array, Clients, PolynomialCosts, inverse_slope
from turnout.problem.philox import POPULATION, block_words

_CHUNK = 1 << 16
"""Clients drawn together."""


class Term(NamedTuple):
    """One term of a cost: coefficient = scale * uniform(0, 1) / divisor.

    Attributes:
        power: of x.
        draw: which of the client's uniform numbers, from 0 up.
        scale: above 0.
        divisor: above 0.
    """

    power: int
    draw: int
    scale: float
    divisor: float = 1.0


class _Family(NamedTuple):
    """Neighbouring clients whose costs have the same terms.

    Attributes:
        first: its first client.
        stop: the client after its last.
        terms: powers ascending.
    """

    first: int
    stop: int
    terms: tuple[Term, ...]


def coefficient(word: Any, scale: Any, divisor: Any) -> Any:
    """scale * (word + 1/2) * 2^-32 / divisor: strictly between 0 and scale / divisor.

    For a scale of at most 20 bits everything but the division is exact, so that it has the same bits on every machine.
    """
    return (word + 0.5) * 2.0**-32 * scale / divisor


class DrawnCosts:
    """Polynomial costs with coefficients from counter-based random words; `costs[part]` makes those of a part.

    Args:
        sizes: the number of clients in each family.
        families: the terms of each family.
        seed: from 0 to 2^64 - 1.

    Example:
        >>> costs = DrawnCosts([6, 2], [(Term(2, draw=0, scale=40.0),), (Term(4, draw=1, scale=1.0),)], seed=7)
        >>> costs, costs[4:8].coefficients.round(2)
        (DrawnCosts(8 clients, powers=(2, 4), seed=7), array([[ 1.43,  0.  ],
               [26.91,  0.  ],
               [ 0.  ,  0.21],
               [ 0.  ,  0.29]]))
    """

    def __init__(self, sizes: list[int], families: list[tuple[Term, ...]], seed: int) -> None:
        if not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**64:
            raise invalid("population seed", "a whole number from 0 to 2^64 - 1", seed, "choose another")
        for size, terms in zip(sizes, families, strict=True):
            good = size >= 1 and terms and all(t.scale > 0 and t.divisor > 0 and t.power >= 1 for t in terms)
            if not good or max(t.power for t in terms) < 2:
                raise invalid("families", "of clients with rising, convex costs", f"{size} of {terms}", "correct them")
        stops = np.cumsum(sizes).tolist()
        self.seed = int(seed)
        self.families = tuple(
            _Family(stop - size, stop, tuple(sorted(terms)))
            for stop, size, terms in zip(stops, sizes, families, strict=True)
        )
        self.powers = tuple(sorted({term.power for terms in families for term in terms}))

    @property
    def key(self) -> tuple[int, int]:
        """The seed as Philox's key of two words."""
        return self.seed & 0xFFFFFFFF, self.seed >> 32

    def __len__(self) -> int:
        return self.families[-1].stop

    def __repr__(self) -> str:
        return f"DrawnCosts({len(self)} clients, powers={self.powers}, seed={self.seed})"

    def __getitem__(self, clients: Clients) -> PolynomialCosts:
        """The costs of some of the clients, made and stored."""
        if isinstance(clients, slice):
            first, stop, step = clients.indices(len(self))
            if step == 1:
                return PolynomialCosts(self._coefficients(first, max(stop, first)), self.powers)
            clients = np.arange(first, stop, step)
        clients = np.atleast_1d(np.asarray(clients))
        if clients.dtype == bool:
            clients = np.flatnonzero(clients)
        rows = [self._coefficients(int(client), int(client) + 1) for client in clients]
        return PolynomialCosts(np.concatenate(rows) if rows else np.empty((0, len(self.powers))), self.powers)

    def value(self, average: Array) -> Array:
        """f_i(x_i), shape (clients,)."""
        return self._by_chunk(lambda costs, part: costs.value(average[part]))

    def slope(self, average: Array) -> Array:
        """f_i'(x_i), shape (clients,)."""
        return self._by_chunk(lambda costs, part: costs.slope(average[part]))

    def inverse_slope(self, price: npt.ArrayLike) -> Array:
        """The average at which the slope is `price`, clipped to [0, 1], shape (clients,)."""
        each = np.broadcast_to(np.asarray(price, dtype=np.float64), (len(self),))
        return self._by_chunk(lambda costs, part: inverse_slope(costs, each[part]))

    def _by_chunk(self, made: Any) -> Array:
        parts = [slice(first, first + _CHUNK) for first in range(0, len(self), _CHUNK)]
        return np.concatenate([made(self[part], part) for part in parts])

    def _coefficients(self, first: int, stop: int) -> Array:
        """Of clients first to stop, shape (clients, powers)."""
        table = np.zeros((len(self.powers), stop - first))
        for family in self.families:
            begin, end = max(first, family.first), min(stop, family.stop)
            if begin >= end:
                continue
            blocks = np.arange(begin // 4, (end + 3) // 4, dtype=np.uint64)
            for term in family.terms:
                words = np.stack(block_words(blocks, term.draw, POPULATION, self.key), axis=-1).reshape(-1)
                mine = words[begin % 4 : begin % 4 + end - begin].astype(np.float64)
                table[self.powers.index(term.power), begin - first : end - first] = coefficient(
                    mine, term.scale, term.divisor
                )
        return table.T


def drawn_paper_costs(clients: int, seed: int = 0) -> DrawnCosts:
    """The paper's four families, a x^2; a x^4 / 2; a x^4 / 3 + b x^6; b x^2, of any number of clients.

    Paper: Eq. (11). Differs from `paper_population` in the generator: a and b are words of Philox.

    Example:
        >>> drawn_paper_costs(8_000_000_000)
        DrawnCosts(8000000000 clients, powers=(2, 4, 6), seed=0)
    """
    if clients < 4 or clients % 4:
        raise invalid("clients", "a multiple of 4 (the paper's four groups)", clients, "round it to one")
    a, b = 0, 1
    families = [
        (Term(2, a, 40.0),),
        (Term(4, a, 40.0, 2.0),),
        (Term(4, a, 40.0, 3.0), Term(6, b, 40.0)),
        (Term(2, b, 40.0),),
    ]
    return DrawnCosts([clients // 4] * 4, families, seed)
