"""Who takes part in the benchmark: our engines, what people write, and the practical limit.

Each contender times rounds alone. What is ours, and the C kernel, begins from a setup that is ready; of a plain script
the time without any round is taken off.
"""

import functools
import hashlib
import importlib.util
import os
import time

import c_kernel
import plain_numpy
import plain_python
from turnout import IntegralController, Keep, PaperCoin, paper_population
from turnout.simulation import choose_engine, set_up

BETA, GAIN, INITIAL = 3.5, 9.0, 0.35  # gain of 9 / clients is the paper's 0.0075 at 1200
LEAN = Keep(every=10**9, cost=False)
ENOUGH_FOR_TWO = 16_384
"""Clients from which more than one thread is of use."""
WARM = 2
"""Rounds that go before those that are timed: one pass."""


@functools.cache
def problem(clients):
    return paper_population(0, clients).problem(clients / 2)


def seconds(action):
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def ready(clients, rounds, mechanism=None):
    """A setup after round 0, in which everyone took part, with room for so many more rounds."""
    server = IntegralController(GAIN / clients, INITIAL)
    mechanism = mechanism or PaperCoin(BETA)
    setup = set_up(problem(clients), mechanism, server, 1 + rounds, 0, None, None, None, LEAN)
    setup.log.close_round(clients)
    return setup


def digest(setup):
    """What the trajectory is, to the bit: totals, signals and histories."""
    log, state = setup.log, setup.clients.state
    parts = (log.participants, log.signal, state.participations)
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def ours(engine, threads, clients, rounds, mechanism=None):
    """(seconds, digest) of an engine. One pass goes before: it compiles, and sends clients where they are moved."""
    setup = ready(clients, WARM + rounds, mechanism)
    made, _ = choose_engine(engine, setup.clients, threads, 1 + WARM + rounds)
    made.advance(setup.log, 1 + WARM)
    took = seconds(lambda: made.advance(setup.log, 1 + WARM + rounds))
    made.gather()
    made.close()
    return took, digest(setup)


def by_hand(threads, clients, rounds, mechanism=None):
    """(seconds, digest) of the C kernel."""
    setup = ready(clients, WARM + rounds, mechanism)
    c_kernel.advance(setup, 1 + WARM, threads)
    return seconds(lambda: c_kernel.advance(setup, 1 + WARM + rounds, threads)), digest(setup)


def plain(module, clients, rounds):
    """(seconds, None) of a script: it has coins of its own."""
    settings = (BETA, GAIN / clients, INITIAL)
    run = importlib.import_module(module).run
    without = seconds(lambda: run(clients, 0, *settings))
    return max(seconds(lambda: run(clients, rounds, *settings)) - without, 1e-9), None


def there(library):
    return importlib.util.find_spec(library) is not None


def contenders():
    """Name: (threads, function of clients and rounds, the most clients), of those that can run here."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    some = [threads for threads in sorted({1, 2, cores}) if threads <= cores]
    found = {
        "plain Python objects": (1, functools.partial(plain, plain_python.__name__), 100_000),
        "plain NumPy": (1, functools.partial(plain, plain_numpy.__name__), None),
    }
    if there("jax"):
        found["plain JAX"] = (cores, functools.partial(plain, "plain_jax"), None)
    found["turnout numpy"] = (1, functools.partial(ours, "numpy", 1), None)
    if there("jax"):
        found["turnout jax, on the CPU"] = (cores, functools.partial(ours, "jax", None), None)
    for threads in some if there("numba") else []:
        found[f"turnout numba, {counted(threads)}"] = (threads, functools.partial(ours, "numba", threads), None)
    for threads in some if c_kernel.compiler() else []:
        found[f"C kernel, {counted(threads)}"] = (threads, functools.partial(by_hand, threads), None)
    return found


def counted(threads):
    return "1 thread" if threads == 1 else f"{threads} threads"


def entrants(clients):
    """The names of those that take part with so many clients."""
    return [
        name
        for name, (threads, _, most) in contenders().items()
        if (most is None or clients <= most)
        and (threads == 1 or clients >= ENOUGH_FOR_TWO or not name.startswith(("turnout numba", "C kernel")))
    ]


def take_turn(name, clients, rounds):
    """(seconds, digest or None) of one contender; called in its own process."""
    return contenders()[name][1](clients, rounds)
