"""Fig. 5 (label fig6-single): the aggregate average participation, and the public signal."""

from __future__ import annotations

from pathlib import Path

from turnout.paper.runs import Numbers
from turnout.paper.settings import SETTINGS
from turnout.paper.sources import forecasts, seeds
from turnout.paper.store import Store
from turnout.paper.style import COLOURS, LABELS, band, letter, panels

NAME = "fig5-signal"


def compute(store: Store) -> Numbers:
    """The sum of the averages and the signal of every seed, and the forecast's signal.

    Paper: Fig. 5.
    """
    found: Numbers = {}
    for name, runs in seeds(store).items():
        found |= {"rounds": runs["rounds"][0], f"{name} aggregate": runs["aggregate"], f"{name} signal": runs["signal"]}
        expected = forecasts(store)[name]
        found |= {f"{name} forecast rounds": expected["rounds"], f"{name} forecast": expected["signal"]}
    return found


def draw(numbers: Numbers, folder: Path) -> None:
    """Medians over seeds with 95 % bands; the forecast as a dotted line."""
    rounds, capacity = numbers["rounds"], SETTINGS["capacity"].value
    with panels(folder, NAME, 2, width=4.0, height=3.0) as axes:
        for name, colour in COLOURS.items():
            band(axes[0], rounds[1:], numbers[f"{name} aggregate"][:, 1:], colour, LABELS[name])
            band(axes[1], rounds, numbers[f"{name} signal"], colour, LABELS[name])
            axes[1].plot(
                numbers[f"{name} forecast rounds"], numbers[f"{name} forecast"], ":", color="black", linewidth=0.9
            )
        axes[0].axhline(capacity, color="black", linewidth=0.8, linestyle="--")
        axes[0].set(xscale="log", xlabel="round k", ylabel=r"$\sum x_i(k)$")
        axes[1].set(xlabel="round k", ylabel=r"signal $\Theta(k)$", ylim=(0, None))
        axes[1].plot([], [], ":", color="black", label="forecast")
        axes[1].legend(fontsize=7, ncols=2, loc="lower right")
        letter(axes[0], 0, "aggregate average participation")
        letter(axes[1], 1, "the public signal")
