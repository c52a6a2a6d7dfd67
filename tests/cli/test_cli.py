"""The command line as a user meets it: a real process, its output and its exit status."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from conformance.test_engines import assert_identical
from turnout import Trajectory
from turnout.cli import EXTRAS, app

ROOT = Path(__file__).parents[2]


def turnout(*arguments, cwd=None):
    command = [sys.executable, "-m", "turnout", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_help_is_light():
    """`turnout --help` imports neither Numba nor a plotting library, nor NumPy."""
    code = (
        "import sys; sys.argv = ['turnout', '--help']\n"
        "from turnout.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'numba', 'matplotlib', 'plotly', 'scipy', 'pandas', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "simulate" in done.stdout
    assert turnout("--version").stdout.startswith("turnout 0.")


def without_typer(*words):
    """As with a device's install."""
    code = "import sys; sys.modules['typer'] = None; sys.argv[0] = 'turnout'; from turnout.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)


def test_every_command_names_its_extra_where_its_libraries_are_missing():
    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    known |= {group.typer_instance.info.name for group in app.registered_groups}
    named = [name for names in EXTRAS.values() for name in names]
    assert sorted([*named, "join"]) == sorted(known)
    for word, extra in (("simulate", "lab"), ("operate", "server"), ("--install-completion", "lab")):
        done = without_typer(word, "--help")
        assert done.returncode == 2
        told = f"error: turnout {word} needs typer, which is not installed: pip install 'turnout[{extra}]'\n"
        assert done.stderr == told


def test_without_typer_there_is_help_the_version_and_join():
    for words in ((), ("--help",)):
        done = without_typer(*words)
        assert (done.returncode, done.stderr) == (0, "")
        for names in (("join",), *EXTRAS.values()):
            assert ", ".join(names) in done.stdout
    assert without_typer("--version").stdout == turnout("--version").stdout
    assert "--cost-file" in without_typer("join", "--help").stdout
    wrong = without_typer("jion")
    assert (wrong.returncode, "command must be one of join, simulate" in wrong.stderr) == (2, True)


def test_simulate_show_and_continue(tmp_path):
    first = turnout("simulate", "--beta", 3.5, "--rounds", 300, "--seed", 4, "-o", "a.npz", "--json", cwd=tmp_path)
    facts = json.loads(first.stdout)
    assert facts["rounds"] == 300
    assert facts["mechanism"] == {"kind": "paper-coin", "beta": 3.5}
    assert facts["optimum_cost"] == pytest.approx(1753.56, abs=0.01)
    turnout("simulate", "--beta", 3.5, "--rounds", 120, "--seed", 4, "-o", "b.npz", cwd=tmp_path)
    more = turnout("simulate", "--continue", "b.npz", "--rounds", 180, "-o", "c.npz", cwd=tmp_path)
    assert more.returncode == 0, more.stderr
    assert_identical(Trajectory.load(tmp_path / "a.npz"), Trajectory.load(tmp_path / "c.npz"))
    shown = turnout("show", "a.npz", cwd=tmp_path)
    assert "300 rounds of 1,200 clients, seed 4" in shown.stdout
    assert "▁" in shown.stdout
    assert json.loads(turnout("show", "a.npz", "--json", cwd=tmp_path).stdout)["provenance"]["seed"] == 4


def test_settings_file_and_options(tmp_path):
    """Options win over the file."""
    done = turnout(
        "simulate", ROOT / "examples/paper.toml", "--rounds", 50, "--beta", 2.5, "--engine", "numpy", "--json"
    )
    facts = json.loads(done.stdout)
    assert facts["rounds"] == 50
    assert facts["mechanism"]["beta"] == 2.5
    assert facts["engine"] == "numpy, as asked"
    chargers = turnout("simulate", ROOT / "examples/chargers.toml", "--rounds", 50, "--json")
    assert chargers.returncode == 0, chargers.stderr


def test_certified_mechanisms_and_any_setting():
    done = turnout("simulate", "--epsilon", 1, "--set", "mechanism.center=0.45", "--rounds", 50, "--json")
    facts = json.loads(done.stdout)
    assert facts["mechanism"] == {"kind": "clamp", "epsilon": 1.0, "center": 0.45}
    assert facts["privacy"].startswith("pure epsilon 1 per report, against an observer of every report")
    start = turnout(
        "simulate", "--set", "start.average=0.5", "--set", "controller.kind=self-tuning", "--rounds", 5, "--json"
    )
    assert json.loads(start.stdout)["controller"]["kind"] == "self-tuning"


def test_optimum(tmp_path):
    done = turnout("optimum", "--clients", 400, "--capacity", 100, "-o", "best.csv", cwd=tmp_path)
    assert "400 clients, capacity 100" in done.stdout
    table = np.genfromtxt(tmp_path / "best.csv", delimiter=",", names=True)
    assert table["average"].sum() == pytest.approx(100)
    facts = json.loads(turnout("optimum", "--json").stdout)
    assert facts["price"] == pytest.approx(9.9761, abs=1e-4)
    assert facts["cost_if_chosen_at_random"] == pytest.approx(3513.4, abs=0.1)
    assert facts["kkt_residual"] < 1e-9


def write_inputs(folder):
    (folder / "nan.csv").write_text("x^2\n1\nnan\n")
    (folder / "concave.csv").write_text("x^1,x^2\n1,1\n5,-1\n")
    (folder / "flat.csv").write_text("x^2\n1\n0\n")
    (folder / "typo.toml").write_text("rounds = 5\ncapacty = 3\n[controller]\ngain = 0.1\n")
    (folder / "nested.toml").write_text("[mechanism]\nkind = 'paper-coin'\nbetta = 1\nbeta = 2\n")
    (folder / "noise.toml").write_text("[noise]\nsigma = 40\nagregators = 2\n")
    (folder / "broken.toml").write_text("rounds = = 5\n")
    (folder / "word.toml").write_text("rounds = 'many'\n")
    turnout("simulate", "--rounds", 3, "-o", "run.npz", cwd=folder)
    whole = (folder / "run.npz").read_bytes()
    (folder / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (folder / "folder").mkdir()
    (folder / "tables.toml").write_text("population = 'paper'\n")
    (folder / "server.toml").write_text("controller = 5\n")
    (folder / "clients.toml").write_text("[population]\nkind = 'paper'\nclients = '1200'\n")
    (folder / "fine.csv").write_text("x^2\n1\n2\n")
    (folder / "four.toml").write_text("[population]\nclients = 4\n")
    (folder / "page.html").write_text("<!doctype html>")
    (folder / "renamed.html").write_bytes(whole)
    (folder / "huge.csv").write_text("x^2\n1e308\n1\n")
    (folder / "twice.csv").write_text("x^2,weight,weight\n1,2,3\n")
    np.savez(folder / "half.npz", coefficients=[[1.0]], powers=[2.5])
    with zipfile.ZipFile(folder / "run.npz") as archive, zipfile.ZipFile(folder / "inside.npz", "w") as other:
        other.writestr("provenance.json", archive.read("provenance.json"))


BAD = [
    (
        "simulate --population nan.csv --capacity 1 --gain 1",
        "coefficients must be finite numbers, got nan for client 1",
    ),
    ("simulate --population concave.csv --capacity 1 --gain 1", "strictly convex"),
    ("simulate --population flat.csv --capacity 1 --gain 1", "a flat or linear cost for client 1"),
    ("simulate --capacity 0", "capacity must be above 0"),
    ("optimum --capacity 0", "capacity must be above 0"),
    ("simulate --capacity 1201", "at most 1200"),
    ("simulate --capacity 150 --beta 1", "above 220.7 and at most 1200.0 (the turnouts that the mechanism can reach)"),
    ("simulate --beta 0", "beta must be above 0"),
    ("simulate --beta -2", "beta must be above 0"),
    ("simulate --gain 0", "gain must be above 0"),
    ("simulate --gain -0.1", "gain must be above 0"),
    ("simulate --rounds 0", "rounds must be a whole number from 1 up"),
    ("simulate --every 0", "keep.every must be 1 or more"),
    ("simulate --seed -1", "seed must be"),
    ("simulate --engine cuda", "engine must be one of"),
    ("simulate --mechanism coin", "mechanism.kind must be one of"),
    ("simulate --mechanism paper-coin", "mechanism.beta is missing"),
    ("simulate --mechanism classical --beta 2", "mechanism.beta is not a known setting"),
    ("simulate --clients 1201", "multiple of 4"),
    ("simulate --population clients.csv --clients 8", "--clients must be left out"),
    ("simulate --population fine.csv", "capacity is missing"),
    ("simulate --set nonsense", "--set must be of the form name=value"),
    ("simulate --set rounds.x=1 --rounds 5", "rounds.x must be within a table"),
    ("simulate --epsilon 0.5 --mechanism paper-coin", "mechanism.beta is missing"),
    ("simulate --epsilon 40", "above 0 and at most 30"),
    ("simulate tables.toml", "population must be a table"),
    ("simulate server.toml", "controller must be a table"),
    ("simulate clients.toml", "population.clients must be a whole number"),
    ("simulate --clients 0", "population.clients must be a whole number from 1 up"),
    ("simulate --population-seed -1", "population seed must be a whole number from 0 up"),
    ("simulate --rounds 1000000000000000", "keep must be at most"),
    ("simulate --threads -5 --rounds 5", "threads must be 1 or more"),
    ("optimum --population huge.csv --capacity 1", "too large for a number for client 0"),
    ("optimum --population twice.csv --capacity 1", "a column comes twice"),
    ("optimum --population half.npz --capacity 1", "powers must be different whole numbers"),
    ("show inside.npz", "inside.npz: damaged inside"),
    ("report inside.npz", "inside.npz: damaged inside"),
    ("simulate typo.toml", "capacty is not a known setting"),
    ("optimum typo.toml", "did you mean 'capacity'?"),
    ("simulate nested.toml", "mechanism.betta is not a known setting"),
    ("simulate noise.toml", "noise.agregators is not a known setting (known: aggregators,"),
    ("simulate --set nose.sigma=40 --rounds 5", "did you mean 'noise'?"),
    ("simulate --set noise=40 --rounds 5", "noise must be a table, got 40: change its value"),
    ("simulate broken.toml", "broken.toml: not a TOML file"),
    ("simulate word.toml", "rounds must be a whole number, got 'many'"),
    ("simulate none.toml", "none.toml: cannot be read"),
    ("simulate --population none.csv --capacity 1", "none.csv: cannot be read"),
    ("show none.npz", "none.npz: cannot be read (no such file)"),
    ("show cut.npz", "cut.npz: cannot be read (truncated"),
    ("show nan.csv", "nan.csv: cannot be read"),
    ("simulate --continue cut.npz --rounds 5", "cut.npz: cannot be read"),
    ("simulate --continue run.npz", "--rounds is missing"),
    ("simulate --continue run.npz --rounds 5 --beta 3", "--continue must be used with"),
    ("simulate --rounds 5 -o no/such/run.npz", "cannot be written (no folder"),
    ("simulate --rounds 5 -o folder", "cannot be written (it is a folder)"),
    ("optimum -o no/such/best.csv", "cannot be written"),
    (
        "simulate --population papr",
        "population must be 'paper-drawn', 'paper', or a .toml, .csv or .npz file, got 'papr'",
    ),
    ("optimum --population none.csv", "none.csv: cannot be read"),
    ("optimum four.toml", "population.kind is missing: give kind = 'paper' or 'paper-drawn', or"),
    (
        "simulate --capacity 500 --controller integral",
        "controller.gain is missing: give --gain; the paper's, 9 / clients",
    ),
    ("simulate --rounds 5 -o run.csv", "--output must be a .npz file, got 'run.csv'"),
    ("optimum -o best.npz", "--output must be a .csv file, got 'best.npz'"),
    ("report run.npz -o run.pdf", "--output must be a .html file, got 'run.pdf'"),
    ("report run.npz -o run.npz", "--output must be"),
    ("report renamed.html -o renamed.html", "--output must be another file than those that are read"),
    ("attack --rounds 5 -o run.npz", "--output must be a .html file"),
    ("frontier -o frontier.csv", "--output must be a .html file"),
    ("show page.html", "page.html: cannot be read (not a saved run): give a file that simulate wrote"),
]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder)
    return folder


@pytest.mark.parametrize(("command", "says"), BAD, ids=[command for command, _ in BAD])
def test_bad_input_is_one_clear_line(inputs, command, says):
    before = sorted(inputs.rglob("*"))
    done = turnout(*command.split(), cwd=inputs)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert sorted(inputs.rglob("*")) == before  # nothing half-written is left behind


def test_places_that_take_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in ("/proc/run.npz", "pipe", "x" * 300):
        done = turnout("simulate", "--rounds", 5, "-o", place, cwd=tmp_path)
        assert done.returncode == 2
        assert "cannot be written" in done.stderr
        assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_link_is_followed(tmp_path):
    (tmp_path / "link.npz").symlink_to(tmp_path / "target.npz")
    turnout("simulate", "--rounds", 5, "-o", "link.npz", cwd=tmp_path)
    assert (tmp_path / "link.npz").is_symlink()
    assert Trajectory.load(tmp_path / "target.npz").rounds == 5


def test_the_gap_is_to_the_problem_as_it_stands(tmp_path):
    """Clients that left count neither in the cost nor in the optimum."""
    (tmp_path / "leave.toml").write_text(
        "rounds = 3000\n[averaging]\nremember = 300\n"
        "[schedule]\nleave = [{ round = 1000, clients = [[0, 150], [300, 450], [600, 750], [900, 1050]] }]\n"
        "capacity = [{ round = 1000, capacity = 300 }]\n"
    )
    facts = json.loads(turnout("simulate", "leave.toml", "--json", cwd=tmp_path).stdout)
    assert abs(facts["cost_gap_percent"]) < 2


def test_a_capacity_unlike_the_papers_is_met():
    """The paper's gain would oscillate there: the default is the server that needs none."""
    done = turnout("simulate", "--capacity", 60, "--rounds", 1000, "--json")
    facts = json.loads(done.stdout)
    assert facts["controller"]["kind"] == "self-tuning"
    assert done.stderr.startswith(
        "note: the server is self-tuning, since the paper's gain fits half of its clients alone"
    )
    assert done.stderr.count("\n") == 1
    asked = turnout("simulate", "--capacity", 60, "--rounds", 5, "--controller", "self-tuning")
    assert asked.stderr == turnout("simulate", "--rounds", 5).stderr == ""
    assert facts["turnout_mean"] == pytest.approx(60, abs=2)


def test_a_population_file_brings_its_capacity():
    done = turnout("optimum", "--population", ROOT / "examples/chargers.toml")
    assert done.stdout.startswith("360 clients, capacity 1,500,000\n")
    assert "price                0.170775\n" in done.stdout  # significant digits, however small it is


def test_show_says_the_gap_that_simulate_said(tmp_path):
    """And what explains a cost below the optimum: too few came."""
    told = turnout("simulate", "--rounds", 10, "-o", "short.npz", cwd=tmp_path).stdout
    shown = turnout("show", "short.npz", cwd=tmp_path).stdout
    assert "(12.80 % below the optimum: averages add up to 542.9 of" in told
    assert told.splitlines()[:-1] == shown.splitlines()
    facts = json.loads(turnout("show", "short.npz", "--json", cwd=tmp_path).stdout)
    assert facts["cost_gap_percent"] == pytest.approx(-12.80, abs=0.005)
    assert facts["averages_total"] == pytest.approx(542.9)


def test_a_warning_is_one_line_once():
    done = turnout("simulate", "--beta", 0.5, "--rounds", 5)
    assert done.returncode == 0
    assert done.stderr.startswith("note: beta below 1 makes the coin smaller again")
    assert done.stderr.count("\n") == 1


def test_progress_bar_and_ctrl_c(tmp_path):
    """On a terminal: a bar, and Ctrl-C keeps what is done."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "turnout", "simulate", "--rounds", "50000000", "-o", "run.npz"]
    with subprocess.Popen(command, stderr=follower, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        os.close(follower)
        seen = b""
        deadline = time.monotonic() + 60
        while b"/50000000" not in seen and time.monotonic() < deadline:
            seen += os.read(leader, 4096)
        process.send_signal(signal.SIGINT)
        output = process.stdout.read()
        try:
            while os.read(leader, 4096):
                pass
        except OSError:
            pass  # the other end is closed
    os.close(leader)
    assert b"simulating" in seen
    assert process.returncode == 130
    assert "interrupted after" in output
    assert Trajectory.load(tmp_path / "run.npz").rounds > 0
