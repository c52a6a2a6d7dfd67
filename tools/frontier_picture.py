"""Draw docs/images/frontier.png, and write the tables of docs/frontier.md.

python tools/frontier_picture.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnout import paper_population
from turnout.paper import panels
from turnout.plan import frontier
from turnout.privacy import NOISY_SUM, OBSERVERS
from turnout.report import (
    FORBIDDEN,
    IF_SEEN,
    LOWEST,
    LOWEST_WITH_NOISE,
    PALETTE,
    error_rows,
    frontier_rows,
    heading,
    with_errors,
)

DOCS = Path(__file__).resolve().parents[1] / "docs"
ROUNDS, DELTA = 10_000, 1e-6
EDGE = 60_000  # where mechanisms stand that have no total
PLACES = {  # of each line's name, in the plot of each observer
    "every-report": {
        "clamp": (380, 40),
        "randomized-response": (2600, 62),
        "memoized": (13, 0.4),
        "learned-memoized": (14, 1.5),
        "tracking-clamp": (30, 17),
    },
    "sum": {"clamp": (11, 9), "randomized-response": (32, 33), "memoized": (13, 0.4), "learned-memoized": (14, 1.5)},
}
PERCENT = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)  # ticks
CROWDS = (PALETTE[4], PALETTE[0], PALETTE[3])  # colours, from few clients to many
NAMES = ((0.36, 1.15), (0.13, 0.22), (0.105, 0.0155), (4.7, 26))  # places of the crowds' names, and memoized's

Facts = Mapping[str, Any]


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as Markdown."""
    body = [header, ["---:"] * len(header), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in body)


def title(facts: Facts) -> str:
    """Against whom, and what must hold first, in lines that fit a panel."""
    return heading(facts).replace(": against", ":\nagainst").replace("Against", "\nAgainst")


def panel(axis: Any, facts: Facts) -> None:
    """One observer: the lines with their names, the floor, and what has no total."""
    floors = [found for found in facts["floors"] if 100 * found["gap"] > LOWEST]
    if floors:
        x, y = [found["total_epsilon"] for found in floors], [100 * found["gap"] for found in floors]
        axis.fill_between(x, y, LOWEST, color="#e3e3e3", linewidth=0)
        axis.text(
            1.15, 1.1, FORBIDDEN.replace("mechanism ", "\nmechanism\n"), fontsize=7.5, color="#555555", va="center"
        )
    else:
        axis.text(1.15, 0.11, "no floor is known\nagainst this observer", fontsize=8, color="#555555", va="center")
    for colour, curve in zip(PALETTE, facts["curves"], strict=False):
        learned, place = curve["name"].startswith("learned"), PLACES[facts["observer"]].get(curve["name"])
        x = [point["total_epsilon"] for point in curve["points"]]
        y = [100 * point["gap"] for point in curve["points"]]
        look = {"linestyle": (0, (1, 1)), "linewidth": 2.4} if learned else {"linewidth": 1.7}
        axis.plot(x, y, color=colour, **look)
        if place:
            axis.text(*place, curve["name"].replace("learned-", "learned-\n"), color=colour, fontsize=8, va="center")
    axis.axhline(100 * facts["random_gap"], color="#666666", linestyle="--", linewidth=0.9, zorder=1)
    axis.text(2.6 * EDGE, 112, "chosen at random", fontsize=7.5, color="#666666", ha="right", va="bottom")
    for name, gap in facts["promises_nothing"]:
        place = max(100 * gap, 1.3 * LOWEST)
        axis.plot([EDGE], [place], marker="x", color="#222222", markersize=5)
        axis.text(EDGE, 1.2 * place, name.replace(", ", ",\n"), fontsize=7.5, ha="center", va="bottom")
    axis.set(xscale="log", yscale="log", xlim=(0.9, 3 * EDGE), ylim=(LOWEST, 250), title=title(facts))
    ticks = [0.1, 0.3, 1, 3, 10, 30, 100]
    axis.set_yticks(ticks, [f"{tick:g} %" for tick in ticks])
    axis.set_xticks(
        [1, 2, 4, 8, 20, 100, 1000, 10_000, EDGE], ["1", "2", "4", "8", "20", "100", "1,000", "10,000", "none"]
    )
    axis.minorticks_off()
    axis.set_xlabel(f"total epsilon over {ROUNDS:,} rounds, δ = {DELTA:g}")


def with_noise(axis: Any, facts: Facts) -> None:
    """Sums with noise: the cost, and the floor that they go below."""
    x, y = ([found[name] for found in facts["floors"]] for name in ("total_epsilon", "gap"))
    axis.fill_between(x, [100 * gap for gap in y], LOWEST_WITH_NOISE, color="#e3e3e3", linewidth=0)
    axis.text(0.12, 11, IF_SEEN.replace(" if", "\nif"), fontsize=7.5, color="#555555", va="center")
    crowds = with_errors(facts)
    (memoized,) = (curve for curve in facts["curves"] if curve not in crowds)
    names = [f"{curve['clients']:,} clients" for curve in crowds]
    for curve, name, colour, place in zip(
        [*crowds, memoized], [*names, "memoized"], (*CROWDS, PALETTE[2]), NAMES, strict=True
    ):
        x = [point["total_epsilon"] for point in curve["points"]]
        axis.plot(x, [100 * point["gap"] for point in curve["points"]], color=colour, linewidth=1.7)
        axis.text(*place, name, color=colour, fontsize=8)
    axis.axhline(100 * facts["random_gap"], color="#666666", linestyle="--", linewidth=0.9, zorder=1)
    axis.text(8.8, 112, "chosen at random", fontsize=7.5, color="#666666", ha="right", va="bottom")
    axis.set(title=title(facts), ylabel="cost above the optimum", ylim=(LOWEST_WITH_NOISE, 250))
    small_totals(axis, facts)


def errors(axis: Any, facts: Facts) -> None:
    """The turnout's error, and what no mechanism can have."""
    crowds = with_errors(facts)
    for curve, colour in zip(crowds, CROWDS, strict=True):
        x = [point["total_epsilon"] for point in curve["points"]]
        found = [point["turnout"] for point in curve["points"]]
        least, noise, both = ([100 * each[name] for each in found] for name in ("least", "by_noise", "with_coins"))
        axis.fill_between(x, least, LOWEST_WITH_NOISE, color=colour, alpha=0.14, linewidth=0)
        axis.plot(x, both, color=colour, linewidth=1.7)
        axis.plot(x, noise, color=colour, linewidth=1.4, linestyle=(0, (3, 2)))
        axis.text(8.6, both[-1], f"{curve['clients']:,} clients", color=colour, fontsize=8, va="center")
    axis.text(0.105, 0.0125, "no mechanism\ncan be here:\n12,000 clients", fontsize=7.5, color=CROWDS[2])
    axis.text(0.6, 0.115, "1,200 clients", fontsize=7.5, color=CROWDS[1])
    axis.text(2.3, 0.115, "200 clients", fontsize=7.5, color=CROWDS[0])
    axis.plot([], [], color="#555555", linewidth=1.7, label="with the clients' coins")
    axis.plot([], [], color="#555555", linewidth=1.4, linestyle=(0, (3, 2)), label="by the noise alone")
    axis.legend(loc="upper right", fontsize=8, frameon=False)
    axis.set(title="\nThe price: the turnout's error in a round", ylim=(LOWEST_WITH_NOISE, 100))
    axis.set_ylabel("root mean square, of the capacity")
    small_totals(axis, facts)
    axis.set_xlim(0.09, 24)


def small_totals(axis: Any, facts: Facts) -> None:
    """The axes of a panel about sums with noise."""
    totals = [found["total_epsilon"] for found in facts["floors"]]
    axis.set(xscale="log", yscale="log", xlim=(0.09, 9))
    axis.set_yticks(PERCENT, [f"{tick:g} %" for tick in PERCENT])
    axis.set_xticks(totals, [f"{total:g}" for total in totals])
    axis.minorticks_off()
    axis.set_xlabel(f"total epsilon over {ROUNDS:,} rounds, δ = {DELTA:g}")


def draw(found: Sequence[Facts]) -> None:
    """The picture: without noise above, with noise below."""
    *exact, noisy = found
    with panels(DOCS / "images", "frontier", 2, width=5.5, height=4.1, rows=2) as axes:
        for axis, facts in zip(axes, exact, strict=False):
            panel(axis, facts)
        axes[0].set_ylabel("cost above the optimum")
        with_noise(axes[2], noisy)
        errors(axes[3], noisy)
    (DOCS / "images" / "frontier.svg").unlink()


def write(found: Sequence[Facts]) -> None:
    """The tables of the document."""
    tables = {facts["observer"]: frontier_rows(facts) for facts in found} | {"turnout": error_rows(found[-1])}
    page = DOCS / "frontier.md"
    text = page.read_text(encoding="utf-8")
    for name, (header, rows) in tables.items():
        begin = f"<!-- table: {name}, by tools/frontier_picture.py -->\n"
        before, rest = text.split(begin)
        text = before + begin + markdown(header, rows) + "<!-- end -->\n" + rest.split("<!-- end -->\n", 1)[1]
    page.write_text(text, encoding="utf-8")


def main() -> None:
    """Compute, draw, and write the tables into the document."""
    problem = paper_population(seed=0).problem(600)
    found = [frontier(problem, ROUNDS, DELTA, observer).facts() for observer in (*OBSERVERS, NOISY_SUM)]
    draw(found)
    write(found)


if __name__ == "__main__":
    main()
