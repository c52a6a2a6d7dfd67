"""`turnout optimum`: the exact answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from turnout.cli import choices


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
    from turnout.problem.optimum import kkt_residual
    from turnout.problem.optimum import optimum as solve
    from turnout.simulation.output import whole_file

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
