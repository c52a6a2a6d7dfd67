"""A traced array that the decision's own functions take for a number.

`average_of`, `intent`, the polynomial, a mechanism's `response` and `limits` are plain arithmetic. Called with a
`Number` they write themselves down for XLA: no second implementation, and no rewriting of the first.

A compiler may contract a * b + c into one fused operation, or rearrange (a / b) / c, and either changes last bits. So
in the exact mode each product and quotient has a zero added to it, the *run-time* value -0.0. Adding -0.0 changes no
number (not even the sign of a zero). The compiler does not know the value: whether it makes a * b + zero one fused
operation or two, the result is the rounded product, and what is added next is added to a sum, which nothing can be
fused with.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np


class _Nothing:
    """A coefficient known to be zero: what is multiplied by it is not even computed."""

    def __mul__(self, other: Any) -> _Nothing:
        return self

    def __add__(self, other: Any) -> Any:
        return other

    __rmul__, __radd__ = __mul__, __add__


NOTHING = _Nothing()
"""Absent in every client of a family. 0 * x + y is y to the bit, for finite x."""


class Number:
    """A value in a traced computation; `zero` is the run-time -0.0 of the exact mode, None where bits may differ."""

    __slots__ = ("value", "zero")

    def __init__(self, value: Any, zero: Any = None) -> None:
        self.value, self.zero = value, zero

    def _with(self, other: Any, operation: Callable[[Any, Any], Any], *, swapped: bool = False) -> Any:
        if other is NOTHING:
            return NotImplemented if operation not in (operator.add, operator.mul) else operation(NOTHING, self)
        constant = not isinstance(other, Number)
        mine, theirs = self.value, _plain(other)
        result = operation(theirs, mine) if swapped else operation(mine, theirs)
        # Sums are rounded as they stand; but constants of successive sums might be added up beforehand.
        open_to_change = constant or operation in (operator.mul, operator.truediv)
        if self.zero is not None and open_to_change:
            result = result + self.zero
        return Number(result, self.zero)

    def __add__(self, other: Any) -> Any:
        return self._with(other, operator.add)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, operator.sub)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, operator.mul)

    def __truediv__(self, other: Any) -> Any:
        return self._with(other, operator.truediv)

    def __radd__(self, other: Any) -> Any:
        return self._with(other, operator.add, swapped=True)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, operator.sub, swapped=True)

    def __rmul__(self, other: Any) -> Any:
        return self._with(other, operator.mul, swapped=True)

    def __rtruediv__(self, other: Any) -> Any:
        return self._with(other, operator.truediv, swapped=True)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        """What NumPy's functions do with a number like this: those of arithmetic.py, and no others."""
        if ufunc not in _FUNCTIONS or method != "__call__" or more:
            raise TypeError(
                f"a mechanism may use + - * / and the functions of turnout.algorithm.arithmetic alone, got "
                f"numpy.{ufunc.__name__}: it would not have the same bits on every engine"
            )
        numbers = (value if isinstance(value, Number) else Number(_plain(value), self.zero) for value in inputs)
        return _FUNCTIONS[ufunc](*numbers)


def _plain(value: Any) -> Any:
    """As JAX takes it: NumPy's own numbers would make 32 bits 64."""
    if isinstance(value, Number):
        return value.value
    return value.item() if isinstance(value, np.generic) else value


def _at_least(value: Number, low: Number) -> Number:
    high_enough = value.value > low.value  # false where the value is not a number
    return Number(jnp.where(high_enough, value.value, low.value), value.zero)


def _at_most(value: Number, high: Number) -> Number:
    return Number(jnp.where(value.value < high.value, value.value, high.value), value.zero)


def _root(value: Number) -> Number:
    return Number(jnp.sqrt(value.value), value.zero)


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.fmax: _at_least,
    np.fmin: _at_most,
    np.sqrt: _root,
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.true_divide: operator.truediv,
}
