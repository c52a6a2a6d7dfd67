"""Forked copies of one process: in each a mutant is put in place, or one module is imported with its mistake."""

from __future__ import annotations

import contextlib
import gc
import importlib.abc
import importlib.util
import math
import os
import resource
import signal
import sys
import time
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mutants import PACKAGE, Mutant

MEMORY = 6 << 30


def forget_caches() -> None:
    """So that each test executes what it needs by itself."""
    for name, module in list(sys.modules.items()):
        if name.startswith("turnout"):
            for thing in vars(module).values():
                if callable(getattr(thing, "cache_clear", None)):
                    thing.cache_clear()


def put_in_place(mutant: Mutant) -> None:
    """In a fork: give every function of the mutant's module the code that it has with the mistake."""
    file = str(PACKAGE / mutant.module)
    new = {(code.co_qualname, code.co_firstlineno): code for code in _codes(compile(mutant.make(), file, "exec"))}
    for thing in gc.get_objects():
        if isinstance(thing, types.FunctionType) and thing.__code__.co_filename == file:
            code = new.get((thing.__code__.co_qualname, thing.__code__.co_firstlineno))
            if code is not None and code != thing.__code__:
                thing.__code__ = code
    forget_caches()


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


class Instead(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module with a mistake."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant, self.file = mutant, str(PACKAGE / mutant.module)
        parts = ["turnout", *Path(mutant.module).with_suffix("").parts]
        self.name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Only for the one module."""
        if name != self.name:
            return None
        places = [str(Path(self.file).parent)] if self.file.endswith("__init__.py") else None
        return importlib.util.spec_from_file_location(name, self.file, loader=self, submodule_search_locations=places)

    def exec_module(self, module: types.ModuleType) -> None:
        """The mistaken code."""
        exec(compile(self.mutant.make(), self.file, "exec"), vars(module))


def fork(work: Any, seconds: float) -> int:
    """Run `work() -> exit status` in a forked process of a group of its own; its output goes nowhere."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    status = 3
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds)))
        status = work()
    finally:
        os._exit(status)


def run_fork(works: Iterable[tuple[Any, float, Any]], jobs: int, report: Any) -> None:
    """Run (key, seconds allowed, work) in forks, some at a time, and report (key, exit status or None if endless).

    Seconds are the processor's; who does nothing for ten times as long is endless, too.
    """
    running: dict[int, tuple[Any, float]] = {}
    waiting, done = iter(works), False
    try:
        while running or not done:
            while not done and len(running) < jobs:
                key, limit, work = next(waiting, (None, 0.0, None))
                if work is None:
                    done = True
                    break
                running[fork(work, limit)] = (key, time.monotonic() + 10 * limit)
            for child, (key, end) in list(running.items()):
                found, status = os.waitpid(child, os.WNOHANG)
                if found or time.monotonic() > end:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(child, signal.SIGKILL)  # and what a test may have started
                    if not found:
                        os.waitpid(child, 0)
                    del running[child]
                    code = os.waitstatus_to_exitcode(status) if found else -signal.SIGXCPU
                    report(key, None if code in (-signal.SIGXCPU, -signal.SIGKILL) else code)
            time.sleep(0.005)
    finally:
        for child in running:
            os.killpg(child, signal.SIGKILL)
