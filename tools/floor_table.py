"""Write the table of docs/floor.md: the floor, and how close mechanisms with one release come to it.

python tools/floor_table.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.progress import track

from turnout import Problem, SeededCoins, optimum, paper_population
from turnout.algorithm import LearnedMemoized, Mechanism, Memoized, released
from turnout.privacy import floor

PAGE = Path(__file__).resolve().parents[1] / "docs" / "floor.md"
BEGIN, END = "<!-- table: tools/floor_table.py -->\n", "<!-- end of the table -->\n"
TOTALS = (1.0, 2.0, 4.0, 6.0, 8.0)
HEADER = (
    "total epsilon",
    "floor: no gap is below",
    "reached by the best channel",
    "`Memoized`, default levels, price known",
    "`LearnedMemoized`, 1,200 clients",
    "`LearnedMemoized`, 12,000 clients",
)


def mean_gap(problem: Problem, mechanism: Mechanism, seeds: int) -> float:
    """The cost gap where the averages settle on what was released, in parts of the optimum; a mean over seeds."""
    costs = []
    for seed in range(seeds):
        surrogates = released(problem, mechanism, SeededCoins(seed))
        assert surrogates is not None  # these mechanisms release
        costs.append(problem.cost(optimum(Problem(surrogates, problem.capacity)).average))
    return float(np.mean(costs)) / optimum(problem).cost - 1.0


def bounds(epsilon: float) -> list[float]:
    """The floor of the paper's population, and what its best channel reaches."""
    found = floor(paper_population(seed=0).problem(600), epsilon)
    return [found.gap, found.reached]


def usual(epsilon: float, seeds: int = 40) -> float:
    """The gap of `Memoized` with its usual levels, at the optimum's price."""
    problem = paper_population(seed=0).problem(600)
    return mean_gap(problem, Memoized(epsilon, optimum(problem).price), seeds)


def learned(epsilon: float, clients: int, seeds: int) -> float:
    """The gap of a channel and a price learned on the way, from a price three times too high."""
    problem = paper_population(0, clients).problem(clients / 2)
    return mean_gap(problem, LearnedMemoized(epsilon, 3.0 * optimum(problem).price), seeds)


def markdown() -> str:
    """The table as Markdown."""
    rows = [list(HEADER), ["---"] * len(HEADER)]
    for epsilon in track(TOTALS, description="total epsilon"):
        gaps = [*bounds(epsilon), usual(epsilon), learned(epsilon, 1200, 12), learned(epsilon, 12_000, 4)]
        rows.append([f"{epsilon:g}", *(f"{100 * gap:.1f} %" for gap in gaps)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main() -> None:
    """Measure, and write the table into the document."""
    table = markdown()
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(before + BEGIN + table + END + rest.split(END)[1], encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
