"""`frontier`: the cost gap of each mechanism at each total epsilon, and the floor below them.

Where the sums have noise, privacy costs a wrong turnout rather than effort. The turnout's error has a bound of its own,
and depends on the number of clients, so there is a curve for each of several crowds.

The axis is the *total* epsilon over the stated rounds, at the stated delta, against the stated observer, under the
stated assumptions. An epsilon per report means little by itself: its total depends on all four.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from turnout.algorithm import Classical, Mechanism, Memoized, PaperCoin, Public
from turnout.errors import invalid
from turnout.plan.goal import Goal
from turnout.plan.noisy import NoiseMaker, all_makers, error_by_noise
from turnout.plan.offers import LARGEST, Maker, largest_within
from turnout.privacy import EVERY_REPORT, NOISY_SUM, floor, least_turnout_error
from turnout.problem import Problem, optimum
from turnout.theory import predict, tune

TOTALS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0)
"""Total epsilons that still protect: e^12 is odds of 163,000 to 1."""

BEYOND = (20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0)
"""Totals that protect nobody: they show where mechanisms that report every round would become useful."""

WITH_NOISE = (0.1, 0.3, 1.0, 2.0, 4.0, 8.0)
"""Total epsilons of sums with noise."""

_CROWDS = (1.0 / 6.0, 1.0, 10.0)
"""How many clients the curves of sums with noise are for, in parts of the given ones; at most `_LARGE`."""

_SMALLEST, _LARGE = 20, 200_000

_CLOSE = 0.0005  # of the optimum: a curve ends once its gap is smaller
_BETAS = (3.5, 1.0)  # of the paper's coin

_NO_FLOOR = (
    "no floor is known against an observer of the sum alone: the argument needs an observer of each client's reports"
)

_OTHERS_FLOOR = (
    "the floor holds against an observer of every report; sums with noise go below it, and have a bound on the "
    "turnout's error instead"
)

Progress = Callable[[str], None]
"""Called with the name of the next step."""


@dataclass(frozen=True)
class _TurnoutError:
    """The turnout's root mean square error under noise, in parts of the capacity, once it has settled.

    Attributes:
        by_noise: in a round, by the noise alone.
        with_coins: in a round, with the clients' coins.
        mean: of the mean turnout over the whole run.
        least: in a round and for the mean, no mechanism that is private against an observer who knows everything about
            all others has less (`turnout.privacy.least_turnout_error`).
        least_normal: the same for normal noise.
        measured: with coins, of simulated runs, one per seed, if they were asked for.
    """

    by_noise: float
    with_coins: float
    mean: float
    least: float
    least_normal: float
    measured: tuple[float, ...] = ()


@dataclass(frozen=True)
class _Point:
    """One mechanism at one total.

    Attributes:
        total_epsilon: of its account over all rounds; at most the total that was asked for.
        asked: that total.
        epsilon: its parameter, per report or (where a level is released once) per release.
        gap: its expected cost above the optimum, in parts of it.
        measured: the gaps of simulated runs, one per seed, if they were asked for.
        turnout: with noise on the sums, the turnout's error.
    """

    total_epsilon: float
    asked: float
    epsilon: float
    gap: float
    measured: tuple[float, ...] = ()
    turnout: _TurnoutError | None = None


@dataclass(frozen=True)
class _Curve:
    """One mechanism at every total at which it can meet the capacity.

    Attributes:
        name: of the mechanism.
        per: the unit of its own epsilon: "report", "release", or (of sums with noise) "run".
        points: by rising total.
        missing: why points are missing; empty if none is.
        assumptions: what must hold for its totals, and turnout cannot enforce.
        clients: how many it is for.
    """

    name: str
    per: str
    points: tuple[_Point, ...] = ()
    missing: str = ""
    assumptions: tuple[str, ...] = ()
    clients: int = 0

    def __repr__(self) -> str:
        return f"Curve({self.name}: {len(self.points)} points)"


@dataclass(frozen=True)
class _FloorPoint:
    """At a total epsilon: no mechanism has a smaller gap than `gap`, and a channel has the gap `reached`."""

    total_epsilon: float
    gap: float
    reached: float


@dataclass(frozen=True)
class Frontier:
    """All mechanisms against one observer.

    Attributes:
        observer: what it sees: "every-report", "sum" (each round's total alone), or "noisy-sum" (it with noise).
        against: the same in words.
        rounds, delta: of the totals.
        honest: honest others that hide a client in the sum; None where every report is seen.
        clients, capacity: of the problem.
        random_gap: the gap of a server that selects clients at random.
        floors: the smallest possible gaps, for `totals` (not for those beyond); none against "sum". Against "noisy-sum"
            they are those against an observer of every report, for comparison.
        no_floor: why there are none, or what they are.
        curves: the mechanisms; against "noisy-sum" noise on the sums of several crowds, and the best without noise.
        promises_nothing: (name, gap) of mechanisms without any total; a gap of None: cannot meet the capacity.

    Example:
        >>> from turnout import paper_population
        >>> found = frontier(paper_population(clients=60).problem(30), 100, observer="sum", totals=[2.0], beyond=[])
        >>> round(100 * found.random_gap)
        192
    """

    observer: str
    against: str
    rounds: int
    delta: float
    honest: int | None
    clients: int
    capacity: float
    random_gap: float
    floors: tuple[_FloorPoint, ...] = ()
    no_floor: str = ""
    curves: tuple[_Curve, ...] = ()
    promises_nothing: tuple[tuple[str, float | None], ...] = field(default=())

    def __repr__(self) -> str:
        told = f"{len(self.curves)} mechanisms, {len(self.floors)} floors"
        return f"Frontier({self.clients} clients, {self.rounds} rounds, against {self.against}: {told})"

    def facts(self) -> dict[str, Any]:
        """Everything as plain data, for JSON and for `turnout.report.frontier_report`."""
        return asdict(self)


def frontier(
    problem: Problem,
    rounds: int,
    delta: float = 1e-6,
    observer: str = EVERY_REPORT,
    honest: int | None = None,
    totals: Sequence[float] | None = None,
    beyond: Sequence[float] | None = None,
    check: int = 0,
    crowds: Sequence[int] | None = None,
) -> Frontier:
    """Total epsilon against cost gap, for every mechanism, with the floor below.

    Args:
        problem: the clients and the capacity.
        rounds: each client makes one report per round.
        delta: the slack of the totals (see `Account`), above 0.
        observer: an observer of every report ("every-report"), of each round's total alone ("sum"), or of each
            round's total with noise ("noisy-sum"). Nothing in turnout hides single reports or adds the noise: that
            needs an aggregator that you trust.
        honest: for "sum", how many others certainly follow the protocol; all but one, unless given.
        totals: total epsilons, rising; the floor is computed for these. Unless given, `TOTALS` or `WITH_NOISE`.
        beyond: more of them, for mechanisms whose totals are large. Unless given, `BEYOND`, and none with noise.
        check: simulate each point with this number of seeds.
        crowds: for "noisy-sum", numbers of such clients, with the same share of them wanted; unless given, a sixth,
            all, and ten times as many.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> from turnout import paper_population
        >>> found = frontier(paper_population(clients=60).problem(30), 100, observer="sum", totals=[2.0], beyond=[])
        >>> {curve.name: round(100 * curve.points[0].gap) for curve in found.curves}
        {'clamp': 127, 'randomized-response': 140, 'memoized': 122, 'learned-memoized': 161}
    """
    *_, last = growing(problem, rounds, delta, observer, honest, totals, beyond, check, crowds)
    return last


def growing(
    problem: Problem,
    rounds: int,
    delta: float = 1e-6,
    observer: str = EVERY_REPORT,
    honest: int | None = None,
    totals: Sequence[float] | None = None,
    beyond: Sequence[float] | None = None,
    check: int = 0,
    crowds: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Iterator[Frontier]:
    """The same in parts, so that an interrupted one can be kept; `progress` is called before each step."""
    with_noise = observer == NOISY_SUM
    totals = (WITH_NOISE if with_noise else TOTALS) if totals is None else totals
    beyond = (() if with_noise else BEYOND) if beyond is None else beyond
    every = [*totals, *beyond]
    if not totals or not all(0.0 < a < b for a, b in zip([0.5 * every[0], *every], every, strict=False)):
        raise invalid("totals", "above 0 and rising", every, "give total epsilons such as 1, 2, 4, 8")
    if check < 0:
        raise invalid("check", "0 seeds or more", check, "give 0 to simulate nothing")
    goal = Goal(problem, rounds, budget=float(totals[-1]), delta=delta, observer=observer, honest=honest)
    made = _noise_makers(goal, crowds) if with_noise or crowds is not None else all_makers(goal)
    tell = progress or (lambda _: None)
    best = optimum(problem).cost
    random_gap = problem.random_cost() / best - 1.0
    who = goal.seen_by
    against = "an observer of the sums with noise" if with_noise else str(who)
    found = Frontier(who.sees, against, rounds, delta, who.honest, len(problem), problem.capacity, random_gap)
    found = found if with_noise else replace(found, promises_nothing=_without_promise(problem))
    yield found
    if observer in (EVERY_REPORT, NOISY_SUM):
        for total in totals:
            tell(f"floor at total epsilon {total:g}")
            found = _with_floor(found, problem, total)
            yield found
    if observer != EVERY_REPORT and not found.no_floor:
        found = replace(found, no_floor=_OTHERS_FLOOR if with_noise else _NO_FLOOR)
    known: dict[Any, float | None] = {}
    for maker in made:
        for curve in _grow(maker, every, known, check, tell):
            yield replace(found, curves=(*found.curves, curve))
        found = replace(found, curves=(*found.curves, curve))
    yield found


def _noise_makers(goal: Goal, crowds: Sequence[int] | None) -> list[Maker]:
    """Noise for each crowd, and the best mechanism without noise."""
    if goal.observer != NOISY_SUM:
        raise invalid("crowds", f"given for an observer of the {NOISY_SUM!r}", crowds, "leave it out")
    number = len(goal.problem)
    if crowds is None:
        wanted = {round(number * part) for part in _CROWDS}
        crowds = sorted({number, *(each for each in wanted if _SMALLEST <= each <= _LARGE)})
    if not crowds or not all(2 <= a < b for a, b in zip([2, *crowds], [*crowds, math.inf], strict=True)):
        raise invalid("crowds", "numbers of clients of at least 3, rising", list(crowds), "try 200, 1200, 12000")
    noisy: list[Maker] = [NoiseMaker(replace(goal, problem=_crowd(goal.problem, each))) for each in crowds]
    return noisy + [maker for maker in all_makers(goal) if maker.kind == Memoized.kind]


def _crowd(problem: Problem, clients: int) -> Problem:
    """So many such clients, with the same share of them wanted: chosen by chance (always the same), or repeated."""
    if clients == len(problem):
        return problem
    who = np.resize(np.random.default_rng(0).permutation(len(problem)), clients)
    weights = None if problem.weights is None else problem.weights[who]
    share = problem.capacity / problem.most
    return Problem(problem.costs[who], share * (clients if weights is None else float(np.sum(weights))), weights)


def _with_floor(found: Frontier, problem: Problem, total: float) -> Frontier:
    if found.no_floor:
        return found
    try:
        lowest = floor(problem, total)
    except ValueError as error:  # weights of too many sizes
        return replace(found, no_floor=str(error))
    return replace(found, floors=(*found.floors, _FloorPoint(total, lowest.gap, lowest.reached)))


def _grow(
    maker: Maker, totals: Sequence[float], known: dict[Any, float | None], check: int, tell: Progress
) -> Iterator[_Curve]:
    """One mechanism's curve, point by point."""
    curve = _Curve(maker.name, maker.per, clients=len(maker.goal.problem))
    if isinstance(maker, NoiseMaker):
        curve = replace(curve, name=f"noise, {curve.clients:,} clients")
    yield curve
    for total in totals:
        tell(f"{curve.name} at total epsilon {total:g}")
        try:
            point = _point(maker, total, known)
        except ValueError as error:  # it does not exist for these clients
            yield replace(curve, missing=str(error))
            return
        if isinstance(point, str):
            curve = replace(curve, missing=f"up to total epsilon {total:g}: {point}")
        else:
            points = (*curve.points, _with_runs(maker, point, check))
            curve = replace(curve, points=points, assumptions=maker.assumptions)
            yield curve
            if (point.gap < _CLOSE and point.turnout is None) or point.epsilon >= 0.99 * LARGEST:
                return
    yield curve


def _point(maker: Maker, total: float, known: dict[Any, float | None]) -> _Point | str:
    """The mechanism at the largest epsilon within a total; or the reason why there is none."""
    key: Any = (maker.name, total)
    if not maker.releases_once:  # equal boxes have equal accounts, which take the longest
        made = [maker.make(epsilon) for epsilon in (0.1, 1.0, 4.0)]
        boxes = [one.box(Public(average=np.float64(0.5))) for one in made]
        key = (made[0].needs_public_average, *np.ravel(boxes).tolist(), total)
    if key not in known:
        known[key] = largest_within(maker, total)
    epsilon = known[key]
    if epsilon is None:
        return "its smallest epsilon per report gives away more"
    unfit = maker.unfit(epsilon)
    if unfit:
        return f"within the total, {unfit}"
    errors = _turnout_error(maker, epsilon) if isinstance(maker, NoiseMaker) else None
    return _Point(maker.account(epsilon).epsilon, total, epsilon, maker.gap(epsilon), turnout=errors)


def _turnout_error(maker: NoiseMaker, epsilon: float) -> _TurnoutError:
    """The forecast of the turnout's error, and its bounds."""
    found, goal = maker.outlook(epsilon), maker.goal
    assert found.forecast.errors is not None  # a finite run with noise
    unit = goal.problem.capacity
    return _TurnoutError(
        by_noise=error_by_noise(found) / unit,
        with_coins=found.forecast.spread / unit,
        mean=found.forecast.errors.mean / unit,
        least=least_turnout_error(goal.problem, epsilon, goal.delta) / unit,
        least_normal=least_turnout_error(goal.problem, epsilon, goal.delta, gaussian=True) / unit,
    )


def _with_runs(maker: Maker, point: _Point, seeds: int) -> _Point:
    """The point with what simulated runs have reached."""
    if point.turnout is None:
        return replace(point, measured=measured_gaps(maker, point.epsilon, seeds))
    assert isinstance(maker, NoiseMaker)  # it has made the point
    gaps, errors = measured_with_noise(maker, point.epsilon, seeds)
    return replace(point, measured=gaps, turnout=replace(point.turnout, measured=errors))


def measured_with_noise(maker: NoiseMaker, epsilon: float, seeds: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(the gaps above the optimum of each run's own turnout, the turnout's errors) of simulated runs of the plan."""
    from turnout.simulation import Keep, simulate

    goal, planned = maker.goal, maker.outlook(epsilon)
    problem, start, noise = goal.problem, maker.start, planned.noise
    server, keep, gaps, errors = planned.controller, Keep(every=goal.rounds), [], []
    settled = min(planned.settling_rounds or 0, goal.rounds // 2)
    for seed in range(seeds):
        run = simulate(problem, Classical(), server, goal.rounds, seed=seed, start=start, noise=noise, keep=keep)
        own = float(np.sum(problem.unit_weights * run.average))
        gaps.append(problem.cost(run.average) / optimum(Problem(problem.costs, own, problem.weights)).cost - 1.0)
        off = run.participants[1 + settled :] / problem.capacity - 1.0
        errors.append(math.sqrt(float(np.mean(np.square(off)))))
    return tuple(gaps), tuple(errors)


def measured_gaps(maker: Maker, epsilon: float, seeds: int) -> tuple[float, ...]:
    """The cost gaps of simulated runs of a mechanism, over the planned rounds, with a server tuned for it."""
    from turnout.simulation import Keep, simulate

    if not seeds:
        return ()
    goal, made = maker.goal, maker.make(epsilon)
    tuned, best = tune(goal.problem, made, maker.start), optimum(goal.problem).cost
    server, keep = tuned.controller(settled=True), Keep(every=goal.rounds)
    start, averaging = maker.start, goal.averaging
    gaps = []
    for seed in range(seeds):
        run = simulate(goal.problem, made, server, goal.rounds, seed=seed, start=start, averaging=averaging, keep=keep)
        assert run.cost is not None  # kept at the end
        gaps.append(float(run.cost[-1]) / best - 1.0)
    return tuple(gaps)


def _without_promise(problem: Problem) -> tuple[tuple[str, float | None], ...]:
    """The paper's mechanisms, which have no total at all."""
    named: list[tuple[str, Mechanism]] = [(f"paper coin, β = {beta:g}", PaperCoin(beta)) for beta in _BETAS]
    return tuple((name, _limit(problem, made)) for name, made in [*named, ("classical", Classical())])


def _limit(problem: Problem, mechanism: Mechanism) -> float | None:
    try:
        return max(0.0, predict(problem, mechanism).gap)
    except ValueError:  # the coin alone exceeds the capacity
        return None
