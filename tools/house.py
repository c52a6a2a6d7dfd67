"""The shape of the code in numbers: sizes, public names, and the files that a simulation and a round run through.

python tools/house.py                        this tree, as a table
python tools/house.py PATH [PATH …]          other packages beside it, such as an installed library or an older checkout
python tools/house.py --walks                the files of the walks, as docs/architecture.md lists them
python tools/house.py --walks --check        fails if the page lists other files, or more than 25
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import re
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "turnout"
PAGE = ROOT / "docs" / "architecture.md"
MOST_FILES = 25
COORDINATOR = "coordinator"
HEAD = (
    "| | files | lines | lines per file, median / max | lines per function, p90 / max "
    "| public definitions (per 1,000 lines) | exported by packages |"
)


def row(package: Path) -> str:
    """One line of the table."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(package.rglob("*.py"))}
    lines = [path.read_text().count("\n") for path in trees]
    functions = sorted(
        node.end_lineno - node.lineno + 1
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    )
    public = [name for tree in trees.values() for name in definitions(tree) if not name.startswith("_")]
    exported = {name for path, tree in trees.items() if path.name == "__init__.py" for name in exports(tree)}
    per = 1000 * len(public) / sum(lines)
    return (
        f"| {package.name} | {len(lines)} | {sum(lines):,} | {statistics.median(lines):.0f} / {max(lines)} "
        f"| {functions[int(0.9 * len(functions))]} / {functions[-1]} | {len(public)} ({per:.1f}) "
        f"| {len(exported & set(public))} |"
    )


def definitions(tree: ast.Module) -> list[str]:
    """Names of the functions and classes of a module."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return [node.name for node in tree.body if isinstance(node, kinds)]


def exports(tree: ast.Module) -> list[str]:
    """What `__all__` lists."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and "__all__" in ast.unparse(node.targets[0]):
            return re.findall(r"'(\w+)'", ast.unparse(node.value))
    return []


class Walk:
    """Which files of the package have a function that was called while this was on, by thread."""

    def __init__(self) -> None:
        self.files: dict[str, set[str]] = {}
        self.on = False

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        if self.on and event == "call" and frame.f_code.co_name != "<module>":
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(PACKAGE):
                name = threading.current_thread().name
                self.files.setdefault(name, set()).add(path.relative_to(PACKAGE).as_posix())

    def __enter__(self) -> Walk:
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


def simulation() -> dict[str, set[str]]:
    """From forty private costs to the reports of twenty rounds."""
    import turnout

    def run() -> None:
        problem = turnout.paper_population(clients=40).problem(20)
        controller = turnout.IntegralController(0.2, 0.35)
        turnout.simulate(problem, turnout.Clamp(1.0), controller, rounds=20, seed=0, engine="numpy")

    run()  # loads what is loaded on first use
    with Walk() as walk:
        walk.on = True
        run()
    return {"A simulation": walk.files["MainThread"]}


def service_round() -> dict[str, set[str]]:
    """Two rounds between a coordinator and an agent over HTTP, each in its own threads.

    The device: offer, decision, report, answer, lease. The coordinator: request, report, closing, storing, answer.
    """
    from turnout.service.agent import Agent
    from turnout.service.coordinator import Place, begin_or_continue, issue_codes, serve
    from turnout.service.operator import password_hash
    from turnout.service.store import open_store

    with tempfile.TemporaryDirectory() as folder, Walk() as walk:
        store = open_store(f"{folder}/run.db", create=True)
        given = {
            "capacity": 0.5,
            "safety": {"missing": "absent", "hard_limit": "none"},
            "timing": {"round": 0.0, "deadline": 5.0},
        }
        begin_or_continue(store, "walk", given)
        (code,) = issue_codes(store, 1, weight=1, hours=1.0, who="tools")
        password = Path(folder, "password")
        password.write_text("a password for this walk alone\n")
        password.chmod(0o600)
        address, stop, loop = [], asyncio.Event(), asyncio.new_event_loop()
        there = threading.Event()

        def bound(places: Any) -> None:
            address.append(places["devices"].url)
            there.set()

        served = serve(store, Place(), Place(), password_hash(password), bound=bound, stop=stop)
        thread = threading.Thread(target=loop.run_until_complete, args=(served,), name=COORDINATOR)
        thread.start()
        there.wait(20)
        rounds: list[int] = []

        def done(_: Any) -> None:
            rounds.append(1)
            walk.on = len(rounds) in (3, 4)  # the first ones load libraries

        with Agent(address[0], f"{folder}/device", 3.0, code=code, on_round=done) as agent:
            agent.run(rounds=6)
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
    both: dict[str, set[str]] = {"A device": set(), "A coordinator": set()}
    for name, files in walk.files.items():
        both["A coordinator" if name.startswith((COORDINATOR, "store")) else "A device"] |= files
    both["A coordinator"] -= {"service/coordinator/coordinator.py"}  # a timer of its log runs now and then
    return both


WALKS: tuple[Callable[[], dict[str, set[str]]], ...] = (simulation, service_round)


def listed(page: str, title: str) -> set[str]:
    """The files that a section of the page names."""
    section = page.split(f"## {title}\n", 1)[-1].split("\n## ", 1)[0]
    return set(re.findall(r"`([\w/]+\.py)`", section))


def check_walks(*, check: bool) -> int:
    """Print the walks; with `check`, the number of those that differ from the page or are too long."""
    wrong = 0
    for title, files in [found for walk in WALKS for found in walk().items()]:
        print(f"{title}: {len(files)} files", *sorted(files), sep="\n  ")
        told = listed(PAGE.read_text(), title) if check else files
        problems = [f"more than {MOST_FILES} files"] * (len(files) > MOST_FILES)
        problems += [f"{PAGE.name} differs in {', '.join(sorted(told ^ files))}"] * (told != files)
        wrong += bool(problems)
        if problems:
            print(f"{title}: {'; '.join(problems)}", file=sys.stderr)
    return wrong


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--walks", action="store_true")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    if asked.walks:
        return check_walks(check=asked.check)
    print(HEAD, "|---" * 7 + "|", *map(row, [PACKAGE, *asked.paths]), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
