"""The reports of a run, client by client: not stored, but made again from its provenance."""

from __future__ import annotations

import dataclasses

import numpy as np

from turnout.algorithm import (
    MECHANISMS,
    Mechanism,
    Prior,
    Step,
    SumNoise,
    mechanism_from_settings,
    noise_from_settings,
)
from turnout.attack.evidence import Reports
from turnout.errors import TurnoutError, invalid
from turnout.settings import Table
from turnout.simulation import (
    Keep,
    NumpyEngine,
    Progress,
    Setup,
    Trajectory,
    continuation,
    run_rounds,
    set_up,
)


class NotReplayable(TurnoutError):
    """A run cannot be made again from what was saved of it, so that its reports are not known.

    Example:
        >>> issubclass(NotReplayable, TurnoutError)
        True
    """


def reports_of(
    trajectory: Trajectory,
    *,
    after: Trajectory | None = None,
    mechanism: Mechanism | None = None,
    progress: Progress | None = None,
) -> Reports:
    """Who participated in each round of a run, saved or fresh, and the signal that decided it.

    The run is made again with the readable engine, from its seed and settings, and every total and signal is
    compared with the run's own.

    Args:
        trajectory: the run; it must hold its problem (`keep.state`, polynomial costs), and nobody may join, leave or be
            away in it.
        after: the run that this one continued, if with another problem or mechanism; then the reports of both.
        mechanism: the run's, where it is one of your own; turnout's are made again from the settings.
        progress: called now and then with (rounds done, rounds in all).

    Raises:
        NotReplayable: what was saved does not give the run again.

    Example:
        >>> from turnout import IntegralController, PaperCoin, paper_population, simulate
        >>> run = simulate(paper_population(0, 40).problem(20), PaperCoin(3.5), IntegralController(0.2, 1.0), 50)
        >>> reports = reports_of(run)
        >>> reports.bits.shape, bool(np.all(reports.bits.sum(axis=1) == run.participants))
        ((50, 40), True)
    """
    first = 0 if after is None else after.rounds
    bits = np.empty((trajectory.rounds, int(trajectory.provenance["clients"])), dtype=np.uint8)
    if after is not None:
        bits[:first] = reports_of(after, mechanism=mechanism).bits
    setup = _setup(trajectory, after, mechanism)
    if after is None and setup.clients.start is None:
        bits[0] = 1  # the paper's start: nobody decides

    def watch(round: int, step: Step) -> None:
        bits[round] = step.participates

    if run_rounds(NumpyEngine(setup.clients, watch), setup, progress):
        raise KeyboardInterrupt
    _compare(trajectory, setup)
    lag = setup.log.controller.lag
    decided_by = np.maximum(np.arange(trajectory.rounds) - lag, 0)
    return Reports(trajectory.signal[decided_by], bits)


def mechanism_of(trajectory: Trajectory, own: Mechanism | None = None) -> Mechanism:
    """The mechanism of a run: made again from its settings, or, where it is not one of turnout's, the one given.

    Example:
        >>> from turnout import Classical, IntegralController, paper_population, simulate
        >>> run = simulate(paper_population(0, 40).problem(20), Classical(), IntegralController(0.2, 1.0), 5)
        >>> mechanism_of(run)
        Classical()
    """
    settings = trajectory.provenance["mechanism"]
    if settings["kind"] in MECHANISMS:
        return mechanism_from_settings(Table(settings, "mechanism"))
    if own is None or own.kind != settings["kind"]:
        allowed = f"given for a run of one's own ({settings['kind']!r} is not one of turnout's)"
        raise invalid("mechanism", allowed, own, "call attack_run(run, mechanism=…) with the one that it was run with")
    return own


def noise_of(trajectory: Trajectory) -> SumNoise | None:
    """The noise on the sums of a run; None without.

    Example:
        >>> from turnout import Classical, IntegralController, paper_population, simulate
        >>> problem, server = paper_population(0, 40).problem(20), IntegralController(0.02, 1.0)
        >>> noise_of(simulate(problem, Classical(), server, 5, noise=SumNoise(4.0))).sigma
        4.0
    """
    settings = trajectory.provenance.get("noise")
    return None if settings is None else noise_from_settings(Table(settings, "noise"))


def _setup(trajectory: Trajectory, after: Trajectory | None, mechanism: Mechanism | None) -> Setup:
    """Everything as it was before the run."""
    if trajectory.problem is None:
        raise NotReplayable(
            "the run does not hold its problem (keep.state = false, or costs that are not polynomials), so that its "
            "reports cannot be made again: run it again with keep.state = true"
        )
    first = 0 if after is None else after.rounds
    if not 0 <= first < trajectory.rounds:
        raise invalid(
            "after", f"a run of fewer than {trajectory.rounds} rounds", first, "give the run that it continued"
        )
    run = continuation(trajectory, trajectory.rounds - first, "numpy", mechanism_of(trajectory, mechanism))
    moves = run.schedule
    if moves.has_movement or moves.away:
        raise NotReplayable(
            "reports of a run in which clients join, leave or are away are not supported: an observer's view of it "
            "has gaps; run it without these"
        )
    start = trajectory.provenance["start"]
    prior: Prior | Trajectory | None = after or (None if start is None else Prior(**start))
    keep = after.keep if after is not None else Keep(every=trajectory.rounds, cost=False)
    seed = trajectory.provenance["seed"]
    arguments = dataclasses.replace(run, seed=seed, start=prior, keep=keep, noise=noise_of(trajectory))
    return set_up(**{name: value for name, value in vars(arguments).items() if name != "engine"})


def _compare(trajectory: Trajectory, setup: Setup) -> None:
    """Refuse a replay that is not the run."""
    log, done = setup.log, trajectory.rounds
    same = (log.participants[:done] == trajectory.participants) & (log.signal[:done] == trajectory.signal)
    if not same.all():
        raise NotReplayable(
            f"made again from its settings, the run differs from round {int(np.argmin(same))} on: it was continued "
            "with another problem, mechanism or seed (give the run before as `after`), or made by an engine that is "
            "equal only statistically (32 bits) or by another version"
        )
