"""The compiled kernels: loops, Philox, and threads that meet. The decision itself is compiled from its source.

`average_of`, `intent`, `next_rounds`, `remembered` (algorithm/client.py), the mechanism's `response` and
`limits`, the polynomial (problem/costs.py) and the server's `integral_signal` are the very functions
that the NumPy engine calls. What is written a second time here is Philox alone, for speed.

No fastmath and no fused multiply-add: both would change bits.
"""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

from turnout.algorithm import average_of, inside, integral_signal, intent, next_rounds, remembered
from turnout.problem import KEY_STEPS, MULTIPLIERS, polynomial
from turnout.simulation.engines.numba import access
from turnout.simulation.engines.numba.access import at, at_each, is_member, is_present, later, set_rounds

if sys.platform == "win32":

    @register_jitable
    def _yield_core() -> int:
        return 0
else:
    _yield_core = types.ExternalFunction("sched_yield", types.int32())
_SPINS = 2000
"""Looks before a waiting thread offers its core: some microseconds."""


@intrinsic
def _publish(typing_context: Any, numbers: Any, index: Any, value: Any) -> Any:
    """numbers[index] = value, after everything written before it (a release store)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = cgutils.get_item_pointer(context, builder, signature.args[0], array, [arguments[1]])
        builder.store_atomic(arguments[2], pointer, "release", 8)
        return context.get_dummy_value()

    return types.void(numbers, types.intp, types.int64), generate


@intrinsic
def _observe(typing_context: Any, numbers: Any, index: Any) -> Any:
    """numbers[index], before everything read after it (an acquire load)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = cgutils.get_item_pointer(context, builder, signature.args[0], array, [arguments[1]])
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(numbers, types.intp), generate


@register_jitable
def _meet(arrivals: Any, me: Any, number: Any) -> None:
    """Wait until every thread has finished pass `number`."""
    _publish(arrivals, me * 8, number)  # eight apart: each on a cache line of its own
    for other in range(0, len(arrivals), 8):
        spins = 0
        while _observe(arrivals, other) < number:
            spins += 1
            if spins > _SPINS:
                _yield_core()


TILE = 1024
"""Clients looked at together: their words stay in the fastest cache. A multiple of 4."""

_SHARED = (average_of, intent, inside, next_rounds, remembered, integral_signal, polynomial)
"""The decision, compiled from the source that the NumPy engine runs."""

for _function in _SHARED:
    # LLVM inlines what is small; the polynomial needs help, or its loops over terms stay loops.
    register_jitable(inline="always" if _function is polynomial else "never")(_function)

_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(MULTIPLIERS[0]), np.uint64(MULTIPLIERS[1])
_STEP_0, _STEP_1 = np.uint32(KEY_STEPS[0]), np.uint32(KEY_STEPS[1])
_HALF = np.uint64(32)


@register_jitable(inline="always")
def _mixed(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> tuple[Any, Any, Any, Any]:
    """One of the ten rounds of Philox4x32-10, as in problem/philox.py."""
    first, second = np.uint64(c0) * _MULTIPLIER_0, np.uint64(c2) * _MULTIPLIER_1
    return (
        np.uint32(second >> _HALF) ^ c1 ^ k0,
        np.uint32(second),
        np.uint32(first >> _HALF) ^ c3 ^ k1,
        np.uint32(first),
    )


@register_jitable
def _fill_words(words: Any, block: int, blocks: int, round: int, key_0: Any, key_1: Any) -> None:
    """The words of one round, for consecutive blocks of four clients."""
    for number in range(blocks):
        index = np.uint64(block + number)
        a0, a1, a2, a3 = np.uint32(index), np.uint32(round), np.uint32(index >> _HALF), np.uint32(0)
        k0, k1 = key_0, key_1
        for _ in range(10):
            a0, a1, a2, a3 = _mixed(a0, a1, a2, a3, k0, k1)
            k0, k1 = np.uint32(k0 + _STEP_0), np.uint32(k1 + _STEP_1)
        words[4 * number] = a0
        words[4 * number + 1] = a1
        words[4 * number + 2] = a2
        words[4 * number + 3] = a3


@register_jitable
def _fill_both(words: Any, more: Any, block: int, blocks: int, round: int, key_0: Any, key_1: Any) -> None:
    """The words of two rounds at once: one chain of ten multiplications alone leaves the machine waiting."""
    for number in range(blocks):
        index = np.uint64(block + number)
        a0, a1, a2, a3 = np.uint32(index), np.uint32(round), np.uint32(index >> _HALF), np.uint32(0)
        b0, b1, b2, b3 = np.uint32(index), np.uint32(round + 1), np.uint32(index >> _HALF), np.uint32(0)
        k0, k1 = key_0, key_1
        for _ in range(10):
            a0, a1, a2, a3 = _mixed(a0, a1, a2, a3, k0, k1)
            b0, b1, b2, b3 = _mixed(b0, b1, b2, b3, k0, k1)
            k0, k1 = np.uint32(k0 + _STEP_0), np.uint32(k1 + _STEP_1)
        words[4 * number] = a0
        words[4 * number + 1] = a1
        words[4 * number + 2] = a2
        words[4 * number + 3] = a3
        more[4 * number] = b0
        more[4 * number + 1] = b1
        more[4 * number + 2] = b2
        more[4 * number + 3] = b3


@register_jitable
def by_bit(bit: Any, probability: Any, present: Any) -> Any:
    """The history moves by the participation itself."""
    return 1.0 if bit else 0.0


@register_jitable
def by_probability(bit: Any, probability: Any, present: Any) -> Any:
    """The history moves by the chance of participation."""
    return probability if present else 0.0


_Named = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Gives a function a name of its own; see `build`."""


def _decision(powers: tuple[int, ...], response: Any, limits: Any, moved_by: Any, named: _Named) -> tuple[Any, Any]:
    """(probability, moved): one client's decision up to the toss, and its history after it."""
    factors = tuple(float(power) for power in powers)
    gaps = tuple(b - a for a, b in itertools.pairwise(powers)) or (0,)
    lowest = powers[0] - 1

    @register_jitable
    @named
    def slope_of(terms, client, average):  # type: ignore[no-untyped-def]
        return polynomial(terms, client, average, factors, gaps, lowest)

    @register_jitable
    @named
    def probability(terms, client, own, average, signal, weight):  # type: ignore[no-untyped-def]
        """The chance that one client participates: `client_step` up to the toss."""
        wanted = intent(signal, weight, average, slope_of(terms, client, average))
        low, high = limits(average, own)
        return inside(low, response(wanted, average, own), high)

    @register_jitable
    @named
    def moved(passed, lasted, cap, bit, chance, present, member):  # type: ignore[no-untyped-def]
        """One client's (participations, rounds) after the toss."""
        after = next_rounds(lasted, cap)
        history = remembered(passed, (after - 1.0) / lasted, moved_by(bit, chance, present))
        return history if member else passed, after if member else lasted

    return probability, moved


def _rounds(probability: Any, moved: Any, named: _Named) -> Any:
    """Round `round` by `signal`, and if `two` the next by `second`, for clients start to stop."""

    @register_jitable
    @named
    def draw_rounds(clients, start, stop, round, key, signal, second, two):  # type: ignore[no-untyped-def]
        participations, rounds, cap, terms, weights, parameters, status = clients
        words, more = np.empty(TILE + 4, np.uint32), np.empty(TILE + 4, np.uint32)
        total, total_second = 0, 0
        for begin in range(start, stop, TILE):
            end = min(begin + TILE, stop)
            base = np.uint64(begin - begin % 4)
            blocks = (end - begin + begin % 4 + 3) // 4
            if two:
                _fill_both(words, more, key[2] + begin // 4, blocks, round, key[0], key[1])
            else:
                _fill_words(words, key[2] + begin // 4, blocks, round, key[0], key[1])
            for client in range(np.uint64(begin), np.uint64(end)):
                weight, own = at(weights, client), at_each(parameters, client)
                present, member = is_present(status, client), is_member(status, client)
                passed, lasted = participations[client], at(rounds, client)
                chance = probability(terms, client, own, average_of(passed, lasted), signal, weight)
                bit = present & (np.float64(words[client - base]) * 2.0**-32 < chance)
                total += weight if bit else 0
                passed, lasted = moved(passed, lasted, cap, bit, chance, present, member)
                if two:
                    chance = probability(terms, client, own, average_of(passed, lasted), second, weight)
                    bit = present & (np.float64(more[client - base]) * 2.0**-32 < chance)
                    total_second += weight if bit else 0
                    passed, lasted = moved(passed, lasted, cap, bit, chance, present, member)
                participations[client] = passed
                set_rounds(rounds, client, lasted)
        return total, total_second

    return draw_rounds


def _loop(draw_rounds: Any) -> Any:
    """All rounds of one thread's clients, with the integral controller in the loop."""

    def run(clients, share, me, arrivals, parts, rounds_to_run, key, server, noise, totals, signals):  # type: ignore[no-untyped-def]
        """Thread `me`: its clients through all rounds; meets the others after each pass; the first writes the results.

        The server is (older, newer, lag, gain, capacity): the signals of the round before and of this one, and the
        integral controller. It sees the total of each round plus its noise. Results: the total of each round, and the
        signal after it.
        """
        participations, rounds, cap, terms, weights, parameters, status = clients
        begin, stop = rounds_to_run
        older, newer, lag, gain, capacity = server
        round = begin
        number = 0
        while round < stop:
            two = lag == 1 and round + 1 < stop
            now = (participations, rounds, cap, terms, weights, parameters, status)
            drawn = draw_rounds(now, share[0], share[1], round, key, older if lag == 1 else newer, newer, two)
            number += 1
            slot = number % 2  # a thread is at most one pass ahead, so two slots are enough
            parts[me, slot, 0], parts[me, slot, 1] = drawn
            _meet(arrivals, me, number)
            for which in range(2 if two else 1):
                total = 0
                for thread in range(len(parts)):
                    total += parts[thread, slot, which]
                older, newer = newer, integral_signal(newer, gain, total + noise[round - begin], capacity)
                rounds = later(rounds, next_rounds(at(rounds, 0), cap))
                if me == 0:
                    totals[round - begin] = total
                    signals[round - begin] = newer
                round += 1
        return rounds

    return run


@lru_cache(maxsize=64)
def build(
    powers: tuple[int, ...],
    response: Callable[..., Any],
    limits: Callable[..., Any],
    moved_by: Callable[..., Any],
    layout: str,
) -> tuple[Any, Any]:
    """Compile (draw, run) for one family of costs, one mechanism, and one layout (types) of the clients.

    `draw` decides one or two rounds for some of the clients; `run` loops over rounds with the
    integral controller in the loop. Both take the clients as one tuple: participations, rounds,
    cap of the rounds, terms, weights, parameters, status; and the key of the coins as another: the two
    words of the seed, and the number of the first client's block.
    """
    for function in (response, limits):
        register_jitable(function)
    # Numba's cache tells functions apart by name and types alone, also across processes: two kernels of one
    # name are silently mixed up. So every function made here gets a name of its own, of all that goes into it.
    described = repr((powers, response.__qualname__, limits.__qualname__, moved_by.__qualname__, layout))
    suffix = _fingerprint(described, *_SHARED, response, limits)

    def named(function: Callable[..., Any]) -> Callable[..., Any]:
        function.__name__ = function.__qualname__ = f"{function.__name__}_{suffix}"
        return function

    draw_rounds = _rounds(*_decision(powers, response, limits, moved_by, named), named)

    def draw(clients, start, stop, round, key, signal, second, two):  # type: ignore[no-untyped-def]
        return draw_rounds(clients, start, stop, round, key, signal, second, two)

    # A user's own mechanism may change between two runs in a notebook: it is compiled again in each process.
    shipped = response.__module__.startswith("turnout.")
    compile_kernel = njit(cache=shipped, nogil=True, error_model="numpy")
    return compile_kernel(named(draw)), compile_kernel(named(_loop(draw_rounds)))


def _fingerprint(described: str, *functions: Callable[..., Any]) -> str:
    """A name that changes with the description, the code and constants of the functions, and access.py."""
    digest = hashlib.sha256(Path(access.__file__).read_bytes() + described.encode())
    for function in functions:
        code = function.__code__
        constants = [function.__globals__.get(name) for name in code.co_names]
        numbers = [value for value in constants if isinstance(value, (int, float))]
        digest.update(code.co_code + repr((code.co_consts, code.co_names, numbers)).encode())
    return digest.hexdigest()[:16]
