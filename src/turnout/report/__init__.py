"""Pages and pictures of runs, sweeps, attacks and frontiers.

A page is one HTML file that needs no network; `plot` draws with matplotlib.
"""

from turnout.report.attack_report import PRIOR, Lines, attack_page, attack_rows, error_percent, priors
from turnout.report.frontier_report import (
    FORBIDDEN,
    IF_SEEN,
    LOWEST,
    LOWEST_WITH_NOISE,
    error_rows,
    frontier_page,
    frontier_rows,
    heading,
    notes,
    percent,
    with_errors,
)
from turnout.report.page import Markup, Page, escape, plotly_source
from turnout.report.picture import STYLE, plot
from turnout.report.run_report import run_page
from turnout.report.sweep_report import sweep_page
from turnout.report.traces import INK, PALETTE, Trace, band, bars, chart, line

__all__ = [
    "FORBIDDEN",
    "IF_SEEN",
    "INK",
    "LOWEST",
    "LOWEST_WITH_NOISE",
    "PALETTE",
    "PRIOR",
    "STYLE",
    "Lines",
    "Markup",
    "Page",
    "Trace",
    "attack_page",
    "attack_rows",
    "band",
    "bars",
    "chart",
    "error_percent",
    "error_rows",
    "escape",
    "frontier_page",
    "frontier_rows",
    "heading",
    "line",
    "notes",
    "percent",
    "plot",
    "plotly_source",
    "priors",
    "run_page",
    "sweep_page",
    "with_errors",
]


def __dir__() -> list[str]:
    return __all__
