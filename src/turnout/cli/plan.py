"""`turnout plan`: from a goal to settings."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli import choices
from turnout.cli.plan_fleet import USUAL_BUDGET, asked_fleet, show_fleet
from turnout.cli.plan_output import noise_in_words, print_forecast, print_rejected, summary, write_settings
from turnout.cli.show import print_table
from turnout.errors import Interrupted, invalid, nearest

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from turnout.plan import Frontier, Plan
    from turnout.problem import Problem


Rounds = Annotated[int | None, typer.Option(help="How many rounds it will run.", show_default="the file's, or 1000")]
Devices = Annotated[
    int | None, typer.Option(help="Plan for a fleet of so many devices: what to serve.", show_default=False)
]
CostRange = Annotated[
    str | None,
    typer.Option("--costs", help="Of a fleet: your guess of the costs a of a x^2, from:to.", show_default="1:10"),
]
RoundSeconds = Annotated[float | None, typer.Option(help="Of a fleet: seconds between rounds.", show_default="10")]
Days = Annotated[float | None, typer.Option(help="Of a fleet: how long it will run.", show_default="365")]
Missing = Annotated[
    str | None,
    typer.Option(
        help="Of a fleet: what a silent device counts as, absent or last.",
        show_default=False,
        autocompletion=choices.one_of("absent", "last"),
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(help="The largest total epsilon, over all rounds.", show_default="for a fleet 6, unless --gap"),
]
Gap = Annotated[float | None, typer.Option(help="The largest cost above the optimum, in percent.", show_default=False)]
Delta = Annotated[float, typer.Option(help="Slack of totals: P(A) <= e^total P'(A) + delta for any event.")]
Guessed = Annotated[bool, typer.Option("--guessed", help="The costs are only a guess.")]
AtLeast = Annotated[
    float | None, typer.Option(help="Print the probability that at least so many participate.", show_default=False)
]
HardLimit = Annotated[
    float | None,
    typer.Option(
        help="For noisy-sum: the largest turnout that may ever do its work; bounds the noise.", show_default=False
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write a TOML file that simulate and serve take.", show_default=False),
]


def plan(
    settings: choices.Settings = None,
    population: choices.PopulationChoice = None,
    clients: choices.Clients = None,
    population_seed: choices.PopulationSeed = None,
    capacity: choices.Capacity = None,
    rounds: Rounds = None,
    devices: Devices = None,
    costs: CostRange = None,
    round_seconds: RoundSeconds = None,
    days: Days = None,
    missing: Missing = None,
    budget: Budget = None,
    gap: Gap = None,
    delta: Delta = 1e-6,
    observer: choices.ObserverChoice = "every-report",
    honest: choices.Honest = None,
    aggregators: choices.Aggregators = None,
    guessed: Guessed = False,
    at_least: AtLeast = None,
    hard_limit: HardLimit = None,
    output: Output = None,
    as_json: choices.AsJson = False,
) -> None:
    """Choose a mechanism, its parameters and a server for a privacy budget, an acceptable cost gap, or both.

    With --devices the plan is for a fleet: it says what to serve, and what owners have to allow.

    [bold]Example:[/bold] turnout plan --budget 6 --rounds 10000 -o plan.toml
    """
    from turnout.plan import Goal
    from turnout.plan import plan as make
    from turnout.settings import Table

    choices.check_output(output, ".toml", [path for path in (settings, population and Path(population)) if path])
    if gap is not None and not 0.0 < gap < 100.0:
        raise invalid("--gap", "above 0 and below 100 percent", f"{gap:g}", "no private mechanism has none: try 10")
    fleet = asked_fleet(devices, costs, round_seconds, days, missing, population_seed)
    if fleet is None:
        if budget is None and gap is None:
            raise ValueError("--budget or --gap is missing: give a total epsilon, a cost gap in percent, or both")
        problem, values = choices.problem_from(settings, population, clients, population_seed, capacity)
    else:
        others = {"--rounds": rounds, "--population": population or settings or clients, "--guessed": guessed}
        fleet.refuse(others | {"--observer": observer == "noisy-sum" and observer})
        problem, values = fleet.problem(capacity)
        budget = USUAL_BUDGET if budget is None and gap is None else budget
    planned = rounds if rounds is not None else Table(values).whole("rounds", 1000)
    share = None if gap is None else gap / 100.0
    found = make(Goal(problem, planned, budget, share, delta, observer, honest, guessed, aggregators or 1, hard_limit))
    if fleet is not None:
        show_fleet(fleet, found, summary(found, at_least), output, as_json)
        return
    facts = summary(found, at_least)
    if output is not None:
        write_settings(output, {"population": values["population"]} | found.settings(), facts)
    if as_json:
        typer.echo(json.dumps(facts))
        return
    _print(found, facts, output)


def _print(found: Plan, facts: dict[str, Any], output: Path | None) -> None:
    from turnout.algorithm import in_words

    outlook = found.outlook
    settled = "" if outlook.settling_rounds is None else f", settled after {outlook.settling_rounds} rounds"
    typer.echo(
        f"for         {facts['clients']:,} clients, capacity {facts['capacity']:,.10g}, {facts['rounds']:,} rounds"
    )
    if outlook.noise is None and "warning" in facts:
        typer.echo(f"note        {facts['warning']}")
    typer.echo(f"mechanism   {in_words(facts['mechanism'])}")
    typer.echo(f"privacy     {facts['account']}")
    if outlook.noise is not None:
        typer.echo(f"noise       {noise_in_words(outlook.noise)}")
    typer.echo(f"controller  {in_words(facts['controller'])}{settled}")
    print_forecast(found, facts)
    print_rejected(facts)
    if output is not None:
        typer.echo(f"saved {output}: turnout simulate {output}")


_ALL = "all"


def frontier(
    settings: choices.Settings = None,
    population: choices.PopulationChoice = None,
    clients: choices.Clients = None,
    population_seed: choices.PopulationSeed = None,
    capacity: choices.Capacity = None,
    rounds: Annotated[int | None, typer.Option(help="How many rounds the totals cover.", show_default="10000")] = None,
    delta: Annotated[float, typer.Option(help="Slack of totals: P(A) <= e^total P'(A) + delta for any event.")] = 1e-6,
    observer: Annotated[
        str,
        typer.Option(
            help="every-report (sees each report); if an aggregator that you trust hides single reports, sum (sees "
            "each round's total alone) or noisy-sum (sees it with noise); or all.",
            autocompletion=choices.one_of(*choices.OBSERVERS, _ALL),
        ),
    ] = _ALL,
    honest: choices.Honest = None,
    crowds: Annotated[
        str | None,
        typer.Option(
            help="For noisy-sum: numbers of such clients, such as 200,1200,12000.",
            show_default="a sixth, all, ten times",
        ),
    ] = None,
    check: Annotated[int, typer.Option(help="Also simulate every point, with this number of seeds.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a page with the plots to this .html file.")
    ] = None,
    as_json: choices.AsJson = False,
) -> None:
    """Show the cost gap of each mechanism at each total epsilon, and the floor. Ctrl-C keeps what is done.

    With noise on the sums it also shows the error of the turnout, which depends on the number of clients.

    [bold]Example:[/bold] turnout frontier --rounds 10000 --observer all -o frontier.html
    """
    from turnout.report import plotly_source
    from turnout.settings import Table

    choices.check_output(output, ".html")
    if output is not None:
        plotly_source()  # says what to install, before any work is done
    _check_asked(observer, honest)
    numbers = _crowds(crowds, observer)
    problem, values = choices.problem_from(settings, population, clients, population_seed, capacity)
    planned = rounds if rounds is not None else Table(values).whole("rounds", 10_000)
    stated: dict[str, Any] = {"rounds": planned, "delta": delta, "check": check}
    goals = [stated | asked for asked in _asked(problem, planned, delta, observer, honest, numbers)]
    found, stopped = _work(problem, goals, quiet=as_json)
    _say([one.facts() for one in found], output, as_json, stopped)
    if stopped:
        raise typer.Exit(130)


def _check_asked(observer: str, honest: int | None) -> None:
    """Refuse an unknown observer, and others that would hide nobody."""
    known = (*choices.OBSERVERS, _ALL)
    if observer not in known:
        remedy = nearest(observer, known, "use every-report; the others need an aggregator that is trusted")
        raise invalid("--observer", "every-report, sum, noisy-sum or all", repr(observer), remedy)
    if honest is not None and observer not in ("sum", _ALL):
        remedy = "leave it out: other clients do not hide a client from this observer"
        raise invalid("--honest", "given with --observer sum or all", honest, remedy)


def _asked(
    problem: Problem, rounds: int, delta: float, observer: str, honest: int | None, crowds: list[int] | None
) -> list[dict[str, Any]]:
    """What differs from observer to observer; what is out of range is refused now, before any work."""
    from turnout.plan import Goal

    goals: list[dict[str, Any]] = []
    for one in choices.OBSERVERS if observer == _ALL else (observer,):
        others = honest if one == "sum" else None
        try:
            Goal(problem, rounds, 1.0, delta=delta, observer=one, honest=others)
        except ValueError as error:
            if observer != _ALL or one != "noisy-sum":
                raise
            typer.echo(f"left out noisy-sum: {error}", err=True)  # the others accept these clients
            continue
        goals.append({"observer": one, "honest": others, "crowds": crowds if one == "noisy-sum" else None})
    return goals


def _crowds(given: str | None, observer: str) -> list[int] | None:
    """The numbers of clients in an option such as 200,1200,12000."""
    if given is None:
        return None
    if observer not in ("noisy-sum", _ALL):
        allowed = "given with --observer noisy-sum or all"
        raise invalid("--crowds", allowed, given, "leave it out: without noise the number of clients hardly matters")
    parts = given.replace(" ", "").split(",")
    numbers = [int(part) if part.isdecimal() else 0 for part in parts]
    if not all(number >= 3 for number in numbers) or numbers != sorted(set(numbers)):
        raise invalid("--crowds", "numbers of clients of at least 3, rising", repr(given), "try 200,1200,12000")
    return numbers


def _work(problem: Problem, goals: list[dict[str, Any]], quiet: bool) -> tuple[list[Frontier], bool]:
    """(the frontiers, one after the other; whether Ctrl-C has stopped it)."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from turnout.plan import growing

    done: list[Frontier] = []
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("starting", total=None)
        try:
            for goal in goals:
                tell = partial(_tell, bar, task, goal["observer"])
                parts = growing(problem, **goal, progress=tell)
                for number, found in enumerate(parts):
                    done[len(done) - (number > 0) :] = [found]
        except (KeyboardInterrupt, Interrupted):
            return done, True
    return done, False


def _tell(bar: Progress, task: TaskID, observer: str, step: str) -> None:
    bar.update(task, description=f"observer {observer}: {step}")


def _say(found: list[dict[str, Any]], output: Path | None, as_json: bool, stopped: bool) -> None:
    from turnout.privacy import shown_delta
    from turnout.report import error_rows, frontier_page, frontier_rows, heading, notes, with_errors

    if output is not None and found:
        frontier_page(found).save(output)
    if as_json:
        saved = None if output is None else str(output)
        typer.echo(json.dumps({"frontiers": found, "output": saved, "interrupted": stopped}))
        return
    for facts in found:
        typer.echo(heading(facts))
        typer.echo(f"cost gap by total epsilon over {facts['rounds']:,} rounds at delta {shown_delta(facts['delta'])}")
        print_table(_table(*frontier_rows(facts)))
        if with_errors(facts):
            typer.echo("error of the turnout by total epsilon: root mean square, of the capacity, once it has settled")
            print_table(_table(*error_rows(facts)))
        for note in notes(facts):
            typer.echo(f"  {note}")
    if stopped:
        typer.echo("interrupted: only the part that was finished")
    if output is not None and found:
        typer.echo(f"saved {output}")


def _table(header: list[str], rows: list[list[str]]) -> Any:
    """For a terminal."""
    from rich.table import Table

    table = Table()
    for name, *cells in zip(header, *rows, strict=True):
        told = name.replace("-", "-\n").replace(": ", ":\n")
        table.add_column(told, justify="right", min_width=max(map(len, (*cells, *told.split())), default=None))
    for row in rows:
        table.add_row(*row)
    return table
