"""Fig. 1 (label fig1-single): |x_i(k) - x_i*| for all clients, by beta.

The caption gives beta = 1 for panel (c), the text 1.5: both are drawn. So are both meanings of x*: the
paper's, the classical run's last average, and the exact optimum.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from turnout.paper.runs import Numbers, paper_problem
from turnout.paper.settings import CLASSICAL
from turnout.paper.sources import full_runs
from turnout.paper.store import Store
from turnout.paper.style import COLOURS, LABELS, letter, panels
from turnout.problem import optimum

NAME = "fig1-distance"


def compute(store: Store) -> Numbers:
    """Distances at every checkpoint, shape (checkpoints, clients), for both meanings of x*.

    Paper: Fig. 1.
    """
    runs = full_runs(store)
    exact, classical = optimum(paper_problem()).average, runs[CLASSICAL]["averages"][-1]
    found: Numbers = {"rounds": runs[CLASSICAL]["rounds"]}
    for name, run in runs.items():
        found[f"{name} to the optimum"] = np.abs(run["averages"] - exact)
        found[f"{name} to the classical run"] = np.abs(run["averages"] - classical)
    return found


def draw(numbers: Numbers, folder: Path) -> None:
    """One panel a beta for each meaning of x*; a thin line a client, its quantiles on top."""
    shown = [name for name in COLOURS if name != CLASSICAL]
    with panels(folder, NAME, len(shown), width=2.6, height=2.5, rows=2) as axes:
        for row, meaning in enumerate(("to the classical run", "to the optimum")):
            for column, name in enumerate(shown):
                panel = axes[row * len(shown) + column]
                _panel(panel, numbers["rounds"], numbers[f"{name} {meaning}"], COLOURS[name])
                letter(panel, row * len(shown) + column, f"{LABELS[name]}, {meaning}")
                panel.set_xlabel("round k")
            axes[row * len(shown)].set_ylabel("$|x_i(k) - x_i^*|$")


def _panel(panel: Any, rounds: Any, distances: Any, colour: str) -> None:
    from matplotlib.collections import LineCollection

    # One artist for all clients: matplotlib takes a millisecond for each of its own, several times over.
    lines = [np.column_stack((rounds, distance)) for distance in distances.T]
    clients = LineCollection(lines, colors=colour, linewidths=0.15, alpha=0.25, rasterized=True)
    panel.add_collection(clients, autolim=False)
    for quantile, style in ((50, "-"), (95, "--")):
        panel.plot(
            rounds,
            np.percentile(distances, quantile, axis=1),
            style,
            color="black",
            linewidth=1,
            label=f"{quantile} % of clients",
        )
    panel.set(ylim=(0, 0.4), xlim=(0, rounds[-1]))
    panel.legend(loc="upper right", fontsize=7)
