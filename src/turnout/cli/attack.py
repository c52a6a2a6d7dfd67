"""`turnout attack`: what an observer of every report, or of the sums with noise, can learn about the costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli import choices
from turnout.cli.show import print_table
from turnout.errors import invalid

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from turnout.attack import AttackErrors
    from turnout.simulation import Run

Lines = dict[str, "list[AttackErrors]"]
Target = tuple[str, Callable[..., "Iterator[AttackErrors]"]]


def attack(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(help="Runs that simulate saved; or one TOML file, for a fresh one.", show_default=False),
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="A fresh run of each of the usual mechanisms.")] = False,
    population: choices.PopulationChoice = None,
    clients: choices.Clients = None,
    population_seed: choices.PopulationSeed = None,
    capacity: choices.Capacity = None,
    mechanism: choices.MechanismChoice = None,
    epsilon: choices.Epsilon = None,
    beta: Annotated[float | None, typer.Option(help="The paper coin's parameter.", show_default=False)] = None,
    rounds: Annotated[int | None, typer.Option(help="How many rounds.", show_default="10000")] = None,
    budget: Annotated[
        int | None,
        typer.Option(help="Reports of a fresh run until clients act on public data alone.", show_default="no end"),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the coins.", show_default="0")] = None,
    observer: Annotated[
        str | None,
        typer.Option(
            help="every-report; or, for a run with noise, noisy-sum (sees the opened sums, and knows all reports "
            "of all others).",
            show_default="both for a run with noise",
            autocompletion=choices.one_of("every-report", "noisy-sum"),
        ),
    ] = None,
    changes: choices.Changes = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a page with the plot to this .html file.")
    ] = None,
    as_json: choices.AsJson = False,
) -> None:
    """Recover the costs from signals and reports, as the server could. Ctrl-C keeps what is done.

    Of a run with noise, the server sees the opened sums alone: shown beside what an observer of every report would see.

    [bold]Example:[/bold] turnout attack run.npz

    [bold]Example:[/bold] turnout attack --compare --rounds 3000 -o attack.html
    """
    from turnout.report import plotly_source

    choices.check_output(output, ".html")
    if output is not None:
        plotly_source()  # says what to install, before any work is done
    given: dict[str, Any] = {"population": population, "clients": clients, "population_seed": population_seed}
    given |= {"capacity": capacity, "mechanism": mechanism, "epsilon": epsilon, "beta": beta}
    given |= {"rounds": rounds, "seed": seed, "budget": budget, "changes": changes}
    lines, stopped = _work(_targets(runs or [], compare, given, observer), quiet=as_json)
    _say(lines, output, as_json, stopped)
    if stopped:
        raise typer.Exit(130)


def _targets(paths: list[Path], compare: bool, given: dict[str, Any], observer: str | None) -> list[Target]:
    """What to attack: the saved runs, or fresh ones; those with noise by both observers, unless one is named."""
    from turnout.attack import AttackCase, attack_case, attack_run, usual_cases
    from turnout.cli.show import run_names
    from turnout.simulation import Trajectory

    named = {name for name, value in given.items() if value is not None}
    settings = [path for path in paths if path.suffix == ".toml"]
    if paths and not settings:
        if named or compare:
            raise invalid("saved runs", "given alone", "settings of a fresh run too", "leave out one or the other")
        names = run_names(paths)
        loaded = [Trajectory.load(path) for path in paths]
        each = zip(names, loaded, strict=True)
        return [
            (line, partial(attack_run, run, sees=sees))
            for name, run in each
            for line, sees in _by_observer(name, run.server.noise is not None, observer)
        ]
    if len(paths) > 1:
        raise invalid("files", "saved runs, or one TOML file", f"{len(paths)} files", "attack fresh runs one by one")
    if compare and named & {"mechanism", "epsilon", "beta", "budget"}:
        raise invalid("--compare", "given without a mechanism", "one", "leave out --mechanism, --epsilon and so on")
    run, budget = _fresh(settings[0] if settings else None, given), given["budget"]
    usual = [case for case in usual_cases(run.problem) if case.budget is None or run.noise is None]
    cases = usual if compare else [AttackCase(_name(run, budget), run.mechanism, budget)]
    return [
        (line, partial(attack_case, case, run, sees=sees))
        for case in cases
        for line, sees in _by_observer(
            case.name, run.noise is not None, "every-report" if case.mechanism.releases_once else observer
        )
    ]


def _by_observer(name: str, has_noise: bool, observer: str | None) -> list[tuple[str, str | None]]:
    """(the name of a line, what its observer sees), of a run."""
    if not has_noise:
        return [(name, observer)]
    lines = {"noisy-sum": f"{name}: the sums with noise", "every-report": f"{name}: if every report were seen"}
    if observer is not None and observer not in lines:
        raise invalid("--observer", "every-report or noisy-sum", observer, "choose one of these")
    return [(line, sees) for sees, line in lines.items() if observer in (None, sees)]


def _fresh(settings: Path | None, given: dict[str, Any]) -> Run:
    """A run as `turnout simulate` would make it."""
    from turnout.cli.simulate import with_defaults
    from turnout.settings import Table, read_toml
    from turnout.simulation import run_from_settings

    values = read_toml(settings) if settings else {}
    about = ("population", "clients", "population_seed", "capacity")
    choices.choose_population(values, *(given[name] for name in about))
    if {given["mechanism"], given["epsilon"], given["beta"]} != {None}:
        values["mechanism"] = {"kind": given["mechanism"] or ("clamp" if given["beta"] is None else "paper-coin")}
    put = {"mechanism.epsilon": given["epsilon"], "mechanism.beta": given["beta"], "rounds": given["rounds"]}
    put |= {"seed": given["seed"]} | choices.read_changes(given["changes"] or [])
    for name, value in put.items():
        choices.put(values, name, value)
    return run_from_settings(Table(with_defaults(values), options=choices.OPTIONS))


def _name(run: Run, budget: int | None) -> str:
    """A mechanism in words, with its budget of reports."""
    return run.mechanism.in_words() + ("" if budget is None else f", for {budget} reports")


def _work(targets: list[Target], quiet: bool) -> tuple[Lines, bool]:
    """(the errors of each attack, one after the other; whether Ctrl-C has stopped it)."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    lines: Lines = {}
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        try:
            for name, start in targets:
                task = bar.add_task(name, total=None)
                lines[name] = []  # fills up as errors are found, so that what is done is kept
                lines[name].extend(start(progress=partial(_show, bar, task)))
                bar.update(task, completed=1, total=1)
        except KeyboardInterrupt:
            return {name: found for name, found in lines.items() if found}, True
    return lines, False


def _show(bar: Progress, task: TaskID, done: int, total: int) -> None:
    bar.update(task, completed=done, total=total)


def _say(lines: Lines, output: Path | None, as_json: bool, stopped: bool) -> None:
    if output is not None and lines:
        from turnout.report import attack_page

        attack_page(lines).save(output)
    if as_json:
        facts = {name: [vars(errors) for errors in found] for name, found in lines.items()}
        saved = None if output is None else str(output)
        typer.echo(json.dumps({"median_relative_error": facts, "output": saved, "interrupted": stopped}))
        return
    if lines:
        who = "of every report"
        if any(name.endswith(": the sums with noise") for name in lines):
            who = "of what each line names, of the sums with noise one who knows all other clients' reports"
        typer.echo(f"against an observer {who}: median relative error of the recovered costs, by observed rounds")
        print_table(_table(lines))
    if stopped:
        typer.echo("interrupted: only the part that was finished")
    if output is not None and lines:
        typer.echo(f"saved {output}")


def _table(lines: Lines) -> Any:
    """The table for a terminal."""
    from rich.markup import escape
    from rich.table import Table

    from turnout.report import attack_rows

    header, rows = attack_rows(lines)
    table = Table()
    for number, name in enumerate(header):
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    return table
