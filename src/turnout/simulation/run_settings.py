"""A whole run in one TOML file: what `simulate` takes, by name."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from turnout.algorithm import (
    Averaging,
    Controller,
    Mechanism,
    Prior,
    SumNoise,
    controller_from_settings,
    mechanism_from_settings,
    noise_from_settings,
)
from turnout.privacy import EVERY_REPORT, NOISY_SUM, SUM, Observer
from turnout.problem import Problem, population_from_table
from turnout.settings import FLEET_KEYS, Table
from turnout.simulation.loop import Progress
from turnout.simulation.recording import Keep, keep_from_settings
from turnout.simulation.run import simulate
from turnout.simulation.schedule import Schedule, schedule_from_settings
from turnout.simulation.setup import observer_with, seen_by
from turnout.simulation.trajectory import Trajectory, observer_of


@dataclass(frozen=True, eq=False)
class Run:
    """Everything that `simulate` needs, ready to go; the fields are its arguments."""

    problem: Problem
    mechanism: Mechanism
    controller: Controller
    rounds: int
    seed: int | None
    engine: str
    start: Prior | Trajectory | None
    schedule: Schedule
    averaging: Averaging
    keep: Keep | None
    observer: Observer = Observer()  # noqa: RUF009 (frozen)
    noise: SumNoise | None = None

    @property
    def seen_by(self) -> Observer:
        """Who sees what, in this run's circumstances."""
        return seen_by(self.observer, self.problem, self.averaging, self.schedule, self.rounds)

    def go(self, *, threads: int | None = None, progress: Progress | None = None) -> Trajectory:
        """Simulate."""
        return simulate(**vars(self), threads=threads, progress=progress)


def run_from_settings(table: Table) -> Run:
    """A run from its settings; every key is known or refused::

    rounds = 10000
    capacity = 600
    seed = 0                    # optional, as is all below but mechanism
    engine = "auto"
    observer = "every-report"   # or "sum": what would make a promise against it false is refused; or "noisy-sum",
                                # which is the usual one where there is noise
    honest = 1198               # for "sum": how many others certainly follow the protocol; all but one by default
    assuming = []               # what else the promise rests on, each a clause; `turnout plan` writes it
    [population]                # see `population_from_table`
    kind = "paper"
    [mechanism]
    kind = "paper-coin"
    beta = 3.5
    [controller]                # absent: self-tuning
    gain = 0.0075
    initial = 0.35
    [start]                     # absent: the paper's, everyone participates in round 0
    average = 0.5
    rounds = 10
    [averaging]
    remember = 200
    by = "bit"
    [noise]                     # absent: the server sees exact sums; see `SumNoise`
    sigma = 400
    [schedule]                  # see `schedule_from_settings`
    [keep]                      # see `Keep`
    every = 100
    """
    population = population_from_table(table.table("population", {"kind": "paper"}))
    problem, rounds = population.problem(table.number("capacity")), table.whole("rounds")
    schedule = schedule_from_settings(table.table("schedule", {}))
    noise = noise_from_settings(table.table("noise")) if "noise" in table else None
    changes = (*schedule.join, *schedule.leave, *schedule.capacity, *(first for first, _, _ in schedule.away))
    late = min((when for when in changes if when >= rounds), default=None)
    if late is not None:
        told = f"schedule: nothing changes in round {late:,}, since this run ends before it ({rounds:,} rounds)"
        warnings.warn(f"{told}: give an earlier round, or more rounds", stacklevel=2)
    run = Run(
        problem=problem,
        mechanism=mechanism_from_settings(table.table("mechanism")),
        controller=controller_from_settings(table.table("controller", {"kind": "self-tuning"})),
        rounds=rounds,
        seed=table.whole("seed", 0),
        engine=table.text("engine", "auto"),
        start=_start(table),
        schedule=schedule,
        averaging=_averaging(table.table("averaging", {})),
        noise=noise,
        keep=keep_from_settings(table.table("keep", {})),
        observer=observer_with(_observer(table, noise, schedule, rounds, len(problem)), noise),
    )
    table.ignore("start", "noise", *FLEET_KEYS)
    table.finish()
    run.seen_by.check(run.mechanism)
    return run


def continuation(before: Trajectory, rounds: int, engine: str = "auto", mechanism: Mechanism | None = None) -> Run:
    """More rounds of a saved run, with all its settings; its mechanism is made from these too, unless given."""
    if before.problem is None:
        raise ValueError(
            "the run to continue must hold its problem, got one saved without (keep.state = false, or costs that "
            "are not polynomials): continue it from Python with simulate(problem, …, start=run)"
        )
    settings: dict[str, Any] = before.provenance
    return Run(
        problem=before.problem,
        mechanism=mechanism or mechanism_from_settings(Table(settings["mechanism"], "mechanism")),
        controller=controller_from_settings(Table(settings["controller"], "controller")),
        rounds=rounds,
        seed=None,
        engine=engine,
        start=before,
        schedule=schedule_from_settings(Table(settings["schedule"], "schedule")),
        averaging=Averaging(**settings["averaging"]),
        noise=noise_from_settings(Table(settings["noise"], "noise")) if "noise" in settings else None,
        keep=None,
        observer=observer_of(settings),
    )


def _start(table: Table) -> Prior | None:
    if "start" not in table:
        return None
    start = table.table("start")
    prior = Prior(start.number("average"), start.number("rounds", 10.0))
    start.finish()
    return prior


def _observer(table: Table, noise: SumNoise | None, schedule: Schedule, rounds: int, clients: int) -> Observer:
    """The observer; of the sum alone, with all but one of the permanent members as honest others, unless given."""
    sees, honest = table.text("observer", EVERY_REPORT), table.whole("honest", None)
    if sees == SUM and honest is None:
        honest = max(0, schedule.fewest(rounds, clients) - 2)
    if sees == NOISY_SUM and noise is None:
        raise ValueError(f"noise is missing for observer = {sees!r}: write [noise], and below it sigma = 400")
    return Observer(sees, honest, assuming=table.texts("assuming"), noise=noise if sees == NOISY_SUM else None)


def _averaging(table: Table) -> Averaging:
    averaging = Averaging(table.number("remember", None), table.text("by", "bit"))
    table.finish()
    return averaging
