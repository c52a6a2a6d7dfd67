"""Draw docs/images/private.png: what privacy costs where a server sees every report, and where it sees sums with noise.

python tools/private_picture.py
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from turnout import Keep, Problem, optimum, paper_population, simulate
from turnout.paper import panels
from turnout.plan import Goal, Plan, not_sensible, plan
from turnout.privacy import EVERY_REPORT, NOISY_SUM, floor
from turnout.report import PALETTE

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"
ROUNDS, SEEDS = 10_000, 20
FIRST_PRICES = (3.0, 1.0 / 3.0)
"""Of the runs behind the dots, in terms of the planned one: nobody knows the price beforehand."""

SETTLED = 500
"""The rounds after which the turnout's error is measured."""

CROWDS = {200: PALETTE[3], 1_200: PALETTE[0], 12_000: PALETTE[2]}
TOTALS = (0.1, 0.14, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0)
DOTS = (0.1, 0.3, 1.0, 3.0, 8.0)
OFF_BY = 25.0
"""Percent: where the turnout is expected to be wrong by more, forecasts mean little, and nothing is drawn."""

RELEASED, RELEASED_DOTS = (0.1, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0), (2.0, 4.0, 6.0, 8.0)
FLOORS = (0.1, 0.3, 0.7, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 7.5, 8.0, 8.3, 8.6, 9.0)
LEAST, MOST = 0.016, 200.0
"""Percent: of the cost that is shown."""


@dataclass(frozen=True)
class Point:
    """One plan, or the mean of some runs: the cost above the optimum and the turnout's error, both in percent.

    Attributes:
        sensible: whether `turnout plan` takes the crowd to be large enough.
    """

    epsilon: float
    cost: float
    error: float
    sensible: bool


def planned(problem: Problem, epsilon: float, observer: str) -> Plan:
    """The best settings against an observer."""
    return plan(Goal(problem, rounds=ROUNDS, budget=epsilon, observer=observer))


def point(found: Plan, gap: float, error: float) -> Point:
    """In percent; the error as a number of clients."""
    capacity, clients = found.goal.problem.capacity, len(found.goal.problem)
    assert found.goal.budget is not None  # as `planned` makes them
    sensible = not not_sensible(found.outlook, clients, capacity)
    return Point(found.goal.budget, 100 * gap, 100 * error / capacity, sensible)


def simulated(found: Plan, first_seed: int) -> Point:
    """The mean of some runs of a plan, each from a first price that is wrong."""
    problem, look = found.goal.problem, found.outlook
    gaps, squares = [], []
    for seed in range(first_seed, first_seed + SEEDS):
        server: Any = look.controller
        server = replace(server, initial=server.initial * FIRST_PRICES[seed % len(FIRST_PRICES)])
        settings: dict[str, Any] = {"start": found.start, "noise": look.noise, "keep": Keep(every=ROUNDS)}
        run = simulate(problem, found.mechanism, server, ROUNDS, seed=seed, **settings)
        own = Problem(problem.costs, float(np.sum(run.average)))  # the capacity that the run's own turnout would meet
        gaps.append(problem.cost(run.average) / optimum(own).cost - 1.0)
        squares.append(float(np.mean(np.square(run.participants[SETTLED:] - problem.capacity))))
    return point(found, float(np.mean(gaps)), math.sqrt(float(np.mean(squares))))


@dataclass(frozen=True)
class Curve:
    """What plans predict, and what runs of some of them had."""

    expected: list[Point]
    simulated: list[Point]


def curve(clients: int, totals: tuple[float, ...], dots: tuple[float, ...], observer: str) -> Curve:
    """The plans of a crowd for some totals against an observer, and runs of some of them."""
    problem = paper_population(0, clients).problem(clients / 2)
    plans = {
        epsilon: planned(problem, epsilon, observer)
        for epsilon in track(totals, description=f"{clients:,} clients, {observer}")
    }
    runs = [simulated(plans[epsilon], SEEDS * number) for number, epsilon in enumerate(dots)]
    expected = [point(found, found.outlook.gap, found.outlook.forecast.spread) for found in plans.values()]
    return Curve(expected, runs)


def draw(axis: Any, found: Curve, what: str, colour: str) -> None:
    """One crowd: a line, dotted where the crowd is too small, and dots on it."""
    shown, dots = ([at for at in points if at.error <= OFF_BY] for points in (found.expected, found.simulated))
    small = [at for at in shown if not at.sensible]
    for points, look in ((shown[len(small) :], "-"), (shown[: len(small) + 1], (0, (1.2, 1.2)))):
        axis.plot([at.epsilon for at in points], [getattr(at, what) for at in points], color=colour, linestyle=look)
    x, y = [at.epsilon for at in dots], [getattr(at, what) for at in dots]
    axis.plot(x, y, linestyle="none", marker="o", markersize=4.5, color=colour, markeredgecolor="white", zorder=4)


def costs(axis: Any, released: Curve, crowds: dict[int, Curve], floors: list[float]) -> None:
    """The left panel: what privacy costs, in both worlds."""
    bounds = [max(LEAST, 100 * gap) for gap in floors]
    axis.fill_between(FLOORS, bounds, LEAST, color="#e9e9e9", linewidth=0)
    axis.plot(FLOORS, bounds, color="#8a8a8a", linewidth=1.0)
    told = {"fontsize": 8.5, "va": "center"}
    axis.text(0.115, 19, "if the server sees\nevery report, no mechanism\ncan be in the grey", color="#555555", **told)
    axis.text(4.9, 42, "it sees\nevery report:\nMemoized", color=PALETTE[1], **told)
    axis.text(0.115, 2.9, "if it sees sums with noise:", color="#222222", **told)
    draw(axis, released, "cost", PALETTE[1])
    for clients, place in ((200, (0.41, 0.9)), (1_200, (0.115, 0.05)), (12_000, (0.115, 0.0225))):
        draw(axis, crowds[clients], "cost", CROWDS[clients])
        axis.text(*place, f"{clients:,}{' clients' if clients == 200 else ''}", color=CROWDS[clients], **told)
    near = next(at.cost for at in crowds[1_200].simulated if at.epsilon == 1.0)
    far = 100 * floors[FLOORS.index(1.0)]
    axis.annotate("", (1.0, 1.2 * near), (1.0, 0.9 * far), arrowprops={"arrowstyle": "->", "color": "#222222"})
    axis.text(1.1, 0.9, f"total epsilon 1:\n{far:.1f} % or more,\nor {near:.2f} %", color="#222222", **told)
    axis.set(yscale="log", ylim=(LEAST, MOST), title="Cost above the optimum of the same turnout")
    ticks = [0.03, 0.1, 0.3, 1, 3, 10, 30, 100]
    axis.set_yticks(ticks, [f"{tick:g} %" for tick in ticks])


def errors(axis: Any, released: Curve, crowds: dict[int, Curve]) -> None:
    """The right panel: how far the turnout is off."""
    told = {"fontsize": 8.5, "va": "center"}
    draw(axis, released, "error", PALETTE[1])
    for clients, place in ((200, (1.0, 10.5)), (1_200, (0.23, 5.7)), (12_000, (0.62, 0.72))):
        draw(axis, crowds[clients], "error", CROWDS[clients])
        axis.text(*place, f"{clients:,} clients", color=CROWDS[clients], **told)
    axis.text(2.2, 3.5, "1,200 with Memoized", color=PALETTE[1], **told)
    axis.text(0.63, 17, "dotted: the crowd is too small", color="#555555", **told)
    axis.set(yscale="log", ylim=(0.5, 30), ylabel="of the capacity",
             title="Error of a round's turnout (root mean square)")  # fmt: skip
    ticks = [0.5, 1, 2, 5, 10, 20]
    axis.set_yticks(ticks, [f"{tick:g} %" for tick in ticks])


def main() -> None:
    """Plan, simulate and draw."""
    crowds = {clients: curve(clients, TOTALS, DOTS, NOISY_SUM) for clients in CROWDS}
    released = curve(1_200, RELEASED, RELEASED_DOTS, EVERY_REPORT)
    problem = paper_population(0, 1_200).problem(600)
    floors = [floor(problem, epsilon).gap for epsilon in track(FLOORS, description="the floor")]
    with panels(FOLDER, "private", 2, width=4.9, height=3.6) as axes:
        costs(axes[0], released, crowds, floors)
        errors(axes[1], released, crowds)
        for axis in axes:
            axis.set(xscale="log", xlim=(0.09, 13), xlabel=f"total epsilon over {ROUNDS:,} rounds, δ = 10⁻⁶")
            ticks = [0.1, 0.3, 1, 2, 4, 8]
            axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axis.minorticks_off()
    (FOLDER / "private.svg").unlink()


if __name__ == "__main__":
    main()
