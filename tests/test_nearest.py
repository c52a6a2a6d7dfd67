"""A misspelt name gets the nearest known one, once; what is missing is named as the option that gives it."""

import contextlib
import io
import subprocess
import sys
import warnings

import pytest

import turnout
from turnout import Classical, PolynomialCosts, Problem, SelfTuningController, paper_population, simulate
from turnout.algorithm import controller_from_settings, mechanism_from_settings
from turnout.cli import main
from turnout.errors import FileProblem
from turnout.problem import population_from_table, read_population
from turnout.settings import Table
from turnout.simulation import run_from_settings
from turnout.sweep import design_from_settings, sweep

PROBLEM = paper_population(clients=40).problem(20)
RUN = {"rounds": 5, "capacity": 600, "mechanism": {"kind": "classical"}}


def run_with(**settings):
    return lambda: run_from_settings(Table(RUN | settings))


def sweep_with(**part):
    return lambda: design_from_settings(RUN | {"sweep": part})


MISSPELT = {
    "a mechanism": (lambda: mechanism_from_settings(Table({"kind": "clmap"}, "mechanism")), "clamp"),
    "a needed parameter": (run_with(mechanism={"kind": "clamp", "epsilom": 1.0}), "epsilon"),
    "another parameter": (run_with(mechanism={"kind": "clamp", "epsilon": 1.0, "centre": 0.4}), "center"),
    "a controller": (lambda: controller_from_settings(Table({"kind": "self-tunning"})), "self-tuning"),
    "a needed gain": (run_with(controller={"gian": 0.1, "initial": 1.0}), "gain"),
    "a key at the top": (run_with(schedul={}), "schedule"),
    "a needed key": (
        lambda: run_from_settings(Table({"round": 5} | {key: RUN[key] for key in ("capacity",)})),
        "rounds",
    ),
    "a schedule's": (run_with(schedule={"jion": []}), "join"),
    "what is kept": (run_with(keep={"evry": 5}), "every"),
    "averaging": (run_with(averaging={"remeber": 5}), "remember"),
    "a start": (run_with(start={"averge": 0.5}), "average"),
    "a population": (lambda: read_population("papr"), "paper"),
    "a kind of population": (lambda: population_from_table(Table({"kind": "paper-drwan"})), "paper-drawn"),
    "a group's key": (lambda: population_from_table(Table({"groups": [{"client": 3, "cost": {"2": 1}}]})), "clients"),
    "a population's key": (lambda: population_from_table(Table({"client": 200}, "population")), "clients"),
    "a run's observer": (run_with(observer="noisysum"), "noisy-sum"),
    "what a sweep draws": (sweep_with(randm={"samples": 2}), "random"),
    "a distribution": (
        lambda: population_from_table(Table({"groups": [{"clients": 3, "cost": {"2": {"unifrom": [0, 1]}}}]})),
        "uniform",
    ),
    "an engine": (lambda: simulate(PROBLEM, Classical(), SelfTuningController(), 5, engine="numyp"), "numpy"),
    "a sweep's key": (sweep_with(seds=2), "seeds"),
    "what a sweep varies": (sweep_with(grid={"capacty": [500]}), "capacity"),
    "a sweep's mechanism": (sweep_with(grid={"mechanism": [{"kind": "clamp", "epsilonn": [1.0]}]}), "epsilon"),
    "a drawn value": (sweep_with(random={"samples": 2, "capacity": {"unifrom": [500, 600]}}), "uniform"),
    "an observer": (lambda: turnout.Goal(PROBLEM, 100, budget=3.0, observer="sums"), "sum"),
    "a goal's setting": (lambda: turnout.plan(PROBLEM, rounds=100, bugdet=3.0), "budget"),
}


@pytest.mark.parametrize("name", MISSPELT)
def test_a_misspelt_name_gets_the_nearest_once(name):
    call, meant = MISSPELT[name]
    with pytest.raises(ValueError, match=f"did you mean '{meant}'") as refused:
        call()
    assert str(refused.value).count("did you mean") == 1


def said(*words):
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.suppress(SystemExit),
    ):
        patch.setattr(sys, "argv", ["turnout", *words])
        main()
    return out.getvalue(), err.getvalue()


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("simulate", "--mechanism", "clmap"), "clamp"),
        (("simulate", "--mechansim", "clamp"), "--mechanism"),
        (("simulate", "--engine", "nunba", "--rounds", "5"), "numba"),
        (("simulate", "--set", "kep.every=3"), "keep"),
        (("frontier", "--observer", "al"), "all"),
        (("simulte",), "simulate"),
    ],
)
def test_on_the_command_line_too(words, meant):
    _, told = said(*words)
    assert told.lower().count("did you mean") == 1
    assert f"did you mean '{meant}'?" in told.lower().replace("mechansim", "")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("--mechanism", "clamp"), "mechanism.epsilon is missing: give --epsilon, a number"),
        (("--mechanism", "paper-coin"), "mechanism.beta is missing: give --beta, a number"),
        (
            ("--mechanism", "capped-coin", "--beta", "3"),
            "mechanism.cap is missing: give --set mechanism.cap=…, a number",
        ),
    ],
)
def test_what_is_missing_is_named_as_an_option(words, option):
    assert option in said("simulate", *words, "--rounds", "5")[1]


def test_a_piped_table_has_no_spaces_at_the_ends_of_its_lines(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    for words in (("simulate", "--rounds", "20"), ("audit", "--trials", "1000", "--rounds", "2", "--seed", "1")):
        out, _ = said(*words)
        assert len(out.splitlines()) > 3
        assert not [line for line in out.splitlines() if line != line.rstrip()]


def test_noise_is_asked_for_as_a_table_of_the_file():
    with pytest.raises(ValueError, match=r"noise is missing for observer = 'noisy-sum': write \[noise\].* sigma = 400"):
        run_with(observer="noisy-sum")()


def test_a_change_after_the_end_is_noted():
    with pytest.warns(UserWarning, match=r"nothing changes in round 5, since this run ends before it \(5 rounds\)"):
        run_with(schedule={"capacity": [{"round": 5, "capacity": 500}]})()


def test_a_saved_run_is_no_settings_file(tmp_path):
    simulate(PROBLEM, Classical(), SelfTuningController(), 5).save(tmp_path / "run.npz")
    assert "run.npz is a saved run, not settings: use --continue" in said("simulate", str(tmp_path / "run.npz"))[1]


def test_a_table_counts_its_blank_lines(tmp_path):
    (tmp_path / "clients.csv").write_text("x^2\n1\n\n\nmany\n")
    with pytest.raises(FileProblem, match=r"clients\.csv: line 5: could not convert"):
        read_population(tmp_path / "clients.csv")


class TestCapacity:
    def test_a_capacity_below_one_asks_whether_a_share_was_meant(self):
        costs = paper_population(clients=40).costs
        for made in (lambda: paper_population(clients=40).problem(0.5), lambda: Problem(costs, 0.5)):
            with pytest.warns(UserWarning, match=r"capacity 0\.5 is .*if you mean a share, give a capacity of 20"):
                made()

    def test_numbers_that_nobody_typed_are_not_warned_of(self):
        words = ("plan", "--clients", "400", "--capacity", "0.9", "--rounds", "20", "--budget", "8")
        _, err = said(*words, "--observer", "noisy-sum")
        assert [line for line in err.splitlines() if "if you mean a share" in line] == [
            "note: capacity 0.9 is a turnout of less than 1 per round, of at most 400: "
            "if you mean a share, give a capacity of 360"
        ]

    def test_one_of_two_clients_is_no_share(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Problem(PolynomialCosts([[1.0], [2.0]], (2,)), 0.5)
            paper_population(clients=40).problem(1.0)


class TestSweep:
    def test_a_sweep_without_a_controller_tunes_itself(self, tmp_path):
        design = design_from_settings(RUN | {"rounds": 200, "sweep": {"seeds": 1, "grid": {"capacity": [300, 600]}}})
        rows = sweep(design, tmp_path, jobs=1).good
        expected = [
            simulate(paper_population().problem(capacity), Classical(), SelfTuningController(), 200)
            for capacity in (300, 600)
        ]
        assert [row["signal"] for row in rows] == [float(run.signal[-1]) for run in expected]


class TestPlan:
    def test_the_package_can_be_called(self):
        goal = turnout.Goal(PROBLEM, rounds=100, budget=6.0, observer="sum")
        by_goal, by_problem = turnout.plan(goal), turnout.plan(PROBLEM, rounds=100, budget=6.0, observer="sum")
        assert by_goal.mechanism == by_problem.mechanism
        assert turnout.plan.plan(goal).mechanism == by_goal.mechanism
        assert turnout.plan.Goal is turnout.Goal

    def test_it_is_found_without_being_imported(self):
        code = "import turnout; print(callable(turnout.plan), turnout.plan.Goal.__name__)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "True Goal\n"

    def test_what_is_no_goal_is_refused(self):
        with pytest.raises(ValueError, match=r"goal must be a turnout\.Goal, or a turnout\.Problem, got Population"):
            turnout.plan(paper_population(), rounds=100, budget=3.0)
        with pytest.raises(ValueError, match="rounds is missing"):
            turnout.plan(PROBLEM, budget=3.0)
