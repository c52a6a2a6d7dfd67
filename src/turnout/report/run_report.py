"""The page for saved runs: what they reached, how they got there, and from which settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from turnout.display import shortfall
from turnout.errors import invalid
from turnout.report import run_plots
from turnout.report.page import Markup, Page, escape
from turnout.report.run_plots import TAIL, ShownRun, stretches
from turnout.report.traces import look
from turnout.simulation import Trajectory, privacy_in_words

_UNSET = {"start": "all take part in round 0", "averaging.remember": "all rounds"}  # what None means
_NOT_SETTINGS = ("turnout", "python", "numpy", "rounds_asked", "engine", "earlier")  # in the provenance below


def run_page(trajectories: Sequence[Trajectory], names: Sequence[str]) -> Page:
    """A page that shows runs, alone or side by side.

    Works for whatever the runs kept: what was not recorded is left out.

    Args:
        trajectories: the runs; they may differ in length, clients and settings.
        names: one per run, all different.

    Raises:
        ValueError: no run, or not one name for each.

    Example:
        >>> from turnout import Classical, IntegralController, paper_population, simulate
        >>> run = simulate(paper_population().problem(600), Classical(), IntegralController(0.0075, 0.35), 50)
        >>> "Turnout over time" in run_page([run], ["classical"]).html()
        True
    """
    if not trajectories:
        raise invalid("trajectories", "one or more", 0, "name a saved run")
    if len(names) != len(trajectories) or len(set(names)) != len(names):
        raise invalid("names", "different, one for each run", f"{list(names)}", "give each run a name of its own")
    runs = [
        ShownRun(name, trajectory, stretches(trajectory), look(index))
        for index, (name, trajectory) in enumerate(zip(names, trajectories, strict=True))
    ]
    page = Page(_title(names), _lead(runs))
    page.facts(_facts_of_one(runs[0]) if len(runs) == 1 else _facts_of_all(runs))
    if len(runs) > 1:
        page.heading("Results").table(*_results(runs))
    run_plots.add(page, runs)
    page.heading("Settings").table(*_settings(runs))
    page.heading("Privacy").table(*_promises(runs))
    page.heading("Where the numbers come from")
    page.text("Each file holds the versions, the seed and all settings of its run, which give the same run again.")
    for run in runs:
        text = json.dumps(_readable(run.trajectory.provenance), indent=2, ensure_ascii=False)
        page.details(f"Provenance of {run.name}", Markup(f"<pre>{escape(text)}</pre>"))
    return page


def _title(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"The run {names[0]}"
    return f"{len(names)} runs: {', '.join(names)}" if len(names) <= 4 else f"{len(names)} runs"


def _lead(runs: Sequence[ShownRun]) -> str:
    what = (
        "A server needs a number of clients in each round and broadcasts one public signal; each client decides by "
        "itself whether to participate."
    )
    if all(run.best is None for run in runs):
        return f"{what} This page shows the results."
    return f"{what} This page shows the results, against the exact optimum."


def _facts_of_one(run: ShownRun) -> list[tuple[str, object, str]]:
    trajectory, tail = run.trajectory, run.trajectory.last(TAIL)
    changes = len(set(trajectory.capacity.tolist())) > 1
    unit = "sum of weights" if run.is_weighted else "needed in each round"
    price = "" if run.best is None else f"optimal price {run.best.price:.4g}"
    facts: list[tuple[str, object, str]] = [
        ("Rounds", trajectory.rounds, _seed(trajectory)),
        ("Clients", run.clients, "" if run.present == run.clients else f"{run.present:,} at the end"),
        ("Capacity", run.capacity, "at the end" if changes else unit),
        (
            "Turnout" if trajectory.seen is None else "True turnout",
            _count(tail.mean()),
            f"± {_count(tail.std())}, last {len(tail)} rounds",
        ),
    ]
    if (sums := trajectory.last_seen(TAIL)) is not None:
        facts.append(("Server saw", _count(sums.mean()), f"± {_count(sums.std())}, with noise"))
    facts.append(("Final signal", f"{trajectory.signal[-1]:.4g}", price))
    if trajectory.cost is not None:
        off = "of the final averages" if run.gap is None else f"{_percent(run.gap)} off the optimum"
        off += f": {shortfall(trajectory.brought, run.capacity)}".rstrip(": ")
        if trajectory.seen is not None and run.gap is not None:
            off += f"; {_percent(_own_gap(run))} at its own turnout"
        facts.append(("Total cost", _amount(trajectory.cost[-1]), off))
    return facts


def _facts_of_all(runs: Sequence[ShownRun]) -> list[tuple[str, object, str]]:
    """What the runs have in common, and the best of them."""
    facts: list[tuple[str, object, str]] = [
        ("Runs", len(runs), "compared on this page"),
        ("Rounds", _extent([run.trajectory.rounds for run in runs]), ""),
        ("Clients", _extent([run.clients for run in runs]), ""),
        ("Capacity", _extent([run.capacity for run in runs]), "needed in each round"),
    ]
    gaps = [(abs(run.gap), run) for run in runs if run.gap is not None]
    if gaps:
        _, closest = min(gaps, key=lambda found: found[0])
        missed = shortfall(closest.trajectory.brought, closest.capacity)
        told = f"{closest.name}: {missed}" if missed else closest.name
        facts.append(("Closest to the optimum", _percent(closest.gap), told))
    return facts


def _results(runs: Sequence[ShownRun]) -> tuple[list[str], list[list[object]], str]:
    columns: dict[str, list[object]] = {"Run": [_named(run) for run in runs]}
    shared: dict[str, list[float]] = {
        "Rounds": [run.trajectory.rounds for run in runs],
        "Clients": [run.clients for run in runs],
        "Capacity": [run.capacity for run in runs],
    }
    columns |= {name: list(found) for name, found in shared.items() if len(set(found)) > 1}  # else it stands above
    columns |= {
        "Turnout": [_turnout(run) for run in runs],
        "Server saw": [_mean_and_spread(run.trajectory.last_seen(TAIL)) for run in runs],
        "Signal": [f"{run.trajectory.signal[-1]:.4g}" for run in runs],
        "Price": ["–" if run.best is None else f"{run.best.price:.4g}" for run in runs],
        "Cost": ["–" if run.trajectory.cost is None else _amount(run.trajectory.cost[-1]) for run in runs],
        "Optimum": ["–" if run.best is None else _amount(run.best.cost) for run in runs],
        "Gap": [_percent(run.gap) for run in runs],
        "At own turnout": [_percent(_own_gap(run)) for run in runs],
    }
    noisy = any(run.trajectory.seen is not None for run in runs)
    if not noisy:
        del columns["Server saw"], columns["At own turnout"]
    caption = (
        f"Turnout is the mean ± spread of the last {TAIL} rounds, {_SAW if noisy else ''}"
        "signal and cost are those at the end, price and optimum are exact, and the gap is how far the cost is off the "
        "optimum (below 0 only where fewer participated, over the whole run, than are needed)."
    )
    if noisy:
        caption += " At its own turnout, a run is compared with the optimum for as many as participated."
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)], caption


def _named(run: ShownRun) -> Markup:
    """A run's name behind a dot in its colour, the legend of all plots."""
    dot = f'<span class="swatch" style="background:{escape(run.look["colour"])}"></span>'
    return Markup(f'<span class="named">{dot}<span>{escape(run.name)}</span></span>')


def _settings(runs: Sequence[ShownRun]) -> tuple[list[str], list[list[object]], str]:
    """The settings of all runs, those that differ first."""
    columns = [_flat({k: v for k, v in run.trajectory.provenance.items() if k not in _NOT_SETTINGS}) for run in runs]
    keys = list(dict.fromkeys(key for column in columns for key in column))
    rows: list[tuple[bool, list[object]]] = []
    for key in keys:
        values = [column.get(key, "–") for column in columns]
        differs = len(set(values)) > 1
        label = Markup(f"<strong>{escape(_words(key))}</strong>") if differs else _words(key)
        rows.append((not differs, [label, *values]))
    ordered = [row for _, row in sorted(rows, key=lambda found: found[0])]
    caption = "What was asked for." if len(runs) == 1 else "What was asked for; what differs comes first, in bold."
    return ["Setting", *(run.name for run in runs)], ordered, caption


def _flat(values: dict[str, Any], above: str = "") -> dict[str, str]:
    """Nested settings as one level of dotted names, values as words."""
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{above}{name}.")
        elif above != "schedule." or value:  # a schedule is mostly empty
            found[above + name] = _UNSET.get(above + name, "none") if value is None else _value(value)
    return found


def _words(key: str) -> str:
    """A dotted name for people: a mechanism's kind is just "mechanism"."""
    return "engine" if key == "engine_reason" else key.removesuffix(".kind").replace(".", " › ").replace("_", " ")


def _value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.size:,} values, {value.min():g} to {value.max():g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:,.10g}"
    if isinstance(value, (list, tuple)):
        entries = [_entry(entry) for entry in value[:3]]
        more = f"; and {len(value) - 3} more" if len(value) > 3 else ""
        return "; ".join(entries) + more
    return str(value)


def _entry(entry: Any) -> str:
    """One of a list: a change of a schedule, or a level of a mechanism."""
    return ", ".join(f"{name} {part}" for name, part in entry.items()) if isinstance(entry, dict) else _value(entry)


def _readable(value: Any) -> Any:
    """Provenance as JSON takes it; arrays as what they hold."""
    if isinstance(value, dict):
        return {name: _readable(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_readable(part) for part in value]
    return _value(value) if isinstance(value, np.ndarray) else value


def _promises(runs: Sequence[ShownRun]) -> tuple[list[str], list[list[object]], str]:
    rows: list[list[object]] = [[_named(run), privacy_in_words(run.trajectory.provenance)] for run in runs]
    caption = "For any two costs; of a run continued with another mechanism, what the worst of its parts promises."
    return ["Run", "What it promises"], rows, caption


_SAW = "the server saw sums with noise in its place (or, marked –, the turnout itself), "


def _turnout(run: ShownRun) -> str:
    return _mean_and_spread(run.trajectory.last(TAIL))


def _own_gap(run: ShownRun) -> float | None:
    """How far the final cost is off the optimum for as many as participated, in percent."""
    own = run.trajectory.gap_at_own_turnout
    return None if own is None else 100.0 * own


def _mean_and_spread(values: Any) -> str:
    return "–" if values is None else f"{_count(values.mean())} ± {_count(values.std())}"


def _count(value: float) -> str:
    return f"{value:,.1f}" if abs(value) < 1e5 else f"{value:,.0f}"


def _amount(value: float) -> str:
    return f"{value:,.2f}" if abs(value) < 1e5 else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f} %".replace("-", "−")


def _extent(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:,.10g}" if low == high else f"{low:,.10g}–{high:,.10g}"


def _seed(trajectory: Trajectory) -> str:
    """What a run was drawn from; a fleet's has no seed."""
    seed = trajectory.provenance["seed"]
    return "of a fleet" if seed is None else f"seed {seed}"
