"""`turnout operate init`, `rules` and `trim`: a run made without a server, its rules changed, old rounds summed up."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli import choices
from turnout.cli import serve as serving
from turnout.cli.operate import WHO, Location, app, moment, opened
from turnout.errors import invalid

if TYPE_CHECKING:
    from turnout.service.store import Store

__all__ = ["app", "init", "rules", "trim"]

FromRound = Annotated[
    int | None,
    typer.Option(help="The first round under the new rules.", show_default="the one after the open one"),
]


@app.command()
def init(
    settings: choices.Settings = None,
    store: Location = "turnout.db",
    capacity: serving.Capacity = None,
    missing: serving.Missing = None,
    hard_limit: serving.HardLimit = None,
    devices: serving.Devices = None,
    weight: serving.Weight = None,
    run: serving.RunName = None,
    mechanism: serving.MechanismChoice = None,
    epsilon: choices.Epsilon = None,
    controller: serving.ControllerChoice = None,
    round_seconds: serving.RoundSeconds = None,
    deadline: serving.Deadline = None,
    lease: serving.Lease = None,
    wait_for: serving.WaitFor = None,
    changes: choices.Changes = None,
) -> None:
    """Make a run in a store without starting a server; `turnout serve` then needs no rules.

    For configuration management: the same again changes nothing and exits with 0. Other rules are refused.

    [bold]Example:[/bold] turnout operate init --run chargers --capacity 5 --missing absent --hard-limit 8
    """
    from turnout.service.store import open_store

    limit = serving.limit_of(hard_limit)
    rules = {"safety.missing": missing, "safety.hard_limit": limit, "wait_for": wait_for, "capacity": capacity}
    rules |= {"devices": devices, "weight": weight}
    rules |= {"timing.round": round_seconds, "timing.deadline": deadline, "timing.lease": lease}
    rules |= {"mechanism.kind": mechanism, "mechanism.epsilon": epsilon, "controller.kind": controller}
    given = serving.rules_given(settings, rules, changes or [])
    kept = open_store(store, create=True)
    try:
        _begin(kept, run, given, store)
    finally:
        kept.close()  # a store that was made for a run that is refused is removed


def _begin(kept: Store, run: str | None, given: dict[str, Any], location: str) -> None:
    from turnout.service.coordinator import begin_or_continue
    from turnout.service.store import AlreadyBegun

    place = location.rpartition("@")[2]
    if kept.run() is None:
        with suppress(AlreadyBegun):  # another process has begun it just now
            made, serve = begin_or_continue(kept, run, given), choices.operator_command("serve", location)
            typer.echo(f"run {made.name} begins in {place}: start it with {serve}")
            return
    asked = given.pop("capacity", None)  # no rule: it may have been changed since
    typer.echo(f"run {begin_or_continue(kept, run, given).name} is in {place} already, with these rules: no change")
    now = kept.control().capacity
    if asked is not None and asked != now:
        change = choices.operator_command("operate capacity", location)
        typer.echo(f"note: its capacity is {now:g}, not {asked:g}: {change} changes it", err=True)


@app.command()
def rules(
    settings: choices.Settings = None,
    store: Location = "turnout.db",
    changes: choices.Changes = None,
    from_round: FromRound = None,
    yes: Annotated[bool, typer.Option("--yes", help="Change the mechanism, though devices may leave.")] = False,
    as_json: choices.AsJson = False,
) -> None:
    """Show the versions of the run's rules, or make the next one: with --set, or from a settings file.

    It never holds in the middle of a round, and takes the place of any that is still to come. Each device agrees to
    another mechanism, within its owner's limits, or leaves for good: that needs --yes.

    [bold]Example:[/bold] turnout operate rules --set timing.round=30 --set safety.hard_limit=700
    """
    from turnout.service import CHANGEABLE

    kept = opened(store)
    given = serving.rules_given(settings, {"mechanism.epsilon": None}, changes or [])
    set_here = choices.read_changes(changes or [])
    if "capacity" in set_here:
        raise invalid("--set", "a rule", "capacity", "use `turnout operate capacity`")
    if "controller.initial" in set_here:  # a plan's file has it, too, where it is of no use in a living run
        remedy = "it was the first signal, which moves since then: begin another run for it"
        raise invalid("--set", f"one of {CHANGEABLE}", "controller.initial", remedy)
    given.pop("capacity", None)  # a plan's file has one
    if given:
        _change(kept, given, from_round, yes, as_json)
    else:
        _show(kept, as_json)


def _change(store: Store, given: dict[str, object], from_round: int | None, yes: bool, as_json: bool) -> None:
    from turnout.service import changed_settings, differences, rules_from_settings
    from turnout.service.coordinator import fitting_fleet
    from turnout.settings import Table

    before = store.rules()[-1]
    wanted = changed_settings(before.settings, given)
    made = before
    new = rules_from_settings(Table(dict(wanted))).mechanism
    if new.settings() != before.rules.mechanism.settings() and not yes:
        members = sum(device.left is None for device in store.devices())
        raise ValueError(
            f"this changes the mechanism from {before.rules.mechanism.in_words()} to {new.in_words()}: {members:,} "
            f"device{'' if members == 1 else 's'} will be asked to agree, and who does not allow it leaves for good, "
            f"its code used up; {fitting_fleet(new, store.control().capacity)}. Repeat with --yes"
        )
    if list(differences(changed_settings(before.settings, {}), wanted)):
        made = store.change_rules(wanted, before.number, WHO, from_round or 0)
    if as_json:
        typer.echo(json.dumps({"number": made.number, "since": made.since, "changed": made.number != before.number}))
    elif made.number == before.number:
        typer.echo(f"no change: version {made.number} has these rules")
    else:
        typer.echo(f"version {made.number} holds from round {made.since} on")
        for name, one, other in differences(before.settings, made.settings):
            typer.echo(f"{name}: {_value(one)} -> {_value(other)}")
        if made.rules.wait_for != before.rules.wait_for:
            typer.echo("wait_for holds at once: the first round is open")
        if made.mechanism != before.mechanism:
            typer.echo("each device agrees to the mechanism within its owner's limits, or leaves, before it decides")


def _value(value: object) -> str:
    return "not set" if value is None else str(value)


def _show(store: Store, as_json: bool) -> None:
    from turnout.service import RulesVersions, differences

    versions, round = RulesVersions(store.rules()), store.position().round
    now = versions.at(round)
    if as_json:
        keys = ("number", "since", "at", "who", "settings")
        lines = [{key: getattr(one, key) for key in keys} | {"in_force": one is now} for one in versions]
        typer.echo(json.dumps(lines))
        return
    for number, one in enumerate(versions):
        said = "in force" if one is now else "to come" if one.since > round else "before"
        changed = list(differences(versions[number - 1].settings, one.settings)) if number else []
        told = ", ".join(f"{name} {_value(old)} -> {_value(new)}" for name, old, new in changed) or repr(one.rules)
        typer.echo(f"version {one.number} from round {one.since} on, {said}  {moment(one.at)}  {one.who}  {told}")


@app.command()
def trim(
    store: Location = "turnout.db",
    before: Annotated[
        str | None, typer.Option(help="A date, such as 2026-10-01, UTC: rounds closed before it.", show_default=False)
    ] = None,
    days: Annotated[
        float | None, typer.Option(help="Rounds closed longer ago than this, in days.", show_default=False)
    ] = None,
) -> None:
    """Sum up and delete old closed rounds, while the run goes on. The last 1,000 always stay.

    Every device's history and last report, the audit log and all accounts stay as they are. What is gone is who
    reported what in each of these rounds: `turnout operate rounds` and `backup` keep it elsewhere.

    [bold]Example:[/bold] turnout operate trim --days 90
    """
    from turnout.service.coordinator import trim as make
    from turnout.service.coordinator import why_kept

    kept, moment_before = opened(store), _time_of(before, days)
    first = kept.summary().first_kept
    found = make(kept, moment_before, WHO)
    if why := why_kept(kept, moment_before):
        typer.echo(f"note: {why}", err=True)
    if found.first_kept == first:
        typer.echo(f"nothing to trim: rounds from {first} on are stored")
        return
    told = ", ".join(f"{found.totals[name]:,} {name}" for name in ("rounds", "reports", "refused", "frozen"))
    typer.echo(f"rounds {first} to {found.first_kept - 1} are summed up; in all until there {told}")


def _time_of(before: str | None, days: float | None) -> float:
    if (before is None) == (days is None):
        raise invalid("time", "one of --before and --days", "both" if before else "none", "try --days 90")
    if days is not None:
        if not 0.0 < days < 1e6:
            raise invalid("--days", "above 0 and below a million", days, "try 90")
        return time.time() - 86400.0 * days
    try:
        found = datetime.fromisoformat(str(before))
    except ValueError:
        raise invalid("--before", "a date or a time", repr(before), "write 2026-10-01") from None
    return found.replace(tzinfo=found.tzinfo or UTC).timestamp()
