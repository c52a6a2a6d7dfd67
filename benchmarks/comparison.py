"""turnout beside what people use now: who is chosen, at what cost, who knows what; and three privacy accounts.

    python benchmarks/comparison.py [--quick] [--store]

Prints both tables as docs/benchmarks.md shows them. --store also writes benchmarks/results/comparison.json, from which
that page's tables are checked; give it where OpenDP is installed too.
"""

import argparse
import datetime
import functools
import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from rich.progress import track

import privacy_peers
import selection_peers
from selection_peers import BY_SIZE, OMNISCIENT, OORT, OORT_CHEAP, OORT_TOLD_ALL, PEERS, RANDOM
from turnout import Classical, IntegralController, PaperCoin, Prior, optimum, paper_population, simulate
from turnout.algorithm import Clamp, TrackingClamp
from turnout.paper import SETTINGS, server
from turnout.plan import Wish, plan
from turnout.privacy import account_of, shown

STORED = Path(__file__).parent / "results" / "comparison.json"
CLIENTS, CAPACITY, LAST = (SETTINGS[name].value for name in ("clients", "capacity", "last rounds"))
ROUNDS, SEEDS, DELTA = 10_000, 5, 1e-6
BUDGET = 6.0
PLANNED_ON = 1_000
"""Memoized is planned on another population of the same kind, as its reference price is public."""

PRIVATE = {
    "turnout, no privacy": Classical(),
    "turnout, the paper's coin, β = 3.5": PaperCoin(3.5),
    "turnout, `Clamp`": Clamp(2.0),
    "turnout, `TrackingClamp`": TrackingClamp(1.0),
    "turnout, `Memoized`": None,
}
AFTER_EACH = "its marginal cost, after each round it is in"
KNOWS = {
    RANDOM: "that it exists",
    BY_SIZE: "how much data it has",
    OORT: AFTER_EACH,
    OORT_CHEAP: AFTER_EACH,
    OORT_TOLD_ALL: "its marginal cost, in every round",
    OMNISCIENT: "its whole cost function",
}
ANSWERS = "its yes or no in each round"
NOTHING_ASKED = "nothing about costs is asked"
NONE = "none"


def problem_of(seed):
    return paper_population(seed, CLIENTS).problem(CAPACITY)


@functools.cache
def planned(rounds):
    """`turnout plan --budget 6`, on a population that is not among those measured."""
    return plan(Wish(problem_of(PLANNED_ON), rounds=rounds, budget=BUDGET))


def run(name, seed, rounds):
    """(averages, participants) of one contender on one population."""
    problem = problem_of(seed)
    if name in PEERS:
        return selection_peers.run(PEERS[name](problem, seed), rounds)
    mechanism, controller, start = PRIVATE[name], server(), None
    if mechanism is None:
        chosen = planned(rounds)
        mechanism, start = chosen.mechanism, chosen.start
        controller = IntegralController(chosen.outlook.controller.gain, chosen.outlook.controller.initial)
    elif mechanism.needs_public_average:
        start = Prior(CAPACITY / CLIENTS, 20)
    found = simulate(problem, mechanism, controller, rounds, seed=seed, start=start, threads=1)
    return found.average, found.participants


def one(name, seed, rounds):
    """(cost above the optimum in per cent, turnout's spread over the last rounds)."""
    averages, participants = run(name, seed, rounds)
    problem = problem_of(seed)
    gap = 100.0 * (problem.cost(averages) / optimum(problem).cost - 1.0)
    return float(gap), float(np.std(participants[-LAST:]))


def promised(name, rounds):
    """What is promised about a report to a server that sees every one of them."""
    if name not in PRIVATE:
        return NOTHING_ASKED if name in (RANDOM, BY_SIZE) else NONE
    mechanism = PRIVATE[name] or planned(rounds).mechanism
    account = account_of(mechanism, rounds, DELTA)
    if not np.isfinite(account.epsilon):
        return NONE
    if account.delta == 0.0:
        return f"total epsilon {account.epsilon:g} for a lifetime"
    total = f"total {float(shown(account.epsilon)):,.0f} over {rounds:,} reports, delta {DELTA:g}"
    return f"epsilon {mechanism.epsilon:g} per report ({total})"


def measure(quick=False, stored=None):
    """Both comparisons; seeds and contenders over all cores."""
    rounds, seeds = (400, 2) if quick else (ROUNDS, SEEDS)
    names = [*PEERS, *PRIVATE]
    jobs = [(name, seed, rounds) for seed in range(seeds) for name in names]
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(one, *job) for job in jobs]
        done = [future.result() for future in track(waiting, description="selection", transient=True)]
    found = {name: [done[k] for k, job in enumerate(jobs) if job[0] == name] for name in names}
    rows = [
        {
            "contender": name,
            "gap_percent": [gap for gap, _ in found[name]],
            "turnout_spread": [spread for _, spread in found[name]],
            "server_knows": KNOWS.get(name, ANSWERS),
            "promised": promised(name, rounds),
            "decides": "the server" if name in PEERS else "each client",
        }
        for name in names
    ]
    selection = {"rounds": rounds, "clients": CLIENTS, "capacity": CAPACITY, "seeds": seeds, "rows": rows}
    return {"selection": selection, "privacy": privacy_peers.measure(stored and stored["privacy"], 1 if quick else 7)}


def load():
    """The stored comparison, or None."""
    return json.loads(STORED.read_text()) if STORED.exists() else None


def main():
    import bench_snapshot
    import bench_tables

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few rounds, to see that everything works")
    parser.add_argument(
        "--store", action="store_true", help=f"write {STORED.name}, which docs/benchmarks.md is checked against"
    )
    options = parser.parse_args()
    if options.store and options.quick:
        raise SystemExit("a quick look is not worth keeping: leave out --quick or --store")
    found = {"date": datetime.date.today().isoformat(), **measure(options.quick, load())}
    if options.store:
        STORED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    for table in bench_tables.comparison(found):
        print(bench_snapshot.markdown(table))


if __name__ == "__main__":
    main()
