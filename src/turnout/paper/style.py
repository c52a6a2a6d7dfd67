"""How the figures look in print: one style for all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from turnout.errors import MissingExtra
from turnout.files import whole_file
from turnout.paper.settings import CLASSICAL, SETTINGS, beta_name
from turnout.report import PALETTE, STYLE

COLOURS = {CLASSICAL: "#444444"} | {
    beta_name(beta): colour for beta, colour in zip(SETTINGS["betas"].value, PALETTE, strict=False)
}
"""The colour of each of the five runs, the same in every figure."""

LABELS = {CLASSICAL: "classical"} | {beta_name(beta): f"β = {beta:g}" for beta in SETTINGS["betas"].value}


@contextmanager
def panels(
    folder: Path, name: str, columns: int, *, width: float = 3.3, height: float = 2.7, rows: int = 1
) -> Iterator[Any]:
    """Axes of a figure with some panels; saved as PNG and SVG when the block ends.

    Args:
        folder: where to save.
        name: of the files.
        columns, rows: how many panels.
        width, height: of one panel, in inches.
    """
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("the paper's figures", library="matplotlib", extra="lab") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context(STYLE | {"figure.dpi": 110, "savefig.dpi": 220}):
        figure, axes = pyplot.subplots(
            rows, columns, figsize=(width * columns, height * rows), layout="constrained", squeeze=False
        )
        yield axes.ravel()
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(folder / f"{name}.png") as file:
            figure.savefig(file, format="png")
        with whole_file(folder / f"{name}.svg") as file:
            figure.savefig(file, format="svg", metadata={"Date": None})
        pyplot.close(figure)


def letter(axes: Any, number: int, title: str) -> None:
    """Title a panel (a), (b), …"""
    axes.set_title(f"({'abcdefgh'[number]}) {title}")


def band(axes: Any, x: Any, runs: Any, colour: str, label: str) -> None:
    """The median of many runs, and between which 95 % of them lie."""
    import numpy as np

    low, middle, high = np.percentile(runs, [2.5, 50, 97.5], axis=0)
    axes.fill_between(x, low, high, color=colour, alpha=0.25, linewidth=0)
    axes.plot(x, middle, color=colour, label=label)
