"""A plan as numbers, as lines for people and as a settings file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from turnout.algorithm import SumNoise
    from turnout.plan import Plan


def summary(found: Plan, at_least: float | None = None) -> dict[str, Any]:
    """A plan as plain numbers and words."""
    goal, outlook = found.goal, found.outlook
    percent = None if found.warning else [100.0 * value for value in (outlook.gap, *outlook.band)]
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
        "cost_gap_percent": percent and percent[0],
        "cost_gap_band_percent": percent and percent[1:],
        "turnout_spread": outlook.forecast.spread,
        "signal": outlook.forecast.signal,
        "settling_rounds": outlook.settling_rounds,
        "others": [_other(offer) for offer in found.others],
    }
    facts |= _of_noise(found) or _without_noise(found)
    facts |= _of_limit(found)
    if at_least is not None:
        facts |= {
            "at_least": at_least,
            "chance_of_at_least": outlook.chance_of_at_least(at_least, goal.problem.capacity),
        }
    return facts


def _of_noise(found: Plan) -> dict[str, Any]:
    """What noise on the sums adds to a plan's numbers; nothing where there is none."""
    from turnout.plan import least_clients, settled_again

    outlook, clients, capacity = found.outlook, len(found.goal.problem), found.goal.problem.capacity
    errors, tuned = outlook.forecast.errors, outlook.tuned
    if outlook.noise is None or tuned is None or errors is None:
        return {}
    return {
        "noise": outlook.noise.settings(),
        "mean_turnout": outlook.mean_turnout(capacity),
        "mean_turnout_spread": errors.mean,
        "turnout_spread_by_coins": tuned.coins,
        "settled_again_within": settled_again(found.goal, outlook, found.start),
        "gain_floors": [
            {"floor": each.floor, "turnout_spread": each.spread, "follows_within_rounds": each.follows}
            for each in tuned.choices
        ],
        "least_clients": least_clients(outlook, clients, capacity),
        "warning": found.warning,
    }


def _of_limit(found: Plan) -> dict[str, Any]:
    """What a hard limit adds; nothing where none was asked for."""
    from dataclasses import asdict

    given, limit = found.goal.hard_limit, found.limit
    if given is None:
        return {}
    if limit is None:
        told = "this plan has no noise on the sums: a coordinator that sees reports keeps the limit by names"
        return {"hard_limit": {"limit": given, "in_words": told}}
    return {"hard_limit": asdict(limit) | {"is_sensible": limit.is_sensible, "in_words": str(limit)}}


def _without_noise(found: Plan) -> dict[str, Any]:
    """Why a plan for sums with noise has none."""
    reasons = [offer.against_it for offer in found.others if offer.name == "noise on the sum"]
    told = "; take more clients, a larger budget, or fewer rounds" if found.outlook.gap > 0.1 else ""
    return {"warning": f"no noise on the sums: {reasons[0]}{told}"} if reasons else {}


def noise_in_words(noise: SumNoise) -> str:
    """For a line of text.

    Example:
        >>> from turnout.algorithm import SumNoise
        >>> noise_in_words(SumNoise(497.4, early=300, early_sigma=133.6))
        'on each sum: sigma 133.6 in the first 300 rounds, then 497.4'
    """
    who = "" if noise.aggregators == 1 else ", by each of two aggregators"
    return f"on each sum: {noise.words}{who}"


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


def print_forecast(found: Plan, facts: dict[str, Any]) -> None:
    """Start, cost and turnout."""
    typer.echo(f"start       a public average of {found.start.average:.3g}, worth {found.start.rounds:g} rounds")
    typer.echo(f"cost        {_cost(facts)}")
    settled = " in a round of this run, once settled" if "noise" in facts else ""
    typer.echo(f"turnout     {facts['capacity']:,.10g} ± {facts['turnout_spread']:,.1f}{settled}")
    if "at_least" in facts:
        often = 100 * facts["chance_of_at_least"]
        typer.echo(f"            at least {facts['at_least']:g} participate in {often:.1f} % of the rounds")
    if "noise" in facts:
        _print_noise(facts)
    if found.goal.hard_limit is not None:
        told = facts["hard_limit"]["in_words"].replace(". ", ".\n            ")
        typer.echo(f"hard limit  {told}")


def _cost(facts: dict[str, Any], interval: bool = True) -> str:
    """The expected cost, where there is a forecast of it."""
    if facts["cost_gap_percent"] is None:
        return "no forecast: too much noise for this crowd"
    low, high = facts["cost_gap_band_percent"]
    told = f"{facts['cost_gap_percent']:.2f} % above the optimum{' of its own turnout' if 'noise' in facts else ''}"
    return f"{told} (95 % interval: {low:.2f} to {high:.2f} %)" if interval else told


def _print_noise(facts: dict[str, Any]) -> None:
    """What the noise does to the turnout, and which crowd it takes."""
    coins, mean, off = (facts[name] for name in ("turnout_spread_by_coins", "mean_turnout", "mean_turnout_spread"))
    typer.echo(f"            by the coins alone ± {coins:,.1f}; its mean over the whole run: {mean:,.1f} ± {off:,.1f}")
    for change, within in facts["settled_again_within"].items():
        soon = "not settled again before the end" if within is None else f"settled again within {within:,} rounds"
        typer.echo(f"            {soon} if {change} at half-time")
    typer.echo("            in the long run, by the gain floor:")
    for each in facts["gain_floors"]:
        chosen = "chosen: " if each["floor"] == facts["controller"]["floor"] else ""
        typer.echo(
            f"            {chosen}a gain floor of {each['floor']:.2g} has ± {each['turnout_spread']:,.1f}, "
            f"and follows a drift within {each['follows_within_rounds']:,.0f} rounds"
        )
    typer.echo(
        f"crowd       {facts['warning'] or 'sensible from ' + format(facts['least_clients'], ',') + ' clients on'}"
    )


def print_rejected(facts: dict[str, Any]) -> None:
    """The other mechanisms."""
    where = ": they need no aggregator, and hold against an observer of every report" if "noise" in facts else ""
    typer.echo(f"alternatives rejected{where}")
    for other in facts["others"]:
        typer.echo(f"  {other['name']:<20}{other['rejected_because']}")


def write_settings(path: Path, settings: dict[str, Any], facts: dict[str, Any]) -> None:
    """The settings as TOML, with the forecast as a comment."""
    from turnout.files import whole_file

    lines = [f"# {facts['account']}", f"# expected: {_cost(facts, interval=False)}"]
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
