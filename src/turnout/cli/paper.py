"""`turnout paper`: reproduce the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnout.errors import FileProblem


def paper(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where everything goes.")] = Path("results/paper"),
) -> None:
    """Reproduce every figure of the paper, check its claims, and write one page about it.

    Ctrl-C keeps what is done; the next time only the rest is made.

    [bold]Example:[/bold] turnout paper
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    from turnout.paper import reproduce

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileProblem(f"{output}: cannot be written ({error.strerror}): choose another folder") from error
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:20}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        tasks: dict[str, TaskID] = {}

        def say(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done)

        report = reproduce(output, say)
    typer.echo(report)
