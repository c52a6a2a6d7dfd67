"""`turnout plan`: from a goal to settings."""

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

    from turnout.plan import Frontier, Plan
    from turnout.problem import Problem


def plan(
    settings: choices.Settings = None,
    population: choices.PopulationChoice = None,
    clients: choices.Clients = None,
    population_seed: choices.PopulationSeed = None,
    capacity: choices.Capacity = None,
    rounds: Annotated[
        int | None, typer.Option(help="How many rounds it will run.", show_default="the file's, or 1000")
    ] = None,
    devices: Annotated[
        int | None, typer.Option(help="Plan for a fleet of so many devices: what to serve.", show_default=False)
    ] = None,
    costs: Annotated[
        str | None,
        typer.Option(help="Of a fleet: your guess of the owners' costs a of a x^2, from:to.", show_default="1:10"),
    ] = None,
    round_seconds: Annotated[
        float | None, typer.Option(help="Of a fleet: seconds between rounds.", show_default="10")
    ] = None,
    days: Annotated[float | None, typer.Option(help="Of a fleet: how long it will run.", show_default="365")] = None,
    missing: Annotated[
        str | None,
        typer.Option(
            help="Of a fleet: what a silent device counts as, absent or last.",
            show_default=False,
            autocompletion=choices.one_of("absent", "last"),
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(help="The largest total epsilon, over all rounds.", show_default="for a fleet 6, unless --gap"),
    ] = None,
    gap: Annotated[
        float | None, typer.Option(help="The largest cost above the optimum, in percent.", show_default=False)
    ] = None,
    delta: Annotated[float, typer.Option(help="Slack of totals: P(A) <= e^total P'(A) + delta for any event.")] = 1e-6,
    observer: choices.ObserverChoice = "every-report",
    honest: choices.Honest = None,
    guessed: Annotated[bool, typer.Option("--guessed", help="The costs are only a guess.")] = False,
    at_least: Annotated[
        float | None, typer.Option(help="Print the probability that at least so many participate.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a TOML file that simulate takes.", show_default=False)
    ] = None,
    as_json: choices.AsJson = False,
) -> None:
    """Choose a mechanism, its parameters and a server for a privacy budget, an acceptable cost gap, or both.

    With --devices, the plan is for a fleet, and says what to serve and what owners have to allow.

    [bold]Examples:[/bold] turnout plan --budget 6 --rounds 10000 -o plan.toml
    turnout plan --devices 300 --capacity 120 --round-seconds 900 --days 365 -o fleet.toml
    """
    from turnout.cli.plan_fleet import USUAL_BUDGET, Fleet, show_fleet
    from turnout.plan import Goal
    from turnout.plan import plan as make
    from turnout.settings import Table

    choices.check_output(output, ".toml", [path for path in (settings, population and Path(population)) if path])
    if gap is not None and not 0.0 < gap < 100.0:
        raise invalid("--gap", "above 0 and below 100 percent", f"{gap:g}", "no private mechanism has none: try 10")
    fleet = None
    if devices is not None:
        fleet = Fleet(devices, costs, 10.0 if round_seconds is None else round_seconds, days, missing)
        fleet.check(rounds, population or settings or clients, guessed)
        problem, values, rounds = (
            fleet.problem(capacity, population_seed),
            fleet.population(population_seed),
            fleet.rounds,
        )
        budget = USUAL_BUDGET if budget is None and gap is None else budget
    else:
        given = {"--costs": costs, "--round-seconds": round_seconds, "--days": days, "--missing": missing}
        for name, value in given.items():
            if value is not None:
                raise invalid(name, "given with --devices", value, "say how many devices the fleet has")
        problem, values = choices.problem_from(settings, population, clients, population_seed, capacity)
    planned = rounds if rounds is not None else Table(values).whole("rounds", 1000)
    goal = Goal(problem, planned, budget, None if gap is None else gap / 100.0, delta, observer, honest, guessed)
    found = make(goal)
    if fleet is not None:
        show_fleet(fleet, found, output, at_least, as_json)
        return
    facts = summary(found, at_least)
    if output is not None:
        write_settings(output, {"population": values["population"]} | found.settings(), facts)
    if as_json:
        typer.echo(json.dumps(facts))
        return
    _print(found, facts, output)


def summary(found: Plan, at_least: float | None = None) -> dict[str, Any]:
    """A plan as plain numbers and words."""
    goal, outlook = found.goal, found.outlook
    low, high = outlook.band
    facts: dict[str, Any] = {
        "clients": len(goal.problem),
        "capacity": goal.problem.capacity,
        "rounds": goal.rounds,
        "mechanism": found.mechanism.settings(),
        "controller": outlook.controller.settings(),
        "start": {"average": found.start.average, "rounds": found.start.rounds},
        "averaging": {"by": goal.averaging.by},
        "total_epsilon": found.account.epsilon,
        "delta": found.account.delta,
        "against": found.account.against,
        "assumptions": list(found.account.assumptions),
        "account": repr(found.account),
        "cost_gap_percent": 100.0 * outlook.gap,
        "cost_gap_band_percent": [100.0 * low, 100.0 * high],
        "turnout_spread": outlook.forecast.spread,
        "signal": outlook.forecast.signal,
        "settling_rounds": outlook.settling_rounds,
        "others": [_other(offer) for offer in found.others],
    }
    if at_least is not None:
        facts |= {
            "at_least": at_least,
            "chance_of_at_least": outlook.chance_of_at_least(at_least, goal.problem.capacity),
        }
    return facts


def _other(offer: Any) -> dict[str, Any]:
    known = offer.mechanism is not None
    return {
        "name": offer.name,
        "mechanism": offer.mechanism.settings() if known else None,
        "total_epsilon": offer.account.epsilon if known else None,
        "assumptions": list(offer.account.assumptions) if known else [],
        "cost_gap_percent": 100.0 * offer.gap if known else None,
        "rejected_because": offer.against_it,
    }


def _print(found: Plan, facts: dict[str, Any], output: Path | None) -> None:
    from turnout.algorithm import in_words

    outlook = found.outlook
    settled = "" if outlook.settling_rounds is None else f", settled after {outlook.settling_rounds} rounds"
    typer.echo(
        f"for         {facts['clients']:,} clients, capacity {facts['capacity']:,.10g}, {facts['rounds']:,} rounds"
    )
    typer.echo(f"mechanism   {in_words(facts['mechanism'])}")
    typer.echo(f"privacy     {facts['account']}")
    typer.echo(f"controller  {in_words(facts['controller'])}{settled}")
    print_forecast(found, facts)
    print_rejected(facts)
    if output is not None:
        typer.echo(f"saved {output}: turnout simulate {output}")


def print_forecast(found: Plan, facts: dict[str, Any]) -> None:
    """Start, cost and turnout."""
    low, high = facts["cost_gap_band_percent"]
    typer.echo(f"start       a public average of {found.start.average:.3g}, worth {found.start.rounds:g} rounds")
    typer.echo(
        f"cost        {facts['cost_gap_percent']:.2f} % above the optimum (95 % interval: {low:.2f} to {high:.2f} %)"
    )
    typer.echo(f"turnout     {facts['capacity']:,.10g} ± {facts['turnout_spread']:,.1f}")
    if "at_least" in facts:
        often = 100 * facts["chance_of_at_least"]
        typer.echo(f"            at least {facts['at_least']:g} participate in {often:.1f} % of the rounds")


def print_rejected(facts: dict[str, Any]) -> None:
    """The other mechanisms."""
    typer.echo("alternatives rejected")
    for other in facts["others"]:
        typer.echo(f"  {other['name']:<20}{other['rejected_because']}")


def write_settings(path: Path, settings: dict[str, Any], facts: dict[str, Any]) -> None:
    """The settings as TOML, with the forecast as a comment."""
    from turnout.files import whole_file

    lines = [f"# {facts['account']}", f"# expected: {facts['cost_gap_percent']:.2f} % above the optimum"]
    tables = {name: value for name, value in settings.items() if isinstance(value, dict)}
    lines += [f"{name} = {_toml(value)}" for name, value in settings.items() if name not in tables]
    for name, table in tables.items():
        lines += _table(name, table)
    with whole_file(path) as file:
        file.write(("\n".join(lines) + "\n").encode())


def _table(name: str, table: dict[str, Any]) -> list[str]:
    """A table with its subtables; a list of tables (groups of clients) becomes an array of tables."""
    lines = ["", f"[{name}]"]
    lines += [f"{key} = {_toml(value)}" for key, value in table.items() if not _is_tables(value) and value is not None]
    for key, value in table.items():
        for group in value if _is_tables(value) else ():
            lines += ["", f"[[{name}.{key}]]", *(f"{inner} = {_toml(item)}" for inner, item in group.items())]
    return lines


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return json.dumps(value) if isinstance(value, (str, bool, int)) else repr(float(value))


_BOTH = "both"


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
            help="every-report (sees each report), sum (sees each round's total alone, if an aggregator that you trust "
            "hides single reports), or both.",
            autocompletion=choices.one_of(*choices.OBSERVERS, _BOTH),
        ),
    ] = _BOTH,
    honest: choices.Honest = None,
    check: Annotated[int, typer.Option(help="Also simulate every point, with this number of seeds.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a page with the plots to this .html file.")
    ] = None,
    as_json: choices.AsJson = False,
) -> None:
    """Show the cost gap of each mechanism at each total epsilon, and the floor. Ctrl-C keeps what is done.

    [bold]Example:[/bold] turnout frontier --rounds 10000 --observer both -o frontier.html
    """
    from turnout.plan import Goal
    from turnout.privacy import EVERY_REPORT, OBSERVERS, SUM
    from turnout.report import plotly_source
    from turnout.settings import Table

    choices.check_output(output, ".html")
    if output is not None:
        plotly_source()  # says what to install, before any work is done
    if observer not in (*OBSERVERS, _BOTH):
        remedy = "use every-report; sum needs an aggregator that is trusted"
        raise invalid("--observer", "every-report, sum or both", repr(observer), remedy)
    if honest is not None and observer == EVERY_REPORT:
        allowed = "given with --observer sum or both"
        raise invalid("--honest", allowed, honest, "leave it out: this observer sees each report by itself")
    problem, values = choices.problem_from(settings, population, clients, population_seed, capacity)
    planned = rounds if rounds is not None else Table(values).whole("rounds", 10_000)
    asked = OBSERVERS if observer == _BOTH else (observer,)
    stated: dict[str, Any] = {"rounds": planned, "delta": delta, "check": check}
    goals = [stated | {"observer": one, "honest": honest if one == SUM else None} for one in asked]
    for one in goals:
        Goal(problem, planned, 1.0, delta=delta, observer=str(one["observer"]), honest=one["honest"])  # refuses now
    found, stopped = _work(problem, goals, quiet=as_json)
    _say([one.facts() for one in found], output, as_json, stopped)
    if stopped:
        raise typer.Exit(130)


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
    from rich.console import Console

    from turnout.report import frontier_page, heading, notes

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
        console.print(_facts_table(facts))
        for note in notes(facts):
            typer.echo(f"  {note}")
    if stopped:
        typer.echo("interrupted: only the part that was finished")
    if output is not None and found:
        typer.echo(f"saved {output}")


def _facts_table(facts: dict[str, Any]) -> Any:
    """The table for a terminal."""
    from rich.table import Table

    from turnout.report import frontier_rows

    header, rows = frontier_rows(facts)
    table = Table()
    for name in header:
        table.add_column(name.replace("-", "-\n"), justify="right")
    for row in rows:
        table.add_row(*row)
    return table
