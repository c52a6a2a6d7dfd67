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
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from turnout.paper import FIGURES, SETTINGS, mechanisms, reproduce

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileProblem(f"{output}: cannot be written ({error.strerror}): choose another folder") from error
    runs = SETTINGS["seeds"].value * len(mechanisms())
    stages = ["one run in full", "seeds", "populations", "forecast", *(f"figure {figure.NAME}" for figure in FIGURES)]
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:28}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        tasks = {stage: bar.add_task(stage, total=None, visible=False) for stage in [*stages, "claims and report"]}
        current = ""

        def say(stage: str, done: int) -> None:
            nonlocal current
            if stage != current and current:
                bar.update(tasks[current], total=1, completed=1)
            current = stage
            bar.update(
                tasks[stage], total=runs if stage in ("seeds", "populations") else None, completed=done, visible=True
            )

        report = reproduce(output, say)
        bar.update(tasks[current], total=1, completed=1)
    typer.echo(report)
