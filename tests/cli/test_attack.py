"""`turnout attack` on saved and on fresh runs, its page, and the numbers of docs/attack.md."""

import json
import re
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from turnout import Classical, IntegralController, Keep, SumNoise, paper_population, simulate
from turnout.attack import AttackErrors, attack_case, usual_cases
from turnout.cli.attack import attack
from turnout.report import attack_page, attack_rows, error_percent
from turnout.settings import Table
from turnout.simulation import run_from_settings

DOC = Path(__file__).parents[2] / "docs" / "attack.md"


@pytest.fixture(scope="module")
def app():
    found = typer.Typer()
    found.command()(attack)
    return found


def call(app, *arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


SMALL = ("--clients", 80, "--rounds", 150, "--set", "engine=numpy")


def test_a_fresh_run_and_its_table(app):
    done = call(app, *SMALL, "--beta", 3.5)
    assert done.exit_code == 0, done.output
    assert "against an observer of every report" in done.output
    assert "knowing the prior alone" in done.output
    assert re.search(r"paper-coin, beta 3.5 +│ +\d+(\.\d)? % │ +\d+(\.\d)? %", done.output)


def test_epsilon_never_stands_alone(app):
    assert (
        "clamp, epsilon 1 per report, center 0.5, for 60 reports"
        in json.loads(call(app, *SMALL, "--epsilon", 1, "--budget", 60, "--json").output)["median_relative_error"]
    )
    memoized = call(app, *SMALL, "--mechanism", "memoized", "--epsilon", 4, "--set", "mechanism.price=10", "--json")
    assert list(json.loads(memoized.output)["median_relative_error"]) == [
        "memoized, total epsilon 4, price 10, 3 levels"
    ]


def test_saved_runs_and_a_page(app, tmp_path):
    for seed in (1, 2):
        problem = paper_population(0, 80).problem(40)
        run = simulate(problem, Classical(), IntegralController(0.1, 1.0), 150, seed=seed, engine="numpy")
        run.save(tmp_path / f"{seed}.npz")
    page = tmp_path / "page.html"
    done = call(app, tmp_path / "1.npz", tmp_path / "2.npz", "--json", "-o", page)
    facts = json.loads(done.output)
    assert facts["output"] == str(page)
    assert not facts["interrupted"]
    assert [errors["rounds"] for errors in facts["median_relative_error"]["1"]] == [0, 100, 150]
    assert all(errors["cost"] > 0 for found in facts["median_relative_error"].values() for errors in found)
    text = page.read_text()
    assert "What reports give away" in text
    assert "knowing the prior alone" in text


NOISY = (*SMALL, "--set", "noise.sigma=300")


def test_a_run_with_noise_is_seen_by_both_observers(app):
    done = call(app, *NOISY)
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    assert "of the sums with noise one who knows all other clients' reports: median relative error" in text
    lines = json.loads(call(app, *NOISY, "--json").output)["median_relative_error"]
    assert list(lines) == ["classical: the sums with noise", "classical: if every report were seen"]
    (sums, reports) = ([errors["cost"] for errors in found] for found in lines.values())
    assert sums[-1] == pytest.approx(sums[0], rel=0.05)  # nothing but the prior
    assert reports[-1] < 0.5 * reports[0]
    for observer, line in zip(("noisy-sum", "every-report"), lines, strict=True):
        one = json.loads(call(app, *NOISY, "--observer", observer, "--json").output)["median_relative_error"]
        assert one == {line: lines[line]}


def test_saved_runs_with_noise(app, tmp_path):
    problem, server = paper_population(0, 80).problem(40), IntegralController(0.1, 1.0)
    run = simulate(problem, Classical(), server, 150, noise=SumNoise(300.0), engine="numpy")
    run.save(tmp_path / "run.npz")
    lines = json.loads(call(app, tmp_path / "run.npz", "--json").output)["median_relative_error"]
    assert list(lines) == ["run: the sums with noise", "run: if every report were seen"]
    simulate(problem, Classical(), server, 15, engine="numpy").save(tmp_path / "exact.npz")
    refused = str(call(app, tmp_path / "exact.npz", "--observer", "noisy-sum").exception)
    assert "observer must be 'every-report'; or 'noisy-sum', of a run with noise" in refused
    assert "--observer must be every-report" in str(call(app, tmp_path / "run.npz", "--observer", "sum").exception)


def test_what_is_released_at_joining_is_shown_as_if_every_report_were_seen(app):
    memoized = ("--mechanism", "memoized", "--epsilon", 4, "--set", "mechanism.price=10", "--json")
    (line,) = json.loads(call(app, *NOISY, *memoized).output)["median_relative_error"]
    assert line.endswith(": if every report were seen")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["1.npz", "--beta", 2], "saved runs must be given alone"),
        (["1.npz", "--compare"], "saved runs must be given alone"),
        (["1.toml", "2.toml"], "files must be saved runs, or one TOML file"),
        (["--compare", "--beta", 2], "--compare must be given without a mechanism"),
        (["none.npz"], "none.npz: cannot be read"),
        (["--clients", 81], "multiple of 4"),
    ],
)
def test_bad_input(app, arguments, says):
    done = call(app, *arguments)
    assert says in str(done.exception)


def test_a_run_without_its_problem_is_refused(app, tmp_path):
    run = simulate(paper_population(0, 8).problem(4), Classical(), IntegralController(0.1, 1.0), 5, engine="numpy",
                   keep=Keep(state=False))  # fmt: skip
    run.save(tmp_path / "run.npz")
    assert "does not hold its problem" in str(call(app, tmp_path / "run.npz").exception)


def test_ctrl_c_keeps_what_is_done(app, monkeypatch):
    def targets(paths, compare, given, observer):
        def found(progress):
            yield AttackErrors(0, 0.33, 0.33, 0.33)
            yield AttackErrors(100, 0.07, 0.07, 0.07)
            raise KeyboardInterrupt

        return [("a run", found), ("another", found)]

    monkeypatch.setattr(sys.modules["turnout.cli.attack"], "_targets", targets)
    done = call(app)
    assert done.exit_code == 130
    assert "7.0 %" in done.output
    assert "another" not in done.output
    assert "interrupted" in done.output


def test_tables_of_runs_of_different_lengths_and_priors():
    lines = {"a": [AttackErrors(0, 0.33, None, 0.3), AttackErrors(10, 0.1, None, 0.1)],
             "b": [AttackErrors(0, 0.5, None, 0.5), AttackErrors(20, 0.2, None, 0.2)]}  # fmt: skip
    header, rows = attack_rows(lines)
    assert header == ["", "10", "20"]
    assert rows[0] == ["knowing the prior alone: a", "33 %", "33 %"]
    assert rows[2:] == [["a", "10 %", "–"], ["b", "–", "20 %"]]
    assert "knowing the prior alone: b" in attack_page(lines).html()


def test_nearly_the_same_prior_is_told_once():
    lines = {
        name: [AttackErrors(0, prior, None, 0.3), AttackErrors(10, 0.1, None, 0.1)]
        for name, prior in (("a", 0.2995), ("b", 0.2942))
    }
    assert [row[0] for row in attack_rows(lines)[1]] == ["knowing the prior alone", "a", "b"]


def documented():
    rows = re.findall(r"^\| ([^|]+) \|" + r" ([\d.]+) % \|" * 5 + "$", DOC.read_text(), re.MULTILINE)
    return {name: [float(value) for value in values] for name, *values in rows}


@pytest.mark.deployment
def test_the_table_of_the_document():
    """Every line at 100 rounds, and two at 300: the first rounds of a long run are a short run."""
    table = documented()
    problem = paper_population(0).problem(600)
    cases = usual_cases(problem)
    assert list(table) == ["knowing the prior alone", *(case.name for case in cases)]
    controller = {"kind": "integral", "gain": 0.0075, "initial": 0.35}
    settings = {"rounds": 310, "capacity": 600, "mechanism": {"kind": "classical"}, "engine": "numpy"}
    run = run_from_settings(Table(settings | {"controller": controller}))
    for case in cases:
        checkpoints = [100, 300] if case.budget == 300 or case.name == "classical" else [100]
        for errors, said in zip(attack_case(case, run, checkpoints), table[case.name], strict=False):
            assert float(error_percent(errors.cost)[:-2]) == pytest.approx(said, rel=0.02), (case.name, errors.rounds)


def test_what_the_document_concludes_is_in_its_table():
    table = documented()
    assert max(table["classical"][-1], table["paper coin, β = 3.5"][-1]) < 1
    for first in (table["classical"], table["paper coin, β = 3.5"]):
        assert first[0] / first[-1] == pytest.approx(10, rel=0.2)  # the root of a hundred times the rounds
    for name in (
        "clamp, 1 per report, for 300 reports",
        "clamp, 0.1 per report, for 100 reports",
        "memoized, 4 in total",
    ):
        assert max(table[name][1:]) - min(table[name][1:]) <= 1


@pytest.mark.deployment
def test_the_table_of_sums_with_noise_in_the_document(app):
    """Its first columns: a short run is the beginning of a long one."""
    rows = re.findall(r"^\| ([a-z ]+) \|" + r" ([\d.]+) % \|" * 3 + "$", DOC.read_text(), re.MULTILINE)
    told = {name: [float(value) for value in values] for name, *values in rows}
    assert list(told) == ["knowing the prior alone", "the sums with noise", "if every report were seen"]
    settings = {"noise.sigma": 422.5, "start.average": 0.5, "engine": "numpy", "controller.kind": "falling-gain"}
    settings |= {"controller.floor": 0.002, "controller.initial": 10}
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    for rounds, observer, name in ((1000, "noisy-sum", "the sums with noise"), (100, "every-report", list(told)[2])):
        done = json.loads(call(app, "--rounds", rounds, *given, "--observer", observer, "--json").output)
        found = {errors["rounds"]: errors["cost"] for errors in done["median_relative_error"][f"classical: {name}"]}
        for at, said in zip((100, 1000), told[name], strict=False):
            assert at > rounds or float(error_percent(found[at])[:-2]) == pytest.approx(said, rel=0.04), (name, at)
    sums, reports = told["the sums with noise"], told["if every report were seen"]
    assert min(sums) > 0.9 * told["knowing the prior alone"][0] > 10 * reports[-1]
