"""`turnout sweep`: many runs from one file, with one table and one page about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli import choices
from turnout.errors import FileProblem, MissingExtra

if TYPE_CHECKING:
    from turnout.sweep import Design, Results

TABLE, PAGE = "table.csv", "summary.html"

_FIRST = 5  # runs that a dry run shows


def sweep(
    design: Annotated[Path, typer.Argument(help="A TOML file: a run, and which settings vary.", show_default=False)],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="A folder; or a .csv or .parquet file in it, for the table."),
    ] = Path("results/sweep"),
    jobs: Annotated[int | None, typer.Option(help="The most runs at a time.", show_default="all cores")] = None,
    on: Annotated[
        str,
        typer.Option(
            help="cores, or ray: the cluster that RAY_ADDRESS names.", autocompletion=choices.one_of("cores", "ray")
        ),
    ] = "cores",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be run, and run nothing.")] = False,
    as_json: choices.AsJson = False,
) -> None:
    """Run a grid or a random design of settings. Finished runs are kept, and never run again.

    [bold]Example:[/bold] turnout sweep examples/sweep.toml --output results/sweep
    """
    from turnout.files import check_writable
    from turnout.sweep import SUFFIXES, check_suffix, read_design, results_so_far

    is_table = output.suffix in SUFFIXES
    folder, table = (output.parent, check_suffix(output)) if is_table else (output, output / TABLE)
    plan = read_design(design)
    if dry_run:
        _say_plan(plan, as_json)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileProblem(f"{folder}: cannot be written ({error.strerror}): choose another folder") from error
    check_writable(table)
    stopped = False
    try:
        results = _go(plan, folder, jobs, on, as_json)
    except KeyboardInterrupt:
        stopped, results = True, results_so_far(plan, folder)
    _report(results, results.save(table), _page(results, design, folder / PAGE), stopped, as_json)
    if stopped:
        raise typer.Exit(130)


def _say_plan(plan: Design, as_json: bool) -> None:
    """How many runs there are, and the first few."""
    first = [run.point for run in plan.runs[:_FIRST]]
    if as_json:
        typer.echo(json.dumps({"runs": len(plan.runs), "varied": plan.varied, "first": first}))
        return
    typer.echo(f"{len(plan.runs):,} runs, which differ in {', '.join(plan.varied)}; the first:")
    for point in first:
        typer.echo("  " + "  ".join(f"{name} = {json.dumps(value, default=str)}" for name, value in point.items()))


def _go(plan: Design, folder: Path, jobs: int | None, on: str, as_json: bool) -> Results:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from turnout.sweep import sweep as run_all

    console = Console(stderr=True)
    columns = (TextColumn("sweeping"), BarColumn(), MofNCompleteColumn(), TextColumn("runs"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=as_json or not console.is_terminal) as bar:
        task: Any = None

        def say(done: int, total: int) -> None:
            nonlocal task
            if task is None:  # the first time: what was done before says nothing about the time left
                task = bar.add_task("runs", total=total, completed=done)
            bar.update(task, completed=done)

        return run_all(plan, folder, jobs=jobs, on=on, progress=say)


def _page(results: Results, design: Path, path: Path) -> Path | None:
    """The summary page; none without the library that draws, which the table does not need."""
    from turnout.report import sweep_page

    try:
        return sweep_page(results, design.stem).save(path)
    except MissingExtra:
        return None


def _report(results: Results, table: Path, page: Path | None, stopped: bool, as_json: bool) -> None:
    done, failed = len(results.rows), len(results.failed)
    if as_json:
        facts = {"runs": results.runs, "done": done, "failed": failed, "seconds_of_runs": results.seconds}
        files = {"table": str(table), "page": None if page is None else str(page)}
        typer.echo(json.dumps(facts | files | {"interrupted": stopped}))
        return
    if stopped:
        typer.echo(f"interrupted after {done:,} of {results.runs:,} runs; the same command resumes")
    else:
        typer.echo(f"{done:,} runs done" + (f", of which {failed:,} failed (column error)" if failed else ""))
    typer.echo(f"table {table}")
    typer.echo(f"page {page}" if page else "no page: it needs plotly, pip install 'turnout[lab]'")
