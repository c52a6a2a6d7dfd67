"""Do the tests notice mistakes? Makes small mistakes in algorithm/ and privacy/ and runs the tests that execute them.

Everything is imported, and the tests are collected, once. A forked copy runs the fast tests under coverage: which test
executes which line, and how long it takes. Then each mutant gets a forked copy of its own, in which the code of one
function is replaced; it runs the tests of that line, the fastest first, until one fails (the mutant is killed). A
mutant of a module's own level (a constant, a default) is imported afresh instead, in a process that had not imported
the package. Seeds, time limits and the equivalent mutants (mutation_equivalent.toml, a reason each) make it repeatable.

    python tools/mutation.py --sample 600 --seed 0
    python tools/mutation.py --all --module algorithm/client.py
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.abc
import importlib.util
import itertools
import json
import math
import os
import random
import resource
import signal
import sys
import tempfile
import time
import tomllib
import types
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mutants import Mutant, mutants
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "turnout"
MUTATED = ("algorithm", "privacy")
TESTS = [f"tests/{name}" for name in ("algorithm", "privacy", "client", "statistical")]
TESTS += ["tests/conformance/test_mechanisms.py", "tests/conformance/test_stores.py"]
TESTS += [f"src/turnout/{name}" for name in ("algorithm", "privacy", "client")]  # their examples
SLOWEST_TEST = 4.0
"""Seconds of the processor: what takes longer is not run against mutants."""
BUDGET = 12.0
"""Seconds of tests for one mutant, the fastest first; what only slower ones would notice counts as unnoticed."""
PATIENCE = 15.0
"""Seconds of the processor, beside three times what the tests usually take: who needs more is caught in a loop."""
MEMORY = 6 << 30
COMPILED = ("algorithm/arithmetic", "algorithm/client", "algorithm/server", "algorithm/mechanism")
"""Modules of which the fast engine compiles functions: their mutants share no compiled code with anyone."""
KILLED, SURVIVED, ENDLESS, UNTESTED, EQUIVALENT = "killed", "survived", "endless", "untested", "equivalent"


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


def forget_caches() -> None:
    """So that each test executes what it needs by itself."""
    for name, module in list(sys.modules.items()):
        if name.startswith("turnout"):
            for thing in vars(module).values():
                if callable(getattr(thing, "cache_clear", None)):
                    thing.cache_clear()


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


def options(folder: str) -> list[str]:
    """Of pytest: nothing is written into the repository, and nothing is printed."""
    plain = "--assert=plain"  # rewriting would import the modules by another way than ours
    return ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", plain, f"--basetemp={folder}/tests"]


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


def sampled(all_mutants: list[Mutant], number: int, seed: int) -> list[Mutant]:
    """A sample in which each module has its share, at least one."""
    by_module = defaultdict(list)
    for mutant in all_mutants:
        by_module[mutant.module].append(mutant)
    source = random.Random(seed)
    chosen = []
    for module in sorted(by_module):
        own = by_module[module]
        chosen += source.sample(own, min(len(own), max(1, round(number * len(own) / len(all_mutants)))))
    source.shuffle(chosen)  # who is interrupted has a fair sample, too
    return chosen


def interval(killed: int, number: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a rate."""
    if not number:
        return 0.0, 1.0
    z, rate = 1.959964, killed / number
    middle, spread = rate + z * z / (2 * number), z * math.sqrt(rate * (1 - rate) / number + (z / (2 * number)) ** 2)
    return (middle - spread) / (1 + z * z / number), (middle + spread) / (1 + z * z / number)


def equivalents() -> dict[str, str]:
    """The reason of each equivalent mutant, by its name."""
    listed = tomllib.loads((ROOT / "tools" / "mutation_equivalent.toml").read_text())
    return {f"{entry['module']}:{entry['place']}: {entry['change']}": entry["reason"] for entry in listed["equivalent"]}


def judge(
    chosen: list[Mutant], tests: Tests, jobs: int, harness: Harness, items: Sequence[pytest.Item], folder: str
) -> list[str]:
    """What became of each mutant."""
    by_name = {item.nodeid: item for item in items}
    results = [""] * len(chosen)
    import numba

    def warm(mutant: Mutant, names: list[str], index: int) -> int:
        put_in_place(mutant)
        if mutant.module.startswith(COMPILED):
            numba.config.CACHE_DIR = f"{folder}/{index}"  # type: ignore[attr-defined]
        run = [by_name[name] for name in names if name in by_name]
        pairs = zip(run, [*run[1:], None], strict=True)
        return 0 if all(harness.passes(item, following) for item, following in pairs) else 1

    def works() -> Iterator[tuple[int, float, Any]]:
        for index, mutant in enumerate(chosen):
            names = tests.of(mutant)
            limit = PATIENCE + 3.0 * sum(tests.seconds[name] for name in names)
            if not names:
                results[index] = UNTESTED
                progress.advance(task)
            elif mutant.inside_function:
                yield index, limit, lambda mutant=mutant, names=names, index=index: warm(mutant, names, index)
            else:
                yield (
                    index,
                    limit + PATIENCE,
                    lambda mutant=mutant, names=names, index=index: cold(mutant, names, index),
                )

    def cold(mutant: Mutant, names: list[str], index: int) -> int:
        command = [sys.executable, __file__, "--one", mutant.name, "--tests", f"{folder}/{index}.json"]
        Path(f"{folder}/{index}.json").write_text(json.dumps(names))
        os.execve(sys.executable, command, os.environ | {"NUMBA_CACHE_DIR": f"{folder}/{index}"})

    def report(index: int, status: int | None) -> None:
        results[index] = ENDLESS if status is None else SURVIVED if status == 0 else KILLED
        if results[index] == SURVIVED:
            progress.console.print(f"{chosen[index].line} {chosen[index].name}", markup=False, highlight=False)
        progress.advance(task)

    with Progress(console=Console(stderr=True, soft_wrap=True, emoji=False)) as progress:
        task = progress.add_task("mutants", total=len(chosen))
        with contextlib.suppress(KeyboardInterrupt):  # what was judged so far is told
            run_fork(works(), jobs, report)
    return results


class Only:
    """A pytest plugin that keeps some tests; where a mistake changed the name of a parameter, all of its family."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """In the order of the names."""
        found = {item.nodeid: item for item in items}
        lost = {name.partition("[")[0] for name in self.names if name not in found}
        kept = [found[name] for name in self.names if name in found]
        items[:] = kept + [item for item in items if item.nodeid.partition("[")[0] in lost and item not in kept]


def one(name: str, tests: list[str]) -> int:
    """In a fresh process: import a module with a mistake, and run tests; 0 if all pass."""
    found = next(mutant for mutant in all_mutants() if mutant.name == name)
    sys.meta_path.insert(0, Instead(found))
    files = sorted({test.partition("::")[0] for test in tests})
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        return int(pytest.main([*options(folder), "-x", *files], plugins=[Only(tests)]))


def all_mutants(module: str = "") -> list[Mutant]:
    """Those of algorithm/ and privacy/, or of the modules whose name begins so."""
    files = sorted(path for name in MUTATED for path in (PACKAGE / name).rglob("*.py"))
    return [mutant for path in files for mutant in mutants(path, PACKAGE) if mutant.module.startswith(module)]


def show(chosen: list[Mutant], results: list[str], file: Path) -> float:
    """Print the table and the survivors, write the JSON, and give the rate."""
    console = Console(width=120, emoji=False)
    reasons = equivalents()
    judged = [
        (mutant, EQUIVALENT if mutant.name in reasons and result not in (KILLED, ENDLESS) else result)
        for mutant, result in zip(chosen, results, strict=True)
        if result
    ]
    table = Table("module", "mutants", "killed", "survived", "equivalent", "rate", "95 % interval")
    rate = 0.0
    for module in [*sorted({mutant.module for mutant, _ in judged}), "all"]:
        counts = Counter(result for mutant, result in judged if module in (mutant.module, "all"))
        killed, left = counts[KILLED] + counts[ENDLESS], counts[SURVIVED] + counts[UNTESTED]
        rate = killed / (killed + left) if killed + left else 1.0
        low, high = interval(killed, killed + left)
        numbers = [str(number) for number in (counts.total(), killed, left, counts[EQUIVALENT])]
        table.add_row(module, *numbers, f"{rate:.1%}", f"{low:.1%} to {high:.1%}")
    for mutant, result in judged:
        if result in (SURVIVED, UNTESTED):
            console.print(f"{result} {mutant.line}  {mutant.name}", highlight=False, markup=False, soft_wrap=True)
    console.print(table)
    file.parent.mkdir(parents=True, exist_ok=True)
    told = [{"module": m.module, "place": m.place, "line": m.line, "change": m.change, "result": r} for m, r in judged]
    file.write_text(json.dumps({"rate": rate, "mutants": told}, indent=1))
    return rate


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=600, help="how many mutants, over all modules")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--all", action="store_true", help="every mutant")
    parser.add_argument("--module", default="", help="only modules whose name begins so, such as privacy/ledger")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "mutation.json")
    parser.add_argument("--at-least", type=float, default=0.9, help="exit with 1 below this rate")
    parser.add_argument(
        "--learned", type=Path, help="a file that keeps which test executes which line, for the next run"
    )
    parser.add_argument("--again", type=Path, help="judge anew the survivors of this results file only")
    parser.add_argument("--using", nargs="+", default=TESTS, help="folders and files of tests")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--tests", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    os.chdir(ROOT)
    if asked.one:
        return one(asked.one, json.loads(asked.tests.read_text()))
    chosen = all_mutants(asked.module)
    if asked.again:
        left = {
            f"{m['module']}:{m['place']}: {m['change']}"
            for m in json.loads(asked.again.read_text())["mutants"]
            if m["result"] in (SURVIVED, UNTESTED)
        }
        chosen = [mutant for mutant in chosen if mutant.name in left]
    elif not asked.all:
        chosen = sampled(chosen, asked.sample, asked.seed)
    results: list[str] = []

    def work(harness: Harness, items: Sequence[pytest.Item]) -> None:
        with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
            file = asked.learned or Path(folder) / "learned.json"
            known = json.loads(file.read_text()) if file.exists() else {"seconds": {}, "left_out": []}
            unknown = [item for item in items if item.nodeid not in {*known["seconds"], *known["left_out"]}]
            if unknown:
                run_fork([(0, 3600.0, lambda: learn(harness, unknown, file))], 1, lambda key, status: None)
            results.extend(judge(chosen, read_tests(file), asked.jobs, harness, items, folder))

    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        status = pytest.main([*options(folder), *asked.using], plugins=[Harness(work)])
    if not results:
        print(f"the tests could not be collected: pytest ended with {status}", file=sys.stderr)
        return 2
    return 0 if show(chosen, results, asked.output) >= asked.at_least else 1


if __name__ == "__main__":
    # No test of ours may depend on chance here, and a failing example need not be made small.
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "HYPOTHESIS_STORAGE_DIRECTORY": tempfile.gettempdir()}
    os.environ.setdefault("NUMBA_CACHE_DIR", f"{tempfile.gettempdir()}/mutation-compiled")  # never the repository's own
    import hypothesis

    hypothesis.settings.register_profile(
        "mutation",
        database=None,
        derandomize=True,
        deadline=None,
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.settings.load_profile("mutation")
    sys.exit(main())
