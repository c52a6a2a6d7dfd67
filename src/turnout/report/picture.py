"""A picture of one run or several in one call: for a script, a notebook, or a machine without a screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from turnout.display import off
from turnout.errors import MissingExtra, check_kind, invalid
from turnout.files import check_writable, whole_file
from turnout.report.run_plots import TAIL, ShownRun, moving_mean, stretches
from turnout.report.traces import focus, look
from turnout.simulation import Trajectory, mechanisms_in_words
from turnout.theory import Forecast

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "grid.linewidth": 0.4,
    "grid.color": "#dddddd",
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "svg.hashsalt": "turnout",  # the same picture gives the same file
}
"""How pictures look in print."""

_LIGHT = {"paper": "#ffffff", "ink": "#1d2329", "muted": "#57616c", "grid": "#e4e7ea"}
_DARK = {"paper": "#14181d", "ink": "#e5e9ed", "muted": "#a0abb7", "grid": "#2a3139"}  # as page.css has them
_DASHES: dict[str, Any] = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
_SUFFIXES = (".png", ".svg", ".pdf")


def plot(
    runs: Trajectory | Sequence[Trajectory] | Mapping[str, Trajectory],
    *,
    forecast: Forecast | None = None,
    path: str | Path | None = None,
    dark: bool = False,
) -> Any:
    """Draw a run, or compare several: turnout against capacity, its spread, the signal, the cost against the optimum.

    Works for whatever the runs kept: without a cost its panel is left out, without a problem the optimum. A notebook
    shows what this returns; a script gives a path, or calls `show()` on what this returns.

    Args:
        runs: one run, several, or several by name; unnamed ones are called by their mechanisms.
        forecast: what `predict(..., rounds=…)` expected, to draw over them.
        path: save it here too: .png, .svg or .pdf.
        dark: light on dark.

    Returns:
        The Matplotlib figure.

    Raises:
        ValueError: no run, or a path that ends in something else.
        FileProblem: the file cannot be written.
        MissingExtra: Matplotlib is not installed.

    Example:
        >>> from turnout import Classical, IntegralController, paper_population, simulate
        >>> run = simulate(paper_population().problem(600), Classical(), IntegralController(0.0075, 0.35), 300)
        >>> [panel.get_title(loc="left") for panel in plot(run).axes]
        ['Turnout of 1,200 clients', 'Turnout at the end', 'Signal', 'Total cost']
    """
    if path is not None and check_writable(path).suffix not in _SUFFIXES:
        raise invalid("path", f"one that ends in {', '.join(_SUFFIXES)}", f"{str(path)!r}", "choose one of these")
    shown = _named(runs)
    try:
        import matplotlib
        from matplotlib import pyplot
    except ImportError:
        raise MissingExtra("plot()", library="matplotlib", extra="lab") from None
    colours = _DARK if dark else _LIGHT
    with matplotlib.rc_context(STYLE | {"axes.axisbelow": True} | _in_colours(colours)):
        panels: Any = [["turnout", "spread"], ["signal", "cost" if _has_cost(shown) else "signal"]]
        if noisy := _is_noisy(shown):
            panels.insert(1, ["seen", "seen"])
        figure = pyplot.figure(figsize=(9.0, 8.2 if noisy else 5.6), dpi=110, layout="constrained")
        if figure.canvas.required_interactive_framework is None:
            pyplot.close(figure)  # no window: a notebook shows what is returned, and nothing piles up
        axes = figure.subplot_mosaic(panels)
        for panel in axes.values():  # said to each: a notebook draws the ticks later, when these settings are gone
            panel.tick_params(colors=colours["muted"], labelsize=9, grid_color=colours["grid"], grid_linewidth=0.4)
        _draw(axes, shown, forecast, colours["ink"])
        _head(figure, shown, colours["ink"])
        if path is not None:
            _save(figure, Path(path))
    return figure


def _named(runs: Trajectory | Sequence[Trajectory] | Mapping[str, Trajectory]) -> list[ShownRun]:
    """The runs by different names, each with its optimum and its look."""
    if isinstance(runs, Trajectory) or not isinstance(runs, Iterable):
        runs = [runs]
    if not isinstance(runs, Mapping):
        names = [_name(run) for run in runs]
        if len(set(names)) < len(names):
            names = [f"{number}: {name}" for number, name in enumerate(names, start=1)]
        runs = dict(zip(names, runs, strict=True))
    if not runs:
        raise invalid("runs", "one or more", 0, "give what simulate returned")
    for run in runs.values():
        _check(run)
    return [ShownRun(name, run, stretches(run), look(index)) for index, (name, run) in enumerate(runs.items())]


def _name(run: Any) -> str:
    """The mechanism and what it was given, such as `paper-coin, beta 3.5`."""
    _check(run)
    return mechanisms_in_words(run.provenance)


def _check(run: object) -> None:
    check_kind("runs", run, Trajectory, "what simulate returned, one or several", "give trajectories")


def _has_cost(runs: Sequence[ShownRun]) -> bool:
    return any(run.trajectory.cost is not None for run in runs)


def _is_noisy(runs: Sequence[ShownRun]) -> bool:
    return any(run.trajectory.seen is not None for run in runs)


def _in_colours(colours: Mapping[str, str]) -> dict[Any, Any]:
    """The settings of Matplotlib that say which colour a thing has."""
    ink = ("text.color", "axes.labelcolor", "axes.titlecolor")
    muted = ("axes.edgecolor", "xtick.color", "ytick.color")
    paper = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    found = dict.fromkeys(paper, colours["paper"]) | {"grid.color": colours["grid"]}
    return found | dict.fromkeys(ink, colours["ink"]) | dict.fromkeys(muted, colours["muted"])


def _draw(axes: Mapping[str, Any], runs: Sequence[ShownRun], forecast: Forecast | None, ink: str) -> None:
    """All panels."""
    _turnout(axes["turnout"], axes["spread"], runs, ink)
    if "seen" in axes:
        _seen(axes["seen"], [run for run in runs if run.trajectory.seen is not None], ink)
    for run in runs:
        _line(axes["signal"], np.arange(run.trajectory.rounds), run.trajectory.signal, run, width=0.9)
        _reference(axes["signal"], run, "price", "optimal price", ink)
        if run.trajectory.cost is not None:
            _line(axes["cost"], run.trajectory.checkpoints, run.trajectory.cost, run)
            _reference(axes["cost"], run, "cost", "optimum", ink)
    axes["signal"].set(title="Signal", xlabel="round", ylabel="Θ")
    if "cost" in axes:
        axes["cost"].set(title="Total cost", xlabel="round")
    for name in {"signal", "cost"} & set(axes):
        view = focus([line.get_ydata() for line in axes[name].lines])
        if view is not None:  # a steep start would flatten all that follows
            axes[name].set_ylim(*view)
        if forecast is not None and forecast.path is not None:
            way, style = forecast.path, {"color": ink, "linestyle": ":", "linewidth": 1.6}
            axes[name].plot(way.rounds, getattr(way, name), label="forecast", **style)
        _legend(axes[name])


def _turnout(over_time: Any, at_the_end: Any, runs: Sequence[ShownRun], ink: str) -> None:
    """The turnout, and the spread of the last rounds; in parts of the capacity where capacities differ."""
    relative = len({run.capacity for run in runs}) > 1
    unit = "% of capacity" if relative else "sum of weights" if any(run.is_weighted for run in runs) else "clients"
    every = [run.trajectory.participants / (run.trajectory.capacity / 100.0 if relative else 1.0) for run in runs]
    ends = [turnout[_end(run) :] for run, turnout in zip(runs, every, strict=True)]
    edges = _edges(np.concatenate(ends), 100.0 / min(run.capacity for run in runs) if relative else 1.0)
    for run, turnout, end in zip(runs, every, ends, strict=True):
        places, mean, window = moving_mean(turnout)
        if window > 1 and len(runs) == 1:  # single rounds of several would hide each other
            over_time.plot(turnout, color=run.look["colour"], linewidth=0.5, alpha=0.4)
        _line(over_time, places, mean, run, width=1.5 if len(runs) == 1 else 1.1)
        x, y = ([0, len(turnout) - 1], [100.0, 100.0]) if relative else run.profile("capacity")
        over_time.plot(x, y, color=ink, linestyle="--", linewidth=1.0)
        share = np.histogram(end, edges)[0] * (100.0 / len(end))
        at_the_end.stairs(share, edges, fill=True, alpha=0.12, color=run.look["colour"])
        at_the_end.stairs(share, edges, linewidth=1.3, color=run.look["colour"], linestyle=_DASHES[run.look["dash"]])
        at_the_end.axvline(y[-1], color=ink, linestyle="--", linewidth=1.0)
    over_time.set_ylim(*_view(every))
    clients = sorted({run.clients for run in runs})
    of = f" of {clients[0]:,} clients" if len(clients) == 1 else ""
    turnout_is = "True turnout" if _is_noisy(runs) else "Turnout"
    over_time.set(title=f"{turnout_is}{of}", xlabel="round", ylabel=unit)
    at_the_end.set(title=f"{turnout_is} at the end", xlabel=unit, ylabel="share of rounds (%)")
    at_the_end.locator_params(axis="x", nbins=5)  # long numbers would run into each other
    for axis in (over_time.yaxis, at_the_end.xaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.10g}".replace("-", "−"))


def _seen(axes: Any, runs: Sequence[ShownRun], ink: str) -> None:
    """The opened sums of runs with noise, and the true turnout among them."""
    for run in runs:
        server = run.trajectory.server
        sums, label = server.seen[server.opened], "opened sums" if len(runs) == 1 else f"opened sums of {run.name}"
        axes.plot(server.opened, sums, color=run.look["colour"], linewidth=0.5, alpha=0.4, label=label)
    for run in runs:
        places, mean, window = moving_mean(run.trajectory.participants)
        style = {"color": ink, "linestyle": _DASHES[run.look["dash"]], "linewidth": 1.2}
        axes.plot(places, mean, label="true turnout" + (", moving mean" if window > 1 else ""), **style)
    unit = "sum of weights" if any(run.is_weighted for run in runs) else "clients"
    axes.set(title="What the server saw: sums with noise", xlabel="round", ylabel=unit)
    _legend(axes)


def _view(every: Sequence[Any]) -> tuple[float, float]:
    """Between which turnouts to draw: all of one run but a steep start, nearly all of several."""
    whole = np.concatenate(every)
    found = focus(every) if len(every) == 1 else None
    low, high = found or np.percentile(whole, [0, 100] if len(every) == 1 else [0.5, 99.5])
    room = 0.0 if found else 0.05 * (high - low) or 1.0
    return float(low - room), float(high + room)


def _end(run: ShownRun) -> int:
    """The first of the last rounds: of a short run its second half, and nothing from before the last change."""
    rounds = run.trajectory.rounds
    return max(rounds - TAIL, rounds // 2, run.stretches[-1].first)


def _edges(ends: Any, unit: float) -> Any:
    """Some 25 bins of whole clients (`unit` is what one counts for): others would look like a comb."""
    low, high = float(np.floor(ends.min() / unit)), float(np.ceil(ends.max() / unit))
    width = max(1.0, np.ceil((high - low + 1.0) / 25.0))
    return (np.arange(low, high + width + 1.0, width) - 0.5) * unit


def _line(axes: Any, x: Any, y: Any, run: ShownRun, width: float = 1.5) -> None:
    axes.plot(x, y, color=run.look["colour"], linestyle=_DASHES[run.look["dash"]], linewidth=width)


def _reference(axes: Any, run: ShownRun, of: str, label: str, ink: str) -> None:
    """The optimum's staircase; once, where runs share it."""
    x, y = run.profile(of)
    values = np.array(y, dtype=np.float64)
    if not np.all(np.isnan(values)):
        axes.plot(x, values, color=ink, linestyle="--", linewidth=1.0, label=label)


def _legend(axes: Any) -> None:
    """What the lines without a colour are, each once."""
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    if once:
        axes.legend(once.values(), once.keys(), fontsize=8)


def _head(figure: Any, runs: Sequence[ShownRun], ink: str) -> None:
    """The legend, with the gap of each run."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=run.look["colour"], linestyle=_DASHES[run.look["dash"]], linewidth=2.2) for run in runs
    ]
    handles.append(Line2D([], [], color=ink, linestyle="--", linewidth=1.0))
    labels = [_reached(run) for run in runs]
    columns = 1 if max(map(len, labels)) > 65 else 2
    figure.legend(handles, [*labels, "capacity"], loc="outside upper left", ncols=columns, fontsize=9)


def _reached(run: ShownRun) -> str:
    return run.name if run.gap is None else f"{run.name}: {off(run.gap / 100.0, run.trajectory.brought, run.capacity)}"


def _save(figure: Any, path: Path) -> None:
    details = {"metadata": {"Date": None}} if path.suffix == ".svg" else {}
    with whole_file(path) as file:
        figure.savefig(file, format=path.suffix[1:], dpi=200, **details)
