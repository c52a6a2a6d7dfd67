"""`turnout plan` as a user meets it."""

import json
import re
import subprocess
import sys

import pytest

from turnout import SelfTuningController
from turnout.cli import main
from turnout.client import Limit
from turnout.privacy import OTHERS_REPORT, PUBLIC_DESIGN, RELEASED_ONCE, TRUSTED_AGGREGATOR
from turnout.service import rules_from_settings
from turnout.service.agent import Declined, agree
from turnout.service.coordinator import begin_or_continue
from turnout.service.store import open_store
from turnout.settings import Table, read_toml


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


@pytest.mark.deployment
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
        ([], "--budget or --gap is missing"),
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


FLEET = ("--devices", 60, "--capacity", 24, "--round-seconds", 900, "--days", 30)


def test_a_plan_for_a_fleet_is_served_simulated_and_joined_by_its_own_lines(tmp_path):
    made = turnout("plan", *FLEET, "--missing", "absent", "-o", "fleet.toml", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "for         60 devices, capacity 24 (40 %), 900-second rounds for 30 days: 2,880 rounds" in made.stdout
    assert "mechanism   memoized, total epsilon 6" in made.stdout
    assert "budgets     one release per device, for a lifetime" in made.stdout
    assert "learned-memoized    is for simulations" in made.stdout
    assert "operator    turnout serve fleet.toml\n" in made.stdout
    owners = r"^owners      turnout join URL --code CODE --cost COST --epsilon-per-release (\S+)$"
    (allowed,) = re.findall(owners, made.stdout, re.MULTILINE)
    run = turnout("simulate", "fleet.toml", "--rounds", 300, "--json", folder=tmp_path)
    assert run.returncode == 0, run.stderr
    given = read_toml(tmp_path / "fleet.toml")
    begun = begin_or_continue(open_store(str(tmp_path / "run.db"), create=True), "fleet", given)
    rules = rules_from_settings(Table(dict(begun.settings)))
    assert rules.timing.round == 900.0
    assert 24 < rules.safety.hard_limit < 60
    assert rules.controller == SelfTuningController(given["controller"]["initial"])
    proposed = begun.settings["mechanism"]
    agreed = agree(proposed, rules.averaging, limit=Limit(1, 1.0, epsilon_per_release=float(allowed)))
    assert agreed.certificate.epsilon == 6.0
    with pytest.raises(Declined, match=f"--epsilon-per-release {allowed}"):
        agree(proposed, rules.averaging, limit=Limit(10_000, 1.0))


def test_a_fleet_that_ends_soon_is_told_how_many_reports_it_takes(tmp_path):
    words = ("--devices", 60, "--capacity", 24, "--round-seconds", 60, "--days", 0.01, "--budget", 3)
    words += ("--observer", "sum", "--json")
    facts = json.loads(turnout("plan", *words).stdout)
    assert facts["rounds"] == 15
    assert facts["hard_limit"] >= 24
    assert facts["serve"] == "turnout serve fleet.toml --missing absent"
    options = facts["join"].split()
    if facts["mechanism"]["kind"] == "memoized":
        assert options[-2] == "--epsilon-per-release"
    else:
        assert options[-4:-1] == ["--reports", "15", "--epsilon-per-report"]
    assert float(options[-1]) == facts["mechanism"]["epsilon"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--devices", 60), "--capacity must be given with --devices"),
        (("--devices", 60, "--capacity", 61), "at most the 60 devices, got 61"),
        (("--devices", 0, "--capacity", 1), "--devices must be 1 or more"),
        (("--days", 3), "--days must be given with --devices"),
        ((*FLEET, "--rounds", 5), "--rounds must be left out with --devices"),
        ((*FLEET, "--guessed"), "a coordinator cannot learn a price"),
        ((*FLEET, "--clients", 5), "--population must be left out with --devices"),
        ((*FLEET, "--costs", "3"), "--costs must be two numbers above 0, from:to, got '3'"),
        ((*FLEET, "--costs", "3:1"), "--costs must be two numbers"),
        ((*FLEET, "--missing", "gone"), "--missing must be absent or last"),
        (("--devices", 60, "--capacity", 24, "--days", 0.0001), "--days must be above 0, and ten rounds at least"),
        (("--devices", 60, "--capacity", 24, "--round-seconds", 0), "--round-seconds must be above 0"),
    ],
)
def test_what_makes_no_fleet_is_refused(words, told, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["turnout", "plan", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
