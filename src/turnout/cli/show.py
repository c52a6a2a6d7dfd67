"""`turnout show`: what a saved run holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli import choices

if TYPE_CHECKING:
    from turnout.simulation.trajectory import Trajectory

_LEVELS = "▁▂▃▄▅▆▇█"


def show(
    file: Annotated[Path, typer.Argument(help="A run that simulate saved.", show_default=False)],
    as_json: choices.AsJson = False,
) -> None:
    """Show a saved run.

    [bold]Example:[/bold] turnout show run.npz
    """
    from turnout.simulation.trajectory import Trajectory

    trajectory = Trajectory.load(file)
    facts = summary(trajectory)
    if as_json:
        typer.echo(json.dumps(facts | {"provenance": _plain(trajectory.provenance)}))
        return
    print_summary(trajectory, facts)


def summary(trajectory: Trajectory) -> dict[str, Any]:
    """The facts of a run, as JSON takes them."""
    tail = trajectory.last(400)
    return {
        "rounds": trajectory.rounds,
        "clients": trajectory.provenance["clients"],
        "capacity": float(trajectory.capacity[-1]),
        "turnout_rounds": len(tail),
        "turnout_mean": float(tail.mean()),
        "turnout_spread": float(tail.std()),
        "signal": float(trajectory.signal[-1]),
        "cost": None if trajectory.cost is None else float(trajectory.cost[-1]),
        "mechanism": _plain(trajectory.provenance["mechanism"]),
        "privacy": privacy(trajectory.provenance["mechanism"]),
        "controller": trajectory.provenance["controller"],
        "seed": trajectory.provenance["seed"],
        "engine": trajectory.provenance["engine_reason"],
    }


def privacy(mechanism: dict[str, Any]) -> str:
    """What a run's mechanism promises, in words; a mechanism from outside this package promises nothing here."""
    from turnout.algorithm.mechanisms import MECHANISMS, mechanism_from_settings
    from turnout.privacy.certificate import certificate
    from turnout.settings import Table

    if mechanism["kind"] not in MECHANISMS:
        return "unknown: not one of turnout's mechanisms"
    return str(certificate(mechanism_from_settings(Table(mechanism, "mechanism"))))


def print_summary(trajectory: Trajectory, facts: dict[str, Any]) -> None:
    """The facts of a run, for people."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from turnout.algorithm.mechanisms import in_words
    from turnout.display import off

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_row("run", f"{facts['rounds']:,} rounds of {facts['clients']:,} clients, seed {facts['seed']}")
    table.add_row("mechanism", escape(in_words(facts["mechanism"])))
    table.add_row("privacy", escape(facts["privacy"]))
    table.add_row("controller", escape(in_words(facts["controller"])))
    spread = (
        f"{facts['turnout_mean']:.1f} ± {facts['turnout_spread']:.1f} over the last {facts['turnout_rounds']} rounds"
    )
    table.add_row("turnout", f"{spread} (capacity {facts['capacity']:g})")
    table.add_row("", sparkline(trajectory.participants))
    table.add_row("signal", f"{facts['signal']:.4f}")
    table.add_row("", sparkline(trajectory.signal))
    if facts["cost"] is not None:
        gap = f"  ({off(facts['cost_gap_percent'] / 100)})" if "cost_gap_percent" in facts else ""
        table.add_row("total cost", f"{facts['cost']:,.2f}{gap}")
    table.add_row("engine", str(facts["engine"]))
    Console(highlight=False).print(table)


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


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Settings without arrays, for text."""
    return {
        name: _plain(value)
        if isinstance(value, dict)
        else f"{len(value)} values"
        if hasattr(value, "dtype") and value.ndim
        else value
        for name, value in values.items()
    }
