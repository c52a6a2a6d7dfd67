"""All commands in one application: its help, and what the shell completes. It needs typer and rich."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import click
import typer

from turnout.cli import choices
from turnout.cli.attack import attack
from turnout.cli.audit import audit
from turnout.cli.fleet import fleet
from turnout.cli.join import EXAMPLE, HELP, OPTIONS, URL, Option, join
from turnout.cli.operate_rules import app as operate
from turnout.cli.paper import paper
from turnout.cli.plan import frontier, plan
from turnout.cli.serve import serve
from turnout.cli.show import report, show
from turnout.cli.simulate import optimum, simulate
from turnout.cli.status import status
from turnout.cli.sweep import sweep
from turnout.version import __version__


def _join_command() -> Callable[..., None]:
    """`join` as typer takes it, from the table of its options; on the command line it is run without typer."""

    def command(**values: Any) -> None:
        join(**values)

    told = typer.Argument(help=URL.help, show_default=False)
    kinds: dict[str, Any] = {URL.name: Annotated[str | None, told]}
    for option in OPTIONS:
        kind: Any = option.kind if option.default is not None else option.kind | None
        kinds[option.name] = Annotated[kind, _typed(option)]
    defaults = {URL.name: None} | {option.name: option.default for option in OPTIONS}
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=kind)
        for name, kind in kinds.items()
    ]
    command.__doc__ = f"{HELP}\n\n    [bold]Example:[/bold] {EXAMPLE}"
    command.__annotations__ = kinds
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _typed(option: Option) -> Any:
    return typer.Option(
        option.written,
        help=option.help,
        envvar=option.variable or None,
        show_default=option.shown if option.default is None and option.shown else bool(option.shown),
        autocompletion=choices.one_of(*option.words) if option.words else None,
    )


# From 8.4 on, click suggests the nearest command itself: typer would say it twice.
_ONCE: dict[str, Any] = {"suggest_commands": False} if hasattr(click.exceptions, "NoSuchCommand") else {}

app = typer.Typer(
    name="turnout",
    help="Clients that decide for themselves: private, cost-aware participation with one public number.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    **{name: value for name, value in _ONCE.items() if name in inspect.signature(typer.Typer).parameters},
)
app.command()(simulate)
app.command()(optimum)
app.command()(show)
app.command()(report)
app.command()(paper)
app.command()(plan)
app.command()(frontier)
app.command()(attack)
app.command()(audit)
app.command()(sweep)
app.command()(serve)
app.command("join")(_join_command())
app.command()(fleet)
app.command()(status)
app.add_typer(operate)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"turnout {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass
