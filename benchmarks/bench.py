"""Client-rounds a second, ours against what people write, interleaved in one run.

These machines are noisy, so the contenders take turns, and what counts is the ratio to plain NumPy
measured in the same turn (the median over turns). Each lives in a process of its own, as it would
for its user, so that none gains or suffers from another's memory.

    python benchmarks/bench.py [--quick] [--json FILE]
"""

import argparse
import contextlib
import functools
import json
import multiprocessing
import platform
import resource
import statistics
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import plain_numpy
import plain_python
from turnout import IntegralController, Keep, PaperCoin, paper_population, replicate, simulate

BETA, GAIN, INITIAL = 3.5, 9.0, 0.35  # gain of 9 / clients is the paper's 0.0075 at 1200
LEAN = Keep(every=10**9, cost=False, state=False)

# clients: rounds for plain Python, plain NumPy, our NumPy, our Numba: each some tenths of a second
SIZES = {1_200: (60, 1_500, 1_500, 60_000), 100_000: (1, 60, 60, 2_000), 10_000_000: (0, 3, 3, 20)}


@functools.cache
def problem(clients):
    return paper_population(0, clients).problem(clients / 2)


def ours(engine, threads, clients, rounds):
    server = IntegralController(GAIN / clients, INITIAL)
    simulate(problem(clients), PaperCoin(BETA), server, rounds + 1, engine=engine, threads=threads, keep=LEAN)


def plain(module, clients, rounds):
    module.run(clients, rounds, BETA, GAIN / clients, INITIAL)


CONTENDERS = {
    "plain Python objects": (0, functools.partial(plain, plain_python)),
    "plain NumPy": (1, functools.partial(plain, plain_numpy)),
    "turnout numpy": (2, functools.partial(ours, "numpy", 1)),
    "turnout numba, 1 thread": (3, functools.partial(ours, "numba", 1)),
    "turnout numba, 2 threads": (3, functools.partial(ours, "numba", 2)),
}


def rate(name, clients):
    """Client-rounds a second of the rounds alone: the set-up is timed apart and taken off."""
    column, run = CONTENDERS[name]
    rounds = SIZES[clients][column]
    seconds = {}
    for count in (1, rounds):  # also compiles, and warms up
        begun = time.perf_counter()
        run(clients, count)
        seconds[count] = time.perf_counter() - begun
    begun = time.perf_counter()
    run(clients, 1)
    setup = min(seconds[1], time.perf_counter() - begun) if rounds > 1 else 0.0
    return clients * (rounds - (rounds > 1)) / (seconds[rounds] - setup)


def measure(turns):
    rows = []
    spawn = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        homes = {name: stack.enter_context(ProcessPoolExecutor(1, spawn)) for name in CONTENDERS}
        for clients, rounds in SIZES.items():
            entrants = [name for name, (column, _) in CONTENDERS.items() if rounds[column]]
            rates = {name: [] for name in entrants}
            for turn in track(range(turns + 1), description=f"{clients:>10,} clients", transient=True):
                for name in entrants:
                    value = homes[name].submit(rate, name, clients).result()
                    if turn:  # the first turn warms up
                        rates[name].append(value)
            for name, values in rates.items():
                ratios = [value / peer for value, peer in zip(values, rates["plain NumPy"], strict=True)]
                rows.append(
                    {
                        "clients": clients,
                        "contender": name,
                        "client_rounds_per_second": statistics.median(values),
                        "times_plain_numpy": statistics.median(ratios),
                    }
                )
    return rows


def growth():
    """How the time grows with clients and with rounds: 1 is linear."""
    problems = {clients: paper_population(0, clients).problem(clients / 2) for clients in (1_200, 12_000, 120_000)}

    def seconds(clients, rounds):
        settings = (PaperCoin(BETA), IntegralController(GAIN / clients, INITIAL), rounds)
        best = float("inf")
        for _ in range(3):
            begun = time.perf_counter()
            simulate(problems[clients], *settings, threads=1, keep=LEAN)
            best = min(best, time.perf_counter() - begun)
        return best

    seconds(1_200, 10)
    base = seconds(1_200, 20_000)
    return {
        "10x_clients": seconds(12_000, 20_000) / base / 10,
        "100x_clients": seconds(120_000, 2_000) * 10 / base / 100,
        "10x_rounds": seconds(1_200, 200_000) / base / 10,
    }


def five_settings():
    """Five settings x 1,200 clients x 10,000 rounds, as the paper's figures need them, in seconds."""
    from turnout import Classical

    problem, server = paper_population().problem(600), IntegralController(0.0075, 0.35)
    mechanisms = [Classical(), *(PaperCoin(beta) for beta in (3.5, 2.5, 1.5, 1.0))]
    for mechanism in mechanisms:
        simulate(problem, mechanism, server, 3)
    begun = time.perf_counter()
    for mechanism in mechanisms:
        simulate(problem, mechanism, server, 10_000)
    five = time.perf_counter() - begun
    begun = time.perf_counter()
    replicate(problem, mechanisms[1], server, 10_000, seeds=range(20))
    return {"five_settings_seconds": five, "twenty_replicas_seconds": time.perf_counter() - begun}


def memory():
    """Bytes a client beyond the coefficients, at ten million clients, in a process of its own."""
    code = (
        "import resource, numpy as np\n"
        "from turnout import IntegralController, Keep, PaperCoin, paper_population, simulate\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "def now(): return int(open('/proc/self/statm').read().split()[1]) * resource.getpagesize()\n"
        "simulate(paper_population(0, 1200).problem(600), PaperCoin(3.5), IntegralController(0.0075, 0.35), 10)\n"
        "from turnout import PolynomialCosts, Problem\n"
        "n = 10_000_000\n"
        "costs = PolynomialCosts(np.full((n, 3), 2.0, order='F'), (2, 4, 6))\n"
        "problem = Problem(costs, n / 2)\n"
        "open('/proc/self/clear_refs', 'w').write('5')\n"
        "before = now()\n"
        "simulate(problem, PaperCoin(3.5), IntegralController(9 / n, 0.35), 10, keep=Keep(every=4))\n"
        "high = [l for l in open('/proc/self/status') if l.startswith('VmHWM')][0].split()[1]\n"
        "print((int(high) * 1024 - before) / n)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else None


def show(found):
    console = Console(width=110)
    table = Table(title="client-rounds a second (ratio to plain NumPy in the same turn)")
    for heading in ("", *(f"{clients:,} clients" for clients in SIZES)):
        table.add_column(heading, justify="right" if heading else "left")
    for name in CONTENDERS:
        cells = []
        for clients in SIZES:
            row = next((r for r in found["rates"] if (r["clients"], r["contender"]) == (clients, name)), None)
            cells.append(f"{row['client_rounds_per_second']:.2e}  {row['times_plain_numpy']:6.2f}x" if row else "-")
        table.add_row(name, *cells)
    console.print(table)
    for name, value in (found["growth"] | found["whole_runs"] | {"bytes_a_client": found["bytes_a_client"]}).items():
        console.print(f"{name:26} {'not measured here' if value is None else f'{value:.2f}'}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="one turn, for a first look")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {
        "machine": {"processor": platform.processor() or platform.machine(), "python": platform.python_version()},
        "numpy": np.__version__,
        "rates": measure(1 if options.quick else 7),
        "growth": growth(),
        "whole_runs": five_settings(),
        "bytes_a_client": memory(),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    show(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
