"""Many rounds in one compiled call: passes over the clients, and between them the integral controller.

On a GPU a pass runs in tiles, by Pallas.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas
from jax.sharding import Mesh, PartitionSpec

from turnout.algorithm import integral_signal, next_rounds
from turnout.simulation.engines.jax.kernel import Family, History, Now, Rules, add_up, draw, real
from turnout.simulation.engines.jax.number import Number

LONGEST = 1024
"""Rounds in one call, at most: what comes back has this size, whatever the number of rounds."""

AXIS = "clients"
"""The axis along which several devices share the clients."""

TILES = {32: 512, 64: 256}
"""Blocks (of four clients) in a tile, by bits: the best of 256 to 2048 on an H200."""


class Server(NamedTuple):
    """Where the server stands, and where to go.

    Attributes:
        older, newer: the signals of the round before, and of this one.
        lagged: whether the older one decides, 1 or 0.
        gain, capacity: of the integral controller.
        round, stop: the first round, and the one to stop before; at most `LONGEST` apart.
        rounds: behind everyone's average, where all share it.
        cap: the most rounds behind an average.
        key: of the coins.
        zero: the run-time -0.0.
    """

    older: Any
    newer: Any
    lagged: Any
    gain: Any
    capacity: Any
    round: Any
    stop: Any
    rounds: Any
    cap: Any
    key: Any
    zero: Any


class Way(NamedTuple):
    """How a pass is made.

    Attributes:
        tiles: by Pallas; "interpret" runs that without a GPU.
        mesh: of several devices, else None.
        replicas: whether there are many histories, signals and keys, along a first axis.
    """

    tiles: bool | str = False
    mesh: Mesh | None = None
    replicas: bool = False


_Result = tuple[tuple[History, ...], Any, Any, Any]


@lru_cache(maxsize=64)
def compiled(rules: Rules, way: Way) -> Any:
    """run(histories, families, server) -> (histories, rounds, signals, totals), compiled for these rules.

    The histories are given up: they move on in place.
    """
    run = partial(_run, rules, way)
    if way.replicas:
        server = Server(0, 0, None, None, None, None, None, None, None, 0, None)
        run = jax.vmap(run, in_axes=(0, None, server), out_axes=(0, None, 0, 0))
    if way.mesh is None:
        return jax.jit(run, donate_argnums=0)

    def shared(histories: Any, families: Any, server: Any) -> _Result:
        by_client: Any = PartitionSpec(AXIS)  # type: ignore[no-untyped-call]
        alike: Any = PartitionSpec()  # type: ignore[no-untyped-call]
        inputs = jax.tree.map(lambda leaf: by_client if jnp.ndim(leaf) else alike, (histories, families, server))
        outputs = (inputs[0], alike, alike, alike)
        split = jax.shard_map(run, mesh=way.mesh, in_specs=inputs, out_specs=outputs, check_vma=False)
        return split(histories, families, server)

    return jax.jit(shared, donate_argnums=0)


def _run(
    rules: Rules, way: Way, histories: tuple[History, ...], families: tuple[Family, ...], server: Server
) -> _Result:
    """Rounds `server.round` to before `server.stop`."""
    zero = server.zero
    gain, capacity = Number(server.gain, zero), Number(server.capacity, zero)

    def one_pass(carry: Any) -> Any:
        histories, rounds, older, newer, round, signals, totals = carry
        two = (round + 1 < server.stop) if rules.most == 2 else jnp.asarray(False)
        deciding = (jnp.where(server.lagged != 0, older, newer), newer)
        now = _now(rules, server, round, two, deciding, rounds)
        histories, turnouts = _everyone(rules, way, histories, families, now)
        for turn in range(rules.most):
            goes = jnp.asarray(True) if turn == 0 else two
            total = Number(turnouts[turn].astype(jnp.float64), zero)
            after = integral_signal(Number(newer, zero), gain, total, capacity).value
            place = jnp.where(goes, round - server.round + turn, LONGEST)  # past the end: dropped
            signals = signals.at[place].set(after, mode="drop")
            totals = totals.at[place].set(turnouts[turn], mode="drop")
            older, newer = jnp.where(goes, newer, older), jnp.where(goes, after, newer)
            rounds = jnp.where(goes, next_rounds(Number(rounds, zero), Number(server.cap, zero)).value, rounds)
        return histories, rounds, older, newer, round + 1 + two.astype(round.dtype), signals, totals

    signals, totals = jnp.zeros(LONGEST), jnp.zeros(LONGEST, jnp.int64)
    begin = (histories, server.rounds, server.older, server.newer, server.round, signals, totals)
    end = jax.lax.while_loop(lambda carry: carry[4] < server.stop, one_pass, begin)
    return end[0], end[1], end[5], end[6]


def _now(rules: Rules, server: Server, round: Any, two: Any, deciding: tuple[Any, Any], rounds: Any) -> Now:
    kind = real(rules.bits)
    return Now(
        round.astype(jnp.uint32),
        two.astype(jnp.int32),
        (deciding[0].astype(kind), deciding[1].astype(kind)),
        rounds.astype(kind),
        server.cap.astype(kind),
        server.key,
        server.zero.astype(kind),
    )


def _everyone(
    rules: Rules, way: Way, histories: tuple[History, ...], families: tuple[Family, ...], now: Now
) -> tuple[tuple[History, ...], list[Any]]:
    """One pass over all families: the histories after it, and the total of each round."""
    moved, turnouts = [], [jnp.int64(0)] * rules.most
    for history, family in zip(histories, families, strict=True):
        blocks = history.passed[0].shape[0]
        first = jnp.uint32(0 if way.mesh is None else jax.lax.axis_index(AXIS) * blocks)
        if way.tiles:
            after, totals = _draw_in_tiles(rules, history, family, first, now, interpret=way.tiles == "interpret")
        else:
            after, totals = draw(rules, history, family, first + jax.lax.iota(jnp.uint32, blocks), now)
        moved.append(after)
        turnouts = [
            one + more for one, more in zip(turnouts, add_up(totals, None if way.mesh is None else AXIS), strict=True)
        ]
    return tuple(moved), turnouts


def _draw_in_tiles(
    rules: Rules, history: History, family: Family, first: Any, now: Now, *, interpret: bool = False
) -> tuple[History, tuple[Any, ...]]:
    """As `draw`, for whole tiles; totals are by tile, shape (tiles,).

    Args:
        rules: what is compiled.
        history: moved on in place.
        family: of the same blocks.
        first: the index of the first block among the family's.
        now: what is the same for all.
        interpret: run without a GPU, for tests.
    """
    leaves, structure = jax.tree.flatten((history, family, now, first))
    shared = [jnp.ndim(leaf) == 0 for leaf in leaves]
    moving = len(jax.tree.leaves(history))
    blocks, size = history.passed[0].shape[0], TILES[rules.bits]
    whole = jnp.int32 if family.weights is None else jnp.int64

    def kernel(*places: Any) -> None:
        values = [place[0] if one else place[...] for place, one in zip(places, shared, strict=False)]
        history, family, now, first = jax.tree.unflatten(structure, values)
        tile = pallas.program_id(0).astype(jnp.uint32) * jnp.uint32(size)
        index = first + tile + jax.lax.iota(jnp.uint32, size)
        after, totals = draw(rules, history, family, index, now)
        outputs = [*jax.tree.leaves(after), *(jnp.sum(total, dtype=whole) for total in totals)]
        for number, (place, value) in enumerate(zip(places[len(leaves) :], outputs, strict=True)):
            place[... if number < moving else 0] = value

    struct: Any = jax.ShapeDtypeStruct
    tiled, once = pallas.BlockSpec((size,), lambda tile: (tile,)), pallas.BlockSpec((1,), lambda tile: (0,))
    by_tile = pallas.BlockSpec((1,), lambda tile: (tile,))
    results = pallas.pallas_call(
        kernel,
        grid=(blocks // size,),
        in_specs=[once if one else tiled for one in shared],
        out_specs=[tiled] * moving + [by_tile] * rules.most,
        out_shape=[struct(leaf.shape, leaf.dtype) for leaf in leaves[:moving]]
        + [struct((blocks // size,), whole)] * rules.most,
        input_output_aliases={number: number for number in range(moving)},
        interpret=interpret,
        **({} if interpret else {"compiler_params": _on_a_gpu()}),
    )(*(jnp.reshape(leaf, 1) if one else leaf for leaf, one in zip(leaves, shared, strict=True)))
    return jax.tree.unflatten(jax.tree.structure(history), results[:moving]), tuple(results[moving:])


def _on_a_gpu() -> Any:
    from jax.experimental.pallas import triton

    return triton.CompilerParams(num_warps=4)
