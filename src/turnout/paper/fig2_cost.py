"""Fig. 2 (label fig3-single): the absolute aggregate cost difference over time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from turnout.paper.runs import Numbers
from turnout.paper.settings import CLASSICAL
from turnout.paper.sources import forecasts, seeds
from turnout.paper.store import Store
from turnout.paper.style import COLOURS, LABELS, band, letter, panels

NAME = "fig2-cost"


def compute(store: Store) -> Numbers:
    """|cost(k) - cost(x*)| of every seed, shape (seeds, checkpoints), and of the forecast.

    Paper: Fig. 2.
    """
    found: Numbers = {}
    last = seeds(store)[CLASSICAL]["cost"][:, -1].mean()  # the paper's x*: where the classical run ends
    for name, runs in seeds(store).items():
        found["rounds"] = runs["rounds"][0]
        best = float(runs["optimum_cost"][0])
        found[f"{name} to the optimum"] = np.abs(runs["cost"] - best)
        found[f"{name} to the classical run"] = np.abs(runs["cost"] - last)
        expected = forecasts(store)[name]
        found[f"{name} forecast rounds"] = expected["rounds"]
        found[f"{name} forecast"] = np.abs(expected["cost"] - best)
    return found


def draw(numbers: Numbers, folder: Path) -> None:
    """The median over seeds with a 95 % band, and the forecast as a dotted line, for both meanings of x*."""
    with panels(folder, NAME, 2, width=4.0, height=3.2) as axes:
        for number, meaning in enumerate(("to the classical run", "to the optimum")):
            panel = axes[number]
            for name, colour in COLOURS.items():
                rounds = numbers["rounds"]
                band(panel, rounds[1:], numbers[f"{name} {meaning}"][:, 1:], colour, LABELS[name])
                if meaning == "to the optimum":
                    later = numbers[f"{name} forecast rounds"] >= rounds[1]
                    panel.plot(
                        numbers[f"{name} forecast rounds"][later],
                        numbers[f"{name} forecast"][later],
                        ":",
                        color="black",
                        linewidth=0.9,
                    )
            panel.set(xscale="log", yscale="log", xlabel="round k", ylim=(0.05, 3000))
            letter(panel, number, f"cost difference {meaning}")
        axes[0].set_ylabel(r"$|\sum f_i(x_i(k)) - \sum f_i(x_i^*)|$")
        axes[0].plot([], [], ":", color="black", label="forecast (b)")
        axes[0].legend(fontsize=7, ncols=3, loc="upper center")
