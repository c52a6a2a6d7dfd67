"""Choose the engine that suits, and say why."""

from __future__ import annotations

import importlib.util

from turnout.errors import MissingExtra, invalid
from turnout.problem.costs import PolynomialCosts
from turnout.simulation.crowd import Crowd
from turnout.simulation.engines.engine import Engine
from turnout.simulation.engines.numpy_engine import NumpyEngine

ENGINES = ("auto", "numpy", "numba")


def choose_engine(name: str, crowd: Crowd, threads: int | None = None) -> tuple[Engine, str]:
    """The engine of that name, and why it was chosen, in words.

    Raises:
        ValueError: there is no such engine, or it cannot run these costs.
        MissingExtra: its library is not installed.
    """
    if threads is not None and threads < 1:
        raise invalid("threads", "1 or more", threads, "leave it out to use all cores")
    if name not in ENGINES:
        raise invalid("engine", f"one of {', '.join(ENGINES)}", f"{name!r}", "use 'auto' to have one chosen")
    if name == "numpy":
        return NumpyEngine(crowd), "numpy, as asked"
    acting = crowd.costs if crowd.state.memory is None else crowd.state.memory
    installed = importlib.util.find_spec("numba") is not None
    if not isinstance(acting, PolynomialCosts):
        why = f"costs of type {type(acting).__name__} run on the numpy engine; only PolynomialCosts are compiled"
        if name == "numba":
            raise invalid("engine", "'numpy' or 'auto' for these costs", "'numba'", why)
        return NumpyEngine(crowd), f"numpy: {why}"
    if not installed:
        if name == "numba":
            raise MissingExtra("engine='numba'", library="numba", extra="lab")
        return NumpyEngine(
            crowd
        ), "numpy: numba is not installed (pip install 'turnout[lab]' for some 30 times the speed)"
    from turnout.simulation.engines.numba_engine import NumbaEngine

    return NumbaEngine(crowd, threads), "numba, as asked" if name == "numba" else "numba: the fastest installed"
