"""Which tests may notice a mutant: what each executes, and how long it takes."""

from __future__ import annotations

import itertools
import json
import signal
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mutants import MUTATED, PACKAGE, Mutant
from mutation_forks import forget_caches

SLOWEST_TEST = 4.0
"""Seconds of the processor: what takes longer is not run against mutants."""
BUDGET = 12.0
"""Seconds of tests for one mutant, the fastest first; what only slower ones would notice counts as unnoticed."""


@dataclass(frozen=True)
class Tests:
    """What is known of the tests: seconds of each, and which of them execute a line, by file and line."""

    seconds: dict[str, float]
    lines: dict[str, dict[int, list[str]]]

    def of(self, mutant: Mutant) -> list[str]:
        """The tests that may notice a mutant, the fastest first."""
        lines = self.lines.get(mutant.module, {})
        touching = {test for tests in lines.values() for test in tests}
        own = set(lines.get(mutant.line, []) if mutant.inside_function else []) or touching
        folder, stem = Path(mutant.module).parent.name, Path(mutant.module).stem
        beside = {test for test in touching if f"{folder}/test_{stem.split('_')[0]}" in test or mutant.module in test}
        ordered = [*sorted(own, key=self.seconds.__getitem__), *sorted(beside - own, key=self.seconds.__getitem__)]
        spent = itertools.accumulate(self.seconds[test] for test in ordered)
        return [test for test, seconds in zip(ordered, spent, strict=True) if seconds <= BUDGET]


class Harness:
    """A pytest plugin that does its work in forks of one process in which the tests are collected."""

    def __init__(self, work: Any) -> None:
        self.work, self.failed, self.seconds = work, False, defaultdict[str, float](float)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of running the tests."""
        session.config.pluginmanager.unregister(name="terminalreporter")
        self.work(self, session.items)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called for each phase of each test that a fork runs."""
        self.failed = self.failed or report.failed

    def passes(self, item: pytest.Item, following: pytest.Item | None) -> bool:
        """Run one test, in a fork."""
        self.failed, begin = False, time.process_time()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        self.seconds[item.nodeid] = time.process_time() - begin
        return not self.failed


def learn(harness: Harness, items: Sequence[pytest.Item], file: Path) -> int:
    """In a fork: run tests under coverage, and add their lines and seconds to the file."""
    import coverage

    measured = coverage.Coverage(data_file=None, source=[str(PACKAGE / name) for name in MUTATED], config_file=False)
    signal.signal(signal.SIGPROF, _too_slow)
    measured.start()
    usable, slow = set(), set()
    for index, item in enumerate(items):
        family = item.nodeid.partition("[")[0]
        if family in slow:
            continue
        forget_caches()
        measured.switch_context(item.nodeid)
        signal.setitimer(signal.ITIMER_PROF, 1.5 * SLOWEST_TEST)
        passed = harness.passes(item, items[index + 1] if index + 1 < len(items) else None)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        if harness.seconds[item.nodeid] > SLOWEST_TEST:
            slow.add(family)  # the others of its parameters are not tried
        elif passed:
            usable.add(item.nodeid)
    measured.stop()
    data = measured.get_data()
    known = json.loads(file.read_text()) if file.exists() else {"seconds": {}, "lines": {}, "left_out": []}
    for name in data.measured_files():
        lines = known["lines"].setdefault(Path(name).relative_to(PACKAGE).as_posix(), {})
        for line, tests in data.contexts_by_lineno(name).items():
            lines[str(line)] = sorted(usable.intersection(tests).union(lines.get(str(line), [])))
    known["left_out"] += sorted({item.nodeid for item in items} - usable)
    known["seconds"] |= {test: harness.seconds[test] for test in usable}
    file.write_text(json.dumps(known))
    return 0


def _too_slow(number: int, frame: Any) -> None:
    raise TimeoutError("too slow to be run against mutants")


def read_tests(file: Path) -> Tests:
    """What `learn` wrote."""
    found = json.loads(file.read_text())
    lines = {name: {int(line): tests for line, tests in table.items()} for name, table in found["lines"].items()}
    return Tests(found["seconds"], lines)
