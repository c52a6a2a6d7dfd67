"""`turnout plan --devices`: a plan for a fleet, with the commands that serve and join it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from turnout.cli import choices
from turnout.cli.plan_output import print_forecast, print_rejected, write_settings
from turnout.errors import invalid

if TYPE_CHECKING:
    from turnout.plan import Plan
    from turnout.problem import Problem

USUAL_BUDGET = 6.0
"""The total epsilon of a fleet's plan, unless another, or a gap, is asked for: docs/first-deployment.md says why."""

USUAL_COSTS = "1:10"
USUAL_DAYS = 365.0


@dataclass(frozen=True)
class Fleet:
    """What is asked for.

    Attributes:
        devices: how many.
        costs: the guess of their costs, from:to.
        round_seconds: between rounds.
        days: how long it runs.
        missing: what a silent device counts as; None: not said yet.
        seed: of the costs that are drawn for the plan.
    """

    devices: int
    costs: str
    round_seconds: float
    days: float
    missing: str | None
    seed: int

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise invalid("--devices", "1 or more", self.devices, "give how many the fleet will have")
        if not 0.0 < self.round_seconds < 1e9:
            raise invalid("--round-seconds", "above 0", self.round_seconds, "try 10, or 900 for chargers")
        if not 0.0 < self.days < 1e6 or self.rounds < 10:
            raise invalid("--days", "above 0, and ten rounds at least", self.days, "give how long it will run")
        if self.missing not in (None, "absent", "last"):
            remedy = "absent, if taking part uses what is scarce; last, if it saves it"
            raise invalid("--missing", "absent or last", repr(self.missing), remedy)

    def refuse(self, others: Mapping[str, object]) -> None:
        """Refuse options that say the same in another way, or what no coordinator can do."""
        remedies = {
            "--rounds": "give --round-seconds and --days",
            "--population": "give --costs, or plan without --devices",
            "--guessed": "a coordinator cannot learn a price from devices that join one by one",
            "--observer": "no coordinator adds noise to sums: plan for every-report",
        }
        for name, value in others.items():
            if value:
                raise invalid(name, "left out with --devices", value, remedies[name])

    @property
    def rounds(self) -> int:
        """As many as it can have."""
        return math.ceil(self.days * 86400.0 / self.round_seconds)

    def range(self) -> tuple[float, float]:
        """The smallest and the largest cost that are expected."""
        try:
            low, high = (float(part) for part in self.costs.split(":"))
        except ValueError:
            low, high = -1.0, -1.0
        if not 0.0 < low < high < 1e12:
            raise invalid("--costs", "two numbers above 0, from:to", repr(self.costs), "write --costs 1:10")
        return low, high

    def problem(self, capacity: float | None) -> tuple[Problem, dict[str, Any]]:
        """(its problem; the settings that make it again)."""
        if capacity is None:
            raise invalid("--capacity", "given with --devices", "nothing", "give the turnout needed in each round")
        if not 0.0 < capacity <= self.devices:
            allowed = f"above 0 and at most the {self.devices:,} devices"
            raise invalid("--capacity", allowed, capacity, "need less, or plan for more devices")
        values = {"population": self.population(), "capacity": capacity}
        return choices.problem_from_values(values), values | {"rounds": self.rounds}

    def population(self) -> dict[str, Any]:
        """The table of a population like that."""
        low, high = self.range()
        group = {"clients": self.devices, "cost": {"2": {"uniform": [low, high]}}}
        return {"seed": self.seed, "groups": [group]}


def asked_fleet(
    devices: int | None,
    costs: str | None,
    round_seconds: float | None,
    days: float | None,
    missing: str | None,
    seed: int | None,
) -> Fleet | None:
    """The fleet that the options ask for; None without --devices."""
    if devices is not None:
        seconds, days = 10.0 if round_seconds is None else round_seconds, USUAL_DAYS if days is None else days
        return Fleet(devices, costs or USUAL_COSTS, seconds, days, missing, seed or 0)
    given = {"--costs": costs, "--round-seconds": round_seconds, "--days": days, "--missing": missing}
    for name, value in given.items():
        if value is not None:
            raise invalid(name, "given with --devices", value, "say how many devices the fleet has")
    return None


def show_fleet(fleet: Fleet, found: Plan, facts: dict[str, Any], output: Path | None, as_json: bool) -> None:
    """Print the plan and the commands, and write the file."""
    from turnout.algorithm import MECHANISMS
    from turnout.plan import fleet_settings

    settings = fleet_settings(found, fleet.round_seconds, fleet.missing)
    file = str(output or "fleet.toml")
    facts |= {
        "controller": settings["controller"],
        "round_seconds": fleet.round_seconds,
        "days": fleet.days,
        "hard_limit": settings["safety"]["hard_limit"],
        "budgets": _budgets(found, fleet),
        "serve": f"turnout serve {file}{'' if fleet.missing else ' --missing absent'}",
        "join": f"turnout join URL --code CODE --cost COST {_allowed(found)}",
    }
    for other in facts["others"]:
        if other["name"] in MECHANISMS and MECHANISMS[other["name"]].needs_population:
            other["rejected_because"] = "is for simulations: it learns from clients that join in groups"
    if output is not None:
        write_settings(output, {"population": fleet.population()} | settings, facts)
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        _print(fleet, found, facts, output)


def _print(fleet: Fleet, found: Plan, facts: dict[str, Any], output: Path | None) -> None:
    from turnout.algorithm import in_words
    from turnout.service import span

    low, high = fleet.range()
    share = 100.0 * facts["capacity"] / found.goal.problem.most
    lasts = f"{fleet.round_seconds:g}-second rounds for {span(86400.0 * fleet.days)}: {facts['rounds']:,} rounds"
    typer.echo(f"for         {fleet.devices:,} devices, capacity {facts['capacity']:,.10g} ({share:.3g} %), {lasts}")
    typer.echo(f"costs       a guess: {low:g} to {high:g}, as a of a x^2 (--costs)")
    typer.echo(f"mechanism   {in_words(facts['mechanism'])}")
    typer.echo(f"privacy     {facts['account']}")
    typer.echo(f"budgets     {facts['budgets']}")
    typer.echo(f"controller  {in_words(facts['controller'])}")
    print_forecast(found, facts)
    typer.echo(f"hard limit  {facts['hard_limit']:,}: the capacity and four standard deviations of the turnout")
    print_rejected(facts)
    if output is not None:
        typer.echo(f"saved       {output}, to simulate and to serve")
    else:
        typer.echo("not saved   --output fleet.toml writes what the next line serves")
    typer.echo(f"operator    {facts['serve']}")
    if not fleet.missing:
        typer.echo("            or --missing last, where taking part saves what is scarce")
    typer.echo(f"owners      {facts['join']}")


def _budgets(found: Plan, fleet: Fleet) -> str:
    """What the plan takes of an owner's budget of reports."""
    from turnout.service import lasting

    if found.mechanism.releases_once:
        return "one release per device, for a lifetime: no limit of reports is used up"
    return f"each device reports in every round: {lasting(fleet.rounds, fleet.round_seconds)}"


def _allowed(found: Plan) -> str:
    """What an owner has to allow, as options of `turnout join`."""
    epsilon = repr(float(getattr(found.mechanism, "epsilon", 0.0)))
    if found.mechanism.releases_once:
        return f"--epsilon-per-release {epsilon}"
    return f"--reports {found.goal.rounds} --epsilon-per-report {epsilon}"
