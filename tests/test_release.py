"""What is released works: sdist and wheel hold what they should, and the wheel runs in empty environments.

Every extra has an environment of its own, installed with the versions of requirements/dev.lock.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from service.test_tutorial_fleet import free_port, wait_until
from turnout.cli import EXTRAS as EXTRAS_OF_COMMANDS
from turnout.version import __version__

ROOT = Path(__file__).parents[1]
CURRENT = f"{sys.version_info.major}.{sys.version_info.minor}"
OTHERS = ("3.12", "3.13")
EXTRAS = ("", "lab", "server", "postgres", "flower", "gpu", "cluster")
NEEDED = {
    "turnout/py.typed",
    "turnout/service/openapi.json",
    "turnout/service/operator/static/operator.css",
    "turnout/service/operator/static/operator.html",
    "turnout/service/operator/static/operator.js",
    "turnout/report/page.css",
    "turnout/report/page.js",
    f"turnout-{__version__}.dist-info/licenses/LICENSE",
}
JUNK = re.compile(
    r"(^|/)(\.venv|results/paper|results/bench|__pycache__|\.\w+_cache|\.hypothesis|_build|dist)(/|$)|\.nb[ic]$"
)
OF_A_MACHINE = re.compile(rb"(?<![\w.])/(work|farm|root|opt)/|https?://[^\s\"')]*(pypi|npmjs|pythonhosted)")
TINY = """
from turnout import Classical, IntegralController, paper_population, simulate
problem, server = paper_population(0, 40).problem(20), IntegralController(0.2, 0.35)
run = simulate(problem, Classical(), server, 30, seed=1, engine="{engine}")
right = simulate(problem, Classical(), server, 30, seed=1, engine="numpy")
assert run.participants.tolist() == right.participants.tolist()
print("turnout", int(run.participants.sum()))
"""


# --- what can be checked at once


def test_version_and_changelog_agree() -> None:
    """The version is the newest in the changelog, or the next one, and then there is something unreleased."""
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", text, re.MULTILINE)
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    released = [numbers(name) for name, _ in headings if name != "Unreleased"]
    assert released == sorted(released, reverse=True)
    assert all(date for name, date in headings if name != "Unreleased")
    assert headings[0][0] in {"Unreleased", __version__}
    if numbers(__version__) not in released:
        assert all(earlier < numbers(__version__) for earlier in released)
        assert re.search(r"^## \[Unreleased\]\s+### \w+\n- ", text, re.MULTILINE), "nothing to release"


def test_the_lock_gives_constraints_for_every_extra() -> None:
    names = {re.split(r"==", line)[0] for line in constraints().splitlines()}
    assert {"numpy", "typer", "numba", "starlette", "psycopg", "flwr", "jax", "ray"} <= names
    assert "--hash" not in constraints()


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def constraints() -> str:
    """The pinned versions, as constraints: no hashes, no extras, and each with its marker."""
    lines = (ROOT / "requirements" / "dev.lock").read_text().splitlines()
    pinned = [re.match(r"([\w.-]+)(?:\[.*?\])?(==[^ ;\\]+)( *;[^\\]+)?", line) for line in lines]
    return "".join("".join(part or "" for part in one.groups()).strip() + "\n" for one in pinned if one)


# --- what takes minutes


class Built:
    """The sdist and the wheel of this tree."""

    def __init__(self, folder: Path) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        self.folder = folder
        (self.wheel,), (self.sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
        (folder / "constraints.txt").write_text(constraints())


class Environment:
    """An empty environment in which the wheel was installed, and nothing else but what it asks for."""

    def __init__(self, built: Built, folder: Path, extra: str = "", python: str = sys.executable) -> None:
        begun = time.monotonic()
        self.folder, self.bin = folder, folder / "bin"
        self.must([python, "-m", "venv", "--without-pip", str(folder)])
        wheel = f"{built.wheel}[{extra}]" if extra else str(built.wheel)
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install", "--quiet"]
        self.must([*pip, "--constraint", str(built.folder / "constraints.txt"), wheel])
        self.seconds = time.monotonic() - begun

    def must(self, command: list[str], status: int = 0) -> str:
        """What a command prints, in the folder of the environment; nothing of this checkout is on its path."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        where = self.folder if self.folder.exists() else None
        clean |= {"COLUMNS": "200", "NUMBA_CACHE_DIR": str(self.folder / "numba")}
        done = subprocess.run(command, capture_output=True, text=True, timeout=420, env=clean, cwd=where, check=False)
        assert done.returncode == status, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def turnout(self, *words: str, status: int = 0) -> str:
        return self.must([str(self.bin / "turnout"), *words], status)

    def python(self, code: str, status: int = 0) -> str:
        return self.must([str(self.bin / "python"), "-c", code], status)


@pytest.fixture(scope="module")
def built() -> Iterator[Built]:
    with tempfile.TemporaryDirectory() as folder:
        yield Built(Path(folder))


@pytest.fixture(scope="module")
def environments(built: Built) -> Iterator[dict[str, Future[Environment]]]:
    """One for each extra, two being made at a time while the first is tried; all gone afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, ThreadPoolExecutor(2) as pool:
        yield {
            extra: pool.submit(Environment, built, Path(folder) / (extra or "base"), extra)
            for extra in EXTRAS
        }  # fmt: skip
        pool.shutdown(cancel_futures=True)


@pytest.mark.deployment
def test_the_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        names = set(wheel.namelist())
        assert names >= NEEDED
        assert all(name.startswith(("turnout/", f"turnout-{__version__}.dist-info/")) for name in names)
        of_package = {name for name in names if name.startswith("turnout/")}
        here = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*") if path.is_file()}
        assert of_package == {name for name in here if not re.search(r"__pycache__|\.nb[ic]$", name)}
        metadata = wheel.read(f"turnout-{__version__}.dist-info/METADATA").decode()
        assert f"\nVersion: {__version__}\n" in metadata
        assert "\nLicense-Expression: Apache-2.0\n" in metadata
        for name in names:
            assert not OF_A_MACHINE.search(wheel.read(name)), name


@pytest.mark.deployment
def test_the_sdist_has_no_junk_and_makes_the_same_wheel(built: Built, tmp_path: Path) -> None:
    with tarfile.open(built.sdist) as sdist:
        names = sdist.getnames()
        sdist.extractall(tmp_path, filter="data")
    assert not [name for name in names if JUNK.search(name)]
    (inside,) = tmp_path.iterdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "src/turnout/py.typed", "tests/conftest.py"):
        assert (inside / name).is_file(), name
    for path in inside.rglob("*"):
        if path.is_file() and path.name != "test_house.py" and path != inside / "tests" / Path(__file__).name:
            assert not OF_A_MACHINE.search(path.read_bytes()), path
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "again")]
    subprocess.run(command, cwd=inside, check=True, capture_output=True)
    (again,) = (tmp_path / "again").glob("*.whl")
    with zipfile.ZipFile(built.wheel) as one, zipfile.ZipFile(again) as other:
        assert {name: one.read(name) for name in one.namelist()} == {
            name: other.read(name) for name in other.namelist()
        }


def works_without_extras(base: Environment) -> None:
    assert f"{__version__}" in base.turnout("--version")
    assert "simulate" in base.turnout("--help")
    assert "--cost" in base.turnout("join", "--help")
    assert base.python(TINY.format(engine="auto")).startswith("turnout ")
    assert base.python(INSTALLED).split() == ["numpy", "turnout"]  # nothing compiled but NumPy


INSTALLED = "from importlib.metadata import distributions as all; print(*sorted({one.name for one in all()}))"
POSTGRES = "from turnout.service.store.backup import open_store; open_store('postgresql://nowhere/turnout')"
MISSING: dict[str, list[tuple[str, ...] | str]] = {
    "lab": [*((name,) for name in EXTRAS_OF_COMMANDS["lab"]), ("plan", "--budget", "6"), ("--show-completion",)],
    "server": [(name,) for name in EXTRAS_OF_COMMANDS["server"]],
    "postgres": [POSTGRES],
    "flower": ["from turnout.flower import SelfSelection"],
    "gpu": [TINY.format(engine="jax")],
    "cluster": [TINY.format(engine="ray")],
}


@pytest.mark.deployment
def test_the_base(environments: dict[str, Future[Environment]]) -> None:
    base = environments[""].result()
    works_without_extras(base)
    for extra, said in MISSING.items():
        for words in said:
            printed = base.turnout(*words, status=2) if isinstance(words, tuple) else base.python(words, status=1)
            last = printed.strip().splitlines()[-1]
            assert last.endswith(f"pip install 'turnout[{extra}]'"), (words, printed)
            assert isinstance(words, str) or printed.count("\n") == 1, printed  # one line, no traceback


@pytest.mark.deployment
def test_a_device_is_small_and_starts_at_once(environments: dict[str, Future[Environment]]) -> None:
    """Looser than docs/operating.md says, and relative to NumPy: other programs run meanwhile.

    With typer and rich it took 102 MiB, 56 MiB, and more than four times the processor's time of `import numpy`.
    """
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        found = importlib.import_module("device").measure([environments[""].result().folder], tries=5)
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    (figures,) = found.values()
    assert figures["disk"] < 95, figures
    assert figures["memory"] < 42, figures
    assert figures["busy"] < 3.2 * figures["numpy"], figures


@pytest.mark.deployment
def test_the_lab(environments: dict[str, Future[Environment]]) -> None:
    lab = environments["lab"].result()
    assert "engine      numba" in lab.turnout("simulate", "--rounds", "50")
    assert "mechanism   memoized" in lab.turnout("plan", "--budget", "6", "--rounds", "2000")


@pytest.mark.deployment
def test_the_server(environments: dict[str, Future[Environment]]) -> None:
    server = environments["server"].result()
    ports = [free_port(), free_port()]
    command = [str(server.bin / "turnout"), "serve", "--capacity", "4", "--missing", "absent"]
    command += ["--port", str(ports[0]), "--operator-port", str(ports[1])]
    with (server.folder / "log.txt").open("w") as log:
        serving = subprocess.Popen(command, cwd=server.folder, stdout=log, stderr=log)
        try:
            for port in ports:
                wait_until(lambda port=port: healthy(port))
            serving.send_signal(signal.SIGTERM)
            assert serving.wait(30) == 0, (server.folder / "log.txt").read_text()
        finally:
            serving.kill()
            serving.wait()


def healthy(port: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as reply:
        return bool(reply.status == 200)


@pytest.mark.deployment
def test_postgres(environments: dict[str, Future[Environment]]) -> None:
    """Its library is there; no server is: that is said, and not that something is missing."""
    nowhere = f"postgresql://127.0.0.1:{free_port()}/turnout?connect_timeout=2"
    code = f"from turnout.service.store.backup import open_store; open_store({nowhere!r})"
    last = environments["postgres"].result().python(code, status=1).strip().splitlines()[-1]
    assert last.startswith("turnout.service.store.store.StoreProblem: "), last


FLOWER = """
from flwr.serverapp.strategy import FedAvg
from turnout.flower import SelfSelection, self_selection_mod
print(type(SelfSelection(FedAvg(min_available_nodes=50), capacity=15)).__name__, callable(self_selection_mod()))
"""


@pytest.mark.deployment
def test_flower(environments: dict[str, Future[Environment]]) -> None:
    assert environments["flower"].result().python(FLOWER).strip() == "SelfSelection True"


@pytest.mark.deployment
def test_the_gpu_engine_on_a_cpu(environments: dict[str, Future[Environment]]) -> None:
    assert environments["gpu"].result().python(TINY.format(engine="jax")).startswith("turnout ")


@pytest.mark.deployment
def test_a_cluster_of_one(environments: dict[str, Future[Environment]]) -> None:
    assert "turnout " in environments["cluster"].result().python(TINY.format(engine="ray"))


@pytest.mark.deployment
def test_every_python_that_is_here(built: Built, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The base on each supported version that can be found; which ones were, and which not, is printed."""
    found = {version: python for version in (CURRENT, *OTHERS) if (python := interpreter(version))}
    assert CURRENT in found
    for version, python in found.items():
        environment = Environment(built, tmp_path / version, python=python)
        assert environment.python("import sys; print(*sys.version_info[:2], sep='.')").strip() == version
        works_without_extras(environment)
        shutil.rmtree(environment.folder)
    absent = [version for version in OTHERS if version not in found]
    with capsys.disabled():
        print(f"\nthe wheel's base works with Python {', '.join(found)}; not found here: {', '.join(absent) or 'none'}")


def interpreter(version: str) -> str | None:
    """A working Python of this version: ours, on the path, or pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [
        shutil.which(f"python{version}"),
        *(str(one / "bin" / "python") for one in pyenv.glob(f"{version}.*")),
    ]
    for candidate in [sys.executable] if version == CURRENT else candidates:
        if candidate and answers(candidate, version):
            return candidate
    return None


def answers(python: str, version: str) -> bool:
    code = "import sys, venv; print(*sys.version_info[:2], sep='.')"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.returncode == 0 and done.stdout.strip() == version
