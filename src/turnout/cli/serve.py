"""`turnout serve`: the coordinator of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli import choices
from turnout.errors import MissingExtra

if TYPE_CHECKING:
    from turnout.service.listeners import Bound


def serve(
    settings: choices.Settings = None,
    store: Annotated[
        str, typer.Option(envvar="TURNOUT_STORE", help="Where the run is kept: a file, or postgresql://…")
    ] = "turnout.db",
    capacity: Annotated[
        float | None, typer.Option(help="What is needed in each round.", show_default="from the settings")
    ] = None,
    missing: Annotated[
        str | None,
        typer.Option(
            help="What a device that does not report counts as: absent (taking part uses something scarce), or last "
            "(taking part saves it).",
            show_default=False,
        ),
    ] = None,
    hard_limit: Annotated[
        float | None, typer.Option(help="Never acknowledge more in a round.", show_default="none")
    ] = None,
    run: Annotated[str | None, typer.Option(help="The run's name.", show_default="from the time")] = None,
    mechanism: choices.MechanismChoice = None,
    epsilon: choices.Epsilon = None,
    controller: choices.ControllerChoice = None,
    round_seconds: Annotated[
        float | None, typer.Option(help="From one round to the next, at least.", show_default="10")
    ] = None,
    deadline: Annotated[
        float | None, typer.Option(help="Seconds after which a round closes anyway.", show_default="3/2 of it")
    ] = None,
    lease: Annotated[
        float | None, typer.Option(help="Seconds that work lasts unrenewed.", show_default="deadline")
    ] = None,
    wait_for: Annotated[
        int | None, typer.Option(help="Close no round before so many have enrolled.", show_default="1")
    ] = None,
    changes: choices.Changes = None,
    host: Annotated[str, typer.Option(help="Where devices connect.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes any that is free.")] = 8440,
    certificate: Annotated[Path | None, typer.Option(help="PEM, for TLS.", show_default="no TLS")] = None,
    key: Annotated[Path | None, typer.Option(help="Its key, PEM.", show_default=False)] = None,
    operator_host: Annotated[str, typer.Option(help="Where the operator's page is.")] = "127.0.0.1",
    operator_port: Annotated[int, typer.Option(help="0 takes any that is free.")] = 8441,
    operator_certificate: Annotated[Path | None, typer.Option(help="PEM, for TLS.", show_default="no TLS")] = None,
    operator_key: Annotated[Path | None, typer.Option(help="Its key, PEM.", show_default=False)] = None,
    operator_name: Annotated[
        list[str] | None, typer.Option(help="A name that browsers call the page by.", show_default="the host")
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option(help="The operator's password; made if it is not there.", show_default="<store>.password"),
    ] = None,
    most_connections: Annotated[int, typer.Option(help="Of devices, at a time.")] = 12_000,
    log_format: Annotated[str, typer.Option(help="json, human, or auto.")] = "auto",
) -> None:
    """Run the coordinator: it needs so many devices in each round, and tells them one number.

    A new run needs --capacity and --missing; an existing store is continued where it stopped.

    [bold]Example:[/bold] turnout serve --capacity 5 --missing absent
    """
    try:
        from turnout.service.listeners import run_in_loop
        from turnout.service.serve import Place, begin_or_continue
        from turnout.service.serve import serve as go
    except ImportError as problem:
        if isinstance(problem, MissingExtra):
            raise
        raise MissingExtra("turnout serve", library=str(problem.name), extra="server") from None
    from turnout.service.logs import start_logging
    from turnout.service.store import open_store

    options: dict[str, Any] = {
        "safety.missing": missing,
        "safety.hard_limit": hard_limit,
        "timing.round": round_seconds,
        "timing.deadline": deadline,
        "timing.lease": lease,
        "wait_for": wait_for,
        "mechanism.kind": mechanism,
        "mechanism.epsilon": epsilon,
        "controller.kind": controller,
    }
    start_logging(log_format)
    given = _given(settings, options | {"capacity": capacity}, changes or [])
    opened = open_store(store, create="capacity" in given)
    made = begin_or_continue(opened, run, given)
    secret = _password(store, password_file)
    devices = Place(host, port, certificate, key, most_connections=most_connections)
    operator = Place(operator_host, operator_port, operator_certificate, operator_key, tuple(operator_name or ()), 1000)

    def bound(listeners: Mapping[str, Bound]) -> None:
        typer.echo(f"run {made.name}, kept in {store.rpartition('@')[2]}")
        typer.echo(f"devices connect to {listeners['devices'].url}")
        typer.echo(f"operator's page {listeners['operator'].url} (user operator, password in {secret[0]})")

    run_in_loop(go(opened, devices, operator, secret[1], bound=bound))
    typer.echo("stopped: the open round stays open, start it again to go on")


def _given(settings: Path | None, options: dict[str, Any], changes: list[str]) -> dict[str, Any]:
    """What the file and the options say."""
    from turnout.settings import read_toml

    values = read_toml(settings) if settings else {}
    for name, value in (options | choices.read_changes(changes)).items():
        choices.put(values, name, value)
    if options["mechanism.epsilon"] is not None:
        values["mechanism"].setdefault("kind", "clamp")
    return values


def _password(store: str, path: Path | None) -> tuple[Path, str]:
    """The password's file, made if it is not there, and the hash to check against."""
    from turnout.service.password import new_password_file, password_hash

    if path is None:
        path = Path("turnout.password" if "://" in store else f"{store}.password")
    if not path.exists():
        new_password_file(path)
    return path, password_hash(path)
