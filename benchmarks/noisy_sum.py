"""What plans for sums with noise promise, against simulated runs: settings from `turnout plan` alone, many seeds.

    python benchmarks/noisy_sum.py [--part NAME ...] [--seeds 20]

Plans are made from a public guess of the costs, a population of its own, whose price is wrong by a factor. Nothing is
adjusted afterwards. Parts: budgets, crowd, others, changes, forecast.
"""

import argparse
import math
import os
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from turnout import Classical, Keep, PolynomialCosts, Prior, Problem, Schedule, optimum, paper_population, simulate
from turnout.plan import Goal, plan
from turnout.privacy import total_epsilon_noisy_sum
from turnout.theory import predict, predict_change, tune_floor

START = Prior(0.5, 10)
LAST = Keep(every=10_000_000)


def papers(seed, clients=1_200, factor=1.0):
    """A population of the paper's; prices are wrong by the factor."""
    costs = paper_population(seed=seed, clients=clients).problem(clients // 2).costs
    assert isinstance(costs, PolynomialCosts)
    return Problem(PolynomialCosts(costs.coefficients * factor, costs.powers), clients / 2)


def with_linear_terms(seed, clients=1_200, factor=1.0):
    """b x + a x^2: many clients never participate below their b."""
    random = np.random.default_rng([seed, 1])
    terms = np.stack([random.uniform(0.0, 6.0, clients), random.uniform(1.0, 20.0, clients)], axis=1)
    return Problem(PolynomialCosts(factor * terms, (1, 2)), clients / 2)


def with_heavy_tails(seed, clients=1_200, factor=1.0):
    """a x^2 with a log-normal a: the largest are some thousand times the smallest."""
    scale = np.random.default_rng([seed, 2]).lognormal(2.0, 1.2, clients)
    return Problem(PolynomialCosts(factor * scale[:, None], (2,)), clients / 2)


def with_weights(seed, clients=6_000, factor=1.0):
    """Weights from 1 to 200, most of them small; costs in proportion to the weight."""
    random = np.random.default_rng([seed, 3])
    weights = np.maximum(1, np.round(200.0 * random.uniform(size=clients) ** 4)).astype(int)
    weights[:2] = 1, 200
    scale = factor * weights * random.uniform(2.0, 20.0, clients)
    return Problem(PolynomialCosts(scale[:, None], (2,)), float(weights.sum()) / 2, weights)


def one_run(task):
    """(cost above the optimum of its own turnout, mean turnout / capacity - 1, root mean square error, seconds)."""
    make, found, seed, noisy, engine = task
    problem, look, rounds = make(seed), found.outlook, found.goal.rounds
    first = max(look.settling_rounds or 0, round(0.03 * rounds))
    began = time.perf_counter()
    noise = look.noise if noisy else None
    run = simulate(
        problem, found.mechanism, look.controller, rounds, seed=seed, start=found.start, noise=noise, keep=LAST,
        engine=engine,
    )  # fmt: skip
    error = run.participants - problem.capacity
    own = optimum(Problem(problem.costs, run.brought, problem.weights)).cost
    squares = float(np.mean(np.square(error[first:])))
    return run.cost[-1] / own - 1, np.mean(error) / problem.capacity, squares, time.perf_counter() - began


def row(pool, name, make, wanted, asked, factor, seeds, engine="auto"):
    """A line of a table: a plan from a wrong guess, and runs of other populations with and without its noise."""
    asked = {"budget": 1.0, "observer": "noisy-sum", "guessed": True} | asked
    found = plan(Goal(make(seed=1_000, factor=factor), **asked))
    tasks = [(make, found, 100 + seed, noisy, engine) for noisy in (True, False) for seed in range(seeds)]
    results = np.array(list(pool.map(one_run, tasks)))
    noisy, exact = results[:seeds], results[seeds:]
    error, ratio = (
        math.sqrt(noisy[:, 2].mean()) / make(100).capacity,
        math.sqrt(noisy[:, 2].mean() / exact[:, 2].mean()),
    )
    look, (cost, turnout) = found.outlook, 100 * noisy[:, :2].T
    cells = (
        f"{name:42} x {factor:4.2f}",
        f"cost {cost.mean():.3f} % (at most {cost.max():.3f}, forecast {100 * look.gap:.3f})",
        f"mean turnout {turnout.mean():+.2f} % (± {turnout.std(ddof=1):.2f} a run)",
        f"error {100 * error:.3f} % of C (forecast {100 * look.forecast.spread / found.goal.problem.capacity:.3f})",
        f"x {ratio:.2f} {wanted}",
        f"total {found.account.epsilon:.4f}",
    )
    print("  ".join(cells), flush=True)
    return found


def budgets(pool, seeds):
    """The paper's population, 1,200 clients, from a price that is 3 times too high or too low."""
    for name, asked, wanted in (
        ("epsilon 1, 10,000 rounds", {"rounds": 10_000}, "(wanted 1.35)"),
        ("epsilon 0.5, 10,000 rounds", {"rounds": 10_000, "budget": 0.5}, "(wanted 2)"),
        ("epsilon 1, 1,000 rounds", {"rounds": 1_000}, "(wanted 1.5)"),
        ("epsilon 1, 10,000 rounds, two aggregators", {"rounds": 10_000, "aggregators": 2}, "(wanted 1.6)"),
    ):
        for factor in (3.0, 1.0 / 3.0):
            row(pool, name, papers, wanted, asked, factor, seeds)


def million(seed, factor=1.0):
    """A million of the paper's clients."""
    return papers(seed, 1_000_000, factor)


def crowd(pool, seeds):
    """A million clients at a total epsilon of 0.1."""
    engine = "jax" if os.environ.get("TURNOUT_GPU") else "auto"
    with ProcessPoolExecutor(1) as alone:  # on the GPU: a process of its own, which is not forked after JAX began
        for factor in (3.0, 1.0 / 3.0):
            asked = {"rounds": 10_000, "budget": 0.1}
            row(
                alone,
                "a million clients, epsilon 0.1",
                million,
                "(wanted 0.15 %)",
                asked,
                factor,
                min(seeds, 2),
                engine,
            )


def others(pool, seeds):
    """Other costs and weights."""
    for name, make in (("linear terms", with_linear_terms), ("heavy tails", with_heavy_tails)):
        for factor in (3.0, 1.0 / 3.0):
            row(pool, f"{name}, epsilon 1, 10,000 rounds", make, "", {"rounds": 10_000}, factor, seeds)
    found = row(
        pool,
        "weights 1 to 200, epsilon 8, 1,000 rounds",
        with_weights,
        "",
        {"rounds": 1_000, "budget": 8.0},
        1.0,
        seeds,
    )
    noise = found.outlook.noise
    for weight in (1, 20, 200):
        print(f"    weight {weight}: total epsilon {total_epsilon_noisy_sum(noise, 1_000, 1e-6, weight).epsilon:.4f}")


def errors_of_one(task):
    """The errors of one run's turnout."""
    problem, server, noise, rounds, schedule, seed = task
    run = simulate(
        problem, Classical(), server, rounds, seed=seed, start=START, noise=noise, schedule=schedule, keep=LAST
    )
    return np.square(run.participants - run.capacity)


def settled(squares, last):
    """The round from which the error stays within 1.5 times the last one; means over some 12 % of the rounds so far."""
    rounds, sums = np.arange(len(squares)), np.concatenate([[0.0], np.cumsum(squares)])
    width = np.maximum(2, (0.06 * rounds).astype(int))
    low, high = np.maximum(0, rounds - width), np.minimum(len(squares), rounds + width + 1)
    beyond = np.flatnonzero(np.sqrt((sums[high] - sums[low]) / (high - low)) > 1.5 * last)
    return int(beyond[-1]) + 1 if len(beyond) else 0


def changes(pool, seeds):
    """Half of the clients leave at half-time, or the capacity halves: settled again within the forecast's time?"""
    leaving, halving = Schedule(leave={5_000: slice(600, 1_200)}), Schedule(capacity={5_000: 300.0})
    for name, share, told, schedule in (
        ("half of the clients leave (C = 400)", 1 / 3, {"staying": slice(0, 600)}, leaving),
        ("the capacity halves (600 to 300)", 1 / 2, {"capacity": 300.0}, halving),
    ):
        guess = Problem(papers(1_000).costs, 1_200 * share)
        found = plan(Goal(guess, 10_000, budget=1.0, observer="noisy-sum", guessed=True))
        server, noise = found.outlook.controller, found.outlook.noise
        forecast = predict_change(guess, Classical(), server, noise, at=5_000, rounds=5_000, start=START, **told)
        tasks = [
            (Problem(papers(200 + seed).costs, 1_200 * share), server, noise, 10_000, schedule, seed)
            for seed in range(4 * seeds)
        ]
        squares = np.mean(list(pool.map(errors_of_one, tasks)), axis=0)[5_000:]
        seen = settled(squares, forecast.error[-1])
        print(
            f"{name:40} settled again after {seen:,} rounds, forecast {forecast.settling_rounds};"
            f" error in the 5,000 rounds after it {math.sqrt(squares.mean()):.1f}, forecast {forecast.spread:.1f}",
            flush=True,
        )


def forecast(pool, seeds):
    """Forecast of spread and settling time over a grid of (clients, epsilon, rounds)."""
    print("clients  epsilon  rounds  price   spread: runs, forecast, off   settled: runs, forecast, off")
    for clients, rounds in ((300, 1_000), (1_200, 1_000), (1_200, 10_000), (6_000, 1_000), (6_000, 10_000)):
        for budget in (0.5, 1.0, 4.0):
            for wrong in (1.0, 3.0, 1.0 / 3.0):
                problem = papers(7, clients)
                noise = Goal(problem, rounds, budget=budget, observer="noisy-sum").noise(budget)
                server = tune_floor(problem, Classical(), noise, rounds).controller()
                server = type(server)(server.floor, wrong * server.initial, server.early)
                told = predict(problem, Classical(), rounds, server, start=START, noise=noise).errors
                tasks = [(problem, server, noise, rounds, None, 500 + seed) for seed in range(seeds)]
                squares = np.mean(list(pool.map(errors_of_one, tasks, chunksize=2)), axis=0)
                spread = math.sqrt(squares[told.settling_rounds :].mean())
                early = max(60, 4 * told.settling_rounds)
                tasks = [(problem, server, noise, early, None, 900 + seed) for seed in range(10 * seeds)]
                curve = np.mean(list(pool.map(errors_of_one, tasks, chunksize=10)), axis=0)
                seen = settled(curve, told.error[-1])
                cells = (
                    f"{clients:7,} {budget:8} {rounds:7,} {wrong:6.2f}   {spread:8.2f} {told.spread:8.2f}",
                    f"{100 * (told.spread / spread - 1):+6.1f} %   {seen:5} {told.settling_rounds:5}",
                    f"{100 * (told.settling_rounds / max(seen, 1) - 1):+6.0f} %",
                )
                print(" ".join(cells), flush=True)


PARTS = {"budgets": budgets, "others": others, "changes": changes, "forecast": forecast, "crowd": crowd}


def main():
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    with ProcessPoolExecutor() as pool:
        for name in given.part:
            print(f"\n{name}: {PARTS[name].__doc__}", flush=True)
            PARTS[name](pool, given.seeds)


if __name__ == "__main__":
    main()
