"""Reports are made again from a saved run, and only if they are the run's own."""

import dataclasses
import functools

import numpy as np
import pytest

from conformance.populations import mechanisms, options, problems
from turnout import (
    Averaging,
    Classical,
    IntegralController,
    Keep,
    PaperCoin,
    Prior,
    Problem,
    Schedule,
    SelfTuningController,
    Trajectory,
    paper_population,
)
from turnout import (
    simulate as simulate_with_any,
)
from turnout.algorithm import MECHANISMS
from turnout.attack.reports import NotReplayable, reports_of
from turnout.attack.run import surrogate_after_stop

CLIENTS = 40
SERVER = IntegralController(0.1, 1.0)

simulate = functools.partial(simulate_with_any, engine="numpy")  # compiles nothing


@pytest.mark.parametrize("name", [name for name in mechanisms(CLIENTS) if name != "average-box"])
def test_every_mechanism_is_replayed(name, tmp_path):
    mechanism = mechanisms(CLIENTS)[name]
    assert mechanism.kind in MECHANISMS
    run = simulate(problems(CLIENTS)["weighted"], mechanism, IntegralController(0.01, 1.0), 60, seed=5)
    run.save(tmp_path / "run.npz")
    reports = reports_of(Trajectory.load(tmp_path / "run.npz"))
    weights = run.problem.weights
    assert np.array_equal(reports.bits @ weights, run.participants)
    assert np.array_equal(reports.bits.sum(axis=0), run.state.participations)


@pytest.mark.parametrize("name", ["plain", "prior", "remember", "by probability"])
def test_every_way_to_start_and_to_remember(name):
    run = simulate(problems(CLIENTS)["paper"], PaperCoin(3.5), SERVER, 80, **options(CLIENTS)[name])
    reports = reports_of(run)
    assert np.array_equal(reports.bits.sum(axis=1), run.participants)
    assert np.array_equal(reports.signals, run.signal[np.maximum(np.arange(80) - 1, 0)])  # the paper's lag


def test_the_signal_is_the_one_that_decided():
    """Without a lag, a round is decided by its own signal."""
    run = simulate(problems(CLIENTS)["paper"], Classical(), SelfTuningController(1.0), 50, start=Prior(0.5, 10))
    assert np.array_equal(reports_of(run).signals, run.signal)


def test_a_continued_run_is_one_run():
    settings = (problems(CLIENTS)["paper"], PaperCoin(2.0), SERVER)
    first = simulate(*settings, 30, seed=9)
    both = simulate(*settings, 30, start=first)
    assert np.array_equal(reports_of(both).bits, reports_of(simulate(*settings, 60, seed=9)).bits)


def test_a_run_that_went_on_with_public_costs():
    """After the stop the problem is another; the run before must be given, or the replay is refused."""
    problem = problems(CLIENTS)["paper"]
    before = simulate(problem, PaperCoin(2.0), SERVER, 60)
    frozen = Problem(surrogate_after_stop(before.average, float(before.signal[-1])), problem.capacity)
    whole = simulate(frozen, Classical(), SERVER, 60, start=before)
    reports = reports_of(whole, after=before)
    assert np.array_equal(reports.bits.sum(axis=1), whole.participants)
    assert np.array_equal(reports.bits[:60], reports_of(before).bits)
    with pytest.raises(NotReplayable, match="differs from round"):
        reports_of(whole)
    with pytest.raises(ValueError, match="after must be a run of fewer than 60 rounds"):
        reports_of(before, after=before)


def test_what_cannot_be_replayed_is_refused():
    problem = problems(CLIENTS)["paper"]
    with pytest.raises(NotReplayable, match="does not hold its problem"):
        reports_of(simulate(problem, Classical(), SERVER, 10, keep=Keep(state=False)))
    for schedule in (Schedule(leave={5: [0]}), Schedule(away=[(3, 6, [1])])):
        with pytest.raises(NotReplayable, match="join, leave or are away"):
            reports_of(simulate(problem, Classical(), SERVER, 10, schedule=schedule))
    changed = reports_of(simulate(problem, Classical(), SERVER, 10, schedule=Schedule(capacity={5: 10})))
    assert changed.rounds == 10  # a capacity that changes is no obstacle


@pytest.mark.parametrize("what", ["seed", "total", "average"])
def test_a_run_that_was_tampered_with_is_noticed(what):
    run = simulate(problems(CLIENTS)["paper"], PaperCoin(3.5), SERVER, 40)
    provenance, participants = dict(run.provenance), run.participants.copy()
    if what == "seed":
        provenance["seed"] = 1
    elif what == "total":
        participants[20] += 1
    else:
        provenance["averaging"] = {"remember": 5, "by": "bit"}
    with pytest.raises(NotReplayable, match="differs from round"):
        reports_of(dataclasses.replace(run, provenance=provenance, participants=participants))


def test_engines_that_agree_give_the_same_reports():
    problem = paper_population(3, CLIENTS).problem(20)
    runs = [simulate_with_any(problem, PaperCoin(1.0), SERVER, 50, engine=engine) for engine in ("numpy", "numba")]
    assert np.array_equal(*(reports_of(run).bits for run in runs))
    other = simulate(problem, PaperCoin(1.0), SERVER, 50, averaging=Averaging(remember=10))
    assert not np.array_equal(reports_of(other).bits, reports_of(runs[0]).bits)
