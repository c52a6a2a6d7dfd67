import importlib.util
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import turnout
from conformance.test_engines import assert_identical
from problem.test_costs import Exponential
from turnout import (
    Averaging,
    Classical,
    IntegralController,
    Keep,
    PaperCoin,
    PolynomialCosts,
    Prior,
    Problem,
    Schedule,
    Trajectory,
    optimum,
    paper_population,
    replicate,
    simulate,
)
from turnout.errors import FileProblem
from turnout.simulation.run_settings import continuation


def gap(run, best):
    return run.cost[-1] / best.cost - 1


def test_the_classical_run_finds_the_optimum(paper_problem, paper_optimum, paper_server):
    """Paper: Algorithm 2. Paper: Problem (2)."""
    keep = Keep(distance_to=paper_optimum.average)
    run = simulate(paper_problem, Classical(), paper_server, 10_000, keep=keep)
    assert abs(gap(run, paper_optimum)) < 0.002
    assert run.mean_distance[-1] < 0.005
    assert run.largest_distance[-1] >= run.mean_distance[-1]
    assert abs(run.last(400).mean() - 600) < 2
    assert run.signal[-1] == pytest.approx(paper_optimum.price, rel=0.05)


def test_the_coins_price(paper_problem, paper_optimum, paper_server):
    """Paper: Algorithm 3."""
    gaps = [
        gap(simulate(paper_problem, PaperCoin(beta), paper_server, 10_000), paper_optimum)
        for beta in (3.5, 2.5, 1.5, 1.0)
    ]
    assert gaps == sorted(gaps)
    np.testing.assert_allclose(gaps, [0.007, 0.027, 0.075, 0.093], rtol=0.1)


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_weighted_runs_converge_to_the_weighted_optimum(share):
    weights = np.random.default_rng(0).integers(1, 10, 1200)
    costs = paper_population(0).costs
    problem = Problem(costs, share * weights.sum(), weights)
    run = simulate(problem, Classical(), IntegralController(5e-5, 0.35), 20_000)  # well inside 1 / slope
    assert abs(gap(run, optimum(problem))) < 0.01
    assert run.last(2000).mean() == pytest.approx(problem.capacity, rel=0.01)


def test_forgetting_follows_costs_that_change(paper_problem, paper_optimum, paper_server):
    """Costs permuted at round 5,000: 200 remembered rounds recover, the paper's full average does not."""
    shuffled = np.random.default_rng(1).permutation(1200)
    changed = Problem(PolynomialCosts(paper_problem.costs.coefficients[shuffled], (2, 4, 6)), 600)
    found = {}
    for remember in (200, None):
        averaging = Averaging(remember=remember)
        before = simulate(paper_problem, PaperCoin(3.5), paper_server, 5_000, averaging=averaging)
        after = simulate(changed, PaperCoin(3.5), paper_server, 10_000, averaging=averaging, start=before)
        found[remember] = dict(zip(after.checkpoints.tolist(), after.cost / paper_optimum.cost - 1, strict=True))
    assert found[200][5_700] < 0.04
    assert found[200][6_000] < 0.04
    assert found[None][14_900] > 0.10


@pytest.mark.parametrize("engine", ["numpy", "numba"])
@pytest.mark.parametrize("stop", [1, 2, 137, 299])
def test_a_continued_run_never_stopped(tmp_path, engine, stop):
    problem = paper_population(3, 200).problem(100)
    reference = optimum(problem).average
    more = {
        "averaging": Averaging(remember=60),
        "schedule": Schedule(join={150: [3, 4]}, leave={200: slice(0, 10)}, capacity={120: 80}),
        "engine": engine,
        "seed": 8,
    }
    keep = Keep(every=10, histogram=5, averages=[1, 2], distance_to=reference)
    arguments = (problem, PaperCoin(np.linspace(1, 4, 200)), IntegralController(0.04, 1.0))
    whole = simulate(*arguments, 300, keep=keep, **more)
    part = simulate(*arguments, stop, keep=keep, **more)
    part.save(tmp_path / "part.npz")
    run = continuation(Trajectory.load(tmp_path / "part.npz"), 300 - stop, engine)
    assert_identical(run.go(), whole)
    assert_identical(simulate(*arguments, 300 - stop, start=part, **more), whole)


def test_a_run_survives_its_file(tmp_path, paper_problem, paper_server):
    run = simulate(paper_problem, PaperCoin(2.5), paper_server, 250, keep=Keep(every=50, averages="all"))
    run.save(tmp_path / "run.npz")
    again = Trajectory.load(tmp_path / "run.npz")
    assert_identical(again, run)
    assert again.provenance == run.provenance
    assert again.averages.shape == (6, 1200)
    assert again.checkpoints.tolist() == [0, 50, 100, 150, 200, 249]
    assert list(tmp_path.iterdir()) == [tmp_path / "run.npz"]
    run.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "run.npz").read_bytes()


def test_broken_files(tmp_path, paper_problem, paper_server):
    run = simulate(paper_problem, Classical(), paper_server, 10)
    run.save(tmp_path / "run.npz")
    whole = (tmp_path / "run.npz").read_bytes()
    for content in (b"", whole[:100], whole[: len(whole) // 2], whole[:-10], b"hello"):
        (tmp_path / "bad.npz").write_bytes(content)
        with pytest.raises(FileProblem, match=r"bad\.npz: cannot be read"):
            Trajectory.load(tmp_path / "bad.npz")
    with pytest.raises(FileProblem, match="no such file"):
        Trajectory.load(tmp_path / "none.npz")
    np.savez(tmp_path / "other.npz", signal=[1])
    with pytest.raises(FileProblem, match="not a saved run"):
        Trajectory.load(tmp_path / "other.npz")
    for path in (tmp_path, tmp_path / "no" / "folder.npz"):
        with pytest.raises(FileProblem, match="cannot be written"):
            run.save(path)


def test_nobody_is_forced_by_a_prior(paper_problem, paper_server):
    run = simulate(paper_problem, Classical(), IntegralController(0.0075, 0.0), 3, start=Prior(0.5, 10))
    assert run.participants[0] == 0
    assert simulate(paper_problem, Classical(), paper_server, 1).participants[0] == 1200


def test_newcomers_have_their_own_history_and_the_current_signal():
    """Paper: Section III-B."""
    problem = paper_population(0, 400).problem(100)
    schedule = Schedule(join={500: slice(200, 400)}, leave={800: slice(0, 100)})
    keep = Keep(every=1, averages=[0, 399], cost=True)
    run = simulate(problem, Classical(), IntegralController(0.02, 5.0), 1200, schedule=schedule, keep=keep)
    assert run.state.rounds.tolist() == [800.0] * 100 + [1200.0] * 100 + [700.0] * 200
    assert run.averages[500, 1] == 1.0  # a newcomer's first round is spent taking part
    assert run.participants[500] >= 200
    assert run.participants[:500].max() <= 200
    assert np.all(run.averages[800:, 0] == run.averages[799, 0])  # gone: its history stands still
    assert run.last(200).mean() == pytest.approx(100, abs=5)
    left = run.cost[801] - run.cost[799]
    assert left < 0  # its cost counts no longer


def test_clients_that_are_away_count_the_rounds_they_miss():
    problem = paper_population(0, 40).problem(20)
    schedule = Schedule(away=[(10, 20, [5])])
    run = simulate(
        problem, Classical(), IntegralController(0.1, 50.0), 40, schedule=schedule, keep=Keep(every=1, averages=[5])
    )
    counts = np.rint(run.averages[:, 0] * np.arange(1, 41))
    assert np.all(np.diff(counts[9:20]) == 0)


def test_capacity_follows_its_schedule(paper_problem, paper_server):
    run = simulate(paper_problem, Classical(), paper_server, 4000, schedule=Schedule(capacity={2000: 300}))
    assert run.participants[1500:2000].mean() == pytest.approx(600, abs=5)
    assert run.last(500).mean() == pytest.approx(300, abs=5)
    assert run.capacity[1999] == 600
    assert run.capacity[2000] == 300


def test_users_own_costs_run_on_numpy_and_say_so():
    problem = Problem(Exponential(np.linspace(0.5, 3, 50)), 20)
    run = simulate(problem, PaperCoin(3.5), IntegralController(0.05, 1.0), 500)
    assert run.provenance["engine"] == "numpy"
    assert "costs of type Exponential run on the numpy engine" in repr(run)
    assert run.last(300).mean() == pytest.approx(20, abs=1.5)
    with pytest.raises(ValueError, match="only PolynomialCosts are compiled"):
        simulate(problem, Classical(), IntegralController(0.05, 1.0), 5, engine="numba")


def test_without_numba(monkeypatch, paper_problem, paper_server):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    run = simulate(paper_problem, Classical(), paper_server, 3)
    assert "pip install 'turnout[lab]'" in run.provenance["engine_reason"]
    with pytest.raises(ImportError, match="needs numba"):
        simulate(paper_problem, Classical(), paper_server, 3, engine="numba")


def test_replicas_are_the_single_runs(paper_problem, paper_server):
    runs = replicate(paper_problem, PaperCoin(3.5), paper_server, 60, seeds=[5, 6, 7])
    for seed, run in zip([5, 6, 7], runs, strict=True):
        assert_identical(run, simulate(paper_problem, PaperCoin(3.5), paper_server, 60, seed=seed))
    assert not np.array_equal(runs[0].participants, runs[1].participants)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rounds": 0}, "rounds must be a whole number from 1 up"),
        ({"rounds": 2.5}, "rounds must be"),
        ({"engine": "cuda"}, "engine must be one of"),
        ({"start": "paper"}, "start must be None"),
        ({"seed": -1}, "seed must be"),
        ({"schedule": Schedule(capacity={5: 5000})}, "capacity must be above 0 and at most 1200"),
        ({"schedule": Schedule(leave={5: slice(0, 5000)})}, "name clients that exist"),
        ({"schedule": Schedule(join={5: [7000]})}, "name clients that exist"),
        ({"keep": Keep(every=1, averages="all", limit=10**6), "rounds": 1000}, "keep must be at most 1 MiB"),
        ({"keep": Keep(averages=[1200])}, "clients from 0 to 1199"),
        ({"keep": Keep(distance_to=np.ones(3))}, r"of shape \(1200,\)"),
        ({"mechanism": PaperCoin(np.ones(7))}, "one for each of the 1200 clients"),
    ],
)
def test_bad_arguments(paper_problem, paper_server, change, says):
    given = {"problem": paper_problem, "mechanism": Classical(), "controller": paper_server, "rounds": 5} | change
    with pytest.raises(ValueError, match=says):
        simulate(**given)


def test_a_run_that_was_read_can_be_saved_again(tmp_path, paper_problem, paper_server):
    run = simulate(paper_problem, Classical(), paper_server, 5, seed=0)
    first, second = tmp_path / "first.npz", tmp_path / "second.npz"
    run.save(first)
    Trajectory.load(first).save(second)
    assert Trajectory.load(second).controller_numbers == run.controller_numbers


def test_another_kind_of_controller_cannot_continue_a_run(paper_problem, paper_server):
    run = simulate(paper_problem, Classical(), turnout.SelfTuningController(), 5, seed=0)
    with pytest.raises(ValueError, match=r"controller must be with a state of .*, as in the run to continue, got"):
        simulate(paper_problem, Classical(), paper_server, 5, start=run)


def test_what_cannot_be_continued(paper_problem, paper_server):
    stateless = simulate(paper_problem, Classical(), paper_server, 5, keep=Keep(state=False))
    with pytest.raises(ValueError, match="a run that kept its state"):
        simulate(paper_problem, Classical(), paper_server, 5, start=stateless)
    with pytest.raises(ValueError, match="keep"):
        _ = stateless.average
    with pytest.raises(ValueError, match="must hold its problem"):
        continuation(stateless, 5)
    run = simulate(paper_problem, Classical(), paper_server, 5)
    with pytest.raises(ValueError, match="1200 clients"):
        simulate(paper_population(0, 40).problem(20), Classical(), paper_server, 5, start=run)
    with pytest.raises(ValueError, match="as in the run to continue"):
        simulate(paper_problem, Classical(), paper_server, 5, start=run, keep=Keep(every=3))


def test_bad_parts():
    for bad in ({"average": 0}, {"average": 1.5}, {"average": 0.5, "rounds": 0}):
        with pytest.raises(ValueError, match="prior"):
            Prior(**bad)
    for bad in ({"every": 0}, {"histogram": -1}, {"averages": "some"}):
        with pytest.raises(ValueError, match="keep"):
            Keep(**bad)
    for bad in ({"join": {-1: [0]}}, {"away": [(5, 5, [0])]}):
        with pytest.raises(ValueError, match="schedule"):
            Schedule(**bad)


def test_tables_for_pandas_and_xarray(paper_problem, paper_server):
    run = simulate(paper_problem, Classical(), paper_server, 30, keep=Keep(every=10, histogram=4, averages=[1, 2]))
    frame, dataset = run.to_pandas(), run.to_xarray()
    assert frame.participants.tolist() == run.participants.tolist()
    assert dataset.averages.shape == (4, 2)
    assert dataset.histogram.sum("bin").values.tolist() == [1200] * 4
    assert float(dataset.cost[-1]) == run.cost[-1]


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_ctrl_c_keeps_what_is_done(tmp_path, engine):
    """A real SIGINT; what was saved continues to what an unbroken run gives."""
    code = f"""
    from turnout import *
    from turnout.errors import Interrupted
    problem = paper_population(0, 400).problem(200)
    print("ready", flush=True)
    try:
        simulate(problem, PaperCoin(3.5), IntegralController(0.02, 1.0), 5 * 10**7, engine={engine!r},
                 keep=Keep(every=10**6), progress=lambda done, total: print(done, flush=True))
    except Interrupted as stop:
        stop.trajectory.save({str(tmp_path / "part.npz")!r})
        raise SystemExit(7)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.strip().isdigit() and int(line) > 100:
                break
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    assert process.returncode == 7
    part = Trajectory.load(tmp_path / "part.npz")
    assert 100 < part.rounds < 5 * 10**7
    more = 3 - part.rounds % 2
    settings = (paper_population(0, 400).problem(200), PaperCoin(3.5), IntegralController(0.02, 1.0))
    whole = simulate(*settings, part.rounds + more, keep=Keep(every=10**6))
    assert_identical(simulate(*settings, more, start=part), whole)
