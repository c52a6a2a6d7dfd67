"""Fig. 3 (label fig2-single): the paper's mean privacy error over time, and for how many clients it is infinite."""

from __future__ import annotations

from pathlib import Path

from turnout.paper.runs import Numbers
from turnout.paper.settings import CLASSICAL
from turnout.paper.sources import forecasts, seeds
from turnout.paper.store import Store
from turnout.paper.style import COLOURS, LABELS, band, letter, panels

NAME = "fig3-privacy-error"


def compute(store: Store) -> Numbers:
    """The Lemma's value, averaged over clients with intent below 1, and the number of the others.

    Paper: Fig. 3, Lemma IV.1, Theorem IV.3.
    """
    found: Numbers = {}
    for name, runs in seeds(store).items():
        if name != CLASSICAL:  # without a coin it is infinite for everyone
            found |= {"rounds": runs["rounds"][0], name: runs["lemma_epsilon"], f"{name} saturated": runs["saturated"]}
            expected = forecasts(store)[name]
            found |= {f"{name} forecast": expected["limit_lemma_epsilon"]}
    return found


def draw(numbers: Numbers, folder: Path) -> None:
    """Medians over seeds with 95 % bands."""
    with panels(folder, NAME, 2, width=4.0, height=3.0) as axes:
        for name in (name for name in COLOURS if name in numbers):
            band(axes[0], numbers["rounds"][1:], numbers[name][:, 1:], COLOURS[name], LABELS[name])
            axes[0].axhline(float(numbers[f"{name} forecast"]), color="black", linestyle=":", linewidth=0.9)
            band(axes[1], numbers["rounds"][1:], numbers[f"{name} saturated"][:, 1:], COLOURS[name], LABELS[name])
        letter(axes[0], 0, "mean over clients with intent < 1")
        letter(axes[1], 1, "clients with intent 1: value infinite")
        axes[0].set(xlabel="round k", ylabel="the Lemma's ε, per report", ylim=(0, None))
        axes[1].set(xlabel="round k", ylabel="clients of 1,200", ylim=(0, None))
        axes[0].plot([], [], ":", color="black", label="forecast")
        axes[0].legend(fontsize=7, ncols=3)
