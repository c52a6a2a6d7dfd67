"""How threads inside a compiled loop wait for each other: each pass ends when all have published its number.

Handing a pass over through Python costs some 90 microseconds, the pass of a hundred thousand
clients some 150. So each thread runs the whole loop over its own clients, and between passes spins
until the others are there. A waiting thread soon offers its core to others.
"""

import sys
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

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
def meet(arrivals: Any, me: Any, number: Any) -> None:
    """Wait until every thread has finished pass `number`."""
    _publish(arrivals, me * 8, number)  # eight apart: each on a cache line of its own
    for other in range(0, len(arrivals), 8):
        spins = 0
        while _observe(arrivals, other) < number:
            spins += 1
            if spins > _SPINS:
                _yield_core()
