"""Spread pieces of work over the cores of this machine, or over a Ray cluster."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from turnout.errors import MissingExtra, TurnoutError, invalid, nearest

_PLACES = ("cores", "ray")

_AHEAD = 4  # pieces waiting for each worker, so that none is ever idle

RAY_REMEDY = "start it, or unset RAY_ADDRESS to use this machine alone"

_ANSWER_SECONDS = 3.0  # for a cluster's address to accept a connection


def spread(
    work: Callable[[Any], Any], tasks: Sequence[Any], *, on: str = "cores", jobs: int | None = None
) -> Generator[Any, None, None]:
    """The results of work(task) for all tasks, each as soon as it is there, in any order.

    Args:
        work: a function of a module, which other processes can import.
        tasks: what to call it with; what can be pickled.
        on: "cores", or "ray" (the cluster that RAY_ADDRESS names, or one started here).
        jobs: how many at a time; as many as there are cores, unless given. One runs in this very process.

    Raises:
        ValueError: no such place, or no job.
        MissingExtra: Ray is not installed.
        TurnoutError: a worker died.

    Example:
        >>> list(spread(abs, [1, -2], jobs=1))
        [1, 2]
    """
    if on not in _PLACES:
        remedy = nearest(on, _PLACES, "leave it out for the cores of this machine")
        raise invalid("on", f"one of {', '.join(_PLACES)}", f"{on!r}", remedy)
    if jobs is not None and jobs < 1:
        raise invalid("jobs", "1 or more", jobs, "leave it out to use all cores")
    if on == "ray":
        return _on_ray(work, tasks, jobs)
    jobs = min(jobs or available_cores(), max(1, len(tasks)))
    return _here(work, tasks) if jobs == 1 else _on_cores(work, tasks, jobs)


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _here(work: Callable[[Any], Any], tasks: Sequence[Any]) -> Generator[Any, None, None]:
    for task in tasks:
        yield work(task)


def _on_cores(work: Callable[[Any], Any], tasks: Sequence[Any], jobs: int) -> Generator[Any, None, None]:
    """Processes made afresh; they end with this one, however it ends."""
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_end_with, initargs=(theirs,))
    todo, waiting = iter(tasks), set[Future[Any]]()
    try:
        while True:
            with _interrupt_held_back():  # also in the workers that are started here, for good
                waiting |= {pool.submit(work, task) for task in itertools.islice(todo, _AHEAD * jobs - len(waiting))}
            if not waiting:
                return
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (one.result() for one in done)
    except BrokenProcessPool as error:
        raise TurnoutError(
            "a worker process died (killed, or out of memory): start again to continue, with fewer jobs"
        ) from error
    finally:
        ours.close()  # stops the workers, also in the middle of their work
        pool.shutdown(wait=True, cancel_futures=True)
        theirs.close()


def _end_with(pipe: Any) -> None:
    """End this worker as soon as the other end of the pipe is closed: nothing outlives a killed parent."""

    def watch() -> None:
        with contextlib.suppress(EOFError, OSError):
            pipe.recv_bytes()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def _interrupt_held_back() -> Iterator[None]:
    """Ctrl-C comes after the block; processes that start within never get it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def silent_cluster() -> str:
    """Which Ray cluster is named (by RAY_ADDRESS, or by Ray's own file here) and does not answer; "" if none.

    Ray itself tries such an address for minutes. The file outlives a machine's restart and a cluster that was killed.
    """
    named = os.environ.get("RAY_ADDRESS", "")
    address, source = named, f"RAY_ADDRESS={named}"
    if named in ("", "auto"):
        file = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()) / "ray" / "ray_current_cluster"
        try:
            address, source = file.read_text().strip(), f"the address in {file}"
        except OSError:
            return ""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    if not host or not port.isdigit():
        return ""  # of another form: Ray's to judge
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_SECONDS).close()
    except OSError:
        return f"{source} ({host}:{port})"
    return ""


def _on_ray(work: Callable[[Any], Any], tasks: Sequence[Any], jobs: int | None) -> Generator[Any, None, None]:
    """Ray's own tasks, one core each; Ray itself runs one again whose node is lost."""
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise MissingExtra("on='ray'", library="ray", extra="cluster") from None
    started_here = not ray.is_initialized()
    if started_here:
        if os.environ.get("RAY_ADDRESS") and (silent := silent_cluster()):
            raise TurnoutError(f"no Ray cluster answers at {silent}: {RAY_REMEDY}")
        local = {"address": "local", "num_cpus": jobs, "include_dashboard": False}
        ray.init(log_to_driver=False, logging_level="ERROR", **({} if os.environ.get("RAY_ADDRESS") else local))
    try:
        remote = ray.remote(num_cpus=1)(work)
        at_a_time = jobs or _AHEAD * int(ray.cluster_resources().get("CPU", 1))
        todo, waiting = iter(tasks), list[Any]()
        while True:
            waiting += [remote.remote(task) for task in itertools.islice(todo, at_a_time - len(waiting))]
            if not waiting:
                return
            done, waiting = ray.wait(waiting, num_returns=1)
            yield from ray.get(done)
    except ray.exceptions.RayError as error:
        raise TurnoutError(f"the Ray cluster failed ({type(error).__name__}): start again to continue") from error
    finally:
        if started_here:
            ray.shutdown()
