"""Draw docs/images/gain.png: what the server's gain does to the turnout, for docs/how-it-works.md.

python tools/gain_picture.py
"""

from __future__ import annotations

from pathlib import Path

from turnout import Classical, IntegralController, paper_population, simulate
from turnout.paper import panels
from turnout.report import PALETTE
from turnout.theory import tune

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"
GAINS = (0.0005, 0.004, 0.0075, 0.022)


def main() -> None:
    """The same clients and coins with four gains."""
    problem = paper_population(seed=0).problem(capacity=600)
    largest = tune(problem, Classical()).largest_gain
    with panels(FOLDER, "gain", len(GAINS), width=2.6, height=2.4) as axes:
        for panel, gain in zip(axes, GAINS, strict=True):
            run = simulate(problem, Classical(), IntegralController(gain, 0.35), 150)
            panel.plot(run.participants, color=PALETTE[0], linewidth=0.8)
            panel.axhline(600, color="black", linestyle="--", linewidth=1)
            panel.set(title=f"gain {gain:g}, g = {gain / largest:.2g}", xlabel="round", ylim=(0, 1250))
        axes[0].set_ylabel("turnout")
    (FOLDER / "gain.svg").unlink()


if __name__ == "__main__":
    main()
