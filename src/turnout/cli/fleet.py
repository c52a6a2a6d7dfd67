"""`turnout fleet`: many simulated devices against a coordinator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli import choices
from turnout.errors import FileProblem, invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnout.problem import Costs
    from turnout.service.load_test import Fleet, FleetRecord, Rehearsal

KEPT = 256
"""Rounds whose bits stay in memory."""


def fleet(
    url: Annotated[str, typer.Argument(help="Of the coordinator, such as http://127.0.0.1:8440.")],
    codes: Annotated[Path, typer.Option(help="One-time codes, one per line, as `turnout operate codes` prints them.")],
    devices: Annotated[
        int | None, typer.Option(help="How many devices; device i takes line i.", show_default="one per code")
    ] = None,
    population: choices.PopulationChoice = None,
    population_seed: choices.PopulationSeed = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of the coins, for a run that equals a simulation.", show_default="the system's coins"),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(help="Stop after this number of rounds of every device.", show_default="until Ctrl-C"),
    ] = None,
    late: Annotated[
        str | None,
        typer.Option(help="SHARE or SHARE:SECONDS: these report late, by up to 5 seconds.", show_default=False),
    ] = None,
    cut: Annotated[
        str | None,
        typer.Option(
            help="SHARE:FIRST:ROUNDS: these are offline for ROUNDS rounds from FIRST on, then back at once.",
            show_default=False,
        ),
    ] = None,
    ca: Annotated[
        Path | None, typer.Option(help="For https: the certificates to trust, a PEM file.", show_default="the system's")
    ] = None,
    as_json: choices.AsJson = False,
) -> None:
    """Simulate many devices of a coordinator, each with a real connection: for rehearsals and load tests.

    Every device has the costs of a client of the population, and decides as a real one does. Ctrl-C ends it.

    Nothing is kept on disk: a fleet that is started again enrols again. A real device runs `turnout join`.

    [bold]Example:[/bold] turnout fleet http://127.0.0.1:8440 --codes codes.txt --cut 0.95:200:50
    """
    from turnout.service.load_test import Fleet

    if rounds is not None and rounds < 1:
        raise invalid("--rounds", "1 or more", rounds, "leave it out to continue until Ctrl-C")
    words = _read_codes(codes)
    costs = _costs(len(words) if devices is None else devices, devices is None, population, population_seed)
    rehearsal = _rehearsal(late, cut)

    def prepared(progress: Callable[[FleetRecord], None]) -> Fleet:
        return Fleet(url, costs, words, seed=seed, ca=ca, rehearsal=rehearsal, keep=KEPT, progress=progress)

    record = _go(prepared, rounds, as_json)
    typer.echo(record.json()) if as_json else _report(record)
    if record.interrupted:
        raise typer.Exit(130)


def _read_codes(path: Path) -> list[str]:
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise FileProblem(f"{path}: cannot be read ({error}): write codes with `turnout operate codes`") from None
    words = [line.split()[0] for line in lines if line and not line.startswith("#")]
    if lines and lines[0] == "label,site,code":  # as `turnout operate codes --from` prints it
        words = [line.rpartition(",")[2] for line in lines[1:] if line]
    if not words:
        raise FileProblem(f"{path}: holds no codes: write some with `turnout operate codes`")
    return words


def _costs(count: int, all_there_are: bool, population: str | None, seed: int | None) -> Costs:
    """The costs of the first clients of a population."""
    from turnout.problem import read_population

    if count < 1:
        raise invalid("--devices", "1 or more", count, "leave it out for one per code")
    source = population or "paper"
    named = source in ("paper", "paper-drawn")
    clients = read_population(source, seed=seed, clients=-(-count // 4) * 4 if named else None)
    if len(clients) < count and not all_there_are:
        raise invalid("--devices", f"at most the population's {len(clients)}", count, "give a larger population")
    return clients.costs[: min(count, len(clients))]


def _rehearsal(late: str | None, cut: str | None) -> Rehearsal:
    from turnout.service.load_test import Rehearsal

    given: dict[str, Any] = {}
    try:
        if late is not None:
            share, _, seconds = late.partition(":")
            given |= {"late": float(share)} | ({"late_seconds": float(seconds)} if seconds else {})
        if cut is not None:
            share, first, many = cut.split(":")
            given |= {"cut": float(share), "cut_first": int(first), "cut_rounds": int(many)}
    except ValueError:
        remedy = "write --late 0.1 or --late 0.1:8, --cut 0.95:200:50"
        raise invalid("--late and --cut", "SHARE[:SECONDS] and SHARE:FIRST:ROUNDS", f"{late}, {cut}", remedy) from None
    return Rehearsal(**given)


def _go(prepared: Callable[..., Fleet], rounds: int | None, as_json: bool) -> FleetRecord:
    """Run it, and show its progress."""
    import asyncio
    import signal

    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    from turnout.service import run_in_loop

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=as_json or not console.is_terminal) as bar:
        task = bar.add_task("connecting")
        fleet = prepared(lambda record: bar.update(task, description=_line(record)))

        async def run() -> FleetRecord:
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, fleet.stop)
            return await fleet.run(rounds)

        return run_in_loop(run())


def _line(record: FleetRecord) -> str:
    """The progress, in one line."""
    if record.enrolled < record.devices and not record.faults["refused"]:
        return f"{record.enrolled:,} of {record.devices:,} devices enrolled"
    answered = [seen for seen in list(record.rounds.values())[-3:] if seen.answered.any()]
    turnout = f", turnout {int(answered[-1].acknowledged @ record.weights):,}" if answered else ""
    rate = record.requests / max(record.seconds, 1e-9)
    return (
        f"round {max(record.rounds, default=0):,}{turnout}, {rate:,.0f} requests/s, "
        f"{record.reconnects:,} reconnects, {sum(record.faults.values()):,} faults"
    )


def _report(record: FleetRecord) -> None:
    facts = record.summary()
    typer.echo(f"{facts['rounds']:,} rounds of {facts['enrolled']:,} devices in run {facts['run']!r}")
    typer.echo(f"{facts['requests']:,} requests, {facts['requests_per_second']:,.0f} a second")
    if facts["answers_p50_seconds"] is not None:
        p50, p99 = 1e3 * facts["answers_p50_seconds"], 1e3 * facts["answers_p99_seconds"]
        typer.echo(f"first to last answer of a round: {p50:,.0f} ms (median), {p99:,.0f} ms (99th percentile)")
    typer.echo(f"{facts['reconnects']:,} reconnects")
    faults = ", ".join(f"{count:,} × {name}" for name, count in facts["faults"].items())
    typer.echo(f"faults: {faults or 'none'}")
    if record.interrupted:
        typer.echo("interrupted; nothing is kept on disk: the next fleet enrols again")
