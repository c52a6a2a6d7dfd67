"""`turnout operate`: what an operator does to a run, through its store; the coordinator sees it within a second."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli import choices

if TYPE_CHECKING:
    from turnout.service.stores.store import Store

app = typer.Typer(
    name="operate",
    help="Codes, devices, capacity, pause, backup and export of a coordinator's run.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Location = Annotated[
    str,
    typer.Option(
        "--store", envvar="TURNOUT_STORE", help="The coordinator's store: a file, or postgresql://…", show_default=True
    ),
]
WHO = "command line"


def opened(location: str) -> Store:
    """The store of a run that exists."""
    from turnout.service.stores.locations import open_store
    from turnout.service.stores.store import StoreProblem

    store = open_store(location)
    if store.run() is None:
        raise StoreProblem("the store has no run yet: begin one with `turnout serve --capacity …`")
    return store


@app.command()
def codes(
    count: Annotated[int, typer.Argument(help="How many.")] = 1,
    store: Location = "turnout.db",
    weight: Annotated[int, typer.Option(help="What each device counts for, such as its watts.")] = 1,
    hours: Annotated[float | None, typer.Option(help="Until they expire.", show_default="24")] = None,
) -> None:
    """Make one-time enrolment codes, one a line. Only their hashes are kept: this is the one time you see them."""
    from turnout.service.coordinator.enrolment_desk import issue_codes
    from turnout.service.stores.store import USUAL_HOURS

    made = issue_codes(opened(store), count, weight, USUAL_HOURS if hours is None else hours, WHO)
    typer.echo("\n".join(made))


@app.command()
def devices(store: Location = "turnout.db", as_json: choices.AsJson = False) -> None:
    """List the devices: number, weight, the round it joined, the round it left."""
    found = opened(store).devices()
    if as_json:
        keys = ("slot", "weight", "joined", "left")
        typer.echo(json.dumps([{key: getattr(device, key) for key in keys} for device in found]))
        return
    typer.echo("device  weight  joined  left")
    for device in found:
        left = "-" if device.left is None else str(device.left)
        typer.echo(f"{device.slot:6d}  {device.weight:6d}  {device.joined:6d}  {left:>4}")


@app.command()
def revoke(
    device: Annotated[int, typer.Argument(help="Its number, as `devices` lists it.")],
    store: Location = "turnout.db",
) -> None:
    """Void a device's token: it is no member from the open round on."""
    gone = opened(store).withdraw(device, WHO, "revoked")
    typer.echo(f"device {device} is no member from round {gone.left} on")


@app.command()
def capacity(
    value: Annotated[float, typer.Argument(help="What is needed in each round from now on.")],
    store: Location = "turnout.db",
) -> None:
    """Change the capacity."""
    typer.echo(f"capacity {opened(store).change(WHO, capacity=value).capacity:g}")


def _set_mode(location: str, mode: str, told: str) -> None:
    opened(location).change(WHO, mode=mode)
    typer.echo(told)


@app.command()
def pause(store: Location = "turnout.db") -> None:
    """Close no more rounds; what takes part ends when its lease does."""
    _set_mode(store, "paused", "paused: leases end by themselves, `turnout operate resume` goes on")


@app.command()
def resume(store: Location = "turnout.db") -> None:
    """Go on after a pause, a drain or a stop."""
    _set_mode(store, "running", "running")


@app.command()
def drain(store: Location = "turnout.db") -> None:
    """Close the open round as usual, then pause."""
    _set_mode(store, "draining", "draining: the open round is the last one until `turnout operate resume`")


@app.command()
def stop(store: Location = "turnout.db") -> None:
    """End every participation now: the open round is closed with nobody acknowledged, then paused."""
    _set_mode(store, "stopped", "stopped: every device in contact ends its work now, the others when their lease ends")


@app.command()
def log(store: Location = "turnout.db", as_json: choices.AsJson = False) -> None:
    """Show the audit log: what was changed, when, from where. It is only ever added to."""
    found = opened(store).changes()
    if as_json:
        typer.echo(json.dumps([vars(change) for change in found]))
        return
    for change in found:
        when = datetime.fromtimestamp(change.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        typer.echo(f"{when}  {change.who}  {change.what}  {change.detail}")


@app.command()
def export(
    output: Annotated[Path, typer.Argument(help="An .npz file that `turnout show` and `turnout report` read.")],
    store: Location = "turnout.db",
) -> None:
    """Write the run as a trajectory, the same as a simulation's."""
    from turnout.service.coordinator.export import export as make
    from turnout.simulation.output import check_writable

    check_writable(output)
    trajectory = make(opened(store))
    trajectory.save(output)
    typer.echo(f"{output}: {trajectory!r}")


@app.command()
def backup(
    output: Annotated[Path, typer.Argument(help="A new file; an SQLite store whatever the run's own is.")],
    store: Location = "turnout.db",
) -> None:
    """Copy the whole run into one file, while it runs."""
    opened(store).backup(output)
    typer.echo(f"{output}: a complete copy")


@app.command()
def restore(
    copy: Annotated[Path, typer.Argument(help="A file of `turnout operate backup`.")],
    store: Location = "turnout.db",
) -> None:
    """Make a new store from a backup; an existing one is never overwritten. Devices resend what it has forgotten."""
    from turnout.service.stores.backup import restore as make

    make(copy, store)
    typer.echo(f"{store.split('@')[-1]}: restored; start it with `turnout serve`")
