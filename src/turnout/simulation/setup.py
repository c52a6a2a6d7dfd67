"""Set up a run, new or continued, and put together what it gave."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from turnout.algorithm import (
    Averaging,
    ClientState,
    Controller,
    Mechanism,
    Prior,
    SeededCoins,
    SumNoise,
    check_controller,
    check_mechanism,
    check_name,
    noise_from_settings,
    released,
)
from turnout.errors import check_kind, invalid
from turnout.privacy import EVERY_REPORT, NOISY_SUM, SUM, Observer, of_costs
from turnout.problem import PolynomialCosts, Problem, check_capacity, check_problem
from turnout.settings import Table
from turnout.simulation.clients import SimulatedClients
from turnout.simulation.recording import Keep, Recorder
from turnout.simulation.schedule import ABSENT, Schedule, schedule_from_settings
from turnout.simulation.server_log import ServerLog
from turnout.simulation.trajectory import Trajectory, check_parts, observer_of
from turnout.theory import check_feasible
from turnout.version import __version__


@dataclass
class Setup:
    """The clients, the server's log and the recorder of one run."""

    problem: Problem
    schedule: Schedule
    clients: SimulatedClients
    log: ServerLog
    recorder: Recorder
    observer: Observer
    noise: SumNoise | None = None
    earlier: list[dict[str, Any]] = field(default_factory=list)  # the parts of a run continued with another mechanism
    heaviest_before: int = 1  # of the clients of a run that is continued, perhaps with another problem

    def trajectory(self, engine: str, why: str) -> Trajectory:
        """What the run gave, so far."""
        log, keep, clients = self.log, self.recorder.keep, self.clients
        done = log.round
        return Trajectory(
            signal=log.signal[:done],
            participants=log.participants[:done],
            capacity=log.capacities[:done],
            checkpoints=np.array(self.recorder.rounds, dtype=np.int64),
            **self.recorder.columns(),
            state=clients.state if keep.state else None,
            controller_state=log.server.controller,
            problem=self.problem if keep.state else None,
            keep=keep,
            provenance=self._provenance() | {"engine": engine, "engine_reason": why},
            seen=None if log.seen is None else log.seen[:done],
        )

    def _provenance(self) -> dict[str, Any]:
        clients = self.clients
        found: dict[str, Any] = {
            "turnout": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "seed": int(clients.coins.seed),
            "rounds": self.log.round,
            "rounds_asked": self.log.rounds,
            "clients": len(clients),
            "capacity": float(self.problem.capacity),
            "mechanism": clients.mechanism.settings(),
            "controller": self.log.controller.settings(),
            "start": None if clients.start is None else asdict(clients.start),
            "averaging": {"remember": clients.averaging.remember, "by": clients.averaging.by},
            "schedule": self.schedule.settings(len(clients)),
        }
        if self.observer.sees == SUM:
            found["observer"] = {"sees": self.observer.sees, "honest": self.observer.honest}
        if self.noise is not None:
            heaviest = max(self.observer.heaviest, self.heaviest_before)
            found |= {"noise": self.noise.settings(), "heaviest": heaviest}
        if self.observer.assuming:
            found["observer"] = found.get("observer", {}) | {"assuming": list(self.observer.assuming)}
        return found | ({"earlier": self.earlier} if self.earlier else {})


def set_up(
    problem: Problem,
    mechanism: Mechanism,
    controller: Controller,
    rounds: int,
    seed: int | None,
    start: Prior | Trajectory | None,
    schedule: Schedule | None,
    averaging: Averaging | None,
    keep: Keep | None,
    observer: Observer | None = None,
    noise: SumNoise | None = None,
) -> Setup:
    """Check the arguments of `simulate`, and make ready a new run or a continued one."""
    _check_kinds(problem, mechanism, controller, schedule, averaging, keep, noise)
    before = start if isinstance(start, Trajectory) else None
    if before is not None:  # whatever is not said is as it was
        schedule = schedule or schedule_from_settings(Table(before.provenance["schedule"], "schedule"))
        averaging = averaging or Averaging(**before.provenance["averaging"])
        known = observer_of(before.provenance)
        observer = known if observer is None else _assuming_too(observer, known)
        noise = _continued(noise, before)
    schedule, averaging = schedule or Schedule(), averaging or Averaging()
    keep = keep or (before.keep if before else Keep())
    if seed is None:
        seed = before.provenance["seed"] if before else 0
    _check(problem, mechanism, rounds, schedule, keep, 0 if before is None else before.rounds)
    whole = rounds + (0 if before is None else before.rounds)
    observer = seen_by(observer_with(observer, noise), problem, averaging, schedule, whole)
    observer.check(mechanism)
    recorder = Recorder(keep)
    coins = SeededCoins(seed)
    if before is None:
        clients = SimulatedClients.of(problem, mechanism, averaging, coins, _prior(start), schedule)
        log = ServerLog.start(controller, problem.capacity, rounds, noise, seed)
        return Setup(problem, schedule, clients, log, recorder, observer, noise)
    _check_continues(before, problem, keep)
    recorder.resume(before.checkpoints, before.columns())
    clients = _take_up_clients(before, problem, mechanism, averaging, coins, schedule)
    log = ServerLog.resume(before, controller, problem.capacity, rounds, noise, seed)
    earlier = _earlier(before, problem, mechanism, averaging, seed)
    check_parts(earlier, observer)
    heaviest = int(before.provenance.get("heaviest", 1))
    return Setup(problem, schedule, clients, log, recorder, observer, noise, earlier, heaviest)


def _assuming_too(observer: Observer, before: Observer) -> Observer:
    """An observer of a continued run: what had to hold for the earlier rounds still has to."""
    return replace(observer, assuming=tuple(dict.fromkeys([*before.assuming, *observer.assuming])))


def observer_with(observer: Observer | None, noise: SumNoise | None) -> Observer:
    """The observer of a run: of the sums with noise, if there is noise; else as given, or of every report.

    Raises:
        ValueError: another observer than the noise makes.
    """
    if noise is None and (observer is None or observer.noise is None):
        return observer or Observer()
    if observer is None or observer.sees == EVERY_REPORT:
        return Observer(NOISY_SUM, noise=noise, assuming=observer.assuming if observer else ())
    if observer.noise != noise:
        allowed = f"of the sums with the noise of the run, {noise}"
        raise invalid("observer", allowed, f"{observer.sees}, noise {observer.noise}", "leave the observer out")
    return observer


def seen_by(observer: Observer, problem: Problem, averaging: Averaging, schedule: Schedule, rounds: int) -> Observer:
    """The observer in the circumstances of a run.

    Raises:
        ValueError: more honest others than are there in every round.
    """
    assumed = tuple(dict.fromkeys([*observer.assuming, *of_costs(problem.costs)]))
    if observer.sees == EVERY_REPORT:
        return replace(observer, averaging=averaging, assuming=assumed)
    if observer.sees == NOISY_SUM:
        return replace(observer, averaging=averaging, weights=problem.weights, assuming=assumed)
    others = max(0, schedule.fewest(rounds, len(problem)) - 2)  # without the client, and one that may observe
    if observer.honest is not None and observer.honest > others:
        remedy = "give how many certainly report in every round; who leaves or is away hides nobody"
        raise invalid("honest", f"at most {others:,}, as many as are always there", observer.honest, remedy)
    if problem.weights is not None and others < len(problem) - 2:
        remedy = "leave the schedule out, or account for every report"
        raise invalid("schedule with weights and an observer of the sum", "without leaving", "both", remedy)
    return replace(observer, averaging=averaging, weights=problem.weights, assuming=assumed)


def _continued(noise: SumNoise | None, before: Trajectory) -> SumNoise | None:
    """The noise of the run to continue, which stays what it was: the account covers one schedule."""
    known = before.provenance.get("noise")
    held = None if known is None else noise_from_settings(Table(known, "noise"))
    if noise is not None and noise != held:
        remedy = "leave noise out when continuing, or start a run of its own"
        told = "none, since the run to continue had none" if held is None else f"as in the run to continue, {held}"
        raise invalid("noise", told, noise, remedy)
    return held


def _check_kinds(
    problem: Any, mechanism: Any, controller: Any, schedule: Any, averaging: Any, keep: Any, noise: Any
) -> None:
    """Refuse arguments in another order or of another type, with the remedy."""
    check_problem(problem)
    check_mechanism(mechanism)
    if not type(mechanism).__module__.startswith("turnout."):  # turnout's own have their own names
        check_name(mechanism)
    check_controller(controller)
    for name, given, kind, such in (
        ("schedule", schedule, Schedule, "Schedule(capacity={500: 300})"),
        ("averaging", averaging, Averaging, "Averaging(remember=200)"),
        ("keep", keep, Keep, "Keep(every=10)"),
        ("noise", noise, SumNoise, "SumNoise(sigma=400)"),
    ):
        if given is not None:
            check_kind(name, given, kind, f"a turnout.{kind.__name__}", f"write {name}={such}")


def _check(problem: Problem, mechanism: Mechanism, rounds: int, schedule: Schedule, keep: Keep, past: int) -> None:
    if not isinstance(rounds, (int, np.integer)) or rounds < 1:
        raise invalid("rounds", "a whole number from 1 up", rounds, "the paper's runs take thousands")
    schedule.check(len(problem))
    for capacity in schedule.capacity.values():
        check_capacity(capacity, problem.most)
    keep.check(past + rounds, len(problem))
    for span in schedule.spans(past, past + rounds, len(problem), problem.capacity):
        members = None if span.status is None else span.status != ABSENT
        check_feasible(problem, mechanism, span.capacity, members)


def _prior(start: Any) -> Prior | None:
    if start is None or isinstance(start, Prior):
        return start
    raise invalid("start", "None (the paper's), a Prior, or a Trajectory to continue", repr(start), "use one of these")


def _check_continues(before: Trajectory, problem: Problem, keep: Keep) -> None:
    state = before.state
    if state is None or before.controller_state is None:
        raise invalid("start", "a run that kept its state", "keep.state=False", "run it again with keep.state=True")
    if len(state.participations) != len(problem):
        got = f"{len(problem)} clients"
        raise invalid("problem", f"of {len(state.participations)} clients, as in the run to continue", got, "keep them")
    if _layout(keep) != _layout(before.keep):
        raise invalid("keep", f"as in the run to continue, {before.keep}", keep, "leave keep out when continuing")


def _layout(keep: Keep) -> tuple[Any, ...]:
    """What must agree for two records to be one."""
    return (keep.every, keep.cost, keep.distance_to is not None, keep.histogram, str(keep.settings().get("averages")))


def _take_up_clients(
    before: Trajectory,
    problem: Problem,
    mechanism: Mechanism,
    averaging: Averaging,
    coins: SeededCoins,
    schedule: Schedule,
) -> SimulatedClients:
    """The clients as they were when a run stopped."""
    assert before.state is not None  # checked
    lasted: Any = before.state.rounds
    if schedule.has_movement or isinstance(lasted, np.ndarray):
        lasted = np.broadcast_to(np.asarray(lasted, dtype=np.float64), (len(problem),)).copy()
    state = ClientState(before.state.participations.copy(), lasted, released(problem, mechanism, coins))
    start = before.provenance["start"]
    prior = None if start is None else Prior(**start)
    return SimulatedClients(problem.costs, problem.weights, mechanism, averaging, coins, state, prior)


def _earlier(
    before: Trajectory, problem: Problem, mechanism: Mechanism, averaging: Averaging, seed: int
) -> list[dict[str, Any]]:
    """The parts that a continued run already has: the last one too, unless its mechanism simply continues.

    A mechanism that releases once continues only with the same coins and costs: with others it releases again. What
    averages moved by is part of it: a box that follows them later needs to know whether they are public.
    """
    settings, now = before.provenance["mechanism"], mechanism.settings()
    goes_on = settings.keys() == now.keys() and all(np.array_equal(settings[name], now[name]) for name in now)
    if mechanism.releases_once:
        goes_on = goes_on and seed == before.provenance["seed"] and _is_same(before.problem, problem)
    goes_on = goes_on and before.provenance["averaging"]["by"] == averaging.by
    earlier: list[dict[str, Any]] = before.provenance.get("earlier", [])
    done = before.rounds - sum(part["rounds"] for part in earlier)
    part = {"rounds": done, "mechanism": settings, "averaging": before.provenance["averaging"]}
    if "noise" in before.provenance:
        part["noise"] = before.provenance["noise"]
    return earlier if goes_on else [*earlier, part]


def _is_same(one: Problem | None, other: Problem) -> bool:
    """Whether two problems are known to be the same; of costs that are not kept nobody knows."""
    if one is None or not isinstance(one.costs, PolynomialCosts) or not isinstance(other.costs, PolynomialCosts):
        return False
    return (
        one.capacity == other.capacity
        and one.costs.powers == other.costs.powers
        and np.array_equal(one.costs.terms, other.costs.terms)
        and np.array_equal(one.unit_weights, other.unit_weights)
    )
