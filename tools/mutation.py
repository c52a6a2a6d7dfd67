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
import json
import math
import os
import random
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from mutants import MUTATED, PACKAGE, ROOT, Mutant, mutants
from mutation_forks import Instead, put_in_place, run_fork
from mutation_tests import Harness, Tests, learn, read_tests
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

TESTS = [f"tests/{name}" for name in ("algorithm", "privacy", "client", "statistical")]
TESTS += ["tests/conformance/test_mechanisms.py"]
TESTS += [f"src/turnout/{name}" for name in ("algorithm", "privacy", "client")]  # their examples
PATIENCE = 15.0
"""Seconds of the processor, beside three times what the tests usually take: who needs more is caught in a loop."""
COMPILED = ("algorithm/arithmetic", "algorithm/client", "algorithm/server", "algorithm/mechanism")
"""Modules of which the fast engine compiles functions: their mutants share no compiled code with anyone."""
KILLED, SURVIVED, ENDLESS, UNTESTED, EQUIVALENT = "killed", "survived", "endless", "untested", "equivalent"


def options(folder: str) -> list[str]:
    """Of pytest: nothing is written into the repository, and nothing is printed."""
    plain = "--assert=plain"  # rewriting would import the modules by another way than ours
    return ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", plain, f"--basetemp={folder}/tests"]


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
