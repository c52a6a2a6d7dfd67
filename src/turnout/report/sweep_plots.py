"""The plots of a sweep's page: the cost gap against each number that was varied, a line a mechanism."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from turnout.report.page import Page
from turnout.report.sweep_groups import GAP, KIND, Group, against_whom, grouped, is_number
from turnout.report.traces import Look, Trace, band, chart, line, points
from turnout.simulation.sweep_table import Results

_MOST_VALUES = 60  # on a line; more become dots
_OUTSIDE = "What lies far above the rest is out of sight: a double click shows it."
_LOGARITHMIC = 20.0  # an axis whose ends differ by such a factor

TOTAL = "total_epsilon_over_rounds"


def add(page: Page, results: Results, names: Sequence[str], looks: dict[str, Look]) -> None:
    """Add a plot for each varied number, and one for what privacy costs."""
    numbers = [name for name in names if is_number(results, name)]
    if numbers:
        page.heading("The cost gap against each setting")
    for name in numbers:
        rows = [row for row in results.good if row[name] is not None]
        if len({row[name] for row in rows}) < 2:
            continue
        caption, dots = f"How far the cost is off the optimum, by {name}", name in results.drawn
        others = [other for other in names if other not in (name, KIND) and _differs(rows, other)]
        rest = f"means over {', '.join(others)} and the seeds" if others else "means over the seeds"
        caption += "; a dot for each setting." if dots else f"; {rest}. Bands: one standard error."
        chosen = _gap_chart(rows, name, axis_title(rows, name), looks, names if dots else (), dots=dots)
        _add_figure(page, chosen, caption)
    _add_privacy(page, results, names, looks)


def axis_title(rows: Sequence[dict[str, Any]], name: str) -> str:
    """A setting's name; of an epsilon, also for how long it holds."""
    if name.rpartition(".")[2] != "epsilon":
        return name
    lasting = sorted({row[KIND] for row in rows if row["certified_epsilon_lifetime"] is not None})
    if len(lasting) == len({row[KIND] for row in rows}):
        return f"{name} (in total, for a lifetime)"
    return f"{name} (per report{'; of ' + ', '.join(lasting) + ' in total' if lasting else ''})"


def _add_privacy(page: Page, results: Results, names: Sequence[str], looks: dict[str, Look]) -> None:
    rows = [row for row in results.good if row[TOTAL] is not None and math.isfinite(row[TOTAL])]
    if len({row[TOTAL] for row in rows}) < 2:
        return
    without = sorted({row[KIND] for row in results.good} - {row[KIND] for row in rows})
    title = "Total epsilon over the run's rounds"
    caption = (
        "What privacy costs: the cost gap of each setting against all that its reports give away together, at "
        f"delta {max(row['total_delta'] for row in rows):g} (0 where the promise is for a lifetime), "
        f"{against_whom(rows)}."
    )
    if without:
        caption += f" No bound, and so not shown: {', '.join(without)}."
    page.heading("What privacy costs")
    _add_figure(page, _gap_chart(rows, TOTAL, title, looks, names, dots=bool(results.drawn)), caption)


def _add_figure(page: Page, figure: dict[str, Any], caption: str) -> None:
    page.figure(figure, caption + (f" {_OUTSIDE}" if "range" in figure["layout"]["yaxis"] else ""))


def _gap_chart(
    rows: Sequence[dict[str, Any]],
    name: str,
    title: str,
    looks: dict[str, Look],
    settings: Sequence[str] = (),
    *,
    dots: bool = False,
) -> dict[str, Any]:
    """Mean gaps by a column (and by settings, so that each is shown on its own), a line or dots for each mechanism."""
    traces: list[Trace] = []
    for kind in dict.fromkeys(row[KIND] for row in rows):
        groups = grouped([row for row in rows if row[KIND] == kind], [name, *settings])
        traces += _traces(sorted(groups, key=lambda group: group.point[name]), name, kind, looks[kind], dots)
    values = [row[name] for row in rows]
    layout: dict[str, Any] = {"showlegend": True}  # also of a single mechanism: other plots may have more
    if min(values) > 0 and max(values) > _LOGARITHMIC * min(values):
        layout["xaxis"] = {"type": "log", "dtick": "D2" if max(values) < 100 * min(values) else 1}
    heights = [height for trace in traces if trace["showlegend"] for height in trace["y"]]
    shown = in_sight(heights)
    if shown is not None:
        layout["yaxis"] = {"range": shown}
    return chart(traces, x=title, y="Cost above the optimum (%)", **layout)


def in_sight(heights: Sequence[float]) -> list[float] | None:
    """The range of an axis that shows most values well, where a few lie far above the rest; else None.

    Example:
        >>> in_sight([1.0, 2.0, 3.0, 4.0, 1000.0]), in_sight([1.0, 2.0, 3.0])
        ([-0.12, 6.0], None)
    """
    usual = float(np.percentile(heights, 75))
    lowest = min(*heights, 0.0)
    if usual <= 0.0 or max(heights) <= 8.0 * usual:
        return None
    return [lowest - 0.02 * 1.5 * usual, 1.5 * usual]


def _traces(groups: Sequence[Group], name: str, kind: str, look: Look, dots: bool) -> list[Trace]:
    x, y = [group.point[name] for group in groups], [group.mean(GAP) for group in groups]
    if dots or len(groups) > _MOST_VALUES:
        return [points(x, y, kind, colour=look["colour"], size=7.0)]
    errors = [0.0 if math.isnan(group.error(GAP)) else group.error(GAP) for group in groups]
    low, high = ([mean + sign * error for mean, error in zip(y, errors, strict=True)] for sign in (-1, 1))
    drawn = line(x, y, kind, **look) | {"mode": "lines+markers", "marker": {"color": look["colour"], "size": 6}}
    return [band(x, low, high, colour=look["colour"]), drawn]


def _differs(rows: Sequence[dict[str, Any]], name: str) -> bool:
    return len({row[name] for row in rows} - {None}) > 1
