"""`turnout report`: saved runs as one page for the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnout.cli import choices
from turnout.errors import invalid


def report(
    runs: Annotated[list[Path], typer.Argument(help="One or more runs that simulate saved.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Write the page to this .html file.")] = Path(
        "report.html"
    ),
) -> None:
    """Show saved runs on one page, side by side, with interactive plots. The file needs no network.

    [bold]Example:[/bold] turnout report run.npz longer.npz -o runs.html
    """
    from turnout.report.page import plotly_source
    from turnout.report.run_report import run_page
    from turnout.simulation.trajectory import Trajectory

    choices.check_output(output, ".html", runs)
    plotly_source()  # says what to install, before any work is done
    names = run_names(runs)
    typer.echo(run_page([Trajectory.load(path) for path in runs], names).save(output))


def run_names(paths: list[Path]) -> list[str]:
    """What to call runs: the shortest that tells them apart, of the file's name and its path.

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
