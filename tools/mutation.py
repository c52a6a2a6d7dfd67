"""Do the tests notice mistakes? Makes small mistakes in some packages and runs the tests that execute them.

The tests run once under coverage: which test executes which line, and how long it takes. Then each mutant of a seeded
sample gets a forked process, which imports the package with the mistake in it and runs the tests of that line, the
fastest first, until one fails: the mutant is killed. The forks come from a process that has loaded NumPy, Numba and
pytest but not the package, so constants, defaults and functions that Numba compiles are all mutated in the same way.

    python tools/mutation.py --packages src/turnout/algorithm src/turnout/privacy --sample 300 --seed 0
    python tools/mutation.py --packages src/turnout/client/ledger.py --tests tests/client --sample 0
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import json
import math
import multiprocessing
import multiprocessing.connection
import os
import random
import resource
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import coverage
import hypothesis
import pytest
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress

SLOWEST_TEST = 4.0
"""Seconds of the processor: a slower test is not run against mutants."""
BUDGET = 10.0
"""Seconds of tests for one mutant; what only further tests would notice counts as survived."""
PATIENCE = 20.0
"""Seconds of the processor, beside three times what the tests usually take: what needs more is in an endless loop."""
MEMORY = 6 << 30
RESULTS = {0: "survived", -signal.SIGXCPU: "endless", -signal.SIGKILL: "endless"}
"""By exit status of the mutant's process; every other one says that a test failed."""
COMPILED = "algorithm/"
"""Numba compiles functions of these modules: their mutants share no cache, which ignores called functions."""


def both_ways(*pairs: tuple[Any, Any]) -> dict[Any, Any]:
    """Each of a pair instead of the other."""
    return {old: new for one, other in pairs for old, new in ((one, other), (other, one))}


BOUNDARIES = both_ways((ast.Lt, ast.LtE), (ast.Gt, ast.GtE))
NEGATIONS = both_ways(
    (ast.Lt, ast.GtE), (ast.Gt, ast.LtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot)
)
OPERATORS = both_ways((ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.LShift, ast.RShift), (ast.BitAnd, ast.BitOr))
OPERATORS |= dict.fromkeys((ast.FloorDiv, ast.Mod, ast.Pow), ast.Mult)
NAMES = both_ways(("min", "max"), ("fmin", "fmax"), ("minimum", "maximum"), ("argmin", "argmax"), ("floor", "ceil"))
NAMES |= both_ways(("any", "all"), ("at_least", "at_most"), ("ROUND_FLOOR", "ROUND_CEILING"), ("_DOWN", "_UP"))
KEYWORDS = {"dtype", "strict", "kind", "maxsize", "format", "method", "prec", "extra", "library"}
"""Keywords left alone: no part of what is computed, or every wrong value is an error at once."""
FIELDS = {"annotation", "returns", "decorator_list", "bases", "type_params"}


@dataclass(frozen=True)
class Mutant:
    """A module's source with one mistake. Module, place (function or class) and change name it; lines move."""

    module: str
    place: str
    line: int
    change: str
    file: str
    source: bytes

    @property
    def name(self) -> str:
        """As in the list of equivalent mutants."""
        return f"{self.module}:{self.place}: {self.change}"

    def diff(self) -> str:
        """What the mistake is, for the reader."""
        old, new = Path(self.file).read_text().splitlines(), self.source.decode().splitlines()
        return "\n".join(list(difflib.unified_diff(old, new, self.module, self.place, n=1, lineterm=""))[2:])


def mutants_of(file: Path) -> list[Mutant]:
    """All mutants of a file."""
    source, seen = file.read_bytes(), Counter[str]()
    top = next(folder for folder in file.parents if not (folder.parent / "__init__.py").exists())
    starts = [0, *(index + 1 for index, byte in enumerate(source) if byte == ord("\n"))]
    found = []
    for place, node, new in changes_in(ast.parse(source)):
        change = f"{short(node)} -> {short(new)}"
        seen[f"{place}: {change}"] += 1
        times = seen[f"{place}: {change}"]
        text = ast.unparse(new)
        if isinstance(new, ast.expr) and not text.replace(".", "").replace("_", "").isalnum():
            text = f"({text})"
        begin, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        changed = source[:begin] + text.encode() + source[end:]
        label = change if times == 1 else f"{change} (number {times})"
        found.append(Mutant(file.relative_to(top).as_posix(), place, node.lineno, label, str(file), changed))
    return found


def short(node: ast.AST) -> str:
    """The code of a node on one line."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 100 else f"{text[:60]} ... {text[-35:]}"


def changes_in(node: Any, place: str = "", is_test: bool = False) -> Iterator[tuple[str, Any, Any]]:
    """(place, node, what a mistake makes of it), of a node and all within."""
    if is_left_alone(node):
        return
    yield from ((place, node, new) for new in changes_of(node))
    if is_test and not isinstance(node, (ast.Compare, ast.UnaryOp, ast.Constant)):
        yield place, node, ast.UnaryOp(ast.Not(), node)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        place = f"{place}.{node.name}" if place else node.name
    for field, value in () if isinstance(node, ast.Raise) else ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if field not in FIELDS and isinstance(child, ast.AST):
                tested = field == "test" and isinstance(node, (ast.If, ast.IfExp, ast.While))
                yield from changes_in(child, place, tested)


def is_left_alone(node: ast.AST) -> bool:
    """What only documents, names a type, formats a message or is there for speed alone."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            words = {short(one) for one in [*node.decorator_list, *getattr(node, "bases", [])]}
            return name in {"__repr__", "__dir__", "_repr_html_"} or bool(words & {"overload", "Protocol"})
        case ast.keyword(arg=name):
            return name in KEYWORDS
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
    return isinstance(node, (ast.Assert, ast.Import, ast.ImportFrom, ast.JoinedStr))


def changes_of(node: ast.AST) -> Iterator[ast.AST]:
    """What one mistake could make of a node."""
    match node:
        case ast.Compare(left=left, ops=ops, comparators=others):
            for table in (BOUNDARIES, NEGATIONS):
                for index, operator in enumerate(ops):
                    if type(operator) in table:
                        yield ast.Compare(left, [*ops[:index], table[type(operator)](), *ops[index + 1 :]], others)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            if not (is_text(left) or is_text(right)):
                yield ast.BinOp(left, OPERATORS[type(op)](), right)
        case ast.AugAssign(target=target, op=op, value=value) if type(op) in OPERATORS and not is_text(value):
            yield ast.AugAssign(target, OPERATORS[type(op)](), value)
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            yield operand
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.Constant(value=float() as value):
            yield ast.Constant(2.0 * value or 1.0)
        case ast.Name(id=name) if name in NAMES:
            yield ast.Name(NAMES[name])
        case ast.Attribute(value=value, attr=name) if name in NAMES:
            yield ast.Attribute(value, NAMES[name])
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call()) | ast.Raise():
            yield ast.Pass()
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()


def is_text(node: ast.AST) -> bool:
    """Of which + or % makes no sum."""
    literal = isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
    return literal or isinstance(node, (ast.Dict, ast.JoinedStr, ast.List))


class Learn:
    """A pytest plugin: the seconds of each test that passes and is fast, and which of them execute a line."""

    def __init__(self, files: list[Path], console: Console) -> None:
        folders = sorted({str(file.parent) for file in files})
        self.coverage = coverage.Coverage(data_file=None, source=folders, config_file=False)
        self.progress = Progress(console=console, auto_refresh=False)
        self.seconds, self.failed, self.slow = dict[str, float](), set[str](), set[str]()

    def run(self, tests: list[str], output: Path, folder: str) -> int:
        """In a fork: run all tests, and write what was learned."""
        signal.signal(signal.SIGPROF, too_slow)
        with self.coverage.collect(), self.progress:
            status = pytest.main([*options(folder), *tests], plugins=[self])
        if status not in (0, 1):
            return int(status)
        seconds = {test: self.seconds[test] for test in self.seconds.keys() - self.failed}
        data, lines = self.coverage.get_data(), {}
        for file in data.measured_files():
            contexts = data.contexts_by_lineno(file)
            lines[file] = {line: sorted(seconds.keys() & names) for line, names in contexts.items()}
        output.write_text(json.dumps({"seconds": seconds, "lines": lines}))
        return 0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """How much there is to do."""
        self.task = self.progress.add_task("tests, once", total=len(session.items))

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """A test that was slow is not tried with other parameters."""
        if item.nodeid.partition("[")[0] in self.slow:
            pytest.skip("slow")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Around each test."""
        for name in [name for name in sys.modules if name.startswith("turnout")]:
            for thing in vars(sys.modules[name]).values():  # so that each test executes what it needs by itself
                if callable(getattr(thing, "cache_clear", None)):
                    thing.cache_clear()
        self.coverage.switch_context(item.nodeid)
        begin = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, SLOWEST_TEST)
        result = yield
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        self.seconds[item.nodeid] = time.process_time() - begin
        self.progress.update(self.task, advance=1, refresh=True)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """After each phase of each test."""
        if not report.passed:
            self.failed.add(report.nodeid)
        if report.failed and "TooSlow" in report.longreprtext:
            self.slow.add(report.nodeid.partition("[")[0])


class TooSlow(Exception):
    """A test takes too long to be run against mutants."""


def too_slow(number: int, frame: Any) -> None:
    """Ends a slow test; a moment later if coverage is at work, which would never let go of its lock."""
    caller = frame
    while caller is not None:
        if "coverage" in Path(caller.f_code.co_filename).parts:
            signal.setitimer(signal.ITIMER_PROF, 0.01)
            return
        caller = caller.f_back
    raise TooSlow


class Only:
    """A pytest plugin that keeps some tests, in this order; all of a family where a mistake changed a parameter."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """In the order of the names."""
        found = {item.nodeid: item for item in items}
        lost = {name.partition("[")[0] for name in self.names if name not in found}
        others = [item for name, item in found.items() if name.partition("[")[0] in lost and name not in self.names]
        items[:] = [found[name] for name in self.names if name in found] + others


def options(folder: str) -> list[str]:
    """Of pytest: nothing is written into the repository; rewriting assertions would bypass our loader."""
    return ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain", f"--basetemp={folder}/{os.getpid()}"]


def tests_for(mutant: Mutant, learned: Any) -> list[str]:
    """Those that execute the line, then others that execute the module, the fastest first, within the budget."""
    lines = learned["lines"].get(mutant.file, {})
    at_line, seconds = set(lines.get(str(mutant.line), [])), learned["seconds"]
    ordered = sorted({test for tests in lines.values() for test in tests}, key=lambda t: (t not in at_line, seconds[t]))
    spent, chosen = 0.0, []
    for test in ordered:
        spent += seconds[test]
        if spent <= BUDGET:
            chosen.append(test)
    return chosen


def run_mutant(mutant: Mutant, names: list[str], folder: str) -> int:
    """In a fork: import the module with its mistake, and run tests; 0 if all pass."""
    if not names:
        return 0
    usual = SourceFileLoader.get_code

    def get_code(self: Any, name: str) -> Any:
        return compile(mutant.source, mutant.file, "exec") if self.path == mutant.file else usual(self, name)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]
    if mutant.module.startswith(COMPILED):
        cache_in(f"{folder}/numba-{os.getpid()}")
    files = sorted({name.partition("::")[0] for name in names})
    return int(pytest.main([*options(folder), "-x", *files], plugins=[Only(names)]))


def cache_in(folder: str) -> None:
    """Where Numba keeps what it compiled: never in the repository."""
    import numba

    numba.config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"] = folder  # type: ignore[attr-defined]


def fork(seconds: float, work: Any, *arguments: Any) -> Any:
    """Start `work` in a forked process with a group and limits of its own; its output goes nowhere."""

    def limited() -> None:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds) + 1))
        os._exit(work(*arguments))

    process = multiprocessing.get_context("fork").Process(target=limited)
    process.start()
    return process


def stop(process: Any) -> None:
    """End a forked process, and what its tests may have started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()


def judge(chosen: list[Mutant], learned: Any, jobs: int, folder: str, console: Console) -> list[tuple[Mutant, str]]:
    """(mutant, what became of it), some at a time; of those until Ctrl-C."""
    judged, waiting, running = [], list(reversed(chosen)), dict[Any, tuple[Any, Mutant, float]]()
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with contextlib.suppress(KeyboardInterrupt), Progress(*columns, console=console) as progress:
        task = progress.add_task("mutants", total=len(chosen))
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    mutant = waiting.pop()
                    names = tests_for(mutant, learned)
                    limit = PATIENCE + 3.0 * sum(learned["seconds"][name] for name in names)
                    process = fork(limit, run_mutant, mutant, names, folder)
                    running[process.sentinel] = process, mutant, time.monotonic() + 10 * limit
                ended = multiprocessing.connection.wait(list(running), timeout=1.0)
                late = [key for key, (_, _, end) in running.items() if time.monotonic() > end]
                for process, mutant, _ in [running.pop(key) for key in {*ended, *late}]:
                    stop(process)
                    judged.append((mutant, RESULTS.get(process.exitcode, "killed")))
                    if judged[-1][1] == "survived":
                        progress.console.print(f"survived {mutant.module}:{mutant.line}", highlight=False)
                    progress.advance(task)
        finally:
            for process, _, _ in running.values():
                stop(process)
    return judged


def report(judged: list[tuple[Mutant, str]], seed: int, output: Path) -> float:
    """Print the survivors and the rate, write the JSON, and give the rate."""
    for mutant, result in sorted(judged, key=lambda pair: (pair[0].module, pair[0].line)):
        if result == "survived":
            print(f"\nsurvived  {mutant.module}:{mutant.line}  {mutant.place}: {mutant.change}\n{mutant.diff()}")
    survived = sum(result == "survived" for _, result in judged)
    rate = 1.0 - survived / len(judged)
    from scipy.stats import binomtest

    low, high = binomtest(len(judged) - survived, len(judged)).proportion_ci(method="wilson")
    print(f"\n{len(judged)} mutants, {survived} survived: {rate:.1%} killed (95 % interval {low:.1%} to {high:.1%})")
    rows = [
        {"module": m.module, "place": m.place, "line": m.line, "change": m.change, "result": result}
        | ({"diff": m.diff()} if result == "survived" else {})
        for m, result in judged
    ]
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({"seed": seed, "rate": rate, "interval": [low, high], "mutants": rows}, indent=1))
    return rate


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, nargs="+", required=True, help="folders or files to make mistakes in")
    parser.add_argument("--tests", nargs="+", help="default: tests/NAME of each package NAME, and its examples")
    parser.add_argument("--sample", type=int, default=300, help="how many mutants; 0: all")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    parser.add_argument("--output", type=Path, default=Path("results/mutation.json"))
    parser.add_argument("--at-least", type=float, default=0.9, help="exit with 1 below this rate")
    parser.add_argument("--learned", type=Path, help="keeps which test executes which line, for the next run")
    listed = Path(__file__).with_name("mutation_equivalent.toml")
    parser.add_argument("--equivalent", type=Path, default=listed, help="mutants that change nothing that is promised")
    asked = parser.parse_args()
    files = sorted(f.resolve() for p in asked.packages for f in (p.rglob("*.py") if p.is_dir() else [p]))
    mutants = [mutant for file in files for mutant in mutants_of(file)]
    entries = tomllib.loads(asked.equivalent.read_text())["equivalent"]
    equivalent = {f"{entry['module']}:{entry['place']}: {entry['change']}" for entry in entries}
    modules = {mutant.module for mutant in mutants}
    stale = {name for name in equivalent if name.partition(":")[0] in modules} - {mutant.name for mutant in mutants}
    if stale:
        sys.exit("\n".join([f"{asked.equivalent} lists mutants that do not exist; correct these:", *sorted(stale)]))
    mutants = [mutant for mutant in mutants if mutant.name not in equivalent]
    chosen = random.Random(asked.seed).sample(mutants, min(asked.sample or len(mutants), len(mutants)))
    examples = [str(package) for package in asked.packages]
    tests = asked.tests or [*(f"tests/{p.name}" for p in asked.packages if p.is_dir()), *examples]
    source = str(Path(mutants[0].file.removesuffix(mutants[0].module)).parent)
    sys.path.insert(0, source)
    os.environ["PYTHONPATH"] = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    console = Console(file=os.fdopen(os.dup(2), "w"), soft_wrap=True)  # of its own: tests' output is caught
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        learned = asked.learned or Path(folder) / "learned.json"
        prepare(folder)
        if not learned.exists():
            process = fork(3600.0, Learn(files, console).run, tests, learned, folder)
            try:
                process.join()
            finally:
                stop(process)
            if process.exitcode:
                sys.exit(
                    f"the tests could not be run: pytest ended with {process.exitcode}; try pytest {' '.join(tests)}"
                )
        judged = judge(chosen, json.loads(learned.read_text()), asked.jobs, folder, console)
    return 0 if judged and report(judged, asked.seed, asked.output) >= asked.at_least else 1


def prepare(folder: str) -> None:
    """Before any fork: no test may depend on chance or need long to explain itself; and pytest's plugins are loaded."""
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "HYPOTHESIS_STORAGE_DIRECTORY": folder}
    import scipy.optimize
    import scipy.stats  # noqa: F401 (slow imports, once for all forks)

    cache_in(f"{folder}/numba")
    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    checks = list(hypothesis.HealthCheck)
    hypothesis.settings.register_profile(
        "mutation", database=None, derandomize=True, deadline=None, phases=phases, suppress_health_check=checks
    )
    hypothesis.settings.load_profile("mutation")
    empty = Path(folder) / "empty.py"
    empty.touch()
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        pytest.main([*options(folder), "--noconftest", "-c", os.devnull, str(empty)])


if __name__ == "__main__":
    sys.exit(main())
