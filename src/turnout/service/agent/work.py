"""A device's work: what it may be, the lease that bounds it, and work as two commands: one does it, one ends it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Protocol

from turnout.errors import FileProblem, TurnoutError, invalid
from turnout.files import Disk
from turnout.service import boot_clock

MARKER = "working.json"

TICK = 0.5
"""Seconds between two looks at the clock while work is on: a sleeping machine wakes no timer."""

AGAIN = 5.0
"""Seconds until an end that failed is tried again."""


@dataclass(frozen=True)
class Participation:
    """An acknowledged "yes".

    Attributes:
        run: the run's name.
        round: the round.
        until: when the lease ends, on the agent's clock.
        seconds: how long that is from now.
    """

    run: str
    round: int
    until: float = 0.0
    seconds: float = 0.0


class Work(Protocol):
    """What a device does for a participation."""

    def start(self, participation: Participation) -> None:
        """Start it, or let it continue; called for every acknowledged participation."""
        ...

    def stop(self, participation: Participation) -> None:
        """End it; may be called twice, and where nothing was started."""
        ...


@dataclass(frozen=True)
class CalledWork:
    """Two functions as work.

    Args:
        on_participate: called with every acknowledged participation; may take its time.
        on_stop: called when a lease ends, at once, also while the other still runs; may be called twice.

    Example:
        >>> CalledWork(print).start(Participation("run", 3))
        Participation(run='run', round=3, until=0.0, seconds=0.0)
    """

    on_participate: Callable[[Participation], None] | None = None
    on_stop: Callable[[], None] | None = None

    def start(self, participation: Participation) -> None:
        """Call the one."""
        if self.on_participate is not None:
            self.on_participate(participation)

    def stop(self, participation: Participation) -> None:
        """Call the other."""
        if self.on_stop is not None:
            self.on_stop()


class Lease:
    """Keeps work within its lease; `close` it or use `with`.

    Args:
        work: what is started and ended.
        marker: the file that says that work is on.
        clock: seconds; `boot_clock` unless given.
        noted: called with a sentence about each failure.
        disk: the durable steps.
        tick: seconds between two looks at the clock.
    """

    def __init__(
        self,
        work: Work,
        marker: Path,
        *,
        clock: Callable[[], float] = boot_clock,
        noted: Callable[[str], None] = lambda problem: None,
        disk: Disk | None = None,
        tick: float = TICK,
    ) -> None:
        self._work, self._marker, self._clock, self._told = work, marker, clock, noted
        self._disk, self._tick = disk or Disk(), tick
        self._current: Participation | None = None
        self._starting = False
        self._closing = self._gone = False
        self._retry_at = 0.0
        self._owed = self._found()  # work whose end is owed
        self._ready = threading.Event()
        self._orders: SimpleQueue[Participation | None] = SimpleQueue()
        self._starts: SimpleQueue[Participation | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=target, name=f"turnout-{target.__name__.strip('_')}", daemon=True)
            for target in (self._keep_time, self._start_work)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def current(self) -> Participation | None:
        """The participation under which work is on; None if there is none."""
        return self._current

    def wait_until_ready(self, seconds: float = 60.0) -> None:
        """Until work that a killed agent had left on has been ended, or at least tried to be."""
        self._ready.wait(seconds)

    def grant(self, participation: Participation) -> None:
        """Start work, or let it continue until the new end."""
        self._orders.put(participation)

    def end(self) -> None:
        """End work at once. Returns at once; safe in a signal's handler."""
        self._orders.put(None)

    def close(self, seconds: float = 60.0) -> None:
        """End work, wait until it has ended, at most so long, and end both threads."""
        self._closing = True
        self._orders.put(None)
        self._threads[0].join(seconds)
        self._starts.put(None)
        self._threads[1].join(0.1)

    def _keep_time(self) -> None:
        if self._owed is not None:
            self._finish()
        self._ready.set()
        while True:
            try:
                order = self._orders.get(timeout=self._patience())
                if order is not None and order.until > self._clock() and not self._closing:
                    self._renew(order)
                else:
                    self._finish()
            except Empty:
                pass
            now = self._clock()
            if self._current is not None:
                if self._current.until <= now:
                    self._finish()
            elif self._owed is not None and self._retry_at <= now and not self._starting:
                self._finish()
            if self._closing and self._current is None:
                break
        self._gone = True  # before the look at the other thread, which looks in the other order
        if self._owed is not None and not self._starting:
            self._finish()

    def _patience(self) -> float | None:
        """Until the end of the lease, or the next look at the clock; for ever while nothing is on."""
        if self._current is None and self._owed is None:
            return None
        end = self._retry_at if self._current is None else self._current.until
        return min(self._tick, max(0.001, end - self._clock()))

    def _renew(self, granted: Participation) -> None:
        """The marker first: no work is on without it."""
        try:
            body = {"run": granted.run, "round": granted.round}
            self._disk.put(self._marker, json.dumps(body).encode() + b"\n")
        except OSError as error:
            self._noted(f"{self._marker}: cannot be written ({error.strerror}): work is not started")
            if self._current is None:
                return
        self._owed = self._current = granted
        self._starts.put(granted)

    def _finish(self) -> None:
        """End what is on or owed; the marker goes only when nothing can be on any more."""
        self._current, owed = None, self._owed
        if owed is None:
            return
        try:
            self._work.stop(owed)
        except Exception as error:
            self._retry_at = self._clock() + AGAIN
            self._noted(f"ending the work of round {owed.round} failed ({_said(error)}): it will be tried again")
            return
        if self._starting:  # it ends again, once that has returned
            self._retry_at = self._clock() + AGAIN
            return
        try:
            self._marker.unlink(missing_ok=True)
            self._disk.sync_folder(self._marker.parent)
        except OSError as error:
            self._noted(f"{self._marker}: cannot be removed ({error.strerror}): work will be ended again")
        self._owed = None

    def _start_work(self) -> None:
        while (granted := self._starts.get()) is not None:
            self._starting = True  # before the look at the lease: `_finish` looks in the other order
            try:
                if self._current is not None and granted.until > self._clock():
                    self._work.start(granted)
            except Exception as error:
                self._noted(f"starting the work of round {granted.round} failed ({_said(error)})")
            finally:
                self._starting = False
                if self._current is None and self._owed is not None:
                    self._finish() if self._gone else self._orders.put(None)

    def _noted(self, problem: str) -> None:
        with suppress(Exception):  # the callback may fail; the lease still ends in time
            self._told(problem)

    def _found(self) -> Participation | None:
        """Work that a killed agent has left; of a marker that cannot be read, that there was some."""
        try:
            found = json.loads(self._marker.read_bytes())
            return Participation(str(found["run"]), int(found["round"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            return Participation("unknown", 0)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


GRACE = 10.0
"""Seconds from asking the work's process to end until it is killed; and the longest that the ending command runs."""

PROCESS_FILE = "process.json"


class CommandFailed(TurnoutError):
    """The command that ends work failed: the device may still be on."""


class CommandWork:
    """Commands as work: run without a shell, in a process group of their own.

    While the process of an earlier round runs, a renewed lease lets it continue; otherwise it is started again. When
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
            CommandFailed: the ending command failed. What is left of the work was ended nevertheless.
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
        pid = left_over(self._note)
        if pid is None:
            return
        _signal(pid, signal.SIGTERM)
        waited = threading.Event()  # never set: it only sleeps
        for _ in range(max(1, round(self._grace / 0.05))):
            if left_over(self._note) != pid:
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


def left_over(note: Path) -> int | None:
    """The process that is noted as the device's work; None if it does not run any more."""
    try:
        found = json.loads(note.read_bytes())
        pid, identity = int(found["pid"]), str(found["identity"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if pid > 1 and identity and _identity(pid) == identity else None
