"""A mechanism of another package: one file and an entry point, and everything that is there for ours is there for it.

The file is the example of docs/add-a-mechanism.md. Every check runs in a process of its own that never imports it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import turnout
from turnout.privacy import OWN_BIT

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/add-a-mechanism.md").read_text()
EXAMPLE = PAGE.partition("```python\n")[2].partition("```")[0]
POINTS = {"damped": "damped:Damped"}
SETTINGS = """
rounds = 60
capacity = 12
seed = 3
population = {kind = "paper", clients = 24}
mechanism = {kind = "damped", epsilon = 1.0}
controller = {kind = "integral", gain = 0.3, initial = 0.35}
"""


def install(folder, points, **files):
    """What pip leaves behind: the package's files, and what it says of itself."""
    about = folder / "damped-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: damped\nVersion: 1.0\n")
    told = "".join(f"{name} = {value}\n" for name, value in points.items())
    (about / "entry_points.txt").write_text(f"[turnout.mechanisms]\n{told}")
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    assert "class Damped(Mechanism)" in EXAMPLE
    return install(tmp_path_factory.mktemp("installed"), POINTS, damped=EXAMPLE)


def run(package, *words, check=True):
    """A process for which the package is installed."""
    places = (package, Path(turnout.__file__).parents[1], ROOT / "tests")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, places)),
        "JAX_PLATFORMS": "cpu",
        "RAY_ADDRESS": "local",
    }
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, env=environment)
    assert not check or done.returncode == 0, done.stderr[-3000:]
    return done


def python(package, code, check=True):
    return run(package, "-W", "error", "-c", code, check=check)


PRELUDE = """
import json, sys
from turnout.algorithm import MECHANISMS, Clamp, check_known, in_words, mechanism_from_settings
from turnout.settings import Table
assert "damped" in MECHANISMS and "damped" not in sys.modules, "it is known before it is imported"
made = mechanism_from_settings(Table({"kind": "damped", "epsilon": 1.0}))
"""

RUNS = """
import numpy as np, tomllib
from turnout.simulation import run_from_settings
def run(engine):
    return run_from_settings(Table(tomllib.loads(SETTINGS) | {"engine": engine})).go()
def same(engine):
    one, other = run("numpy"), run(engine)
    for name in ("signal", "participants", "cost"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    np.testing.assert_array_equal(one.state.participations, other.state.participations)
    assert 0 < one.participants[1:].mean() < 24
"""


def simulated(engine):
    return f"{PRELUDE}\nSETTINGS = '''{SETTINGS}'''\n{RUNS}\nsame({engine!r})"


def test_settings_certificate_account_and_words(package):
    python(
        package,
        PRELUDE
        + """
from turnout.privacy import OWN_BIT, account_of, certificate
from turnout.service import Rules, Safety
from turnout.client import Limit
from turnout.service.agent import agree
from turnout.algorithm import Averaging, SelfTuningController
import damped
assert type(made) is damped.Damped and mechanism_from_settings(Table(made.settings())) == made
assert in_words(made.settings()) == made.in_words() == "damped, epsilon 1 per report"
check_known(made)
promise = certificate(made)
assert promise.epsilon == 1.0 and promise.assumptions == (OWN_BIT,) and "the box [0.2689, 0.7311]" in str(promise)
assert account_of(made, 100, 1e-6).epsilon == account_of(Clamp(1.0), 100, 1e-6).epsilon
assert Rules(made, SelfTuningController(), Safety("absent")).mechanism is made  # a coordinator proposes it
assert agree(made.settings(), Averaging(), limit=Limit(100, 1.0)).mechanism == made  # a device agrees to it
""",
    )


@pytest.mark.parametrize("engine", ["numba", "jax", pytest.param("ray", marks=pytest.mark.deployment)])
def test_every_engine_gives_the_same_bits(package, engine):
    run(package, "-c", simulated(engine))


@pytest.mark.deployment
def test_plan_and_frontier(package):
    python(
        package,
        PRELUDE
        + """
from turnout import paper_population
from turnout.plan import Goal, frontier, plan
problem = paper_population(clients=60).problem(30)
goal = Goal(problem, rounds=200, budget=6.0, observer="sum")
offers = {offer.name: offer for offer in plan(goal).others}
found = offers["damped"]
assert found.mechanism.kind == "damped" and found.total_epsilon <= 6.0 and "against" in found.against_it
curves = {curve.name: curve for curve in frontier(problem, 100, observer="sum", totals=[2.0], beyond=[]).curves}
assert curves["damped"].points[0].total_epsilon <= 2.0
assert curves["damped"].points[0].gap > curves["clamp"].points[0].gap
""",
    )


def test_the_command_line(package, tmp_path):
    (tmp_path / "run.toml").write_text(SETTINGS)
    done = run(package, "-m", "turnout", "simulate", tmp_path / "run.toml", "--engine", "numpy", "--json")
    facts = json.loads(done.stdout)
    assert facts["mechanism"] == {"kind": "damped", "epsilon": 1.0}
    told = f"pure epsilon 1 per report, against an observer of every report, if {OWN_BIT} (the box"
    assert facts["privacy"].startswith(told)
    audit = ("audit", "--mechanism", "damped", "--rounds", 2, "--trials", 2000, "--seed", 1, "--json")
    (found,) = json.loads(run(package, "-m", "turnout", *audit).stdout)["audits"]
    assert found["name"] == "damped, epsilon 1 per report"
    assert found["verdict"] == "not refuted"
    # The words of the coin are counted: what the response uses of the box, and no more than is claimed.
    assert any(one["exact"] and 0.9 < one["epsilon_at_least"] <= 1.0 for one in found["findings"])


def test_flower(package):
    python(
        package,
        PRELUDE
        + """
from flwr.serverapp import ServerApp
from flower.apps import column, fedavg, make_app, start
from turnout.flower import SelfSelection, run_in_process
server, told = ServerApp(), []
@server.main()
def main(grid, context):
    told.extend(column(start(SelfSelection(fedavg(), capacity=5, mechanism=made), grid, 4), "participants"))
run_in_process(server, make_app(), 12)
assert len(told) == 4 and 0 < sum(told) < 48, told
""",
    )


ASKED = "from turnout.algorithm import MECHANISMS\nMECHANISMS['damped']"
ANOTHER = EXAMPLE.replace('"damped"', '"another"')


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import nothing_of_the_kind", "must be importable as damped:Damped, got ModuleNotFoundError: No module"),
        ("Damped = 7", "must be a dataclass that inherits Mechanism, got 7: point its entry point at the class"),
        (ANOTHER, "must be called as its kind is, got kind 'another': give both one name"),
    ],
    ids=["import", "class", "kind"],
)
def test_a_package_that_is_wrong_is_named(tmp_path, text, says):
    """Where it is asked for; whoever asks for another mechanism does not notice."""
    place = install(tmp_path / "wrong", POINTS, damped=text)
    assert f"ValueError: mechanism 'damped' of package 'damped' {says}" in python(place, ASKED, check=False).stderr
    python(place, "from turnout.algorithm import MECHANISMS\nMECHANISMS['clamp'](1.0)")


def test_nobody_takes_a_name_of_ours(tmp_path):
    """Whoever proposes a clamp means ours, with our proof."""
    place = install(tmp_path / "taken", {"clamp": "damped:Damped"}, damped=EXAMPLE)
    code = "from turnout.algorithm import MECHANISMS, Clamp\nassert MECHANISMS['clamp'] is Clamp\nlist(MECHANISMS)"
    assert "of package 'damped' is left out: the name is taken by turnout itself" in run(place, "-c", code).stderr


def test_without_the_package_nobody_knows_the_name(tmp_path):
    (tmp_path / "nothing").mkdir()
    done = python(tmp_path / "nothing", ASKED, check=False)
    assert "KeyError: 'damped'" in done.stderr
