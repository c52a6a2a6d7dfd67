"""How a compiled kernel reads one client's share of an argument that may be shared, own, or absent.

Each function is written once for every kind of argument and resolved when a kernel is compiled: a
number shared by all clients costs nothing in the loop. (Numba compares signatures word for word,
so this file alone goes without annotations.)
"""

import numpy as np
from numba import types
from numba.extending import overload

from turnout.algorithm import at_least, at_most, root
from turnout.simulation.schedule import ABSENT, PRESENT


@overload(at_least)
def _at_least(value, low):
    return lambda value, low: value if value > low else low  # one machine instruction; low where NaN


@overload(at_most)
def _at_most(value, high):
    return lambda value, high: value if value < high else high


@overload(root)
def _root(value):
    return lambda value: np.sqrt(value)


def at(values, client):
    """One client's value of an array, or the number (or None) that all share."""


def at_each(values, client):
    """One client's values of a tuple of parameters."""


def is_present(status, client):
    """Whether a client decides; always, where there is no status."""


def is_member(status, client):
    """Whether a client's history moves; always, where there is no status."""


def set_rounds(rounds, client, value):
    """Store a client's own number of rounds; nothing to do where all share one."""


def later(rounds, after):
    """The number of rounds all share, moved on; arrays are stored client by client instead."""


@overload(at)
def _at(values, client):
    if isinstance(values, types.Array):
        return lambda values, client: values[client]
    return lambda values, client: values


@overload(at_each)
def _at_each(values, client):
    if not len(values):
        return lambda values, client: ()
    return lambda values, client: (at(values[0], client),) + at_each(values[1:], client)  # noqa: RUF005 (compiled)


@overload(is_present)
def _is_present(status, client):
    if isinstance(status, types.Array):
        return lambda status, client: status[client] == PRESENT
    return lambda status, client: True


@overload(is_member)
def _is_member(status, client):
    if isinstance(status, types.Array):
        return lambda status, client: status[client] != ABSENT
    return lambda status, client: True


@overload(set_rounds)
def _set_rounds(rounds, client, value):
    if isinstance(rounds, types.Array):

        def store(rounds, client, value):
            rounds[client] = value

        return store
    return lambda rounds, client, value: None


@overload(later)
def _later(rounds, after):
    if isinstance(rounds, types.Array):
        return lambda rounds, after: rounds
    return lambda rounds, after: after
