"""Checkpoints of many clients, added up on the device: no history has to travel."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from turnout.algorithm.client import average_of
from turnout.simulation.engines.jax_kernel import LANES, Family, History, Lanes, slope_or_value
from turnout.simulation.engines.jax_number import Number
from turnout.simulation.schedule import ABSENT


class Sums(NamedTuple):
    """Of one piece's members: how many, their cost, their distances' sum and largest, and how many reach each edge."""

    members: Any
    cost: Any
    distance: Any
    largest: Any
    reach: Any


def sums(
    powers: tuple[int, ...],
    history: History,
    family: Family,
    rounds: float,
    reference: Lanes | None,
    edges: Any,
    *,
    cost: bool,
) -> Sums:
    """Measure one piece, in 64 bits; `edges` are the inner edges of the histogram's bins, shape (bins - 1,)."""
    numbers = (np.float64(rounds), np.float64(-0.0), np.asarray(edges, dtype=np.float64))
    return _compiled(powers, cost)(history, family, reference, *numbers)  # type: ignore[no-any-return]


@lru_cache(maxsize=64)
def _compiled(powers: tuple[int, ...], cost: bool) -> Any:
    def measured(history: History, family: Family, reference: Any, rounds: Any, zero: Any, edges: Any) -> Sums:
        total = Sums(jnp.int64(0), jnp.float64(0.0), jnp.float64(0.0), jnp.float64(0.0), jnp.zeros(len(edges), int))
        index = jax.lax.iota(jnp.uint32, history.passed[0].shape[0])
        for lane in range(LANES):
            low, high = (ends[lane % len(ends)] for ends in (family.low, family.high))
            counts = (index >= low) & (index < high)
            if family.status is not None:
                counts &= family.status[lane] != ABSENT
            lasted = rounds if history.rounds is None else history.rounds[lane].astype(jnp.float64)
            average = average_of(Number(history.passed[lane].astype(jnp.float64), zero), Number(lasted, zero))
            terms = tuple(None if term is None else term[lane].astype(jnp.float64) for term in family.terms)
            worth = slope_or_value(powers, terms, average, slope=False).value if cost else 0.0
            away = 0.0 if reference is None else jnp.where(counts, jnp.abs(average.value - reference[lane]), 0.0)
            total = Sums(
                total.members + jnp.sum(counts, dtype=jnp.int64),
                total.cost + jnp.sum(jnp.where(counts, worth, 0.0)),
                total.distance + jnp.sum(away),
                jnp.maximum(total.largest, jnp.max(away)),
                total.reach + jax.vmap(lambda edge, x=average.value, who=counts: jnp.sum(who & (x >= edge)))(edges),
            )
        return total

    return jax.jit(measured)
