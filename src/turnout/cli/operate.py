"""`turnout operate`: an operator's commands to a run, through its store; the coordinator sees them within a second."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli import choices
from turnout.errors import invalid

if TYPE_CHECKING:
    from turnout.service.store import Names, Store

app = typer.Typer(
    name="operate",
    help="Begin a run, and its codes, devices, sites, capacity, rules, pause, backup, rounds and export.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Location = Annotated[
    str,
    typer.Option(
        "--store", envvar="TURNOUT_STORE", help="The coordinator's store: a file, or postgresql://…", show_default=True
    ),
]
Search = Annotated[
    str, typer.Option(help="Only those with this number or tag, or this text in label or site.", show_default=False)
]
Called = Annotated[str, typer.Argument(help="The device's number, tag or label, as `devices` lists it.")]
WHO = "command line"
STATES = ("here", "gone", "left")
LONGEST_WAIT = 10.0
"""Seconds to wait for a run that is being begun."""


def opened(location: str) -> Store:
    """The store of a run that exists."""
    from turnout.service.store import NotBegun, open_store

    store = open_store(location)
    if store.run() is None:
        store.close()
        raise NotBegun(
            "the store has no run yet: begin one with `turnout serve --capacity …` or `turnout operate init`"
        )
    return store


def opened_soon(location: str) -> Store:
    """The same, but `turnout serve` may have been started a moment ago: wait for the run that it is about to begin."""
    from turnout.service.store import NotBegun

    place, end, told = location.rpartition("@")[2], time.monotonic() + LONGEST_WAIT, False
    while True:
        try:
            return opened(location)
        except NotBegun:
            if time.monotonic() >= end:
                raise
        if not told:
            typer.echo(
                f"note: no run in {place} yet: waiting for `turnout serve`, {LONGEST_WAIT:g} s at most", err=True
            )
            told = True
        time.sleep(0.1)


@app.command()
def codes(
    count: Annotated[int | None, typer.Argument(help="How many.", show_default="1")] = None,
    store: Location = "turnout.db",
    weight: Annotated[int, typer.Option(help="The weight of each device, such as its watts.")] = 1,
    hours: Annotated[float | None, typer.Option(help="Until they expire.", show_default="24")] = None,
    label: Annotated[str, typer.Option(help="What to call the device of one code.", show_default=False)] = "",
    site: Annotated[
        str | None, typer.Option(help="Where the devices are; with --list, only codes for it.", show_default=False)
    ] = None,
    note: Annotated[str, typer.Option(help="Anything else about the devices.", show_default=False)] = "",
    table: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="A CSV file with a column label, and site and note if you like: a code for each row.",
            show_default=False,
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Make none: list those that were made.")] = False,
    search: Search = "",
    as_json: choices.AsJson = False,
) -> None:
    """Make one-time enrolment codes, one per line. They are shown once: the store keeps only their hashes.

    With --from it prints a CSV table: label, site, code. With --list it lists the codes that were made.

    [bold]Example:[/bold] turnout operate codes --from fleet.csv > codes.csv
    """
    from turnout.service.coordinator import issue_codes
    from turnout.service.store import USUAL_HOURS, Names

    if listed:
        _list_codes(store, site, search, as_json)
        return
    if search:
        raise invalid("--search", "given with --list", repr(search), "add --list")
    if table is None:
        names = [Names(label, site or "", note)] * (1 if count is None else max(0, count))
    elif count is not None or label:
        raise invalid("--from", "given without a number and --label", str(table), "it makes a code for each row")
    else:
        names = _read_names(table, Names("", site or "", note))
    run = opened_soon(store)
    _warn_of_labels(run, names)
    count = len(names) if table or count is None else count
    made = issue_codes(run, count, weight, USUAL_HOURS if hours is None else hours, WHO, names)
    lines = [{"label": name.label, "site": name.site, "code": code} for name, code in zip(names, made, strict=True)]
    if as_json:
        typer.echo(json.dumps(lines))
    elif table is None:
        typer.echo("\n".join(made))
    else:
        _print_csv(lines)


def _read_names(path: Path, usual: Names) -> list[Names]:
    """The names of a table's rows; what a row leaves out is as usual."""
    import csv
    from dataclasses import asdict, replace

    from turnout.errors import FileProblem

    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise FileProblem(f"{path}: cannot be read ({error}): give a CSV file in UTF-8") from None
    first = text.partition("\n")[0]
    rows = csv.DictReader(text.splitlines(), delimiter=";" if ";" in first and "," not in first else ",")
    columns, known = [str(name).strip().lower() for name in rows.fieldnames or ()], tuple(asdict(usual))
    if "label" not in columns or not set(columns) <= set(known) or len(set(columns)) < len(columns):
        allowed = f"columns of the names {', '.join(known)}, each once, with a label"
        raise invalid(f"{path}, line 1", allowed, ", ".join(columns) or "nothing", "name the columns in the first line")
    found = []
    for row in rows:
        values = dict(zip(columns, list(row.values()), strict=False))
        try:
            if None in row or not values["label"]:
                got = "more" if None in row else "none"
                raise invalid("row", f"of {len(columns)} columns with a label", got, "mend it, or take it out")
            found.append(replace(usual, **{name: value for name, value in values.items() if value}).checked())
        except ValueError as error:
            raise FileProblem(f"{path}, line {rows.line_num}: {error}") from None
    if not found:
        raise FileProblem(f"{path}: holds no rows: write one for each device below the line with the columns")
    return found


def _warn_of_labels(store: Store, names: list[Names]) -> None:
    """Of labels that another device or code has: it may be meant, as for a new device in place of an old one."""
    wanted = {name.label.casefold() for name in names if name.label}
    if not wanted:
        return
    has = {device.names.label: f"device {device.slot}" for device in store.devices() if device.left is None}
    has |= {code.names.label: f"code {code.tag}" for code in store.codes() if code.slot is None and not code.voided_at}
    taken = [f"{label!r} ({holder})" for label, holder in has.items() if label.casefold() in wanted]
    if taken:
        more = f", and {len(taken) - 5} more" if len(taken) > 5 else ""
        typer.echo(f"warning: these labels are taken already: {', '.join(taken[:5])}{more}", err=True)


def _print_csv(lines: list[dict[str, str]]) -> None:
    import csv
    import sys

    writer = csv.DictWriter(sys.stdout, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)


def _list_codes(location: str, site: str | None, search: str, as_json: bool) -> None:
    from turnout.service.coordinator import code_list

    found = code_list(opened(location).codes(), time.time(), site=site, search=search, page=None)["codes"]
    if as_json:
        typer.echo(json.dumps(found))
        return
    for line in found:
        line["expires"] = "never" if line["expires_at"] is None else moment(line["expires_at"])
    _print_table(found, ("tag", "state", "device", "weight", "expires", "label", "site", "note"))


def _print_table(lines: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    """Rows below each other, numbers to the right; "-" for what is not there."""
    cells = [list(columns), *([_cell(line[name]) for name in columns] for line in lines)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [any(isinstance(line[name], int) for line in lines) for name in columns]
    for row in cells:
        aligned = (
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(row, widths, right, strict=True)
        )
        typer.echo("  ".join(aligned).rstrip())


def _cell(value: object) -> str:
    return "-" if value in (None, "") else str(value)


@app.command()
def void(
    code: Annotated[str, typer.Argument(help="Its tag or label, as `codes --list` has it, or the code itself.")],
    store: Location = "turnout.db",
) -> None:
    """Void a one-time code that no device has used: nobody can enrol with it any more."""
    from turnout.service.coordinator import one_code

    run = opened(store)
    voided = run.void_code(one_code(run.codes(), code).code, WHO)
    typer.echo(f"code {voided.tag} is void")


@app.command()
def devices(
    store: Location = "turnout.db",
    site: Annotated[
        str | None, typer.Option(help="Only the devices of this site; an empty one: of none.", show_default=False)
    ] = None,
    state: Annotated[
        str,
        typer.Option(help="Only those that are here, gone or left.", autocompletion=choices.one_of(*STATES, "all")),
    ] = "all",
    search: Search = "",
    as_json: choices.AsJson = False,
) -> None:
    """List the devices: number, tag (as the device shows it), names, weight, state, rounds it joined and left, why.

    Whether a device is here or gone is as of the last closed rounds.
    """
    from turnout.service.coordinator import device_list, roll_of, why_left

    run = opened(store)
    found = device_list(roll_of(run), state=state, site=site, search=search, page=None)["devices"]
    why = why_left(run.changes())
    for line in found:
        del line["missed"]  # only a running coordinator counts all of them
        line["why"] = why.get(line["number"]) if line["left"] is not None else None
    if as_json:
        typer.echo(json.dumps(found))
    else:
        _print_table(found, ("number", "tag", "label", "site", "weight", "state", "joined", "left", "why", "note"))


@app.command()
def sites(store: Location = "turnout.db", as_json: choices.AsJson = False) -> None:
    """Count the devices of each site that are here, gone and left. `devices --site` lists them."""
    from turnout.service.coordinator import roll_of, site_list

    found = site_list(roll_of(opened(store)))
    if as_json:
        typer.echo(json.dumps(found))
    else:
        _print_table(found, ("site", "here", "gone", "left"))


@app.command()
def name(
    device: Called,
    store: Location = "turnout.db",
    label: Annotated[str | None, typer.Option(help="What to call it.", show_default="as it is")] = None,
    site: Annotated[str | None, typer.Option(help="Where it is.", show_default="as it is")] = None,
    note: Annotated[str | None, typer.Option(help="Anything else.", show_default="as it is")] = None,
) -> None:
    """Change a device's label, site or note; the audit log has it. Empty takes it away."""
    from turnout.service.coordinator import one_device, roll_of

    if label is site is note is None:
        raise invalid("names", "one or more of --label, --site and --note", "none", "give the new one")
    run = opened(store)
    renamed = run.rename(one_device(roll_of(run), device).slot, WHO, label=label, site=site, note=note)
    said = ", ".join(f"{name} {text!r}" for name, text in vars(renamed.names).items() if text)
    typer.echo(f"device {renamed.slot}: {said or 'no names'}")


@app.command()
def revoke(
    device: Annotated[
        str | None, typer.Argument(help="Its number, tag or label, as `devices` lists it.", show_default=False)
    ] = None,
    store: Location = "turnout.db",
    site: Annotated[str | None, typer.Option(help="All members of this site instead.", show_default=False)] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --site: do it, and do not only list them.")] = False,
) -> None:
    """Revoke a device's token: it is no member from the open round on."""
    from turnout.service.coordinator import one_device, roll_of

    if (device is None) == (site is None):
        raise invalid("device", "one device, or --site", "both" if device else "neither", "give one of them")
    run = opened(store)
    roll = roll_of(run)
    if device is not None:
        _revoke(run, one_device(roll, device).slot)
        return
    found = [slot for slot in roll.slots.values() if roll[slot].names.site == site]
    if not found:
        raise invalid("--site", "that of a member", repr(site), "see `turnout operate sites`")
    if not yes:
        numbers = ", ".join(map(str, sorted(found)))
        raise invalid("--yes", f"given to revoke {len(found)} devices", "nothing", f"these are devices {numbers}")
    for slot in sorted(found):
        _revoke(run, slot)


def _revoke(run: Store, slot: int) -> None:
    gone = run.withdraw(slot, WHO, "revoked")
    called = f" ({gone.names.label})" if gone.names.label else ""
    typer.echo(f"device {slot}{called} is no member from round {gone.left} on")


@app.command()
def capacity(
    value: Annotated[float, typer.Argument(help="The capacity from the next round on.")],
    store: Location = "turnout.db",
) -> None:
    """Change the capacity."""
    typer.echo(f"capacity {opened(store).change(WHO, capacity=value).capacity:g}")


def _resume(location: str) -> str:
    return choices.operator_command("operate resume", location)


def _set_mode(location: str, mode: str, told: str) -> None:
    opened(location).change(WHO, mode=mode)
    typer.echo(told)


@app.command()
def pause(store: Location = "turnout.db") -> None:
    """Close no more rounds; participations end with their leases."""
    _set_mode(store, "paused", f"paused: leases end by themselves; {_resume(store)} continues")


@app.command()
def resume(store: Location = "turnout.db") -> None:
    """Continue after a pause, a drain or a stop."""
    _set_mode(store, "running", "running")


@app.command()
def drain(store: Location = "turnout.db") -> None:
    """Close the open round as usual, then pause."""
    _set_mode(store, "draining", f"draining: the open round is the last one until {_resume(store)}")


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
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


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

    def write(kept: Store) -> None:
        columns, rows = (DEVICE_COLUMNS, device_rows(kept)) if devices else (ROUND_COLUMNS, round_rows(kept))
        with (
            whole_file(output, private=True) as file,
            TextIOWrapper(file, encoding="utf-8", newline="") as text,
        ):
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(rows)

    with Console(stderr=True).status(f"writing {output.name}"):
        opened(store).snapshot(write)
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
        f"as of {moment(found.as_of)}: round {found.round}, capacity {control.capacity:g}, mode {control.mode}, "
        f"{found.members} members"
    )
    typer.echo(
        "undone: every enrolment, revocation, code, name, capacity, mode and version of the rules since then; codes "
        "used or voided since are valid again"
    )
    revoke, serve, resume = (
        choices.operator_command(words, store) for words in ("operate revoke DEVICE", "serve", "operate resume")
    )
    typer.echo(f"next: {revoke} for what was revoked since, {serve}, then {resume}")
