"""`turnout operate`: an operator's commands to a run, through its store; the coordinator sees them within a second."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli import choices
from turnout.errors import invalid

if TYPE_CHECKING:
    from turnout.service.store import Store

app = typer.Typer(
    name="operate",
    help="Begin a run, and its codes, devices, capacity, rules, pause, backup, rounds and export.",
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
    from turnout.service.store import StoreProblem, open_store

    store = open_store(location)
    if store.run() is None:
        raise StoreProblem(
            "the store has no run yet: begin one with `turnout serve --capacity …` or `turnout operate init`"
        )
    return store


@app.command()
def codes(
    count: Annotated[int, typer.Argument(help="How many.")] = 1,
    store: Location = "turnout.db",
    weight: Annotated[int, typer.Option(help="The weight of each device, such as its watts.")] = 1,
    hours: Annotated[float | None, typer.Option(help="Until they expire.", show_default="24")] = None,
) -> None:
    """Make one-time enrolment codes, one per line. They are shown once: the store keeps only their hashes."""
    from turnout.service.coordinator import issue_codes
    from turnout.service.store import USUAL_HOURS

    made = issue_codes(opened(store), count, weight, USUAL_HOURS if hours is None else hours, WHO)
    typer.echo("\n".join(made))


@app.command()
def devices(store: Location = "turnout.db", as_json: choices.AsJson = False) -> None:
    """List the devices: number, tag (as the device shows it), weight, the round it joined, the round it left."""
    from turnout.service import tag_of

    found = opened(store).devices()
    if as_json:
        keys = ("slot", "weight", "joined", "left")
        lines = [{key: getattr(device, key) for key in keys} | {"tag": tag_of(device.token)} for device in found]
        typer.echo(json.dumps(lines))
        return
    typer.echo("device  tag       weight  joined  left")
    for device in found:
        left = "-" if device.left is None else str(device.left)
        typer.echo(f"{device.slot:6d}  {tag_of(device.token)}  {device.weight:6d}  {device.joined:6d}  {left:>4}")


@app.command()
def revoke(
    device: Annotated[str, typer.Argument(help="Its number or tag, as `devices` lists it.")],
    store: Location = "turnout.db",
) -> None:
    """Revoke a device's token: it is no member from the open round on."""
    from turnout.service import tag_of

    run = opened(store)
    found = [one.slot for one in run.devices() if device.lower() in (str(one.slot), tag_of(one.token))]
    if len(found) != 1:  # tags are short: two devices may have the same
        raise invalid("device", "the number, or the tag of one alone", repr(device), "see `turnout operate devices`")
    gone = run.withdraw(found[0], WHO, "revoked")
    typer.echo(f"device {found[0]} is no member from round {gone.left} on")


@app.command()
def capacity(
    value: Annotated[float, typer.Argument(help="The capacity from the next round on.")],
    store: Location = "turnout.db",
) -> None:
    """Change the capacity."""
    typer.echo(f"capacity {opened(store).change(WHO, capacity=value).capacity:g}")


def _set_mode(location: str, mode: str, told: str) -> None:
    opened(location).change(WHO, mode=mode)
    typer.echo(told)


@app.command()
def pause(store: Location = "turnout.db") -> None:
    """Close no more rounds; participations end with their leases."""
    _set_mode(store, "paused", "paused: leases end by themselves; `turnout operate resume` continues")


@app.command()
def resume(store: Location = "turnout.db") -> None:
    """Continue after a pause, a drain or a stop."""
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
    """Show the audit log: what was changed, when and by whom. Lines are only added, never changed."""
    found = opened(store).changes()
    if as_json:
        typer.echo(json.dumps([vars(change) for change in found]))
        return
    for change in found:
        typer.echo(f"{moment(change.at)}  {change.who}  {change.what}  {change.detail}")


def moment(at: float) -> str:
    """A wall clock's time, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


@app.command()
def export(
    output: Annotated[Path, typer.Argument(help="An .npz file that `turnout show` and `turnout report` read.")],
    store: Location = "turnout.db",
) -> None:
    """Write the run as a trajectory, the same as a simulation's."""
    from turnout.files import check_new
    from turnout.service.coordinator import export as make

    check_new(output)
    trajectory = make(opened(store))
    trajectory.save(output)
    typer.echo(f"{output}: {trajectory!r}")


@app.command()
def rounds(
    output: Annotated[Path, typer.Argument(help="A new CSV file.")],
    store: Location = "turnout.db",
    devices: Annotated[bool, typer.Option("--devices", help="A row for each device and round.")] = False,
) -> None:
    """Write the closed rounds as a table, or with --devices each device in each round. The run may be going on."""
    import csv
    from io import TextIOWrapper

    from rich.console import Console

    from turnout.files import check_new, whole_file
    from turnout.service.coordinator import DEVICE_COLUMNS, ROUND_COLUMNS, device_rows, round_rows

    check_new(output)
    kept = opened(store)
    columns, rows = (DEVICE_COLUMNS, device_rows(kept)) if devices else (ROUND_COLUMNS, round_rows(kept))
    with (
        Console(stderr=True).status(f"writing {output.name}"),
        whole_file(output, private=True) as file,
        TextIOWrapper(file, encoding="utf-8", newline="") as text,
    ):
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    typer.echo(f"{output}: {'a row for each device and round' if devices else 'a row for each round'}")


@app.command()
def password(
    output: Annotated[Path, typer.Argument(help="A new file, for `turnout serve --password-file`.")],
) -> None:
    """Make an operator's password and print it once: the file holds only its scrypt hash."""
    from turnout.service.operator import new_password_file

    typer.echo(new_password_file(output, hash_only=True))


@app.command()
def backup(
    output: Annotated[Path, typer.Argument(help="A new file: an SQLite store, whatever kind of store the run has.")],
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
    """Make a new store from a backup; an existing one is never overwritten. The run is paused."""
    from turnout.service.store import restore as make

    found = make(copy, store, WHO)
    control, place = found.control, store.rpartition("@")[2]
    typer.echo(f"{place}: run {found.run.name} is restored, and paused")
    typer.echo(
        f"as of {moment(found.as_of)} UTC: round {found.round}, capacity {control.capacity:g}, mode {control.mode}, "
        f"{found.members} members"
    )
    typer.echo(
        "undone: every enrolment, revocation, code, capacity, mode and version of the rules since then; codes used "
        "since are valid again"
    )
    typer.echo("next: `turnout operate revoke` what was revoked since, `turnout serve`, then `turnout operate resume`")
