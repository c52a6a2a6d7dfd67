"""Draw docs/images/overview.png, the picture of the README, from real runs.

python tools/readme_picture.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from turnout import Keep, PaperCoin, Prior, Schedule, SelfTuningController, optimum, paper_population, simulate
from turnout.paper import panels
from turnout.report import PALETTE

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"


def main() -> None:
    """A thousand rounds in which half of the clients leave, and what a thousand cost in which none do."""
    problem = paper_population(seed=0).problem(capacity=300)
    best = optimum(problem)
    random = problem.cost(np.full(1200, 0.25))
    schedule = Schedule(leave={500: np.arange(1, 1200, 2)})
    keep = Keep(every=5)
    settings = (problem, PaperCoin(3.5), SelfTuningController())
    run = simulate(*settings, 1000, start=Prior(0.25, 10), schedule=schedule)
    calm = simulate(*settings, 1000, start=Prior(0.25, 10), keep=keep)
    assert calm.cost is not None
    with panels(FOLDER, "overview", 3, width=3.4, height=2.5) as axes:
        axes[0].plot(run.participants, color=PALETTE[0], linewidth=0.7)
        axes[0].axhline(300, color="black", linestyle="--", linewidth=1)
        axes[0].set(title="turnout (capacity 300 of 1,200)", xlabel="round", ylim=(0, 600))
        axes[1].plot(run.signal, color=PALETTE[1], linewidth=0.9)
        axes[1].set(title="signal: the one public number", xlabel="round", ylim=(0, None))
        for panel in axes[:2]:
            panel.annotate("half of the clients leave", (500, 0.06), xycoords=("data", "axes fraction"), fontsize=7,
                           ha="left", xytext=(4, 0), textcoords="offset points")  # fmt: skip
            panel.axvline(500, color="#999999", linestyle=":", linewidth=1)
        axes[2].plot(calm.checkpoints, calm.cost, color=PALETTE[2], label="clients choose, with the privacy coin")
        axes[2].axhline(random, color="#888888", label="server selects at random")
        axes[2].axhline(best.cost, color="black", linestyle="--", linewidth=1, label="optimum")
        axes[2].set(title="total cost, if nobody leaves", xlabel="round", ylim=(0, 1.6 * random))
        axes[2].legend(fontsize=6.5, loc="upper right")
    (FOLDER / "overview.svg").unlink()


if __name__ == "__main__":
    main()
