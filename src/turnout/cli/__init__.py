"""The command line. Each command is a module of its own, and loads its libraries when it runs.

A device's command, `turnout join`, needs the base install alone; all others are in `turnout.cli.commands`.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

from turnout._lazy import lazy
from turnout.errors import MissingExtra, TurnoutError, invalid
from turnout.version import __version__

if TYPE_CHECKING:
    from turnout.cli.commands import app

__all__ = ["app", "main"]

EXTRAS = {
    "lab": ("simulate", "optimum", "show", "report", "paper", "plan", "frontier", "attack", "audit", "sweep"),
    "server": ("serve", "fleet", "status", "operate"),
}
"""The commands that need more than the base install, by the extra that brings it."""

__getattr__, _ = lazy(__name__, {"commands": ("app",)}, library="typer", extra="lab")


def _note(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning as one line, without the place in our code that it comes from."""
    print(f"note: {' '.join(str(message).split())}", file=sys.stderr)


def main() -> None:
    """Run the command line; an error is one readable line and a non-zero exit."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("once", category=UserWarning, module="turnout")
            warnings.showwarning = _note
            _run(sys.argv[1:])
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


def _run(words: list[str]) -> None:
    if words[:1] == ["join"]:
        from turnout.cli.join import run

        run(words[1:])
        return
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ModuleNotFoundError as missing:
        if missing.name not in ("rich", "typer"):
            raise
        _without_typer(words, missing.name)
        return
    from turnout.cli.commands import app

    app()


def _without_typer(words: list[str], library: str) -> None:
    """What a device's install can answer about the commands that it does not have."""
    first = words[0] if words else "--help"
    if first == "--version":
        print(f"turnout {__version__}")
        return
    if first == "--help":
        lines = [
            "Usage: turnout COMMAND [OPTIONS]",
            "",
            "  join: participate in a run as one device (turnout join --help)",
        ]
        lines += [f"  with pip install 'turnout[{extra}]': {', '.join(names)}" for extra, names in EXTRAS.items()]
        print("\n".join(lines))
        return
    for extra, names in EXTRAS.items():
        if first in names:
            raise MissingExtra(f"turnout {first}", library=library, extra=extra)
    if first.startswith("-"):  # completion of the shell
        raise MissingExtra(f"turnout {first}", library=library, extra="lab")
    known = ", ".join(("join", *(name for names in EXTRAS.values() for name in names)))
    raise invalid("command", f"one of {known}", first, "see `turnout --help`")
