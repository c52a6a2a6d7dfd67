"""Golden digests: what runs gave when `golden.json` was written, to the bit.

    python tests/conformance/golden.py --write

writes `golden.json` again. Do that only where results are meant to change, or cases were added, and say in the
changelog which and why; a change of the code's structure must never need it.

A digest is a SHA-256 over the dtype, the shape and the bytes of arrays in a stated order. One digest stands for all
engines. A few cases rest on `exp` and `pow` of the machine's mathematical library (averages by the probability of the
paper's coin; the self-tuning controller; the one whose gain falls): another library may round them differently, and
`LIBRARY` tells.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import turnout
from turnout import (
    Averaging,
    CappedCoin,
    Clamp,
    Classical,
    ClientState,
    IntegralController,
    Keep,
    LearnedMemoized,
    Memoized,
    PaperCoin,
    PolynomialCosts,
    Prior,
    Problem,
    RandomizedResponse,
    Schedule,
    SeededCoins,
    SelfTuningController,
    TrackingClamp,
    client_step,
    paper_population,
    read_population,
    simulate,
)

FILE = Path(__file__).with_name("golden.json")
CLIENTS, ROUNDS = 2_000, 100
OWN = "own costs"
LIBRARY = "the machine's exp and pow"

Made = dict[str, Callable[[], str]]
"""By the case's name, what makes its digest."""


def digest(*arrays: Any) -> str:
    """Of arrays in the order given; None stands for what was not recorded."""
    total = hashlib.sha256()
    for array in arrays:
        found = np.ascontiguousarray(b"none" if array is None else array)
        total.update(f"{found.dtype.str}{np.shape(array)}".encode())
        total.update(found.tobytes())
    return total.hexdigest()


def rounded(*numbers: float) -> list[float]:
    """With twelve digits, where the mathematical library has a part in a number."""
    return [float(f"{float(number):.12g}") for number in numbers]


def of_run(run: Any) -> str:
    """Signal, turnout, what was recorded, the clients' final state, the server's."""
    recorded = (run.cost, run.mean_distance, run.largest_distance, run.histogram, run.averages)
    state = (None, None)
    if run.state is not None:  # one number where all clients are of an age
        rounds = np.broadcast_to(run.state.rounds, np.shape(run.state.participations))
        state = (run.state.participations, rounds.astype(np.float64))
    seen = [] if run.seen is None else [run.seen]  # of a run with noise
    last = run.controller_state  # of a run that was read from a file, by name
    server = np.array([float(value) for value in (last.values() if isinstance(last, dict) else last)])
    return digest(run.signal, run.participants, run.capacity, run.checkpoints, *recorded, *state, server, *seen)


def library() -> str:
    """Equal where exp and pow round as they did on the machine that wrote the file."""
    points = np.linspace(-8.0, 8.0, 4001)
    return digest(np.exp(points), [math.exp(x) for x in points], [1.1**x for x in points], [0.6**x for x in points])


# What is simulated, on every engine


@dataclass(frozen=True)
class Case:
    """A simulation. `start` may be another case, which is then continued on the same engine."""

    problem: Problem
    mechanism: Any
    controller: Any
    rounds: int = ROUNDS
    options: dict[str, Any] = field(default_factory=dict)

    def run(self, engine: Any = "numpy", **more: Any) -> Any:
        given = dict(self.options)
        before = given.get("start")
        if isinstance(before, Case):
            given["start"] = before.run(engine, **more)
        else:
            given["seed"] = 9
        return simulate(self.problem, self.mechanism, self.controller, self.rounds, engine=engine, **given, **more)


def server(problem: Problem, lag: int = 1, initial: float = 2.0) -> IntegralController:
    """With a gain that suits the problem."""
    weight = problem.most / len(problem)
    return IntegralController(9.0 * problem.capacity / problem.most / len(problem) / weight**2, initial, lag)


def keep(clients: int = CLIENTS, **changes: Any) -> Keep:
    usual = {"every": 7, "histogram": 8, "averages": [0, 3, clients - 1], "distance_to": np.linspace(0.0, 1.0, clients)}
    return Keep(**usual | changes)


def simulated() -> dict[str, dict[str, Case]]:
    """All cases by group and name."""
    return {
        "mechanisms and options": mechanisms_and_options(),
        "costs and lags": costs_and_lags(),
        "controllers": controllers(),
        "records": records(),
        "sizes": sizes(),
        "continued runs": continued(),
        "the paper's settings": papers(),
        "noise on the sum": noise_on_the_sum(),
    }


def mechanisms_and_options() -> dict[str, Case]:
    from conformance.populations import mechanisms, options, problems

    problem, found = problems(CLIENTS)["paper"], {}
    for mechanism, given in mechanisms(CLIENTS).items():
        for option, more in options(CLIENTS).items():
            by = more.get("averaging", Averaging()).by
            if by == "bit" or not given.needs_public_average:  # the others are refused
                settings = {"keep": keep()} | more
                found[f"{mechanism}, {option}"] = Case(problem, given, server(problem), options=settings)
    return found


def costs_and_lags() -> dict[str, Case]:
    from conformance.populations import OwnCosts, problems

    families = problems(CLIENTS) | {
        "drawn": read_population("paper-drawn", seed=3, clients=CLIENTS).problem(CLIENTS / 2),
        OWN: Problem(OwnCosts(np.linspace(1.0, 20.0, CLIENTS)), CLIENTS / 2),
    }
    coin, by = PaperCoin(np.linspace(1.0, 4.0, CLIENTS)), {"averaging": Averaging(by="probability")}
    return {
        f"{family}, lag {lag}": Case(problem, coin, server(problem, lag), 61, by)
        for family, problem in families.items()
        for lag in (0, 1)
    }


def controllers() -> dict[str, Case]:
    problem = paper_population(1, CLIENTS).problem(CLIENTS / 2)
    moves = {"schedule": Schedule(leave={60: slice(0, CLIENTS // 3)}, capacity={50: CLIENTS / 3})}
    found = {
        "self-tuning, paper-coin": (PaperCoin(3.5), SelfTuningController(), {}),
        "self-tuning, paper-coin, movement": (PaperCoin(3.5), SelfTuningController(0.01), moves),
        "self-tuning, clamp, prior": (Clamp(1.0), SelfTuningController(20.0), {"start": Prior(0.5, 10)}),
        "integral, lag 0": (PaperCoin(3.5), server(problem, 0), {}),
        "integral, too high a gain": (Classical(), IntegralController(1.0, 2.0), {}),
        "integral, from 0": (PaperCoin(3.5), server(problem, initial=0.0), {}),
    }
    return {name: Case(problem, *parts[:2], options=parts[2]) for name, parts in found.items()}


def records() -> dict[str, Case]:
    problem, by_chance = paper_population(1, 400).problem(180), Averaging(by="probability")
    found = {
        "as usual": None,
        "every round": Keep(every=1),
        "all averages": keep(400, averages="all"),
        "no cost": keep(400, cost=False),
        "no state": keep(400, state=False),
        "signal and turnout alone": Keep(cost=False, state=False),
    }
    return {
        name: Case(problem, PaperCoin(3.5), server(problem), options={"keep": kept, "averaging": by_chance})
        for name, kept in found.items()
    }


def sizes() -> dict[str, Case]:
    """Around the edges of the engines' blocks and tiles."""
    found = {}
    for clients in (1, 7, 1030):
        costs = PolynomialCosts(np.random.default_rng(4).uniform(1, 20, (clients, 1)), (2,))
        found[clients] = Problem(costs, clients / 2)
    for clients in (4, 8, 1020, 1028, 16384, 16388, 40_000):
        found[clients] = paper_population(2, clients).problem(clients / 2)
    return {f"{clients} clients": Case(found[clients], Classical(), server(found[clients]), 30) for clients in found}


def continued() -> dict[str, Case]:
    problem = paper_population(1, CLIENTS).problem(CLIENTS / 2)
    other = paper_population(2, CLIENTS).problem(CLIENTS / 2)
    moves = Schedule(join={40: [5, 9]}, leave={30: slice(0, 500)}, away=[(20, 45, slice(900, 950))])
    first = Case(problem, PaperCoin(3.5), server(problem), 31)
    moved = replace(first, options={"schedule": moves, "averaging": Averaging(50, "probability")})
    from_prior = replace(first, options={"start": Prior(0.4, 7.5), "keep": keep()})
    return {
        "goes on": replace(first, rounds=29, options={"start": first}),
        "goes on with movement": replace(moved, rounds=29, options={"start": moved}),
        "goes on from a prior": replace(from_prior, rounds=29, options={"start": from_prior}),
        "goes on with other costs": replace(first, problem=other, rounds=29, options={"start": first}),
        "goes on with another mechanism": replace(first, mechanism=Clamp(1.0), rounds=29, options={"start": first}),
    }


def papers() -> dict[str, Case]:
    """1200 clients, capacity 600, the paper's gain and betas."""
    problem, controller = paper_population(seed=0).problem(600), IntegralController(0.0075, 0.35)
    every = {"classical": Classical()} | {f"beta={beta:g}": PaperCoin(beta) for beta in (3.5, 2.5, 1.5, 1.0)}
    kept = {"keep": Keep(every=50, averages="all", histogram=20)}
    return {name: Case(problem, mechanism, controller, 300, kept) for name, mechanism in every.items()}


def noise_on_the_sum() -> dict[str, Case]:
    """Also what the server saw; the controllers other than the integral one take `exp`."""
    from conformance.populations import noisy

    found = {
        name: Case(problem, mechanism, controller, options={"keep": keep()} | options)
        for name, (problem, mechanism, controller, options) in noisy(CLIENTS).items()
    }
    first = replace(found["falling-gain, movement"], rounds=59)
    return found | {"goes on, falling-gain, movement": replace(first, rounds=41, options={"start": first})}


# What is not an engine's


def others() -> dict[str, Made]:
    """The groups that no engine runs."""
    return {
        "steps and coins": steps() | coins(),
        "predictions": predictions(),
        "promises": promises(),
        "saved runs": saved(),
        "bits": bits(),
        "closed rounds": closed_rounds(),
        "service": service(),
        "flower": flower(),
    }


def every_mechanism() -> dict[str, Any]:
    return {
        "classical": Classical(),
        "paper-coin": PaperCoin(3.5),
        "capped-coin": CappedCoin(1.0, 0.8),
        "randomized-response": RandomizedResponse(1.5),
        "clamp": Clamp(1.0, 0.4),
        "tracking-clamp": TrackingClamp(0.7),
        "memoized": Memoized(5.0, 9.0),
        "learned-memoized": LearnedMemoized(5.0, 9.0, (0.2, 0.5, 0.9), (0.02, 0.03, 0.02)),
    }


def steps() -> Made:
    """One decision of each mechanism: bits, and the probabilities themselves."""
    clients = 600
    costs = paper_population(3, clients).costs
    state = ClientState(np.linspace(0.0, 20.0, clients), np.linspace(20.0, 40.0, clients))
    uniform = SeededCoins(4).uniform(range(clients), 7)

    def made(mechanism: Any) -> str:
        found = []
        for averaging in (Averaging(), Averaging(remember=1, by="probability"), Averaging(remember=25)):
            after, decided, *_ = client_step(costs, mechanism, state, 4.0, uniform, weights=2, averaging=averaging)
            found += [after.participations, after.rounds, decided]
        return digest(*found)

    return {
        f"step, {name}": lambda mechanism=mechanism: made(mechanism)
        for name, mechanism in every_mechanism().items()
        if "memoized" not in name  # these decide by what they released at joining
    }


def coins() -> Made:
    def made() -> str:
        some = [0, 1, 5, 1_000_003, 2**40 + 3]
        return digest(*(SeededCoins(seed).uniform(some, round) for seed in (0, 9, 2**63) for round in (0, 1, 70_000)))

    return {"seeded coins": made}


def predictions() -> Made:
    """With twelve digits: they use the mathematical library."""
    problem, controller = paper_population(seed=0).problem(600), IntegralController(0.0075, 0.35)
    ways: dict[str, dict[str, Any]] = {
        "in the long run": {},
        "after 300 rounds": {"rounds": 300},
        "after 300 rounds, controller": {"rounds": 300, "controller": controller},
        "after 300 rounds, prior": {"rounds": 300, "start": Prior(0.5, 10), "averaging": Averaging(by="probability")},
        "after 5000 rounds": {"rounds": 5000, "exact": 100},
    }

    def made(mechanism: Any, more: dict[str, Any]) -> str:
        found, place = turnout.predict(problem, mechanism, **more), np.linspace(0.0, 1.0, len(problem))
        numbers = [found.signal, found.cost, found.spread, found.gap, found.best.cost, found.best.price]
        return digest(rounded(*numbers, found.average @ place, found.deviation @ place, found.distance @ place))

    chosen = {name: every_mechanism()[name] for name in ("classical", "paper-coin", "clamp")}
    return {
        f"{name}, {way}": lambda mechanism=mechanism, more=more: made(mechanism, more)
        for name, mechanism in chosen.items()
        for way, more in ways.items()
    }


def promises() -> Made:
    """The certificate's epsilon and the totals over reports."""

    def made(mechanism: Any) -> str:
        certificate = turnout.certificate(mechanism)
        totals = [turnout.account_of(mechanism, rounds, delta) for rounds, delta in ((1, 0.0), (1, 1e-6), (200, 1e-6))]
        words = np.array([certificate.per])
        return digest(rounded(certificate.epsilon, *(total.epsilon for total in totals)), words)

    return {name: lambda mechanism=mechanism: made(mechanism) for name, mechanism in every_mechanism().items()}


def saved() -> Made:
    """The arrays in the file of a run, by name; and the run as it is read again."""
    some = records()["all averages"]
    weighted = Problem(some.problem.costs, 900.0, np.arange(1, 401) % 7 + 1)
    cases = {
        "a run": some,
        "with weights and parameters by client": replace(
            some, problem=weighted, mechanism=PaperCoin(np.linspace(1.0, 4.0, 400)), controller=server(weighted)
        ),
        "goes on": replace(some, rounds=20, options={"start": some}),
    }

    def made(case: Case) -> str:
        with tempfile.TemporaryDirectory() as folder:
            path, run = Path(folder, "run.npz"), case.run()
            run.save(path)
            with np.load(path) as file:
                names = sorted(name for name in file.files if not name.startswith("provenance"))
                arrays = [file[name] for name in names]
            again = turnout.Trajectory.load(path)
        assert of_run(again) == of_run(run)
        return digest(np.array(names), *arrays)

    return {name: lambda case=case: made(case) for name, case in cases.items()}


def bits() -> Made:
    """Who participated in each round."""
    from turnout.attack import reports_of

    chosen = ("classical", "beta=3.5")
    own = {f"paper, {name}": replace(papers()[name], options={}) for name in chosen}
    own["prior"] = replace(papers()["beta=3.5"], mechanism=Clamp(1.0), options={"start": Prior(0.5, 10)})

    def made(case: Case) -> str:
        found = reports_of(case.run())
        return digest(found.signals, found.bits)

    return {name: lambda case=case: made(case) for name, case in own.items()}


# The service


def closed_rounds() -> Made:
    """Rounds closed without clock, disk or wire: outages, the hard limit, devices that are missing."""
    from service.played import play
    from service.running import usual_rules
    from turnout.service import Safety

    problem, controller = paper_population(2, 80).problem(40), IntegralController(0.045, 3.0)
    back = np.linspace(45, 70, 80).astype(int)
    ways = {
        "self-tuning": ({}, {}),
        "integral": ({"controller": controller}, {}),
        "paper-coin": ({"controller": controller, "mechanism": PaperCoin(3.5), "prior": Prior(0.4, 7)}, {}),
        "hard limit": ({"controller": controller, "safety": Safety("absent", hard_limit=41)}, {}),
        "outage, absent": ({"controller": controller}, {"gone": 30, "back": back}),
        "outage, last": ({"safety": Safety("last", 45, quorum=0.3)}, {"gone": 30, "back": back}),
    }

    def made(rules: dict[str, Any], outage: dict[str, Any]) -> str:
        return digest(*columns(play(usual_rules(**rules), problem, 90, 5, **outage)))

    def columns(found: list[Any]) -> Iterator[Any]:
        for name in ("round", "signal", "capacity", "codes", "participants", "demand", "members", "heard", "frozen"):
            yield np.array([getattr(closed, name) for closed in found])

    return {name: lambda rules=rules, outage=outage: made(rules, outage) for name, (rules, outage) in ways.items()}


def stored(location: Path, rounds: int, by_slot: bool) -> list[Any]:
    """What the database has of the first rounds, read by SQL; by slot only where devices enrolled in order."""
    with closing(sqlite3.connect(location)) as database:
        rows = database.execute(
            "SELECT round, signal, capacity, slots, participants, demand, members, heard, frozen FROM books "
            "WHERE round < ? ORDER BY round",
            (rounds,),
        ).fetchall()
        settings = database.execute("SELECT name, settings FROM run").fetchall()
        codes = database.execute("SELECT codes FROM books WHERE round < ? ORDER BY round", (rounds,)).fetchall()
        devices = database.execute("SELECT slot, weight, joined FROM devices ORDER BY slot").fetchall()
        state = database.execute("SELECT round, offered, controller, switched_on, capacity FROM state").fetchall()
    found = [np.array(rows, np.float64), np.frombuffer(repr(settings).encode(), np.uint8), np.array(devices)]
    return found + ([np.frombuffer(repr((codes, state)).encode(), np.uint8)] if by_slot else [])


def service() -> Made:
    """A coordinator on a socket of this machine, with its database."""
    coin, clamp, fixed = PaperCoin(3.5), Clamp(1.0), IntegralController(0.2, 3.0)
    ways: dict[str, tuple[Callable[..., list[Any]], dict[str, Any]]] = {
        "devices, integral": (by_hand, {"mechanism": clamp, "controller": fixed}),
        "devices, self-tuning": (by_hand, {"mechanism": coin}),
        "devices, hard limit": (by_hand, {"mechanism": clamp, "controller": fixed, "hard_limit": 11}),
        "fleet, paper-coin": (by_fleet, {"mechanism": coin, "controller": fixed, "prior": Prior(0.4, 7)}),
        "fleet, self-tuning": (by_fleet, {"mechanism": clamp, "averaging": Averaging(remember=9)}),
        "fleet, by probability": (by_fleet, {"mechanism": clamp, "averaging": Averaging(by="probability")}),
        "agents": (by_agents, {"mechanism": clamp, "controller": fixed}),
    }

    def made(how: Callable[..., list[Any]], rules: dict[str, Any]) -> str:
        with tempfile.TemporaryDirectory() as folder:
            return digest(*how(Path(folder), **rules))

    return {name: lambda how=how, rules=rules: made(how, rules) for name, (how, rules) in ways.items()}


@contextlib.contextmanager
def coordinator(folder: Path, devices: int, weights: tuple[int, ...] = (1,), hard_limit: Any = None, **rules: Any):
    """(url, codes, location) of a coordinator that waits for all devices, in every round."""
    from service.running import begun, codes_for, running, usual_rules
    from turnout.service import Safety, Timing

    patient = Timing(round=0.0, deadline=60.0, hold=60.0)
    settings = usual_rules(patient, wait_for=devices, safety=Safety("absent", hard_limit), **rules)
    location = folder / "run.db"
    with closing(begun(location, settings, capacity=0.5 * devices * np.mean(weights))) as store:
        codes = [code for weight in weights for code in codes_for(store, devices // len(weights), weight)]
        with running(store) as found:
            yield found.url, codes, location


def by_hand(folder: Path, **rules: Any) -> list[Any]:
    """Twelve devices of two weights, enrolled one after the other; also what each was told."""
    from service.bare_device import Device, at_once

    size, rounds, answers = 12, 15, []
    costs, weights = paper_population(6, size).costs, np.repeat([1, 3], size // 2)
    with coordinator(folder, size, (1, 3), **rules) as (url, codes, location):
        devices = [Device(url, code) for code in codes]
        state, signal = ClientState(np.full(size, 5.0), np.full(size, 10.0)), devices[0].welcome["offer"]["signal"]
        for number in range(rounds):
            uniform = SeededCoins(5).uniform(range(size), number)
            _, decided, *_ = client_step(costs, rules["mechanism"], state, signal, uniform, weights=weights)
            reports = (
                lambda device=device, bit=bit, number=number: device.report(number, bool(bit))
                for device, bit in zip(devices, decided, strict=True)
            )
            told = [answer for _, answer in at_once(*reports)]
            counted = np.array([answer["counted"] for answer in told])
            state, signal = state.after((decided & counted).astype(float), Averaging()), told[0]["next"]["signal"]
            answers.append([decided, counted, [answer["next"]["signal"] for answer in told]])
    return [*stored(location, rounds, by_slot=True), np.array(answers, np.float64), state.participations]


def by_fleet(folder: Path, **rules: Any) -> list[Any]:
    """Forty devices that enrol all at once; also the bits and what was acknowledged of them, by device."""
    import asyncio

    from turnout.service.load_test import Fleet

    size, rounds = 40, 20
    with coordinator(folder, size, **rules) as (url, codes, location):
        fleet = Fleet(url, paper_population(6, size).costs, codes, seed=5)
        record = asyncio.run(fleet.run(rounds))
    seen = [(record.rounds[k].bits, record.rounds[k].acknowledged) for k in range(rounds)]
    signals = [record.rounds[k].signal for k in range(rounds)]
    return [*stored(location, rounds, by_slot=False), np.array(seen), np.array(signals)]


def by_agents(folder: Path, **rules: Any) -> list[Any]:
    """Eight durable clients; also the bits, what counted, and the ledger in their files."""
    from service.agents import on_file, reserved
    from turnout.client import Owner
    from turnout.service.agent import Agent, AgentSeams

    size, rounds = 8, 10
    costs, places = paper_population(6, size).costs, [folder / f"device-{number}" for number in range(size)]

    def play(number: int) -> str:
        owner, seams = Owner(witness=folder / f"witness-{number}"), AgentSeams(coins=SeededCoins(5), client_id=number)
        with Agent(url, places[number], costs[[number]], code=codes[number], owner=owner, seams=seams) as agent:
            return str(agent.run(rounds))

    with coordinator(folder, size, **rules) as (url, codes, location), ThreadPoolExecutor(size) as pool:
        ends = list(pool.map(play, range(size)))
    assert ends == ["rounds"] * size
    files = [on_file(place, "test") for place in places]
    seen = [[files[number][k] for k in range(rounds)] for number in range(size)]
    spent = [[k for k in reserved(place) if k < rounds] for place in places]
    return [*stored(location, rounds, by_slot=False), np.array(seen), np.array(spent)]


# Flower


def flower() -> Made:
    """The in-process engine: turnout, signal and weights by round, and the model at the end."""
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    ways: dict[str, dict[str, Any]] = {
        "two phases": {},
        "one phase": {"phases": 1},
        "plain weights": {"weights": "plain"},
        "stored updates": {"weights": "stored-updates"},
        "tracking-clamp": {"mechanism": TrackingClamp(1.0), "prior_rounds": 4.0},
        "paper-coin, integral": {"mechanism": PaperCoin(3.5), "controller": IntegralController(0.1, 2.0)},
        "at least": {"at_least": 12},
    }

    return {name: lambda more=more: digest(*flower_run(dict(more))) for name, more in ways.items()}


def flower_run(options: dict[str, Any]) -> list[Any]:
    from flower.apps import column, make_app, run, update
    from turnout.flower import at_least

    def drift(message: Any, context: Any) -> Any:
        step = 0.1 + 0.001 * context.node_config["partition-id"]
        return update(message, [array * 0.9 + step for array in message.content["arrays"].to_numpy_ndarrays()])

    logger = logging.getLogger("flwr")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        goal = {"capacity": at_least(options.pop("at_least"))} if "at_least" in options else {}
        result = run(make_app(drift, allow_uncertified=True), rounds=15, **options, **goal)
    finally:
        logger.setLevel(before)
    names = ("participants", "abstained", "signal", "trained", "effective-share", "faults")
    columns = [rounded(*column(result, name)) for name in names]
    # Flower adds weights with sum(), which rounds otherwise from Python 3.12 on.
    return [*columns, *(rounded(*array.numpy().ravel()) for array in result.arrays.values())]


# The file


def known() -> dict[str, dict[str, str]]:
    """What `golden.json` says: digests by group and case."""
    return json.loads(FILE.read_text())  # type: ignore[no-any-return]


def make() -> dict[str, dict[str, str]]:
    """All digests, by the readable engine."""
    found = {group: {name: of_run(case.run()) for name, case in cases.items()} for group, cases in simulated().items()}
    found |= {group: {name: made() for name, made in cases.items()} for group, cases in others().items()}
    return {LIBRARY: {"rounds": library()}} | found


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        raise SystemExit(__doc__)
    sys.path.insert(0, str(Path(__file__).parents[1]))
    FILE.write_text(json.dumps(make(), indent=1) + "\n")
