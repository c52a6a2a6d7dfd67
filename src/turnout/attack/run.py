"""The attack on runs: on one that was saved, a fresh one, and one whose clients stop when their budgets are spent."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from turnout.algorithm import Averaging, Clamp, Classical, Mechanism, Memoized, PaperCoin, Prior, SumNoise
from turnout.attack.attack import AttackErrors, attack_errors, infer
from turnout.attack.cost_family import CostFamily
from turnout.attack.noisy_sums import infer_from_sums
from turnout.attack.reports import NotReplayable, mechanism_of, noise_of, reports_of
from turnout.errors import invalid
from turnout.privacy import EVERY_REPORT, NOISY_SUM
from turnout.problem import Array, PolynomialCosts, Problem, optimum
from turnout.simulation import Progress, Run, Trajectory


def attack_run(
    trajectory: Trajectory,
    checkpoints: Sequence[int] | None = None,
    *,
    after: Trajectory | None = None,
    mechanism: Mechanism | None = None,
    sees: str | None = None,
    progress: Progress | None = None,
) -> Iterator[AttackErrors]:
    """How well the observer recovers the costs of a run, by the number of rounds that it saw.

    Args:
        trajectory: the run, as for `reports_of`; the family of its costs is public (`CostFamily.around`).
        checkpoints: after how many rounds; `_usual_checkpoints`, unless given.
        after: the run that this one continued on public data alone, the clients' budgets being spent: its costs
            are what is to be recovered.
        mechanism: the run's, where it is one of your own; turnout's are made again from the settings.
        sees: "every-report"; or, of a run with noise, "noisy-sum": the opened sums and the reports of all others. What
            there is to be seen, unless given: in a run with noise the opened sums.
        progress: of making the reports again, and then of the attack itself: each is taken for half of the work.

    Yields:
        The errors at each checkpoint, as they are found.

    Raises:
        NotReplayable: the reports of the run cannot be made again.
        ValueError: the mechanism is one of your own, and was not given; the sums have no noise.

    Example:
        >>> from turnout import IntegralController, paper_population, simulate
        >>> run = simulate(paper_population(0, 80).problem(40), Classical(), IntegralController(0.1, 1.0), 1000)
        >>> [errors.rounds for errors in attack_run(run, [0, 1000])]
        [0, 1000]
    """
    noise = noise_of(trajectory)
    if sees not in (None, EVERY_REPORT, NOISY_SUM) or (sees == NOISY_SUM and noise is None):
        allowed = f"{EVERY_REPORT!r}; or {NOISY_SUM!r}, of a run with noise"
        raise invalid("observer", allowed, f"{sees!r}, noise {noise}", "run it with noise=SumNoise(…), or leave it out")
    reports = reports_of(trajectory, after=after, mechanism=mechanism, progress=_half(progress, 0))
    private = after or trajectory  # the run in which clients act on their own costs
    problem, settings = private.problem, private.provenance
    if problem is None:
        raise NotReplayable("the run does not hold its costs: run it again with keep.state = true")
    if not isinstance(problem.costs, PolynomialCosts):
        raise NotReplayable("an attack infers polynomial costs, and the run has others: run it with polynomials")
    known: dict[str, Any] = {
        "weights": problem.unit_weights,
        "start": None if settings["start"] is None else Prior(**settings["start"]),
        "averaging": Averaging(**settings["averaging"]),
        "stop": None if after is None else after.rounds,
        "checkpoints": _usual_checkpoints(trajectory.rounds) if checkpoints is None else checkpoints,
        "progress": _half(progress, 1),
    }
    family, its = CostFamily.around(problem.costs), mechanism_of(private, mechanism)
    if noise is not None and trajectory.seen is not None and sees != EVERY_REPORT:
        found = infer_from_sums(reports, *_seen_by_one(trajectory, after, noise), family, its, **known)
    else:
        found = infer(reports, family, its, **known)
    return (attack_errors(estimates, problem.costs) for estimates in found)


def _half(progress: Progress | None, number: int) -> Progress | None:
    """What tells the progress of the first half of the work (0), or of the second (1)."""
    if progress is None:
        return None
    return lambda done, total: progress(number * total + done, 2 * total)


def _seen_by_one(trajectory: Trajectory, after: Trajectory | None, noise: SumNoise) -> tuple[Array, SumNoise]:
    """The opened sums and their noise, to whom the account is against: one of two aggregators takes its own away."""
    assert trajectory.seen is not None  # checked
    one = dataclasses.replace(noise, aggregators=1)
    if noise == one:
        return trajectory.seen, noise
    parts = [(run, run.rounds) for run in (after, trajectory) if run is not None]
    firsts = [0, *(stop for _, stop in parts)]
    own = [one.seeded(run.provenance["seed"], first, stop) for first, (run, stop) in zip(firsts, parts, strict=False)]
    return trajectory.seen - np.concatenate(own), one


def _usual_checkpoints(rounds: int) -> list[int]:
    """0 (the prior alone), 100, 300, 1000, 3000, …, and the last round.

    Example:
        >>> _usual_checkpoints(2000)
        [0, 100, 300, 1000, 2000]
    """
    found = [first * 10**power for power in range(2, 12) for first in (1, 3)]
    return [0, *(checkpoint for checkpoint in found if checkpoint < rounds), rounds]


@dataclasses.dataclass(frozen=True)
class AttackCase:
    """One line of a comparison: a mechanism, and after how many reports the budget is spent (None: never)."""

    name: str
    mechanism: Mechanism
    budget: int | None = None


def usual_cases(problem: Problem) -> list[AttackCase]:
    """What the attack is compared on: the paper's algorithms, boxes, one release, and budgets that are spent early."""
    price = optimum(problem).price
    return [
        AttackCase("classical", Classical()),
        AttackCase("paper coin, β = 3.5", PaperCoin(3.5)),
        AttackCase("paper coin, β = 1", PaperCoin(1.0)),
        AttackCase("clamp, 1 per report", Clamp(1.0)),
        AttackCase("clamp, 0.5 per report", Clamp(0.5)),
        AttackCase("clamp, 0.1 per report", Clamp(0.1)),
        AttackCase("clamp, 1 per report, for 300 reports", Clamp(1.0), budget=300),
        AttackCase("clamp, 0.1 per report, for 100 reports", Clamp(0.1), budget=100),
        AttackCase("memoized, 4 in total", Memoized(4.0, price)),
    ]


def attack_case(
    case: AttackCase,
    run: Run,
    checkpoints: Sequence[int] | None = None,
    *,
    sees: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Iterator[AttackErrors]:
    """Run the settings with another mechanism, and attack: errors as they are found."""
    chosen = dataclasses.replace(run, mechanism=case.mechanism)
    if case.budget is None or case.budget >= run.rounds:
        return attack_run(chosen.go(**options), checkpoints, sees=sees, progress=progress)
    if run.noise is not None:  # after the stop clients act on averages, which are public only where reports are seen
        remedy = "leave it out: the noise limits the total of the whole run"
        raise invalid("budget", "left out for a run with noise on the sums", case.budget, remedy)
    before, whole = _run_with_budget(chosen, case.budget, **options)
    return attack_run(whole, checkpoints, after=before, sees=sees, progress=progress)


def _run_with_budget(run: Run, reports: int, **options: Any) -> tuple[Trajectory, Trajectory]:
    """A run whose clients may report so many times about their costs, and act on public data alone from then on.

    Args:
        run: the settings; its rounds are those of both parts together.
        reports: how many rounds the budget lasts, fewer than the run has.
        options: as for `Run.go`.

    Returns:
        The run up to the stop, and the whole.
    """
    before = dataclasses.replace(run, rounds=reports).go(**options)
    signal = float(before.signal[-max(1, reports // 2) :].mean())
    public = surrogate_after_stop(before.average, signal, run.problem.unit_weights)
    frozen = Problem(public, run.problem.capacity, run.problem.weights)
    rest = dataclasses.replace(
        run, problem=frozen, mechanism=Classical(), rounds=run.rounds - reports, start=before, keep=None
    )
    return before, rest.go(**options)


def surrogate_after_stop(average: Array, signal: float, weights: Any = 1) -> PolynomialCosts:
    """The public costs to act on once the budget is spent, so that nothing more is given away.

    Taking part with the frozen average alone would open the control loop: nobody would answer the signal any more.
    With these costs the intent is min(1, average * signal / signal at the stop), whatever happens later: public, and it
    still answers.

    Args:
        average: the clients' public averages at the stop, shape (clients,). Where averages are not public (a server
            that sees only the sum), a public constant in their place.
        signal: at the stop, above 0.
        weights: what each client brings.

    Example:
        >>> costs = surrogate_after_stop(np.array([0.2, 0.5]), signal=10.0)
        >>> (20.0 * 0.3 / costs.slope(np.array([0.3, 0.3]))).round(3)
        array([0.4, 1. ])
    """
    slope = signal * np.asarray(weights, dtype=np.float64) / np.asarray(average, dtype=np.float64)
    return PolynomialCosts((slope / 2.0)[:, None], (2,))
