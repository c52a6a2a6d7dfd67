"""The page for a sweep: what was varied, what came of it, what is best, and what failed."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from turnout.report import sweep_plots
from turnout.report.page import Markup, Page, escape
from turnout.report.sweep_groups import GAP, KIND, SEED, Group, against_whom, described, differing, grouped, is_number
from turnout.report.traces import look
from turnout.simulation.sweep_table import Results
from turnout.version import __version__

_BEST = 10
_MOST_SETTINGS = 200  # lines of a table; the whole is in the results
_MOST_VALUES = 25  # of a setting, in a table of means or in a list of what was tried

_HEADER = ["Runs", "Cost gap (%)", "Turnout", "Spread", "Certified epsilon", "Total epsilon"]
_CAPTION = (
    "Means ± standard errors over the runs. The gap is how far the cost is off the optimum (below 0 only where fewer "
    "came, over the whole run, than are needed); spread is the turnout's standard deviation from round to round; total "
    "epsilon is over all rounds of the run, at the delta asked for, "
)


def sweep_page(results: Results, name: str) -> Page:
    """A page about a sweep; also about one that is not finished.

    Args:
        results: from `turnout.simulation.sweep.sweep`.
        name: what to call it, such as the name of its file.
    """
    names = differing(results)
    looks = {kind: look(index) for index, kind in enumerate(dict.fromkeys(row[KIND] for row in results.rows))}
    page = Page(f"Sweep: {name}", _lead(results))
    groups = grouped(results.good, names)
    best = sorted(groups, key=lambda group: abs(group.mean(GAP)))
    page.facts(_facts(results, groups, best))
    page.heading("What was varied").table(["Setting", "Values", "Which"], _varied(results), "What the runs differ in.")
    if best:
        page.heading("Best settings").table(*_best(best, KIND in names))
        sweep_plots.add(page, results, names, looks)
        _add_means(page, results, names, groups)
    if results.failed:
        _add_failures(page, results, names)
    page.heading("Where the numbers come from")
    page.text(
        "The table beside this page has a row for each run, with its seed. The settings below give the same runs again."
    )
    text = json.dumps({"turnout": __version__, **results.settings}, indent=2, ensure_ascii=False, default=str)
    return page.details("The design", Markup(f"<pre>{escape(text)}</pre>"))


def _lead(results: Results) -> str:
    done = f"{len(results.rows):,} runs"
    if len(results.rows) < results.runs:
        done = f"{len(results.rows):,} of {results.runs:,} runs so far"
    return f"{done} of the same algorithm under different settings, each compared with its exact optimum."


def _facts(results: Results, groups: Sequence[Group], best: Sequence[Group]) -> list[tuple[str, object, str]]:
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
        if is_number(results, name):
            values.sort()
        if len(values) > _MOST_VALUES and is_number(results, name):
            said = f"{values[0]:,.6g} to {values[-1]:,.6g}"
        else:
            shown = [f"{value:,.6g}" if is_number(results, name) else str(value) for value in values[:_MOST_VALUES]]
            said = ", ".join(shown) + (", …" if len(values) > _MOST_VALUES else "")
        rows.append([name, len(values), said])
    return rows


def _named(group: Group) -> Markup:
    return Markup(f'<span style="white-space:nowrap">{escape(group.described())}</span>')


def _line(group: Group) -> list[object]:
    return [
        len(group.rows),
        _spread(group, GAP, 2),
        _spread(group, "turnout_mean", 1),
        f"{group.mean('turnout_spread'):,.1f}",
        _certified(group),
        _bound(group, sweep_plots.TOTAL),
    ]


def _caption(groups: Sequence[Group]) -> str:
    return f"{_CAPTION}{against_whom(row for group in groups for row in group.rows)}."


def _best(best: Sequence[Group], by_kind: bool) -> tuple[list[str], list[list[object]], str]:
    """The best settings of all; of several mechanisms, the best of each."""
    chosen = list(best[:_BEST])
    caption = f"The {len(chosen)} settings whose mean cost is nearest to the optimum. "
    if by_kind:
        first = {group.point[KIND]: group for group in reversed(best)}
        chosen = sorted(first.values(), key=lambda group: abs(group.mean(GAP)))
        caption = "Of each mechanism the setting whose mean cost is nearest to the optimum. "
    return ["Setting", *_HEADER], [[_named(group), *_line(group)] for group in chosen], caption + _caption(best)


def _add_means(page: Page, results: Results, names: Sequence[str], groups: Sequence[Group]) -> None:
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
            if is_number(results, name):
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


def _spread(group: Group, column: str, digits: int) -> str:
    mean, error = group.mean(column), group.error(column)
    if math.isnan(mean):
        return "–"
    said = f"{mean:,.{digits}f}".replace("-", "−")
    return said if math.isnan(error) else f"{said} ± {error:,.{digits}f}"


def _certified(group: Group) -> str:
    for column, lasts in (
        ("certified_epsilon_per_report", "per report"),
        ("certified_epsilon_lifetime", "for a lifetime"),
    ):
        said = _bound(group, column)
        if said not in ("–", "none"):
            return f"{said} {lasts}"
    return _bound(group, "certified_epsilon_per_report")


def _bound(group: Group, column: str) -> str:
    """A bound that all rows share; none where there is none, or where they differ."""
    value: Any = group.one(column)
    if value is None:
        return "–"
    return "none" if math.isinf(value) else f"{value:,.6g}"


def _duration(seconds: float) -> str:
    if seconds < 120.0:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200.0 else f"{seconds / 3600:.1f} h"
