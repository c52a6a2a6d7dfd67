"""Draw docs/images/frontier.png, and write the tables of docs/frontier.md.

python tools/frontier_picture.py
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turnout import paper_population
from turnout.paper import panels
from turnout.plan import frontier
from turnout.privacy import OBSERVERS
from turnout.report import FORBIDDEN, LOWEST, PALETTE, frontier_rows, heading

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


def markdown(facts: Mapping[str, Any]) -> str:
    """The table as Markdown."""
    header, rows = frontier_rows(facts)
    body = [header, ["---:"] * len(header), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in body)


def title(facts: Mapping[str, Any]) -> str:
    """Against whom, and what must hold first, in lines that fit a panel."""
    return heading(facts).replace(": against", ":\nagainst").replace("Against", "\nAgainst")


def panel(axis: Any, facts: Mapping[str, Any]) -> None:
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


def main() -> None:
    """Compute, draw, and write the tables into the document."""
    problem = paper_population(seed=0).problem(600)
    found = [frontier(problem, ROUNDS, DELTA, observer).facts() for observer in OBSERVERS]
    with panels(DOCS / "images", "frontier", 2, width=4.9, height=3.9) as axes:
        for axis, facts in zip(axes, found, strict=True):
            panel(axis, facts)
        axes[0].set_ylabel("cost above the optimum")
    (DOCS / "images" / "frontier.svg").unlink()
    page = DOCS / "frontier.md"
    text = page.read_text(encoding="utf-8")
    for facts in found:
        begin = f"<!-- table: {facts['observer']}, by tools/frontier_picture.py -->\n"
        before, rest = text.split(begin)
        text = before + begin + markdown(facts) + "<!-- end -->\n" + rest.split("<!-- end -->\n", 1)[1]
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
