"""A run without clock, disk or wire: devices decide as they do, and rounds are closed as they are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from turnout import SeededCoins
from turnout.algorithm import Averaging, ClientState, client_step
from turnout.problem import Problem
from turnout.service.rounds import MISSING, NO, YES, ClosedRound, Members, close, first_position
from turnout.service.rules import Rules

NEVER = 10**9


def members(count: int, weight: int | list[int] = 1, joined: int = 0) -> Members:
    return Members(
        np.broadcast_to(np.array(weight, dtype=np.int64), (count,)),
        np.full(count, joined),
        np.ones(count, dtype=np.bool_),
    )


def play(
    rule: Rules,
    problem: Problem,
    rounds: int,
    seed: int,
    gone: int = NEVER,
    back: np.ndarray | int = 0,
    capacities: Mapping[int, float] | None = None,
) -> list[ClosedRound]:
    """Its books. Each device is away from the round `gone` until its own round `back`; capacities from rounds on."""
    capacity = problem.capacity
    size, coins = len(problem), SeededCoins(seed)
    state = ClientState(np.full(size, rule.prior.participations), np.full(size, float(rule.prior.rounds)))
    position, everyone, random = first_position(rule), members(size), np.random.default_rng(seed)
    books: list[ClosedRound] = []
    for number in range(rounds):
        capacity = (capacities or {}).get(number, capacity)
        _, bits, *_ = client_step(
            problem.costs, rule.mechanism, state, position.offered, coins.uniform(range(size), number)
        )
        codes = np.where(bits, YES, NO).astype(np.uint8)
        codes[np.full(size, number >= gone) & (number < np.asarray(back))] = MISSING
        closed, position = close(rule, position, everyone, codes, capacity, random)
        state = state.after((closed.codes == YES).astype(float), Averaging())
        books.append(closed)
    return books


def turnouts(books: list[ClosedRound]) -> np.ndarray:
    """By round."""
    return np.array([closed.participants for closed in books])
