"""`turnout show`: what a saved run holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli import choices
from turnout.errors import invalid

if TYPE_CHECKING:
    from turnout.simulation import Trajectory


def report(
    runs: Annotated[list[Path], typer.Argument(help="One or more runs that simulate saved.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Write the page to this .html file.")] = Path(
        "report.html"
    ),
) -> None:
    """Show saved runs on one page, side by side, with interactive plots. The file needs no network.

    [bold]Example:[/bold] turnout report run.npz longer.npz -o runs.html
    """
    from turnout.report import plotly_source, run_page
    from turnout.simulation import Trajectory

    choices.check_output(output, ".html", runs)
    plotly_source()  # says what to install, before any work is done
    names = run_names(runs)
    typer.echo(run_page([Trajectory.load(path) for path in runs], names).save(output))


def run_names(paths: list[Path]) -> list[str]:
    """A name for each run: the file's name, or its path where names are equal.

    Raises:
        ValueError: a file is named twice.

    Example:
        >>> run_names([Path("a/one.npz"), Path("a/two.npz")]), run_names([Path("a/x.npz"), Path("b/x.npz")])
        (['one', 'two'], ['a/x.npz', 'b/x.npz'])
    """
    if len(set(paths)) != len(paths):
        raise invalid("runs", "named once each", ", ".join(map(str, paths)), "leave out the second")
    short = [path.stem for path in paths]
    return short if len(set(short)) == len(short) else [path.as_posix() for path in paths]


_LEVELS = "▁▂▃▄▅▆▇█"


def show(
    file: Annotated[Path, typer.Argument(help="A run that simulate saved.", show_default=False)],
    as_json: choices.AsJson = False,
) -> None:
    """Show a saved run.

    [bold]Example:[/bold] turnout show run.npz
    """
    from turnout.simulation import Trajectory

    trajectory = Trajectory.load(file)
    facts = summary(trajectory)
    if as_json:
        typer.echo(json.dumps(facts | {"provenance": _plain(trajectory.provenance)}))
        return
    print_summary(trajectory, facts)


def summary(trajectory: Trajectory) -> dict[str, Any]:
    """The facts of a run, as JSON takes them."""
    from turnout.simulation import privacy_in_words

    tail = trajectory.last(400)
    seen = trajectory.last_seen(400)
    own = None if trajectory.seen is None else trajectory.gap_at_own_turnout
    return {
        "rounds": trajectory.rounds,
        "clients": trajectory.provenance["clients"],
        "capacity": float(trajectory.capacity[-1]),
        "turnout_rounds": len(tail),
        "turnout_mean": float(tail.mean()),
        "turnout_spread": float(tail.std()),
        "seen_mean": None if seen is None else float(seen.mean()),
        "seen_spread": None if seen is None else float(seen.std()),
        "signal": float(trajectory.signal[-1]),
        "averages_total": trajectory.brought,
        "cost": None if trajectory.cost is None else float(trajectory.cost[-1]),
        "optimum_cost": None if trajectory.best is None else trajectory.best.cost,
        "cost_gap_percent": None if trajectory.gap is None else 100.0 * trajectory.gap,
        "cost_gap_at_own_turnout_percent": None if own is None else 100.0 * own,
        "mechanism": _plain(trajectory.provenance["mechanism"]),
        "privacy": privacy_in_words(trajectory.provenance),
        "controller": trajectory.provenance["controller"],
        "noise": trajectory.provenance.get("noise"),
        "seed": trajectory.provenance["seed"],
        "engine": trajectory.provenance["engine_reason"],
    }


def print_summary(trajectory: Trajectory, facts: dict[str, Any]) -> None:
    """The facts of a run, for people."""
    from rich.markup import escape
    from rich.table import Table

    from turnout.algorithm import in_words, noise_from_settings
    from turnout.cli.plan_output import noise_in_words
    from turnout.display import number, off
    from turnout.settings import Table as Settings
    from turnout.simulation import mechanisms_in_words

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    seed = "" if facts["seed"] is None else f", seed {facts['seed']}"  # a fleet's run has none
    table.add_row("run", f"{facts['rounds']:,} rounds of {facts['clients']:,} clients{seed}")
    table.add_row("mechanism", escape(mechanisms_in_words(trajectory.provenance)))
    table.add_row("privacy", escape(facts["privacy"]))
    table.add_row("controller", escape(in_words(facts["controller"])))
    if facts["noise"] is not None:
        table.add_row("noise", noise_in_words(noise_from_settings(Settings(facts["noise"], "noise"))))
    spread = (
        f"{facts['turnout_mean']:,.1f} ± {facts['turnout_spread']:,.1f} over the last {facts['turnout_rounds']} rounds"
    )
    table.add_row("turnout", f"{spread} (capacity {number(facts['capacity'])})")
    table.add_row("", sparkline(trajectory.participants))
    if trajectory.seen is not None:
        table.add_row("server saw", trajectory.seen_in_words())
    table.add_row("signal", number(facts["signal"]))
    table.add_row("", sparkline(trajectory.signal))
    if facts["cost"] is not None:
        gap = facts["cost_gap_percent"]
        own = facts["cost_gap_at_own_turnout_percent"]
        told = "" if gap is None else off(gap / 100, facts["averages_total"], facts["capacity"])
        told += "" if own is None else f"; {own:.2f} % above the optimum of its own turnout"
        told = f"  ({told.removeprefix('; ')})" if told else ""
        table.add_row("total cost", f"{facts['cost']:,.2f}{told}")
    table.add_row("engine", str(facts["engine"]))
    print_table(table)


def print_table(table: Any) -> None:
    """A table on the screen; in a pipe or a file without the spaces that fill its lines.

    It is wider than the screen where a value would be cut.
    """
    from rich.console import Console

    console = Console(highlight=False)
    console.width = max(console.width, Console(width=10_000).measure(table).minimum)
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())


def sparkline(values: Any, width: int = 60) -> str:
    """A row of blocks as high as the values, from their least to their largest.

    Example:
        >>> sparkline([0, 1, 2, 3, 4, 5, 6, 7])
        '▁▂▃▄▅▆▇█'
    """
    import numpy as np

    values = np.asarray(values, dtype=np.float64)
    means = np.array([part.mean() for part in np.array_split(values, min(width, len(values)))])
    low, high = means.min(), means.max()
    levels = np.zeros(len(means)) if high == low else (means - low) / (high - low) * (len(_LEVELS) - 1)
    return "".join(_LEVELS[round(float(level))] for level in levels)


def _plain(value: Any) -> Any:
    """Settings without arrays, for text."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return f"{len(value)} values" if hasattr(value, "dtype") and value.ndim else value
