"""Costs from plain functions: the value or the slope is given, and the other is computed from it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from turnout.errors import invalid
from turnout.problem.costs import Array, Clients, Costs

FOUR = ("__len__", "__getitem__", "value", "slope")
"""The methods that costs of one's own have."""

Functions = Callable[[Any], Any] | Sequence[Callable[[float], float]]
"""One function of all averages, or one function of one average for each client."""

_STEP = 2.0**-17
"""Between two values whose difference gives a slope: both errors, of the step and of rounding, are near 1e-11."""

_NODES, _PARTS = np.polynomial.legendre.leggauss(32)
"""A sum over these places is an integral: exact for polynomials up to degree 63."""

_FLAT = 1e-8
"""A slope at 0 may be negative by this share of the cost, for rounding and the step's sake: it counts as 0."""


class FunctionCosts:
    """Costs from functions of the average: their values, their slopes, or both.

    Args:
        value: f, as a list of functions, one for each client, each from a number to a number; or as one function of all
            averages, from an array of shape (clients,) to one of that shape, with `clients`.
        slope: f', in the same way. Without it, slopes are differences of values, never outside [0, 1], to some 9
            digits. Without `value`, values are integrals of the slope from 0, where the cost is then 0.
        clients: how many, for one function of all averages.

    Raises:
        ValueError: neither is given, or they do not fit together.

    Warns:
        UserWarning: what is computed, and what that costs; not if one function each gives values and slopes.

    Example:
        >>> rate = np.array([1.0, 2.0, 3.0])
        >>> costs = FunctionCosts(lambda x: np.exp(rate * x), lambda x: rate * np.exp(rate * x), clients=3)
        >>> costs.slope(np.zeros(3))
        array([1., 2., 3.])
    """

    def __init__(
        self, value: Functions | None = None, slope: Functions | None = None, *, clients: int | None = None
    ) -> None:
        given = [(name, found) for name, found in (("value", value), ("slope", slope)) if found is not None]
        if not given:
            raise ValueError("value or slope is missing: give functions of the average, such as value=[lambda x: x**2]")
        sizes = {_size(name, found, clients) for name, found in given}
        if len(sizes) > 1:
            raise invalid("value and slope", "of as many clients", sorted(sizes), "give one of each per client")
        self._clients = sizes.pop()
        self._chosen = np.arange(self._clients)
        self._value, self._slope = value, slope
        for name, found in given:
            _call(name, found, self._chosen, self._clients, np.full(self._clients, 0.5))
        self._warn(dict(given))

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, clients: Clients) -> FunctionCosts:
        some = object.__new__(FunctionCosts)
        some._value, some._slope, some._clients = self._value, self._slope, self._clients
        some._chosen = np.atleast_1d(self._chosen[clients])
        return some

    def __repr__(self) -> str:
        known = [name for name, found in (("value", self._value), ("slope", self._slope)) if found is not None]
        return f"FunctionCosts({len(self)} clients, by {' and '.join(known)})"

    def value(self, average: Array) -> Array:
        """f_i(x_i), shape (clients,)."""
        average = np.asarray(average, dtype=np.float64)
        if self._value is not None:
            return self._at("value", self._value, average)
        assert self._slope is not None
        total = np.zeros_like(average)
        for node, part in zip(_NODES, _PARTS, strict=True):
            total += 0.5 * part * average * self._at("slope", self._slope, 0.5 * (node + 1.0) * average)
        return total

    def slope(self, average: Array) -> Array:
        """f_i'(x_i), shape (clients,)."""
        average = np.asarray(average, dtype=np.float64)
        if self._slope is not None:
            return self._at("slope", self._slope, average)
        assert self._value is not None
        # The slope of the parabola through three values within [0, 1]; in the middle of them nearly everywhere.
        middle = np.clip(average, _STEP, 1.0 - _STEP)
        below, here, above = (self._at("value", self._value, middle + step) for step in (-_STEP, 0.0, _STEP))
        bend = (average - middle) * (above - 2.0 * here + below) / _STEP**2
        found = (above - below) / (2.0 * _STEP) + bend
        rounded = (average < _STEP) & (found > -_FLAT * (1.0 + np.abs(here))) & (found < 0.0)
        return np.where(rounded, 0.0, found)

    def _at(self, name: str, functions: Functions, average: Array) -> Array:
        if average.ndim < 2:
            return _call(name, functions, self._chosen, self._clients, average)
        columns = average.reshape(len(average), -1).T
        found = [_call(name, functions, self._chosen, self._clients, column) for column in columns]
        return np.stack(found, axis=1).reshape(average.shape)

    def _warn(self, given: dict[str, Functions]) -> None:
        singly = not callable(next(iter(given.values())))
        told = []
        if "slope" not in given:
            told.append("slopes are differences of values (some 9 digits), with 3 calls for each")
        if "value" not in given:
            told.append("values are integrals of the slope from 0 (exact for smooth ones), with 32 calls for each")
        if singly:
            calls = len(self) * (1 if "slope" in given else 3)
            told.append(f"Python is called {calls:,} times per round")
        if told:
            remedy = f"one class with {', '.join(FOUR)} is exact and faster, PolynomialCosts faster still"
            warnings.warn(f"costs from functions: {'; '.join(told)}: {remedy}", stacklevel=3)


def _size(name: str, functions: Functions, clients: int | None) -> int:
    """How many clients the functions are for."""
    if callable(functions):
        if clients is None:
            remedy = f"write FunctionCosts({name}=…, clients=100), or give a list of functions, one for each client"
            raise ValueError(f"clients is missing: one function of all averages does not say how many: {remedy}")
        if isinstance(clients, bool) or not isinstance(clients, (int, np.integer)) or clients < 1:
            raise invalid("clients", "a whole number from 1 up", repr(clients), "give how many clients there are")
        return int(clients)
    if not isinstance(functions, Sequence) or not functions or not all(map(callable, functions)):
        allowed = "a function of all averages, or a list of functions, one for each client"
        raise invalid(name, allowed, type(functions).__name__, "such as [lambda x: x**2, lambda x: 3 * x**2]")
    if clients is not None and clients != len(functions):
        raise invalid("clients", f"{len(functions)}, as many as functions, or left out", clients, "leave it out")
    return len(functions)


def _call(name: str, functions: Functions, chosen: Any, clients: int, average: Array) -> Array:
    """What the functions give for the chosen ones of all clients."""
    if not callable(functions):
        return np.array([float(functions[client](float(x))) for client, x in zip(chosen, average, strict=True)])
    every = np.full(clients, 0.5)  # a function of all averages is asked for all, also where some are wanted
    every[chosen] = average
    found: Array = np.asarray(functions(every), dtype=np.float64)
    if found.shape != every.shape:
        remedy = "compute it for an array of averages, with NumPy: or give a list of functions, one for each client"
        raise invalid(name, f"of shape {every.shape}, as the averages", f"shape {found.shape}", remedy)
    wanted: Array = found[chosen]
    return wanted


def costs_from(given: Any) -> Costs:
    """The costs of a problem: as they are, or from a list of functions, one for each client.

    Raises:
        ValueError: names what costs must have, and what is missing.

    Example:
        >>> costs_from(3.0)
        Traceback (most recent call last):
        ...
        ValueError: costs must be a turnout.PolynomialCosts, or costs of your own (an object with __len__, \
__getitem__, value and slope), got 3.0: make them with PolynomialCosts(coefficients, powers=(2, 4))
    """
    if isinstance(given, Costs) and not isinstance(given, type):
        return given
    if isinstance(given, (list, tuple)) and given and all(map(callable, given)):
        return FunctionCosts(given)
    allowed = f"a turnout.PolynomialCosts, or costs of your own (an object with {', '.join(FOUR[:3])} and {FOUR[3]})"
    got = type(given).__name__
    remedy = "make them with PolynomialCosts(coefficients, powers=(2, 4))"
    missing = [name for name in FOUR if not hasattr(given, name)]
    if isinstance(given, type):
        got = f"the class {given.__name__}"
    elif isinstance(given, (str, int, float, type(None))):
        got = repr(given)
    elif isinstance(given, (list, tuple, np.ndarray)):
        remedy = "numbers are coefficients: PolynomialCosts([[3.0], [1.0]], powers=(2,)) is 3 x^2 and x^2"
    elif {"value", "slope"} & (set(FOUR) - set(missing)):
        got = f"{type(given).__name__} without {', '.join(missing)}"
        remedy = (
            f"add {'it' if len(missing) == 1 else 'them'}; turnout.problem.FunctionCosts computes a slope or a value"
        )
    elif callable(given):
        got = "one function"
        remedy = (
            "give a list of functions, one for each client, or turnout.problem.FunctionCosts(function, clients=100)"
        )
    raise invalid("costs", allowed, got, remedy)
