"""The rounds of some clients, as XLA compiles them. What is written here is Philox, and who tosses which coin when.

Clients lie in *lanes*: lane j of an array holds clients 4b + j, b = 0, 1, …, because one block of Philox gives the
words of four neighbours. One pass over the clients decides two rounds where the lag allows. Everything that varies is
an argument, nothing is captured: the time to compile does not depend on the number of clients.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from turnout.algorithm import average_of, inside, intent, next_rounds, remembered
from turnout.problem import KEY_STEPS, MULTIPLIERS, PARTICIPATION, polynomial
from turnout.simulation.engines.jax.number import NOTHING, Number
from turnout.simulation.schedule import ABSENT, PRESENT

LANES = 4
"""Clients that share a block of Philox."""

Lanes = tuple[Any, ...]
"""Four arrays of shape (blocks,)."""


class Rules(NamedTuple):
    """What a kernel is compiled for, besides the shapes.

    Attributes:
        powers: of the costs.
        response, limits: the mechanism's.
        by_bit: whether histories move by the bit, or else by the probability.
        bits: 64 (exact) or 32.
        most: rounds a pass, 1 or 2.
        counts: whether histories are whole numbers that only grow, stored as such.
    """

    powers: tuple[int, ...]
    response: Callable[..., Any]
    limits: Callable[..., Any]
    by_bit: bool
    bits: int
    most: int
    counts: bool


class History(NamedTuple):
    """What moves: participations, and rounds where each client has its own number of them."""

    passed: Lanes
    rounds: Lanes | None


class Family(NamedTuple):
    """What stays, of clients whose costs have the same terms.

    Attributes:
        terms: one entry a power, None where nobody has that term.
        weights: or None for 1.
        parameters: the mechanism's, each a number or lanes.
        status: or None for all PRESENT.
        block: the number of the first block, of 32 bits if those of all the blocks are.
        low, high: the blocks from low to before high are clients, the rest fills up; one number for all lanes
            where these begin and end alike, else four.
    """

    terms: tuple[Lanes | None, ...]
    weights: Lanes | None
    parameters: tuple[Any, ...]
    status: Lanes | None
    block: Any
    low: tuple[Any, ...]
    high: tuple[Any, ...]


class Now(NamedTuple):
    """What is the same for all clients in a pass.

    Attributes:
        round: the number of the first round.
        two: whether there is a second, 1 or 0.
        signals: that decide the rounds.
        rounds: behind everyone's average, where all share it.
        cap: the most rounds behind an average.
        key: of the coins, two words.
        zero: the run-time -0.0 (see number.py).
    """

    round: Any
    two: Any
    signals: tuple[Any, Any]
    rounds: Any
    cap: Any
    key: tuple[Any, Any]
    zero: Any


def words(block: Any, turn: Any, key: tuple[Any, Any], purpose: int = PARTICIPATION) -> tuple[Any, ...]:
    """Four words for each block, as `turnout.problem.philox.block_words`."""
    half, low = jnp.uint64(32), jnp.uint32
    c0, c1, c3 = block.astype(low), jnp.asarray(turn, low), jnp.uint32(purpose)
    c2 = (block >> half).astype(low) if block.dtype == jnp.uint64 else jnp.zeros_like(block)
    k0, k1 = key
    for _ in range(10):
        first = c0.astype(jnp.uint64) * jnp.uint64(MULTIPLIERS[0])
        second = c2.astype(jnp.uint64) * jnp.uint64(MULTIPLIERS[1])
        c0, c2 = (second >> half).astype(low) ^ c1 ^ k0, (first >> half).astype(low) ^ c3 ^ k1
        c1, c3 = second.astype(low), first.astype(low)
        k0, k1 = k0 + jnp.uint32(KEY_STEPS[0]), k1 + jnp.uint32(KEY_STEPS[1])
    return c0, c1, c2, c3


def slope_or_value(powers: tuple[int, ...], terms: tuple[Any, ...], average: Number, *, slope: bool) -> Number:
    """f'(x) or f(x) of one lane, by the polynomial that every engine uses; absent terms cost nothing."""
    held = {(term, 0): NOTHING if value is None else Number(value, average.zero) for term, value in enumerate(terms)}
    gaps = tuple(later - earlier for earlier, later in itertools.pairwise(powers))
    factors = tuple(float(power) for power in powers) if slope else (1.0,) * len(powers)
    return polynomial(held, 0, average, factors, gaps, powers[0] - slope)  # type: ignore[no-any-return]


def _uniform(word: Any, bits: int) -> Any:
    """A word as a number in [0, 1): all of it, or in 32 bits the 24 that a float holds."""
    if bits == 64:
        return word.astype(jnp.float64) * 2.0**-32
    return (word >> jnp.uint32(8)).astype(jnp.int32).astype(jnp.float32) * 2.0**-24


def real(bits: int) -> Any:
    """The type of numbers."""
    return jnp.float64 if bits == 64 else jnp.float32


def draw(rules: Rules, history: History, family: Family, index: Any, now: Now) -> tuple[History, tuple[Any, ...]]:
    """Decide one pass for some blocks of clients.

    Args:
        rules: what is compiled.
        history: of these blocks.
        family: of these blocks.
        index: which blocks of the family these are.
        now: what is the same for all.

    Returns:
        The histories after it, and the total of each round, added up over the lanes, shape (blocks,).
    """
    block = family.block + index.astype(family.block.dtype)
    tosses = [words(block, now.round + jnp.uint32(number), now.key) for number in range(rules.most)]
    # (index - low) wraps around below low: one comparison for both ends
    clients = [index - low < high - low for low, high in zip(family.low, family.high, strict=True)]
    totals: list[Any] = [0] * rules.most
    passed, rounds = [], []
    for lane in range(LANES):
        after, bits = _draw_lane(rules, history, family, lane, [toss[lane] for toss in tosses], now)
        passed.append(after[0])
        rounds.append(after[1])
        weight = jnp.int32(1) if family.weights is None else family.weights[lane]
        bits = bits if len(clients) == 1 else [bit & clients[lane] for bit in bits]
        totals = [total + jnp.where(bit, weight, 0) for total, bit in zip(totals, bits, strict=True)]
    if len(clients) == 1:
        totals = [jnp.where(clients[0], total, 0) for total in totals]
    return History(tuple(passed), None if history.rounds is None else tuple(rounds)), tuple(totals)


def _draw_lane(
    rules: Rules, history: History, family: Family, lane: int, tosses: list[Any], now: Now
) -> tuple[tuple[Any, Any], list[Any]]:
    """One lane's (participations, rounds) after the pass, and who participates in each round, as in `client_step`."""
    kind, zero = real(rules.bits), now.zero if rules.bits == 64 else None

    def number(value: Any) -> Number:
        return Number(value.astype(kind), zero)

    own = tuple(number(value[lane] if isinstance(value, tuple) else value) for value in family.parameters)
    weight: Any = 1 if family.weights is None else number(family.weights[lane])
    terms = tuple(None if term is None else term[lane] for term in family.terms)
    status = None if family.status is None else family.status[lane]
    passed, cap = history.passed[lane], number(now.cap)
    lasted = number(now.rounds if history.rounds is None else history.rounds[lane])
    bits = []
    for turn, toss in enumerate(tosses):
        going = None if turn == 0 else now.two != 0
        average = average_of(number(passed), lasted)
        slope = slope_or_value(rules.powers, terms, average, slope=True)
        wanted = intent(number(now.signals[turn]), weight, average, slope)
        low, high = rules.limits(average, own)
        chance = inside(low, rules.response(wanted, average, own), high)
        chance = chance.value if isinstance(chance, Number) else jnp.asarray(chance, kind)
        bit = _uniform(toss, rules.bits) < chance
        bit = bit if status is None else bit & (status == PRESENT)
        bit = bit if going is None else bit & going
        bits.append(bit)
        after = next_rounds(lasted, cap)
        if rules.counts:
            moved = passed + bit.astype(passed.dtype)
        else:
            added = bit.astype(kind) if rules.by_bit else chance
            added = added if status is None or rules.by_bit else jnp.where(status == PRESENT, chance, 0.0)
            moved = remembered(number(passed), (after - 1.0) / lasted, Number(added, zero)).value
        stays = [] if going is None else [~going]
        stays += [] if status is None else [status == ABSENT]
        for still in stays:
            moved = moved if rules.counts else jnp.where(still, passed, moved)
            after = Number(jnp.where(still, lasted.value, after.value), zero)
        passed, lasted = moved, after
    return (passed, lasted.value), bits


def add_up(totals: tuple[Any, ...], devices: str | None) -> tuple[Any, ...]:
    """The total of each round: sums over blocks, and over devices where there are several (their axis's name)."""
    sums = tuple(jnp.sum(total, dtype=jnp.int64) for total in totals)
    return sums if devices is None else tuple(jax.lax.psum(total, devices) for total in sums)  # type: ignore[no-untyped-call]
