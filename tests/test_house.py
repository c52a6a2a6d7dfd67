"""The rules of the house: public names, documentation, sizes, and nothing of this machine."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
from pathlib import Path

import pytest

import turnout

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
FOLDERS = ("src", "tests", "benchmarks", "tools", "examples", "docs")
ALL_SOURCES = [
    path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) if "_build" not in path.parts
]
MODULES = [
    module.name for module in pkgutil.walk_packages(turnout.__path__, "turnout.") if module.name != "turnout.__main__"
]


def test_the_root_is_small_and_every_name_is_there():
    names = [name for name in turnout.__all__ if not name.startswith("_")]
    assert len(names) <= 27
    space: dict[str, object] = {}
    exec("from turnout import *", space)
    assert {"plan", "simulate", "FallingGainController"} <= set(space)  # what the README uses
    assert all(getattr(turnout, name) for name in names)
    assert dir(turnout) == turnout.__all__
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = turnout.nothing


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_is_documented(name):
    module = importlib.import_module(name)
    assert module.__doc__
    for public, thing in vars(module).items():
        if public.startswith("_") or getattr(thing, "__module__", None) != name:
            continue
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert inspect.getdoc(thing), f"{name}.{public}"
        if inspect.isclass(thing):
            for method, function in vars(thing).items():
                if not method.startswith("_") and inspect.isfunction(function):
                    assert inspect.getdoc(getattr(thing, method)), f"{name}.{public}.{method}"


REFERENCE = re.findall(r"^\.\. auto(?:class|function):: turnout\.(\S+)", (ROOT / "docs/reference.md").read_text(), re.M)


@pytest.mark.parametrize("name", sorted({*turnout.__all__, *REFERENCE} - {"__version__"}))
def test_every_name_of_the_root_and_of_the_reference_has_an_example(name):
    module, _, public = f"turnout.{name}".rpartition(".")
    assert ">>>" in inspect.getdoc(getattr(importlib.import_module(module), public))


@pytest.mark.parametrize("path", ALL_SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_and_functions_are_small(path):
    text = path.read_text()
    assert text.count("\n") <= 600
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno - node.lineno + 1 <= 60, f"{node.name} is too long"


def tracked():
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    return [ROOT / name for name in done.stdout.split()] if done.returncode == 0 else SOURCES


def test_nothing_of_this_machine_or_of_a_registry_is_named():
    for path in tracked():
        if path.suffix in {".png", ".npz"} or not path.is_file() or path == Path(__file__):
            continue
        text = path.read_text(errors="replace")
        assert not re.search(r"(?<![\w.])/(work|farm|root|opt)/", text), path
        assert not re.search(r"--(extra-)?index-url|https?://[^\s\"')]*(pypi|npmjs|pythonhosted)", text), path


DOORS = {".".join(path.parent.relative_to(ROOT / "src").parts) for path in SOURCES if path.name == "__init__.py"}
PLAIN = {"turnout.errors", "turnout.settings", "turnout.display", "turnout.version"}
ROOMS = {  # whose tests may enter which packages: they change what these use, or put faults into it
    "conformance": ("algorithm", "problem", "simulation", "service"),
    "statistical": ("algorithm",),
    "report": ("report", "cli"),
    "client": ("client", "flower", "service"),
    "flower": ("flower", "client"),
    "service": ("service", "client"),
}
MEASURED = ("benchmarks/gpu.py", "benchmarks/ray_overhead.py")  # they time an engine without `simulate` around it


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def climbs(path, text):
    """Imports in a test, a page or a program of a module that lies inside a package."""
    place = path.relative_to(ROOT)
    room = place.parts[1] if place.parts[0] == "tests" else ""
    own = tuple(f"turnout.{name}." for name in ROOMS.get(room, (room,)) if name)
    for module, names in re.findall(r"^\W*(?:from|import) (turnout[\w.]*)(?: import ([\w, ]+))?", text, re.MULTILINE):
        inside = [module] if module not in DOORS | PLAIN else []
        if module in DOORS:  # `from turnout.flower import client_state` climbs too
            inside += [
                f"{module}.{name}" for name in re.findall(r"\w+", names.split(" as ")[0]) if is_module(module, name)
            ]
        yield from (one for one in inside if not one.startswith(own or "-"))


def is_module(package, name):
    """Whether a name is a file of the package and nothing that it exports."""
    file = ROOT / "src" / package.replace(".", "/") / f"{name}.py"
    known = package == "turnout" or name in getattr(importlib.import_module(package), "__all__", [])
    return file.exists() and not known


@pytest.mark.parametrize("path", [path for path in tracked() if path.suffix in {".py", ".md", ".ipynb"}], ids=name_of)
def test_others_enter_a_package_by_its_door(path):
    place = path.relative_to(ROOT).as_posix()
    if not place.startswith("src/") and place not in MEASURED:
        assert not list(climbs(path, path.read_text()))


def test_a_climb_is_seen():
    text = "from turnout.privacy.accounting import Account\n>>> from turnout.plan.offers import Offer"
    assert list(climbs(ROOT / "docs/x.md", text)) == ["turnout.privacy.accounting", "turnout.plan.offers"]
    assert list(climbs(ROOT / "tests/privacy/x.py", text)) == ["turnout.plan.offers"]
    assert list(climbs(ROOT / "docs/x.md", "from turnout.flower import client_state")) == [
        "turnout.flower.client_state"
    ]


def test_every_folder_of_the_package_has_a_door():
    assert {path.parent for path in SOURCES} == {path.parent for path in SOURCES if path.name == "__init__.py"}


@pytest.mark.parametrize("name", sorted(DOORS - {"turnout", "turnout.cli"}))
def test_every_name_at_a_door_is_there(name):
    door = importlib.import_module(name)
    assert door.__doc__
    names = getattr(door, "__all__", [])
    assert dir(door) == sorted(names) or not names
    assert all(getattr(door, public) is not None for public in names)


LINES = 10


def test_no_block_of_ten_lines_is_written_twice():
    """The same lines to the letter, indentation aside; imports, and lines without a word, do not count."""
    seen, twice = {}, []
    for path in ALL_SOURCES:
        lines = [(number, line.strip()) for number, line in enumerate(path.read_text().splitlines(), 1)]
        lines = [(number, line) for number, line in lines if re.search(r"\w", line) and not IMPORT.match(line)]
        for first in range(len(lines) - LINES + 1):
            block = tuple(line for _, line in lines[first : first + LINES])
            place = f"{path.relative_to(ROOT)}:{lines[first][0]}"
            if block in seen:
                twice.append(f"{place} as {seen[block]}")
            seen.setdefault(block, place)
    assert not twice


IMPORT = re.compile(r"(from|import) |\w+,$")
