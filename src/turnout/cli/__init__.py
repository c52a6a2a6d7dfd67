"""The command line. Each command is a module of its own, and loads its libraries when it runs."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import typer

from turnout.cli.attack import attack
from turnout.cli.audit import audit
from turnout.cli.fleet import fleet
from turnout.cli.join import join
from turnout.cli.operate_rules import app as operate
from turnout.cli.paper import paper
from turnout.cli.plan import frontier, plan
from turnout.cli.serve import serve
from turnout.cli.show import report, show
from turnout.cli.simulate import optimum, simulate
from turnout.cli.status import status
from turnout.cli.sweep import sweep
from turnout.errors import TurnoutError
from turnout.version import __version__

app = typer.Typer(
    name="turnout",
    help="Clients that decide for themselves: private, cost-aware participation with one public number.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
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
app.command()(join)
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


def _note(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning as one line, without the place in our code that it comes from."""
    print(f"note: {' '.join(str(message).split())}", file=sys.stderr)


def main() -> None:
    """Run the command line; an error is one readable line and a non-zero exit."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("once", category=UserWarning, module="turnout")
            warnings.showwarning = _note
            app()
    except (ValueError, TurnoutError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:  # before or after the rounds; within them `simulate` keeps what is done
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        if os.environ.get("TURNOUT_DEBUG"):
            raise
        said = " ".join(str(error).split())
        print(f"error: {type(error).__name__}: {said}: check the input (TURNOUT_DEBUG=1 shows where)", file=sys.stderr)
        sys.exit(2)
