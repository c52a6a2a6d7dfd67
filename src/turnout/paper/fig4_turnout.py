"""Fig. 4 (label fig5-single): the turnout, over 60 rounds and as histograms of the last 400."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from turnout.paper.runs import Numbers
from turnout.paper.settings import CLASSICAL, SETTINGS, beta_name
from turnout.paper.sources import forecasts, full_runs
from turnout.paper.store import Store
from turnout.paper.style import COLOURS, LABELS, letter, panels

NAME = "fig4-turnout"


def compute(store: Store) -> Numbers:
    """The last rounds of the five runs, and the spread that the forecast gives.

    Paper: Fig. 4.
    """
    found: Numbers = {}
    for name, run in full_runs(store).items():
        found[name] = run["participants"][-SETTINGS["last rounds"].value :]
        found[f"{name} forecast spread"] = forecasts(store)[name]["spread"]
    return found


def draw(numbers: Numbers, folder: Path) -> None:
    """(a) the last 60 rounds, (b) beta = 3.5, (c) classical; the curve is the forecast."""
    capacity, chosen = SETTINGS["capacity"].value, SETTINGS["chosen rounds"].value
    first = SETTINGS["rounds"].value - chosen
    with panels(folder, NAME, 3, width=3.3, height=2.8) as axes:
        for name, colour in COLOURS.items():
            axes[0].plot(
                np.arange(first, first + chosen),
                numbers[name][-chosen:],
                color=colour,
                linewidth=0.9,
                label=LABELS[name],
            )
        axes[0].axhline(capacity, color="black", linewidth=0.8, linestyle="--")
        axes[0].set(xlabel="round k", ylabel="participants", ylim=(capacity - 75, capacity + 105))
        axes[0].legend(fontsize=7, ncols=3, loc="upper center")
        letter(axes[0], 0, f"the last {chosen} rounds")
        for number, name in enumerate((beta_name(3.5), CLASSICAL), start=1):
            turnout, spread = numbers[name], float(numbers[f"{name} forecast spread"])
            edges = np.arange(capacity - 65, capacity + 66, 10)
            axes[number].hist(turnout, edges, color=COLOURS[name], alpha=0.75)
            fine = np.linspace(edges[0], edges[-1], 200)
            height = len(turnout) * 10 / (spread * np.sqrt(2 * np.pi))
            axes[number].plot(fine, height * np.exp(-0.5 * ((fine - capacity) / spread) ** 2), ":k", label="forecast")
            axes[number].axvline(capacity, color="black", linewidth=0.8, linestyle="--")
            axes[number].set(xlabel="participants", ylabel="rounds")
            axes[number].legend(fontsize=7)
            letter(axes[number], number, f"{LABELS[name]}, last {len(turnout)} rounds")
