"""The same pass in tiles, by Pallas: on a GPU each tile is read, decided and written back in one visit.

XLA left to itself reaches two thirds of this on an H200: its fusion of the new histories with the totals reads and
computes more than once. The decision is `jax_kernel.draw`, unchanged.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas

from turnout.simulation.engines.jax_kernel import Family, History, Now, Rules, draw

TILES = {32: 512, 64: 256}
"""Blocks (of four clients) in a tile, by bits: the best of 256 to 2048 on an H200."""


def draw_in_tiles(
    rules: Rules, history: History, family: Family, first: Any, now: Now, *, interpret: bool = False
) -> tuple[History, tuple[Any, ...]]:
    """As `draw`, for whole tiles; totals come by tile, shape (tiles,).

    Args:
        rules: what is compiled.
        history: moved on in place.
        family: of the same blocks.
        first: the index of the first block among the family's.
        now: what all are told.
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
