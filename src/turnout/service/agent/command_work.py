"""A device's work as two commands: one that does it, one that ends it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from turnout.errors import FileProblem, TurnoutError, invalid
from turnout.privacy.journal import Disk
from turnout.service.agent.lease import Participation

GRACE = 10.0
"""Seconds from asking the work's process to end until it is killed; and the longest that the ending command runs."""

PROCESS_FILE = "process.json"


class CommandFailed(TurnoutError):
    """The command that ends work failed: the device may still be on.

    Example:
        >>> issubclass(CommandFailed, TurnoutError)
        True
    """


class CommandWork:
    """Commands as work: run without a shell, in a process group of their own.

    While the process of an earlier round runs, a renewed lease lets it go on; otherwise it is started anew. When
    the lease ends, the ending command runs; then whatever is left of the work's process group is asked to end, and
    killed after a grace.

    Args:
        on_participate: a command line, split as a shell splits it; its environment has TURNOUT_RUN, TURNOUT_ROUND
            and TURNOUT_LEASE_SECONDS.
        on_stop: likewise, with TURNOUT_RUN and TURNOUT_ROUND.
        folder: where the process is noted, so that the next agent ends it if this one is killed.
        grace: seconds.

    Raises:
        ValueError: no command line.
        FileProblem: no such program.
    """

    def __init__(self, on_participate: str | None, on_stop: str | None, folder: Path, *, grace: float = GRACE) -> None:
        self._participate = _split("on-participate", on_participate)
        self._stop = _split("on-stop", on_stop)
        self._note, self._grace = folder / PROCESS_FILE, grace
        self._process: subprocess.Popen[bytes] | None = None
        self._mutex = threading.Lock()

    def start(self, participation: Participation) -> None:
        """Start the command, unless the one of an earlier round still runs."""
        with self._mutex:
            if not self._participate or (self._process is not None and self._process.poll() is None):
                return
            seconds = f"{participation.seconds:.3f}"
            environment = _environment(participation) | {"TURNOUT_LEASE_SECONDS": seconds}
            self._process = subprocess.Popen(
                self._participate, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
            )
            identity = {"pid": self._process.pid, "identity": _identity(self._process.pid)}
            Disk().put(self._note, json.dumps(identity).encode() + b"\n")

    def stop(self, participation: Participation) -> None:
        """Run the ending command, then end what is left of the work.

        Raises:
            CommandFailed: the ending command failed. What is left of the work was ended all the same.
        """
        try:
            self._run_stop(participation)
        finally:
            with self._mutex:
                self._end_process()

    def _run_stop(self, participation: Participation) -> None:
        if not self._stop:
            return
        process = subprocess.Popen(
            self._stop, stdin=subprocess.DEVNULL, env=_environment(participation), start_new_session=True
        )
        try:
            code = process.wait(self._grace)
        except subprocess.TimeoutExpired:
            _signal(process.pid, signal.SIGKILL)
            process.wait()
            raise CommandFailed(f"on-stop took more than {self._grace:g} s and was killed: make it quick") from None
        if code:
            raise CommandFailed(f"on-stop ended with status {code}: correct the command")

    def _end_process(self) -> None:
        """Of this agent, or of an earlier one that was killed."""
        process = self._process
        if process is not None:
            running = process.poll() is None
            _signal(process.pid, signal.SIGTERM)  # also what a dead leader has left behind in its group
            if running:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(self._grace)
            _signal(process.pid, signal.SIGKILL)
            process.wait()
            self._process = None
        else:
            self._end_left_over()
        self._note.unlink(missing_ok=True)

    def _end_left_over(self) -> None:
        try:
            found = json.loads(self._note.read_bytes())
            pid, identity = int(found["pid"]), str(found["identity"])
        except (OSError, ValueError, KeyError, TypeError):
            return
        if pid <= 1 or not identity or _identity(pid) != identity:
            return
        _signal(pid, signal.SIGTERM)
        waited = threading.Event()  # never set: it only sleeps
        for _ in range(max(1, round(self._grace / 0.05))):
            if _identity(pid) != identity:
                return
            waited.wait(0.05)
        _signal(pid, signal.SIGKILL)


def _split(name: str, command: str | None) -> list[str]:
    if command is None:
        return []
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise invalid(f"--{name}", "a command line", repr(command), f"correct its quotes ({error})") from None
    if not words:
        raise invalid(f"--{name}", "a command line", repr(command), "name a program, or leave it out")
    if shutil.which(words[0]) is None:
        raise FileProblem(f"{words[0]}: no such program for --{name}, or not executable: check the path")
    return words


def _environment(participation: Participation) -> dict[str, str]:
    return os.environ | {"TURNOUT_RUN": participation.run, "TURNOUT_ROUND": str(participation.round)}


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _identity(pid: int) -> str:
    """What tells a process from a later one with the same number: when it was started, in which boot; "" if gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return "" if fields[0] == "Z" else f"{boot} {fields[19]}"
    except (OSError, IndexError):
        return ""


def left_over(folder: Path) -> dict[str, Any] | None:
    """The process that is noted as the device's work, for a status; None if none runs."""
    try:
        found = json.loads((folder / PROCESS_FILE).read_bytes())
        return {"pid": found["pid"]} if _identity(int(found["pid"])) == found["identity"] != "" else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
