"""What a cluster adds to a run: milliseconds a pass beyond the work itself, and, if asked, 1e8 clients on one machine.

    python benchmarks/ray_overhead.py
    python benchmarks/ray_overhead.py --clients 100000000 --rounds 10

Starts a Ray cluster of its own on this machine. Prints JSON.
"""

import argparse
import json
import os
import platform
import statistics
import threading
import time
from pathlib import Path

import numpy as np

from turnout import IntegralController, Keep, PaperCoin, paper_population
from turnout.problem import drawn_paper_population
from turnout.simulation import RayOptions, run_rounds, set_up
from turnout.simulation.engines.numba.engine import NumbaEngine
from turnout.simulation.engines.ray.engine import RayEngine

SIGNALS = [1.0, 1.0]  # two rounds a pass


def setup(population, rounds, keep=None):
    clients = len(population)
    server = IntegralController(9.0 / clients, 0.35)
    return set_up(population.problem(clients / 2), PaperCoin(3.5), server, rounds, 0, None, None, None, keep)


def seconds(engine, passes):
    """Of each pass, after some to warm up."""
    engine.draw(1, SIGNALS)
    engine.draw(1, SIGNALS)
    taken = []
    for _ in range(passes):
        begun = time.perf_counter()
        engine.draw(1, SIGNALS)
        taken.append(time.perf_counter() - begun)
    return taken


def overhead(clients=2_400, actors=2, passes=2_000):
    """Milliseconds a pass beyond the work: a pass over the cluster less the same share of clients moved here.

    Args:
        clients: so few that the work is next to nothing.
        actors: how many shards.
        passes: how many are timed; the median is told, and the 95th percentile.
    """
    engine = RayEngine(setup(paper_population(0, clients), 2).clients, RayOptions(actors, snapshot_every=10**9))
    try:
        over_ray = seconds(engine, passes)
    finally:
        engine.close()
    here = seconds(NumbaEngine(setup(paper_population(0, clients // actors // 4 * 4), 2).clients, 1), passes)
    work = statistics.median(here)
    return {
        "clients": clients,
        "actors": actors,
        "passes": passes,
        "work_ms": 1e3 * work,
        "pass_ms": 1e3 * statistics.median(over_ray),
        "overhead_ms": 1e3 * (statistics.median(over_ray) - work),
        "overhead_ms_95th_percentile": 1e3 * (float(np.quantile(over_ray, 0.95)) - work),
    }


class Memory:
    """Watches how much of the machine's memory is in use above what was at first, by sampling."""

    def __init__(self):
        self.at_first = self._available()
        self.least = self.at_first
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def peak_gib(self):
        self._done.set()
        self._watcher.join()
        return (self.at_first - self.least) / 2**20

    def _watch(self):
        while not self._done.wait(0.2):
            self.least = min(self.least, self._available())

    @staticmethod
    def _available():
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable"):
                return int(line.split()[1])
        raise OSError("no MemAvailable")


def many(clients, rounds, actors, drawn):
    """One run of many clients; checkpoints are reduced in the shards, and the final state comes home."""
    memory, begun = Memory(), time.perf_counter()
    population = drawn_paper_population(0, clients) if drawn else paper_population(0, clients)
    ready = setup(population, rounds, Keep(every=max(1, rounds // 2)))
    made = time.perf_counter()
    engine = RayEngine(ready.clients, RayOptions(actors))
    started = time.perf_counter()
    run_rounds(engine, ready)
    ended = time.perf_counter()
    return {
        "clients": clients,
        "rounds": rounds,
        "actors": actors,
        "population": "drawn in the shards" if drawn else "stored here, and sent",
        "where": engine.where,
        "population_s": made - begun,
        "start_s": started - made,
        "run_s": ended - started,
        "client_rounds_per_second": clients * rounds / (ended - started),
        "peak_gib": memory.peak_gib(),
        "mean_average": float(ready.clients.state.average.mean()),
        "turnout": [int(total) for total in ready.log.participants[-3:]],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passes", type=int, default=2_000)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--clients", type=int, help="run so many clients instead")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--drawn", action="store_true", help="the population is made in the shards, never stored here")
    given = parser.parse_args()
    os.environ["RAY_ADDRESS"] = "local"
    if given.clients:
        found = many(given.clients, given.rounds, given.actors, given.drawn)
    else:
        found = overhead(actors=given.actors, passes=given.passes)
    print(json.dumps(found | {"machine": platform.machine(), "cores": os.cpu_count()}, indent=1))


if __name__ == "__main__":
    main()
