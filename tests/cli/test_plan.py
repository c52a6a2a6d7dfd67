"""`turnout plan` as a user meets it."""

import json
import subprocess
import sys

import pytest

from turnout.privacy import OTHERS_REPORT, PUBLIC_DESIGN, RELEASED_ONCE, TRUSTED_AGGREGATOR


def turnout(*arguments, folder=None):
    return subprocess.run(
        [sys.executable, "-m", "turnout", *map(str, arguments)], capture_output=True, text=True, cwd=folder, check=False
    )


def test_a_plan_in_words_and_as_settings_that_simulate_takes(tmp_path):
    made = turnout("plan", "--budget", 6, "--rounds", 500, "--at-least", 580, "-o", "plan.toml", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    for word in (
        "mechanism   memoized",
        "total epsilon 6.000",
        "above the optimum",
        "at least 580",
        "alternatives rejected",
        "clamp",
    ):
        assert word in made.stdout
    held = f"against an observer of every report, if {RELEASED_ONCE}, and {PUBLIC_DESIGN} ("
    assert held in made.stdout
    assert held in (tmp_path / "plan.toml").read_text().splitlines()[0]
    run = turnout("simulate", "plan.toml", "--json", folder=tmp_path)
    assert run.returncode == 0, run.stderr
    facts = json.loads(run.stdout)
    assert facts["rounds"] == 500
    assert held in facts["privacy"]
    assert facts["mechanism"]["kind"] == "memoized"


def test_a_plan_for_machines():
    made = turnout("plan", "--budget", 3, "--rounds", 200, "--observer", "sum", "--json")
    facts = json.loads(made.stdout)
    assert facts["total_epsilon"] <= 3.0
    assert facts["against"] == "an observer of the sum alone, with 1,198 honest others"
    assert facts["assumptions"] == [TRUSTED_AGGREGATOR, OTHERS_REPORT, PUBLIC_DESIGN]
    assert all(isinstance(other["assumptions"], list) for other in facts["others"])
    assert facts["averaging"] == {"by": "probability"}
    assert facts["cost_gap_band_percent"][0] < facts["cost_gap_percent"] < facts["cost_gap_band_percent"][1]
    assert all(other["rejected_because"] for other in facts["others"])


def test_a_plan_against_the_sum_is_an_assumption_wherever_it_is_shown(tmp_path):
    asked = ("--clients", 40, "--budget", 3, "--rounds", 20, "--observer", "sum", "--honest", 30, "-o", "plan.toml")
    made = turnout("plan", *asked, folder=tmp_path)
    assert made.returncode == 0, made.stderr
    held = f"an observer of the sum alone, with 30 honest others, if {TRUSTED_AGGREGATOR}, and {OTHERS_REPORT}"
    file = (tmp_path / "plan.toml").read_text()
    assert held in made.stdout
    assert held in file.splitlines()[0]
    run = turnout("simulate", "plan.toml", "-o", "run.npz", folder=tmp_path)
    assert run.returncode == 0, run.stderr
    shown = turnout("show", "run.npz", folder=tmp_path)
    for printed in (run.stdout, shown.stdout):
        assert held in " ".join(printed.split())
    for change, told in (
        (('by = "probability"', 'by = "bit"'), "a history that moves by the bit carries hidden bits into later sums"),
        (('observer = "sum"', 'observer = "nobody"'), "observer must be 'every-report' or 'sum'"),
        (('observer = "sum"', 'observer = "every-report"'), "honest must be given for an observer of the sum alone"),
    ):
        (tmp_path / "other.toml").write_text(file.replace(*change))
        refused = turnout("simulate", "other.toml", folder=tmp_path)
        assert refused.returncode == 2
        assert told in refused.stderr


def test_groups_and_weights_survive_the_way_through_the_file(tmp_path):
    text = """
capacity = 150
[population]
seed = 3
[[population.groups]]
clients = 100
weight = 2
cost = { 2 = { uniform = [5, 40] } }
[[population.groups]]
clients = 50
cost = { 1 = 2.5, 2 = { lognormal = [10, 0.5] } }
"""
    (tmp_path / "clients.toml").write_text(text)
    made = turnout("plan", "clients.toml", "--budget", 5, "--rounds", 100, "-o", "plan.toml", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "150 clients, capacity 150" in made.stdout
    run = turnout("simulate", "plan.toml", "--json", folder=tmp_path)
    assert json.loads(run.stdout)["clients"] == 150


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "budget or gap is missing"),
        (
            ["--budget", 4, "--gap", 1],
            "is impossible in 100 rounds against an observer of every report: with that budget the smallest gap is",
        ),
        (["--budget", 4, "--observer", "all"], "observer must be 'every-report' or 'sum'"),
        (["--budget", 4, "--honest", 5], "honest must be from 0 to 1198, and only for an observer of the 'sum'"),
        (["--gap", 150], "--gap must be above 0 and below 100 percent, got 150"),
        (["--budget", 4, "--capacity", 5000], "capacity must be"),
        (["--budget", 4, "-o", "plan.json"], "--output must be a .toml file"),
        (["--budget", 4, "--population", "nothing.csv", "--capacity", 3], "nothing.csv"),
    ],
)
def test_what_cannot_be_planned_is_one_readable_line(arguments, told, tmp_path):
    made = turnout("plan", "--rounds", 100, *arguments, folder=tmp_path)
    assert made.returncode == 2
    assert told in made.stderr
    assert len(made.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_files_rounds_count_and_a_misspelt_key_is_refused(tmp_path):
    (tmp_path / "run.toml").write_text("rounds = 77\ncapacity = 60\n[population]\nkind = 'paper'\nclients = 120\n")
    made = turnout("plan", "run.toml", "--budget", 6, "--observer", "sum", "--json", folder=tmp_path)
    assert json.loads(made.stdout)["rounds"] == 77, made.stderr
    (tmp_path / "bad.toml").write_text("runds = 77\ncapacity = 600\n")
    for command in ("plan", "frontier", "optimum"):
        refused = turnout(command, "bad.toml", *(["--budget", 6] if command == "plan" else []), folder=tmp_path)
        assert refused.returncode == 2
        assert "runds is not a known setting" in refused.stderr
