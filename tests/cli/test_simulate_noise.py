"""`turnout simulate`, `show`, `report` and `plan` on runs with noise on the sum."""

import json
import tomllib

import numpy as np
import pytest
from typer.testing import CliRunner

from turnout import SumNoise, Trajectory
from turnout.cli import app
from turnout.privacy import FIXED_ROUNDS, NOISE_ADDED, NOISE_ONCE, PUBLIC_DESIGN, UNKNOWN_SEED, total_epsilon_noisy_sum

SETTINGS = """
rounds = 120
capacity = 100
[population]
kind = "paper"
clients = 200
[mechanism]
kind = "classical"
[controller]
kind = "falling-gain"
floor = 0.01
initial = 10.0
[start]
average = 0.5
[noise]
sigma = 40
early = 20
early_sigma = 15
aggregators = 2
"""
NOISE = SumNoise(40.0, 20, 15.0, aggregators=2)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(SETTINGS)
    return tmp_path


def turnout(*words):
    """What a command prints, on lines of any length."""
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "1000"})
    assert done.exit_code == 0, done.output
    return done.stdout


def row(printed, name):
    (found,) = [line for line in printed.splitlines() if line.startswith(f"{name} ")]
    return " ".join(found.split()[len(name.split()) :])


def test_a_settings_file_with_noise_runs_and_says_what_it_is(folder):
    printed = turnout("simulate", "run.toml", "-o", "run.npz")
    run = Trajectory.load(folder / "run.npz")
    assert run.provenance["noise"] == NOISE.settings()
    total = total_epsilon_noisy_sum(NOISE, 120, 1e-6)
    privacy = " ".join(printed.split())
    assert str(total).partition(",")[0] + ", against either of two aggregators that each add noise" in privacy
    assert NOISE_ONCE in privacy
    assert "sigma 15 in the first 20 rounds, then 40, by each of two aggregators" in row(printed, "noise")
    assert row(printed, "server saw") == run.seen_in_words()
    tail = run.last(400)
    assert f"{tail.mean():,.1f} ± {tail.std():,.1f} over the last 120 rounds" in row(printed, "turnout")
    assert f"{100 * run.gap_at_own_turnout:.2f} % above the optimum of its own turnout" in " ".join(printed.split())
    assert turnout("show", "run.npz") == printed.replace("saved run.npz\n", "")


def test_for_machines(folder):
    facts = json.loads(turnout("simulate", "run.toml", "--json", "-o", "run.npz"))
    run = Trajectory.load(folder / "run.npz")
    assert facts["noise"] == NOISE.settings()
    assert (facts["seen_mean"], facts["seen_spread"]) == (run.seen.mean(), run.seen.std())
    assert facts["cost_gap_at_own_turnout_percent"] == pytest.approx(100 * run.gap_at_own_turnout)
    shown = json.loads(turnout("show", "run.npz", "--json"))
    assert {name: shown[name] for name in facts if name in shown} == {
        name: facts[name] for name in facts if name in shown
    }
    exact = json.loads(turnout("simulate", "--clients", 40, "--rounds", 20, "--json"))
    assert {exact[name] for name in ("noise", "seen_mean", "seen_spread", "cost_gap_at_own_turnout_percent")} == {None}


def test_options_and_a_continued_run(folder):
    turnout("simulate", "run.toml", "--rounds", 50, "--set", "noise.every=3", "-o", "part.npz")
    printed = turnout("simulate", "--continue", "part.npz", "--rounds", 70, "-o", "run.npz")
    turnout("simulate", "run.toml", "--set", "noise.every=3", "-o", "whole.npz")
    run, whole = (Trajectory.load(folder / f"{name}.npz") for name in ("run", "whole"))
    np.testing.assert_array_equal(run.seen, whole.seen)
    np.testing.assert_array_equal(run.signal, whole.signal)
    assert "over 40 opened sums" in " ".join(printed.split())
    assert "in 40 opened sums" in row(printed, "server saw")


def test_other_readers_of_the_file_leave_the_noise_alone(folder):
    assert "200 clients, capacity 100" in turnout("optimum", "run.toml")


def test_a_page_says_what_is_true_and_what_was_seen(folder):
    turnout("simulate", "run.toml", "-o", "run.npz")
    turnout("report", "run.npz", "-o", "run.html")
    page = (folder / "run.html").read_text()
    assert "What the server saw" in page
    assert "True turnout" in page


def test_a_plan_runs_with_exactly_its_noise_and_controller(folder):
    planned = "plan --clients 400 --budget 1 --rounds 300 --observer noisy-sum --aggregators 2 -o plan.toml --json"
    facts = json.loads(turnout(*planned.split()))
    settings = tomllib.loads((folder / "plan.toml").read_text())
    head = (folder / "plan.toml").read_text().splitlines()[:2]
    assert head[1] == f"# expected: {facts['cost_gap_percent']:.2f} % above the optimum of its own turnout"
    printed = turnout("simulate", "plan.toml", "-o", "run.npz")
    run = Trajectory.load(folder / "run.npz")
    assert run.provenance["noise"] == facts["noise"] == settings["noise"]
    assert run.provenance["controller"] == facts["controller"] == settings["controller"]
    assert run.provenance["start"] == settings["start"]
    assert 0.99 < facts["total_epsilon"] <= 1.0
    total = head[0].removeprefix("# ")
    assert total.startswith(
        "total epsilon 1.0000 at delta 1e-06 over 300 opened sums, against either of two aggregators"
    )
    of_a_run = f", and {UNKNOWN_SEED}, and {FIXED_ROUNDS} (Gaussian curve)"
    assert row(printed, "privacy") == total.replace(" (Gaussian curve)", of_a_run)
    assert NOISE_ADDED not in total  # of two aggregators, one may be the observer
    assert PUBLIC_DESIGN in total


def test_a_plan_with_a_hard_limit_runs_with_its_bounded_noise(folder):
    planned = "plan --clients 400 --budget 8 --rounds 300 --guessed --observer noisy-sum --hard-limit 390"
    facts = json.loads(turnout(*planned.split(), "--json", "-o", "plan.toml"))
    told = facts["hard_limit"]
    assert (told["limit"], told["margin"]) == (390.0, told["bound"])
    assert told["bound"] == facts["noise"]["bound"]
    assert (told["goes_ahead"] >= 0.99) == told["is_sensible"] == ("Sensible: " in told["in_words"])
    words = turnout(*planned.split())
    assert f"hard limit  a round goes ahead if its opened sum is at most {390 - told['margin']}, which is 390" in words
    assert words.count("\n            Sensible: ") + words.count("\n            Not sensible: ") == 1
    printed = turnout("simulate", "plan.toml", "-o", "run.npz")
    run = Trajectory.load(folder / "run.npz")
    assert run.provenance["noise"] == facts["noise"]
    assert np.abs(run.seen - run.participants).max() <= told["bound"]
    assert f", bounded by {told['bound']:,}), if " in row(printed, "privacy")
    assert "; the bound costs " in row(printed, "privacy")


def test_a_hard_limit_where_reports_are_seen_is_refused(folder):
    done = CliRunner().invoke(app, ["plan", "--budget", "1", "--hard-limit", "9"])
    assert "hard_limit must be a finite number above 0, for an observer of the 'noisy-sum', got 9.0" in str(
        done.exception
    )
