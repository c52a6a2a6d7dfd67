"""The page for a sweep: what was varied, the results, the best settings, and what failed."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from turnout.algorithm import MECHANISMS, Mechanism
from turnout.privacy import provided, shown, shown_delta
from turnout.report.page import Markup, Page, escape
from turnout.report.traces import Look, Trace, band, chart, line, look, points
from turnout.sweep import Results
from turnout.version import __version__

GAP = "cost_gap_percent"
_OWN_GAP = "own_turnout_gap_percent"
KIND = "mechanism.kind"
SEED = "seed"


@dataclass(frozen=True)
class _Group:
    """Rows that share some settings.

    Attributes:
        point: the settings that they share.
        rows: at least one, all without an error.
    """

    point: dict[str, Any]
    rows: list[dict[str, Any]]

    def mean(self, column: str) -> float:
        """The mean of a column; NaN where no row has a value."""
        values = self._values(column)
        return sum(values) / len(values) if values else math.nan

    def error(self, column: str) -> float:
        """The standard error of the mean; NaN of a single row."""
        values = self._values(column)
        return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan

    def one(self, column: str) -> Any:
        """The value that all rows have in a column; None where they differ."""
        values = {row[column] for row in self.rows}
        return values.pop() if len(values) == 1 else None

    def described(self) -> str:
        """The settings that the rows share, in a few words."""
        return described(self.rows[0], list(self.point))

    def _values(self, column: str) -> list[float]:
        return [row[column] for row in self.rows if row[column] is not None]


def grouped(rows: Iterable[dict[str, Any]], names: Sequence[str]) -> list[_Group]:
    """Rows that are equal in these columns together, in the order in which they come.

    Example:
        >>> [len(group.rows) for group in grouped([{"a": 1}, {"a": 2}, {"a": 1}], ["a"])]
        [2, 1]
    """
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return [_Group(dict(zip(names, key, strict=True)), members) for key, members in found.items()]


def differing(results: Results) -> list[str]:
    """The varied settings that do differ from run to run, but for the seed."""
    return [name for name in results.varied if name != SEED and len({row[name] for row in results.rows} - {None}) > 1]


def _is_number(results: Results, name: str) -> bool:
    """Whether a column holds numbers."""
    return results.columns[name] in (int, float)


def _against_whom(rows: Iterable[Mapping[str, Any]]) -> str:
    """The observer of the totals of some rows, and the assumptions of each mechanism.

    Example:
        >>> row = {"mechanism.kind": "memoized", "total_against": "anyone", "total_assumptions": "the sun shines"}
        >>> _against_whom([row, row])
        'against anyone (memoized: if the sun shines)'
    """
    rows = list(rows)
    who = " or ".join(dict.fromkeys(row["total_against"] for row in rows))
    held: dict[str, list[str]] = {}
    for row in rows:
        for one in (row["total_assumptions"] or "").split("; "):
            if one and one not in held.setdefault(row[KIND], []):
                held[row[KIND]].append(one)
    told = "; ".join(f"{kind}: {provided(what).removeprefix(', ')}" for kind, what in held.items() if what)
    return f"against {who}" + (f" ({told})" if told else "")


def described(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """Some settings of a row in a few words; of an epsilon, also for how long it holds.

    Example:
        >>> row = {"mechanism.kind": "clamp", "mechanism.epsilon": 0.5, "mechanism.beta": None, "capacity": 600}
        >>> described(row, list(row))
        'clamp, epsilon 0.5 per report, capacity 600'
    """
    words = []
    for name in names:
        value = row[name]
        if value is None:
            continue
        said = f"{value:,.6g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
        label = name.removeprefix("mechanism.").replace(".", " ")
        if label == "epsilon":
            said += " in total" if MECHANISMS.get(row[KIND], Mechanism).releases_once else " per report"
        words.append(said if name == KIND else f"{label} {said}")
    return ", ".join(words) or "all runs"


_MOST_ON_A_LINE = 60  # on a line; more become dots
_OUTSIDE = "Points far above the others are outside the view: a double click shows them."
_LOGARITHMIC = 20.0  # an axis whose ends differ by such a factor

TOTAL = "total_epsilon_over_rounds"


def _add(page: Page, results: Results, names: Sequence[str], looks: dict[str, Look]) -> None:
    """Add a plot for each varied number, and one for what privacy costs."""
    numbers = [name for name in names if _is_number(results, name)]
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
        f"delta {shown_delta(max(row['total_delta'] for row in rows))} (0 where the promise is for a lifetime), "
        f"{_against_whom(rows)}."
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
    shown = _in_sight(heights)
    if shown is not None:
        layout["yaxis"] = {"range": shown}
    return chart(traces, x=title, y="Cost above the optimum (%)", **layout)


def _in_sight(heights: Sequence[float]) -> list[float] | None:
    """The range of an axis that shows most values well, where a few lie far above the rest; else None.

    Example:
        >>> _in_sight([1.0, 2.0, 3.0, 4.0, 1000.0]), _in_sight([1.0, 2.0, 3.0])
        ([-0.12, 6.0], None)
    """
    usual = float(np.percentile(heights, 75))
    lowest = min(*heights, 0.0)
    if usual <= 0.0 or max(heights) <= 8.0 * usual:
        return None
    return [lowest - 0.02 * 1.5 * usual, 1.5 * usual]


def _traces(groups: Sequence[_Group], name: str, kind: str, look: Look, dots: bool) -> list[Trace]:
    x, y = [group.point[name] for group in groups], [group.mean(GAP) for group in groups]
    if dots or len(groups) > _MOST_ON_A_LINE:
        return [points(x, y, kind, colour=look["colour"], size=7.0)]
    errors = [0.0 if math.isnan(group.error(GAP)) else group.error(GAP) for group in groups]
    low, high = ([mean + sign * error for mean, error in zip(y, errors, strict=True)] for sign in (-1, 1))
    drawn = line(x, y, kind, **look) | {"mode": "lines+markers", "marker": {"color": look["colour"], "size": 6}}
    return [band(x, low, high, colour=look["colour"]), drawn]


def _differs(rows: Sequence[dict[str, Any]], name: str) -> bool:
    return len({row[name] for row in rows} - {None}) > 1


_BEST = 10
_MOST_SETTINGS = 200  # lines of a table; the whole is in the results
_MOST_VALUES = 25  # of a setting, in a table of means or in a list of what was tried

_HEADER = ["Runs", "Cost gap (%)", "Turnout", "Spread", "Certified epsilon", "Total epsilon"]
_CAPTION = (
    "Means ± standard errors over the runs. The gap is how far the cost is off the optimum (below 0 only where fewer "
    "participated, over the whole run, than are needed); spread is the turnout's standard deviation from round to "
    "round; total epsilon is over all rounds of the run, at the delta asked for, "
)


def sweep_page(results: Results, name: str) -> Page:
    """A page about a sweep; also about one that is not finished.

    Args:
        results: from `turnout.sweep.run.sweep`.
        name: what to call it, such as the name of its file.
    """
    results, is_noisy = _at_own_turnout(results), any(row[_OWN_GAP] is not None for row in results.rows)
    names = differing(results)
    looks = {kind: look(index) for index, kind in enumerate(dict.fromkeys(row[KIND] for row in results.rows))}
    page = Page(f"Sweep: {name}", f"{_lead(results)}{_OF_NOISE if is_noisy else ''}")
    groups = grouped(results.good, names)
    best = sorted(groups, key=lambda group: abs(group.mean(GAP)))
    page.facts(_facts(results, groups, best))
    page.heading("What was varied").table(["Setting", "Values", "Which"], _varied(results), "What the runs differ in.")
    if best:
        page.heading("Best settings").table(*_best(best, KIND in names))
        _add(page, results, names, looks)
        _add_means(page, results, names, groups)
    if results.failed:
        _add_failures(page, results, names)
    page.heading("Where the numbers come from")
    page.text(
        "The table beside this page has a row for each run, with its seed. The settings below give the same runs again."
    )
    text = json.dumps({"turnout": __version__, **results.settings}, indent=2, ensure_ascii=False, default=str)
    return page.details("The design", Markup(f"<pre>{escape(text)}</pre>"))


_OF_NOISE = (
    " Where the sums have noise, the optimum is the one for the run's own turnout: noise moves the turnout a little, "
    "and with it the cost, which says nothing about the settings."
)


def _at_own_turnout(results: Results) -> Results:
    """The same, where the gap of a run with noise is the one above the optimum of its own turnout."""
    rows = [row if row[_OWN_GAP] is None else row | {GAP: row[_OWN_GAP]} for row in results.rows]
    return replace(results, rows=rows)


def _lead(results: Results) -> str:
    done = f"{len(results.rows):,} runs"
    if len(results.rows) < results.runs:
        done = f"{len(results.rows):,} of {results.runs:,} runs so far"
    return f"{done} of the same algorithm under different settings, each compared with its exact optimum."


def _facts(results: Results, groups: Sequence[_Group], best: Sequence[_Group]) -> list[tuple[str, object, str]]:
    seeds = len({row["seed"] for row in results.rows})
    facts: list[tuple[str, object, str]] = [
        ("Runs", len(results.rows), "" if len(results.rows) == results.runs else f"of {results.runs:,}"),
        ("Settings", len(groups), f"{seeds} seed{'' if seeds == 1 else 's'}"),
        ("Failed", len(results.failed), "see below" if results.failed else ""),
        ("Computing time", _duration(results.seconds), "of all runs, one core each"),
    ]
    if best:
        facts.append(("Closest to the optimum", f"{best[0].mean(GAP):+.2f} %".replace("-", "−"), best[0].described()))
    return facts


def _varied(results: Results) -> list[list[object]]:
    rows: list[list[object]] = []
    for name in [*differing(results), SEED]:
        values = list(dict.fromkeys(row[name] for row in results.rows if row[name] is not None))
        if _is_number(results, name):
            values.sort()
        if len(values) > _MOST_VALUES and _is_number(results, name):
            said = f"{values[0]:,.6g} to {values[-1]:,.6g}"
        else:
            shown = [f"{value:,.6g}" if _is_number(results, name) else str(value) for value in values[:_MOST_VALUES]]
            said = ", ".join(shown) + (", …" if len(values) > _MOST_VALUES else "")
        rows.append([name, len(values), said])
    return rows


def _named(group: _Group) -> Markup:
    return Markup(f'<span style="white-space:nowrap">{escape(group.described())}</span>')


def _line(group: _Group) -> list[object]:
    return [
        len(group.rows),
        _spread(group, GAP, 2),
        _spread(group, "turnout_mean", 1),
        f"{group.mean('turnout_spread'):,.1f}",
        _certified(group),
        _bound(group, TOTAL),
    ]


def _caption(groups: Sequence[_Group]) -> str:
    return f"{_CAPTION}{_against_whom(row for group in groups for row in group.rows)}."


def _best(best: Sequence[_Group], by_kind: bool) -> tuple[list[str], list[list[object]], str]:
    """The best settings of all; of several mechanisms, the best of each."""
    chosen = list(best[:_BEST])
    caption = f"The {len(chosen)} settings whose mean cost is nearest to the optimum. "
    if by_kind:
        first = {group.point[KIND]: group for group in reversed(best)}
        chosen = sorted(first.values(), key=lambda group: abs(group.mean(GAP)))
        caption = "Of each mechanism the setting whose mean cost is nearest to the optimum. "
    return ["Setting", *_HEADER], [[_named(group), *_line(group)] for group in chosen], caption + _caption(best)


def _add_means(page: Page, results: Results, names: Sequence[str], groups: Sequence[_Group]) -> None:
    page.heading("Means and standard errors")
    if len(groups) <= _MOST_SETTINGS:
        page.heading("By setting", 3)
        rows = [[_named(group), *_line(group)] for group in groups]
        page.table(["Setting", *_HEADER], rows, _caption(groups))
    else:
        page.text(f"{len(groups):,} settings are too many to list here: see the table of results.")
    if len(names) < 2:
        return
    for name in names:
        one = grouped([row for row in results.good if row[name] is not None], [name])
        if 1 < len(one) <= _MOST_VALUES:
            if _is_number(results, name):
                one.sort(key=lambda group: group.point[name])
            page.heading(f"By {name}", 3)
            rows = [[group.point[name], *_line(group)[:4]] for group in one]
            page.table(
                [name, *_HEADER[:4]], rows, f"Over all else that was varied, by {name}: means ± standard errors."
            )


def _add_failures(page: Page, results: Results, names: Sequence[str]) -> None:
    page.heading("Failures")
    counts = Counter(row["error"] for row in results.failed)
    first = {row["error"]: row for row in reversed(results.failed)}
    rows = [[error, count, described(first[error], names)] for error, count in counts.most_common(_MOST_VALUES)]
    more = (
        "" if len(counts) <= _MOST_VALUES else f" ({len(counts) - _MOST_VALUES} more kinds are in the table of results)"
    )
    page.table(["Error", "Runs", "The first of them"], rows, f"Runs that gave no numbers, by what they said{more}.")


def _spread(group: _Group, column: str, digits: int) -> str:
    mean, error = group.mean(column), group.error(column)
    if math.isnan(mean):
        return "–"
    said = f"{mean:,.{digits}f}".replace("-", "−")
    return said if math.isnan(error) else f"{said} ± {error:,.{digits}f}"


def _certified(group: _Group) -> str:
    for column, lasts in (
        ("certified_epsilon_per_report", "per report"),
        ("certified_epsilon_lifetime", "for a lifetime"),
    ):
        said = _bound(group, column)
        if said not in ("–", "none"):
            return f"{said} {lasts}"
    return _bound(group, "certified_epsilon_per_report")


def _bound(group: _Group, column: str) -> str:
    """A bound that all rows share; none where there is none, or where they differ."""
    value: Any = group.one(column)
    if value is None:
        return "–"
    return "none" if math.isinf(value) else shown(value)


def _duration(seconds: float) -> str:
    if seconds < 120.0:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200.0 else f"{seconds / 3600:.1f} h"
