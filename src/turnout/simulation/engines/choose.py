"""Choose the engine that suits, and say why."""

from __future__ import annotations

import importlib.util

from turnout.errors import MissingExtra, invalid, nearest
from turnout.problem import DrawnCosts, PolynomialCosts
from turnout.simulation.clients import SimulatedClients
from turnout.simulation.engines.engine import Engine, EngineChoice, JaxOptions, RayOptions, check_memory, free_memory
from turnout.simulation.engines.numpy import NumpyEngine

ENGINES = ("auto", "numpy", "numba", "jax", "jax32", "ray")

_WORTH_A_GPU = 1_000_000
"""Clients from which "auto" takes a GPU, where there is one: fewer are done before it has started."""


def choose_engine(
    choice: EngineChoice, clients: SimulatedClients, threads: int | None = None, rounds: int | None = None
) -> tuple[Engine, str]:
    """The engine that was asked for, and why it was chosen, in words.

    Args:
        choice: a name, or options.
        clients: the clients.
        threads: at most so many, where the engine has threads.
        rounds: how many there will be in all, if that is known.

    Raises:
        ValueError: there is no such engine, it cannot run these costs, or they do not fit where it runs.
        MissingExtra: its library is not installed.
    """
    if threads is not None and threads < 1:
        raise invalid("threads", "1 or more", threads, "leave it out to use all cores")
    options, name = named_options(choice)
    acting = clients.acting
    polynomial = isinstance(acting, (PolynomialCosts, DrawnCosts))
    if not polynomial and name in ("numba", "jax", "jax32"):
        raise invalid("engine", "'numpy', 'ray' or 'auto' for these costs", f"{name!r}", _only_numpy(acting))
    why = f"{name}, as asked"
    if name == "auto":
        name, why = _best(clients, acting, polynomial)
        options = JaxOptions() if name == "jax" else None
    if isinstance(options, JaxOptions):
        _need("jax", f"engine={name!r}", "gpu")
        from turnout.simulation.engines.jax.engine import JaxEngine

        engine = JaxEngine(clients, options, rounds)
        return engine, f"{why} ({engine.where})"
    if isinstance(options, RayOptions):
        _need("ray", "engine='ray'", "cluster")
        from turnout.simulation.engines.ray.engine import RayEngine

        cluster = RayEngine(clients, options)
        return cluster, f"{why} ({cluster.where})"
    _bring_home(clients)
    if name == "numpy":
        return NumpyEngine(clients), why
    if name == "numba":
        _need("numba", "engine='numba'", "lab")
        from turnout.simulation.engines.numba.engine import NumbaEngine

        return NumbaEngine(clients, threads), why
    raise NotImplementedError(f"engine {name!r} is in ENGINES, but `choose_engine` has no branch for it: add one")


def named_options(choice: EngineChoice) -> tuple[JaxOptions | RayOptions | None, str]:
    """The options behind a name, and the name of options."""
    if isinstance(choice, JaxOptions):
        return choice, "jax" if choice.bits == 64 else "jax32"
    if isinstance(choice, RayOptions):
        return choice, "ray"
    if choice not in ENGINES:
        remedy = nearest(str(choice), ENGINES, "use 'auto' to have one chosen")
        raise invalid("engine", f"one of {', '.join(ENGINES)}", f"{choice!r}", remedy)
    named: dict[str, JaxOptions | RayOptions] = {
        "jax": JaxOptions(),
        "jax32": JaxOptions(bits=32),
        "ray": RayOptions(),
    }
    return named.get(choice), choice


def _best(clients: SimulatedClients, acting: object, polynomial: bool) -> tuple[str, str]:
    """The fastest engine here that gives the exact trajectory, and why it is that."""
    if not polynomial:
        return "numpy", f"numpy: {_only_numpy(acting)}"
    if len(clients) >= _WORTH_A_GPU and importlib.util.find_spec("jax") is not None:
        import jax

        if jax.devices()[0].platform == "gpu":
            return "jax", f"jax: there is a GPU, and with {len(clients):,} clients it is worth its start"
    if importlib.util.find_spec("numba") is None:
        return "numpy", "numpy: numba is not installed (pip install 'turnout[lab]' for some 30 times the speed)"
    return "numba", "numba: the fastest installed"


def _only_numpy(acting: object) -> str:
    return f"costs of type {type(acting).__name__} run on the numpy engine; only PolynomialCosts are compiled"


def _need(library: str, feature: str, extra: str) -> None:
    if importlib.util.find_spec(library) is None:
        raise MissingExtra(feature, library=library, extra=extra)


def _bring_home(clients: SimulatedClients) -> None:
    """Refuse clients that this machine's memory cannot hold; make the costs of those that are drawn."""
    drawn = clients.costs if isinstance(clients.costs, DrawnCosts) else None
    by_client = 3 * 8 + (0 if drawn is None else 2 * 8 * len(drawn.powers))  # histories, and what a pass needs
    remedy = "use engine='jax32' on a GPU, engine='ray' on a cluster, or fewer clients"
    check_memory(f"the memory of {len(clients):,} clients", by_client * len(clients), free_memory(), "here", remedy)
    if drawn is not None:
        clients.costs = drawn[:]
