"""`turnout frontier`: total epsilon against cost gap for every mechanism, and what no mechanism can have."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli import choices
from turnout.errors import Interrupted, invalid

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from turnout.plan.frontier import Frontier
    from turnout.problem.problem import Problem

_BOTH = "both"


def frontier(
    settings: choices.Settings = None,
    population: choices.PopulationChoice = None,
    clients: choices.Clients = None,
    population_seed: choices.PopulationSeed = None,
    capacity: choices.Capacity = None,
    rounds: Annotated[int | None, typer.Option(help="Totals are over so many rounds.", show_default="10000")] = None,
    delta: Annotated[float, typer.Option(help="Slack of totals: P(A) <= e^total P'(A) + delta for any event.")] = 1e-6,
    observer: Annotated[
        str,
        typer.Option(
            help="every-report (sees each report), sum (sees each round's total alone, if an aggregator that you trust "
            "hides single reports), or both.",
            autocompletion=choices.one_of(*choices.OBSERVERS, _BOTH),
        ),
    ] = _BOTH,
    honest: choices.Honest = None,
    check: Annotated[int, typer.Option(help="Simulate every point with so many seeds.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a page with the plots to this .html file.")
    ] = None,
    as_json: choices.AsJson = False,
) -> None:
    """Show what each mechanism costs at each total epsilon, and what no mechanism can do. Ctrl-C keeps what is done.

    [bold]Example:[/bold] turnout frontier --rounds 10000 --observer both -o frontier.html
    """
    from turnout.plan.wish import Wish
    from turnout.privacy.observer import EVERY_REPORT, OBSERVERS, SUM
    from turnout.report.page import plotly_source
    from turnout.settings import Table

    choices.check_output(output, ".html")
    if output is not None:
        plotly_source()  # says what to install, before any work is done
    if observer not in (*OBSERVERS, _BOTH):
        raise invalid("--observer", "every-report, sum or both", repr(observer), "who is to learn nothing?")
    if honest is not None and observer == EVERY_REPORT:
        allowed = "given with --observer sum or both"
        raise invalid("--honest", allowed, honest, "leave it out: this observer sees each report by itself")
    problem, values = choices.problem_from(settings, population, clients, population_seed, capacity)
    planned = rounds if rounds is not None else Table(values).whole("rounds", 10_000)
    asked = OBSERVERS if observer == _BOTH else (observer,)
    stated: dict[str, Any] = {"rounds": planned, "delta": delta, "check": check}
    wishes = [stated | {"observer": one, "honest": honest if one == SUM else None} for one in asked]
    for one in wishes:
        Wish(problem, planned, 1.0, delta=delta, observer=str(one["observer"]), honest=one["honest"])  # refuses now
    found, stopped = _work(problem, wishes, quiet=as_json)
    _say([one.facts() for one in found], output, as_json, stopped)
    if stopped:
        raise typer.Exit(130)


def _work(problem: Problem, wishes: list[dict[str, Any]], quiet: bool) -> tuple[list[Frontier], bool]:
    """One frontier after the other, with what is being done; what is done when Ctrl-C comes, and whether it came."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from turnout.plan.frontier import growing

    done: list[Frontier] = []
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("starting", total=None)
        try:
            for wish in wishes:
                tell = partial(_tell, bar, task, wish["observer"])
                parts = growing(problem, **wish, progress=tell)
                for number, found in enumerate(parts):
                    done[len(done) - (number > 0) :] = [found]
        except (KeyboardInterrupt, Interrupted):
            return done, True
    return done, False


def _tell(bar: Progress, task: TaskID, observer: str, coming: str) -> None:
    bar.update(task, description=f"observer {observer}: {coming}")


def _say(found: list[dict[str, Any]], output: Path | None, as_json: bool, stopped: bool) -> None:
    from rich.console import Console

    from turnout.report.frontier_report import frontier_page, heading, notes

    if output is not None and found:
        frontier_page(found).save(output)
    if as_json:
        saved = None if output is None else str(output)
        typer.echo(json.dumps({"frontiers": found, "output": saved, "interrupted": stopped}))
        return
    console = Console(highlight=False)
    for facts in found:
        typer.echo(heading(facts))
        typer.echo(f"cost gap by total epsilon over {facts['rounds']:,} rounds at delta {facts['delta']:.3g}")
        console.print(_table(facts))
        for note in notes(facts):
            typer.echo(f"  {note}")
    if stopped:
        typer.echo("interrupted: only what was done by then")
    if output is not None and found:
        typer.echo(f"saved {output}")


def _table(facts: dict[str, Any]) -> Any:
    """The table for a terminal."""
    from rich.table import Table

    from turnout.report.frontier_report import frontier_rows

    header, rows = frontier_rows(facts)
    table = Table()
    for name in header:
        table.add_column(name.replace("-", "-\n"), justify="right")
    for row in rows:
        table.add_row(*row)
    return table
