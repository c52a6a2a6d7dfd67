"""What the JAX engine does on this machine's GPU: rates, bytes against bandwidth, compile times, exactness.

    python benchmarks/gpu.py [--clients N] [--most N] [--json FILE]

It needs NumPy and JAX alone. Every figure is of a second run, the first having compiled, unless it says so.
"""

import argparse
import importlib.util
import json
import os
import platform
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from turnout.algorithm import Averaging, IntegralController, PaperCoin, Prior, TrackingClamp
from turnout.problem import drawn_paper_population, paper_population
from turnout.simulation import Keep, Schedule, replicate, simulate
from turnout.simulation.engines.jax import engine as jax_engine

LEAN = Keep(every=10**9, cost=False, state=False)
BYTES = {"jax32": 2 * 2 + 4 * 1.25, "jax": 2 * 8 + 8 * 1.25}
"""Bytes a client and pass: the history read and written, and 1.25 coefficients read (the paper's families)."""


def say(text):
    print(text, flush=True)


def seconds(action):
    begun = time.perf_counter()
    result = action()
    return time.perf_counter() - begun, result


def copy_bandwidth():
    """Bytes read and written a second by a plain device-to-device copy of 4 GiB."""
    copy = jax.jit(lambda values: values + 1.0, donate_argnums=0)
    values = copy(jnp.ones(min(2**30, 2**27 if jax.devices()[0].platform == "cpu" else 2**30), jnp.float32))
    values.block_until_ready()

    def some():
        moved = values
        for _ in range(20):
            moved = copy(moved)
        return moved.block_until_ready()

    took, values = seconds(some)
    return 20 * 2 * values.nbytes / took


def run(clients, rounds, engine, keep=LEAN, seed=0):
    problem = drawn_paper_population(0, clients).problem(clients / 2)
    server = IntegralController(9.0 / clients, 0.35)
    return simulate(problem, PaperCoin(3.5), server, rounds, seed=seed, engine=engine, keep=keep)


def measure(clients, engine, rounds):
    """First call, set-up, and the whole run; from these the time to compile and the rate of the rounds alone."""
    first, _ = seconds(lambda: run(clients, 3, engine))
    again, _ = seconds(lambda: run(clients, 3, engine))
    whole, done = seconds(lambda: run(clients, rounds, engine))
    rate = clients * (rounds - 3) / (whole - again)
    found = {
        "clients": clients,
        "engine": engine,
        "rounds": rounds,
        "compile_seconds": first - again,
        "set_up_seconds": again,
        "whole_run_seconds": whole,
        "client_rounds_per_second": rate,
        "bytes_a_client_round": BYTES[engine] / 2,
        "bytes_per_second": rate * BYTES[engine] / 2,
        "turnout_over_capacity": float(done.last(min(400, rounds // 2)).mean() / (clients / 2)),
        "signal": float(done.signal[-1]),
    }
    say(
        f"{clients:>14,} clients {engine:6} compile {found['compile_seconds']:5.2f} s  set-up {again:5.2f} s  "
        f"{rounds} rounds {whole:7.2f} s  {rate:.3e} client-rounds/s  signal {found['signal']:.4f}  "
        f"turnout/capacity {found['turnout_over_capacity']:.5f}"
    )
    return found


def exactness():
    """Whether 64 bits on this device are NumPy's, bit for bit."""
    clients = 20_000
    problem = paper_population(1, clients).problem(clients / 2)
    moves = Schedule(join={40: slice(0, 2500)}, leave={90: slice(5000, 10_000)}, away=[(20, 60, slice(10_000, 12_500))])
    by_probability = Averaging(by="probability")
    cases = {
        "paper coin": (PaperCoin(3.5), {}),
        "paper coin, by probability": (PaperCoin(3.5), {"averaging": by_probability}),
        "own coins, prior, forgetting": (
            PaperCoin(np.linspace(1, 4, clients)),
            {"averaging": Averaging(30, "probability"), "start": Prior(0.4, 7.5)},
        ),
        "tracking clamp": (TrackingClamp(0.7), {}),
        "movement": (PaperCoin(3.5), {"schedule": moves}),
    }
    found = {}
    for families in ("one", "by terms"):
        jax_engine.FEW = 1 << 20 if families == "one" else 1
        for name, (mechanism, more) in cases.items():
            server = IntegralController(9.0 / clients, 2.0)
            one, other = (simulate(problem, mechanism, server, 120, seed=9, engine=e, **more) for e in ("jax", "numpy"))
            found[f"{name} ({families})"] = bool(
                np.array_equal(one.signal, other.signal)
                and np.array_equal(one.participants, other.participants)
                and np.array_equal(one.state.participations, other.state.participations)
                and np.array_equal(one.state.rounds, other.state.rounds)
            )
    jax_engine.FEW = 1 << 20
    say(f"64 bits identical to NumPy: {found}")
    return found


def replicas(count, rounds):
    """10,000 replicas of 1,200 clients, and the same for some of them on the CPU."""
    problem, server = paper_population().problem(600), IntegralController(0.0075, 0.35)
    found = {}
    for engine in ("jax32", "jax"):
        for _ in range(2):  # the first compiles
            took, runs = seconds(
                lambda engine=engine: replicate(
                    problem, PaperCoin(3.5), server, rounds, seeds=range(count), engine=engine, keep=LEAN
                )
            )
        found[engine] = {"seconds": took, "client_rounds_per_second": count * 1200 * rounds / took}
        say(f"{count} replicas x 1,200 clients x {rounds} rounds, {engine}: {took:.2f} s, {found[engine]}")
        del runs
    cpu = "numba" if importlib.util.find_spec("numba") else "numpy"
    some = 2000 if cpu == "numba" else 4
    replicate(problem, PaperCoin(3.5), server, 3, seeds=range(2), engine=cpu, keep=LEAN)
    took, _ = seconds(
        lambda: replicate(problem, PaperCoin(3.5), server, rounds, seeds=range(some), engine=cpu, keep=LEAN)
    )
    rate = some * 1200 * rounds / took
    found["cpu"] = {"engine": cpu, "cores": os.cpu_count(), "client_rounds_per_second": rate}
    say(f"CPU ({cpu}, {os.cpu_count()} cores): {rate:.3e} client-rounds/s")
    return found


def refused():
    """A population that cannot fit is refused at once."""
    try:
        run(4 * 10**11, 3, "jax32")
    except ValueError as error:
        say(f"refused: {error}")
        return str(error)
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=1_000_000_000)
    parser.add_argument("--most", type=int, default=8_000_000_000, help="the largest population; 0: none")
    parser.add_argument("--replicas", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = jax.devices()[0]
    found = {
        "device": device.device_kind,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "copy_bytes_per_second": copy_bandwidth(),
        "refused": refused(),
    }
    say(f"{device.device_kind}, JAX {jax.__version__}, copy {found['copy_bytes_per_second']:.3e} B/s")

    def save():
        if options.json:
            options.json.write_text(json.dumps(found, indent=1) + "\n")

    found["runs"] = []
    small = min(1_000_000, options.clients)
    sizes = [(small, "jax32", options.rounds), (options.clients, "jax32", options.rounds)]
    sizes += [(small, "jax", options.rounds), (options.clients, "jax", max(20, options.rounds // 5))]
    sizes += [(options.most, "jax32", options.rounds)] if options.most else []
    for size in sizes:
        found["runs"].append(measure(size[0], size[1], size[2]))
        save()
    share = found["runs"][1]["bytes_per_second"] / found["copy_bytes_per_second"]
    found["share_of_copy_bandwidth"] = share
    say(f"bytes moved at {options.clients:,} clients: {share:.2f} of the copy bandwidth")
    usual = Keep(state=False)
    run(options.clients, 102, "jax32", usual)
    took, done = seconds(lambda: run(options.clients, options.rounds, "jax32", usual))
    found["with_cost_every_100_rounds_seconds"] = took
    say(f"with the cost every 100 rounds, end to end: {took:.2f} s (cost {done.cost[-1]:.6g})")
    found["exact"] = exactness()
    save()
    found["replicas"] = replicas(options.replicas, options.rounds)
    save()


if __name__ == "__main__":
    main()
