"""`turnout simulate`: run the algorithm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli import choices
from turnout.errors import Interrupted, invalid

if TYPE_CHECKING:
    from turnout.simulation import Run, Trajectory

_LIKE_PAPER = "9 / clients, for half of the paper's clients"


def simulate(
    settings: choices.Settings = None,
    population: choices.PopulationChoice = None,
    clients: choices.Clients = None,
    population_seed: choices.PopulationSeed = None,
    capacity: choices.Capacity = None,
    mechanism: choices.MechanismChoice = None,
    epsilon: choices.Epsilon = None,
    beta: Annotated[float | None, typer.Option(help="The paper coin's parameter.", show_default=False)] = None,
    controller: choices.ControllerChoice = None,
    gain: Annotated[
        float | None, typer.Option(help="How fast the integral server's signal moves.", show_default=_LIKE_PAPER)
    ] = None,
    initial: Annotated[float | None, typer.Option(help="Its first signal.", show_default="0.35")] = None,
    rounds: Annotated[int | None, typer.Option(help="How many rounds.", show_default="10000")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the coins.", show_default="0")] = None,
    engine: choices.EngineChoice = None,
    threads: Annotated[int | None, typer.Option(help="The most threads to use.", show_default="all cores")] = None,
    every: Annotated[int | None, typer.Option(help="Record the cost every so many rounds.", show_default="100")] = None,
    changes: choices.Changes = None,
    resume: choices.Resume = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Save the run to this .npz file.", show_default=False)
    ] = None,
    as_json: choices.AsJson = False,
) -> None:
    """Run the algorithm on a population, from options, a TOML file, or both (options win). Ctrl-C keeps what is done.

    [bold]Example:[/bold] turnout simulate --beta 3.5 --rounds 2000 -o run.npz
    """
    from turnout.settings import Table, read_toml
    from turnout.simulation import run_from_settings

    choices.check_output(output, ".npz")
    if resume is not None:
        note = ""
        others = (settings, population, clients, population_seed, capacity, mechanism, beta, controller, gain, initial)
        run = _continued(resume, rounds, engine, (*others, epsilon, seed, every, changes))
    else:
        if settings is not None and settings.suffix == ".npz":
            raise ValueError(f"{settings} is a saved run, not settings: use --continue {settings} to continue it")
        values = read_toml(settings) if settings else {}
        choices.choose_population(values, population, clients, population_seed, capacity)
        if {mechanism, epsilon, beta} != {None}:
            values["mechanism"] = {"kind": mechanism or ("clamp" if beta is None else "paper-coin")}
        given: dict[str, Any] = {"mechanism.beta": beta, "mechanism.epsilon": epsilon, "controller.kind": controller}
        given |= {"controller.gain": gain, "controller.initial": initial, "rounds": rounds, "seed": seed}
        given |= {"engine": engine, "keep.every": every} | choices.read_changes(changes or [])
        for name, value in given.items():
            choices.put(values, name, value)
        note = _note_on_server(values)
        run = run_from_settings(Table(with_defaults(values), options=choices.OPTIONS))
    _go(run, threads, output, as_json)
    if note:
        typer.echo(note, err=True)


def with_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """Set the defaults that neither an option nor the file gives."""
    values.setdefault("mechanism", {"kind": "classical"})
    values.setdefault("rounds", 10_000)
    server = values.setdefault("controller", {})
    like_paper = _is_like_paper(values)
    server.setdefault("kind", "integral" if "gain" in server or like_paper else "self-tuning")
    if server["kind"] == "integral":
        server.setdefault("initial", 0.35)
        if like_paper:
            server.setdefault("gain", 9.0 / values["population"].get("clients", 1200))
        if "gain" not in server:
            told = "the paper's, 9 / clients, fits half of its clients alone (turnout plan finds one for others)"
            raise ValueError(f"controller.gain is missing: give --gain; {told}")
    return values


def _is_like_paper(values: dict[str, Any]) -> bool:
    """Whether the paper's gain (0.0075 at 1200 clients) fits: at its population and capacity alone."""
    population = values["population"]
    return population.get("kind") == "paper" and bool(values["capacity"] == population.get("clients", 1200) / 2)


def _note_on_server(values: dict[str, Any]) -> str:
    """A note that the server is not the paper's, and why; empty if it is."""
    is_chosen = not {"kind", "gain"}.isdisjoint(values.get("controller", {}))
    if is_chosen or values["population"].get("kind") != "paper" or _is_like_paper(values):
        return ""
    why = "since the paper's gain fits half of its clients alone: --gain takes the paper's server"
    return f"note: the server is self-tuning, {why}"


def _continued(path: Path, rounds: int | None, engine: str | None, others: tuple[Any, ...]) -> Run:
    from turnout.simulation import Trajectory, continuation

    if any(option is not None for option in others):
        allowed = "used with --rounds, --engine, --threads, --output and --json only"
        raise invalid("--continue", allowed, "settings of a new run", "a continued run keeps its own settings")
    if rounds is None:
        raise ValueError("--rounds is missing: give the number of further rounds")
    return continuation(Trajectory.load(path), rounds, engine or "auto")


def _go(run: Run, threads: int | None, output: Path | None, as_json: bool) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    stopped = False
    console = Console(stderr=True)
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TextColumn("rounds"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=as_json or not console.is_terminal) as bar:
        task = bar.add_task("rounds")
        try:
            trajectory = run.go(
                threads=threads, progress=lambda done, total: bar.update(task, completed=done, total=total)
            )
        except Interrupted as interruption:
            stopped, trajectory = True, interruption.trajectory
    if output is not None:
        trajectory.save(output)
    _report(trajectory, run, output, as_json, stopped)
    if stopped:
        raise typer.Exit(130)


def _report(trajectory: Trajectory, run: Run, output: Path | None, as_json: bool, stopped: bool) -> None:
    from turnout.cli.show import print_summary, summary
    from turnout.problem import optimum

    facts: dict[str, Any] = summary(trajectory)
    if facts["optimum_cost"] is None:  # a run does not keep all that it was made from
        facts["optimum_cost"] = optimum(run.schedule.problem_at(trajectory.rounds - 1, run.problem)).cost
        if facts["cost"] is not None:
            facts["cost_gap_percent"] = 100.0 * (facts["cost"] / facts["optimum_cost"] - 1.0)
    facts |= {"output": None if output is None else str(output), "interrupted": stopped}
    if as_json:
        typer.echo(json.dumps(facts))
        return
    print_summary(trajectory, facts)
    if stopped:
        typer.echo(f"interrupted after {trajectory.rounds} of {trajectory.provenance['rounds_asked']} rounds")
    if output is not None:
        typer.echo(f"saved {output}")


def optimum(
    settings: choices.Settings = None,
    population: choices.PopulationChoice = None,
    clients: choices.Clients = None,
    population_seed: choices.PopulationSeed = None,
    capacity: choices.Capacity = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the averages to this .csv file.", show_default=False)
    ] = None,
    as_json: choices.AsJson = False,
) -> None:
    """The averages that minimise the total cost, and their price.

    Takes the same settings file as simulate, of which it reads population and capacity.

    [bold]Example:[/bold] turnout optimum --population paper --capacity 600
    """
    import numpy as np

    from turnout.display import number
    from turnout.files import whole_file
    from turnout.problem import kkt_residual
    from turnout.problem import optimum as solve

    choices.check_output(output, ".csv", [] if population is None else [Path(population)])
    problem, _ = choices.problem_from(settings, population, clients, population_seed, capacity)
    best = solve(problem)
    evenly = problem.random_cost()
    facts = {
        "clients": len(problem),
        "capacity": problem.capacity,
        "cost": best.cost,
        "price": best.price,
        "always": int(np.sum(best.average == 1.0)),
        "never": int(np.sum(best.average == 0.0)),
        "kkt_residual": kkt_residual(problem, best),
        "cost_if_chosen_at_random": evenly,
    }
    if output is not None:
        with whole_file(output) as file:
            file.write(b"client,average\n")
            file.writelines(f"{client},{average!r}\n".encode() for client, average in enumerate(best.average.tolist()))
    if as_json:
        typer.echo(json.dumps(facts))
        return
    typer.echo(f"{facts['clients']:,} clients, capacity {number(problem.capacity)}")
    typer.echo(f"smallest total cost  {best.cost:,.2f}  (clients chosen at random: {evenly:,.2f})")
    typer.echo(f"price                {number(best.price)}")
    typer.echo(f"at the bounds        {facts['always']} always take part, {facts['never']} never")
    typer.echo(f"KKT residual         {facts['kkt_residual']:.1e} relative")
    if output is not None:
        typer.echo(f"saved {output}")
