"""What a simulation gives back: the record, the final state, and its provenance; saved to a file and read again.

The provenance of a run names its mechanisms, part by part, and with them what the run promises.
"""

from __future__ import annotations

import json
import math
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.algorithm import (
    MECHANISMS,
    Averaging,
    Classical,
    ClientState,
    Mechanism,
    in_words,
    mechanism_from_settings,
    noise_from_settings,
)
from turnout.display import card, number, off
from turnout.errors import FileProblem, MissingExtra, invalid
from turnout.files import check_writable, whole_file
from turnout.privacy import (
    FIXED_ROUNDS,
    NOISY_SUM,
    OWN_BIT,
    PUBLIC_DESIGN,
    UNKNOWN_SEED,
    Account,
    Certificate,
    Observer,
    account_of,
    certificate,
    worst_of,
)
from turnout.problem import Array, Optimum, PolynomialCosts, Problem, optimum
from turnout.settings import Table
from turnout.simulation.recording import Keep, keep_from_settings
from turnout.simulation.schedule import ABSENT, Schedule, schedule_from_settings

_COLUMNS = ("cost", "mean_distance", "largest_distance", "histogram", "averages")
"""What is recorded at checkpoints, if `Keep` says so."""

_SHOWN_WITH_GAP = 1_000_000
"""Clients up to which a notebook solves for the optimum just to show a run."""


@dataclass(frozen=True, eq=False)
class ServerRecord:
    """What the server of a run saw and sent, and nothing else: no true turnout, no seed, nothing of a client.

    A simulation's noise comes from its seed: whoever guesses the seed (0, unless given) takes the noise away.

    Attributes:
        signal: Theta(k), shape (rounds,).
        seen: the sum of each round as it was opened, shape (rounds,); not a number where nothing was opened.
        capacity: what was needed in each round, shape (rounds,).
        noise: the settings of the noise; None: sums were exact.

    Example:
        >>> from turnout import Classical, FallingGainController, Prior, SumNoise, paper_population, simulate
        >>> problem, server = paper_population().problem(600), FallingGainController(0.01, initial=10.0)
        >>> run = simulate(problem, Classical(), server, 50, start=Prior(0.5), noise=SumNoise(20.0))
        >>> run.server
        ServerRecord(50 rounds, sums with noise of sigma 20)
    """

    signal: Array
    seen: Array
    capacity: Array
    noise: dict[str, Any] | None

    def __repr__(self) -> str:
        known = None if self.noise is None else noise_from_settings(Table(self.noise, "noise"))
        sums = "exact sums" if known is None else f"sums with noise of {known.words}"
        return f"ServerRecord({len(self.signal)} rounds, {sums})"

    @property
    def opened(self) -> npt.NDArray[np.int64]:
        """The rounds whose sum was opened, in order."""
        return np.flatnonzero(~np.isnan(self.seen))

    def save(self, path: str | Path) -> None:
        """Write it as a CSV file (round, signal, seen, capacity), whole or not at all.

        Raises:
            FileProblem: the file cannot be written.
        """
        columns = zip(self.signal.tolist(), self.seen.tolist(), self.capacity.tolist(), strict=True)
        lines = ["round,signal,seen,capacity"]
        lines += [
            f"{round},{signal!r},{'' if math.isnan(seen) else int(seen)},{capacity!r}"
            for round, (signal, seen, capacity) in enumerate(columns)
        ]
        with whole_file(check_writable(path)) as file:
            file.write("\n".join([*lines, ""]).encode())

    def to_pandas(self) -> Any:
        """The rounds as a pandas DataFrame: signal, seen, capacity."""
        return _frame({"signal": self.signal, "seen": self.seen, "capacity": self.capacity})


@dataclass(frozen=True, eq=False)
class Trajectory:
    """A run, from round 0 on.

    Attributes:
        signal: Theta(k), shape (rounds,).
        participants: the total of each round (of weights, where clients have them), shape (rounds,).
        capacity: what was needed in each round, shape (rounds,).
        checkpoints: the rounds after which the following were recorded, shape (checkpoints,).
        cost: the total cost of the averages, shape (checkpoints,).
        mean_distance, largest_distance: from the reference averages, shape (checkpoints,).
        histogram: clients by average, shape (checkpoints, bins).
        averages: of the chosen clients, shape (checkpoints, chosen).
        state: the clients' final histories, for going on.
        controller_state: the server's final state.
        problem: what was solved. It is saved where its costs are polynomials.
        keep: what was recorded.
        provenance: version, settings, seed and engine; of a run continued with another mechanism, its `earlier` parts.
        seen: in a run with noise, what the server saw in place of `participants`, shape (rounds,); not a number where
            nothing was opened. Only `server` exports it, and nothing else with it.

    What was not kept is None.

    Example:
        >>> from turnout import Classical, IntegralController, paper_population, simulate
        >>> run = simulate(paper_population().problem(600), Classical(), IntegralController(0.0075, 0.35), rounds=50)
        >>> run.rounds, run.participants[:3].tolist()
        (50, [1200, 31, 0])
    """

    signal: Array
    participants: npt.NDArray[np.int64]
    capacity: Array
    checkpoints: npt.NDArray[np.int64]
    cost: Array | None
    mean_distance: Array | None
    largest_distance: Array | None
    histogram: npt.NDArray[np.int64] | None
    averages: Array | None
    state: ClientState | None
    controller_state: Any
    problem: Problem | None
    keep: Keep
    provenance: dict[str, Any] = field(default_factory=dict)
    seen: Array | None = None

    @property
    def server(self) -> ServerRecord:
        """All that the server saw and sent: this can be shown where the run itself, with the true turnout, cannot."""
        noise = self.provenance.get("noise")
        if self.seen is None and noise:
            raise invalid("seen", "given where the run has noise", None, "a server never saw the exact turnout of it")
        seen = self.participants.astype(np.float64) if self.seen is None else self.seen
        return ServerRecord(self.signal, seen, self.capacity, noise)

    @property
    def controller_numbers(self) -> dict[str, float] | None:
        """The server's final state by name; None if it was not kept."""
        held = self.controller_state  # of a run that was read from a file, by name already
        return held if held is None or isinstance(held, dict) else dict(held._asdict())

    @property
    def rounds(self) -> int:
        """How many rounds were run."""
        return len(self.participants)

    @property
    def average(self) -> Array:
        """The clients' averages at the end, shape (clients,)."""
        if self.state is None:
            raise ValueError(
                "average must be recorded to be read, got keep.state=False: run again with keep.state=True"
            )
        return self.state.average

    @cached_property
    def best(self) -> Optimum | None:
        """The optimum of the members at the end; None where the problem was not kept, or cannot be solved."""
        if self.problem is None:
            return None
        who = np.flatnonzero(self._members)
        weights = None if self.problem.weights is None else self.problem.weights[who]
        try:
            return optimum(Problem(self.problem.costs[who], float(self.capacity[-1]), weights))
        except ValueError:  # too few are left
            return None

    @property
    def gap(self) -> float | None:
        """The final cost above the optimum, as a share of it; None where one of them is not known.

        It is below 0 only where the averages add up to less than the capacity: see `brought`.
        """
        return None if self.cost is None or self.best is None else float(self.cost[-1]) / self.best.cost - 1.0

    @property
    def gap_at_own_turnout(self) -> float | None:
        """The final cost above the least with which averages add up to as much as these; None where it is not known.

        Noise moves the turnout of a run a little, and with it the cost: this part of `gap` says nothing about who
        participates.
        """
        if self.cost is None or self.problem is None or not self.brought:
            return None
        who = np.flatnonzero(self._members)
        weights = None if self.problem.weights is None else self.problem.weights[who]
        return float(self.cost[-1]) / optimum(Problem(self.problem.costs[who], self.brought, weights)).cost - 1.0

    @property
    def brought(self) -> float | None:
        """What the members' final averages add up to (by weight), to compare with the capacity."""
        if self.state is None or self.problem is None:
            return None
        return float(np.sum((self.problem.unit_weights * self.average)[self._members]))

    @property
    def _members(self) -> npt.NDArray[np.bool_]:
        settings = self.provenance.get("schedule")
        schedule = schedule_from_settings(Table(settings, "schedule")) if settings else Schedule()
        return np.not_equal(schedule.status_at(self.rounds - 1, int(self.provenance["clients"])), ABSENT)

    def last(self, rounds: int = 400) -> npt.NDArray[np.int64]:
        """The turnout of the last rounds."""
        return self.participants[-rounds:]

    def last_seen(self, rounds: int = 400) -> Array | None:
        """The sums with noise that were opened in the last rounds; None where there are none."""
        tail = np.empty(0) if self.seen is None else self.seen[-rounds:]
        opened: Array = tail[~np.isnan(tail)]
        return opened if len(opened) else None

    def seen_in_words(self, rounds: int = 400) -> str | None:
        """Mean and spread of the sums with noise that were opened in the last rounds; None where there is no noise."""
        if self.seen is None:
            return None
        tail = self.last_seen(rounds)
        if tail is None:
            return f"no sum in the last {rounds:,} rounds"
        return f"{tail.mean():,.1f} ± {tail.std():,.1f} in {len(tail):,} opened sum{'s' * (len(tail) > 1)}, with noise"

    def __repr__(self) -> str:
        tail = self.last()
        clients = self.provenance.get("clients", "?")
        return (
            f"Trajectory({self.rounds} rounds of {clients} clients, "
            f"turnout {tail.mean():.1f} ± {tail.std():.1f} over the last {len(tail)}, "
            f"signal {self.signal[-1]:.4g}, engine {self.provenance.get('engine_reason', '?')})"
        )

    def _repr_html_(self) -> str:
        tail, given = self.last(), self.provenance
        turnout = f"{tail.mean():.1f} ± {tail.std():.1f} over the last {len(tail)} rounds"
        facts: dict[str, object] = {"rounds": self.rounds, "clients": given.get("clients"), "seed": given.get("seed")}
        if "mechanism" in given:
            facts |= {"mechanism": mechanisms_in_words(given), "privacy": privacy_in_words(given)}
        facts |= {"capacity": float(self.capacity[-1]), "turnout": turnout, "server saw": self.seen_in_words()}
        facts["signal"] = f"{self.signal[-1]:.4g}"
        if self.cost is not None:
            quick = self.problem is not None and len(self.problem) <= _SHOWN_WITH_GAP
            gap = (
                f" ({off(self.gap, self.brought, float(self.capacity[-1]))})" if quick and self.gap is not None else ""
            )
            facts["total cost"] = f"{number(float(self.cost[-1]))}{gap}"
        return card("Trajectory", facts | {"engine": given.get("engine_reason")})

    def columns(self) -> dict[str, npt.NDArray[Any] | None]:
        """What was recorded at checkpoints, by name."""
        return {name: getattr(self, name) for name in _COLUMNS}

    def save(self, path: str | Path) -> None:
        """Write the run to one `.npz` file (arrays, and `provenance.json` inside), whole or not at all.

        Raises:
            FileProblem: the file cannot be written.
        """
        _save(self, path)

    @staticmethod
    def load(path: str | Path) -> Trajectory:
        """Read a run that `save` wrote.

        Raises:
            FileProblem: the file is missing, truncated, or not a saved run.
        """
        return _load(path)

    def to_pandas(self) -> Any:
        """The rounds as a pandas DataFrame: signal, participants, capacity."""
        return _frame({"signal": self.signal, "participants": self.participants, "capacity": self.capacity})

    def to_xarray(self) -> Any:
        """The whole record as an xarray Dataset, provenance as attributes."""
        try:
            import xarray
        except ImportError:
            raise MissingExtra("to_xarray()", library="xarray", extra="lab") from None
        variables: dict[str, Any] = {
            name: ("round", getattr(self, name)) for name in ("signal", "participants", "capacity")
        }
        second = {"histogram": "bin", "averages": "client"}
        for name, values in self.columns().items():
            if values is not None:
                variables[name] = (("checkpoint", second[name]) if name in second else "checkpoint", values)
        coordinates = {"round": np.arange(self.rounds), "checkpoint": self.checkpoints}
        return xarray.Dataset(variables, coordinates, {"provenance": str(self.provenance)})


def _frame(columns: dict[str, Any]) -> Any:
    try:
        import pandas
    except ImportError:
        raise MissingExtra("to_pandas()", library="pandas", extra="lab") from None
    return pandas.DataFrame(columns, index=pandas.RangeIndex(len(columns["signal"]), name="round"))


UNKNOWN = "unknown: not one of turnout's mechanisms"

_PRIVATE_AVERAGE = "the box follows an average that moved by the probability in an earlier part, and is not public"

_DELTA = 1e-6
"""Of the total that a run with noise states."""

_Provenance = Mapping[str, Any]


def mechanisms_in_words(provenance: _Provenance) -> str:
    """The mechanisms of a run, in the order in which they acted.

    Example:
        >>> before = {"rounds": 1000, "mechanism": {"kind": "classical"}}
        >>> mechanisms_in_words({"mechanism": {"kind": "clamp", "epsilon": 1.0}, "earlier": [before]})
        '1,000 rounds of classical, then clamp, epsilon 1 per report'
    """
    words = [f"{part['rounds']:,} rounds of {in_words(part['mechanism'])}" for part in provenance.get("earlier", [])]
    return ", then ".join([*words, in_words(provenance["mechanism"])])


def privacy_in_words(provenance: _Provenance) -> str:
    """What a run promises: the worst of its parts. A mechanism from outside this package promises nothing here.

    With the same noise in all parts, it is the total of the opened sums. With noise in some parts only, it is what
    the mechanisms promise against an observer of every report, which holds in all of them.

    Example:
        >>> privacy_in_words({"mechanism": {"kind": "classical"}})
        'no bound per report: the probability is the intent itself'
    """
    parts, observer = [*provenance.get("earlier", []), provenance], observer_of(provenance)
    if observer.noise is not None:
        if all(part.get("noise") == provenance["noise"] for part in parts):
            try:
                return str(_total_with_noise(parts, observer))
            except ValueError as error:  # bounded noise, for fewer rounds than these
                return f"no total: {error}"
        observer = observer.of_every_report
    promises = [_promise(part, parts[:number], observer) for number, part in enumerate(parts)]
    known = [promise for promise in promises if promise is not None]
    if len(parts) == 1:
        return str(known[0]) if known else UNKNOWN
    worst = worst_of(known, mechanisms_in_words(provenance)) if known else None
    if worst is not None and (len(known) == len(promises) or not worst.is_bounded):
        return str(worst)
    return f"{UNKNOWN} ({mechanisms_in_words(provenance)})"


def observer_of(provenance: _Provenance) -> Observer:
    """The observer of the run: of every report, unless the run has another; with noise, of the opened sums.

    Example:
        >>> print(observer_of({"observer": {"sees": "sum", "honest": 8}}))
        an observer of the sum alone, with 8 honest others
        >>> print(observer_of({"noise": {"sigma": 422.0}, "heaviest": 200}))
        an observer of the sums with noise (sigma 422)
    """
    found = provenance.get("observer", {})
    assuming = tuple(found.get("assuming", ()))
    if provenance.get("noise"):
        noise = noise_from_settings(Table(provenance["noise"], "noise"))
        weights = [provenance["heaviest"]] if "heaviest" in provenance else None
        return Observer(NOISY_SUM, weights=weights, assuming=assuming, noise=noise)
    return Observer(**found | {"assuming": assuming})


def _total_with_noise(parts: Sequence[_Provenance], observer: Observer) -> Account:
    """The total of all opened sums. What a mechanism promises itself counts where it is the only one."""
    known = [_mechanism(part) for part in parts if part["mechanism"]["kind"] in MECHANISMS]
    mechanism = known[0] if len(known) == len(parts) == 1 else Classical()
    averaging = Averaging(**parts[-1].get("averaging", {}))
    found = account_of(mechanism, parts[-1]["rounds"], _DELTA, replace(observer, averaging=averaging))
    if len(parts) > 1 and any(one.needs_population for one in known):
        return replace(found, epsilon=math.inf, how="in one part clients learned from each other's releases")
    if len(known) < len(parts) or not all(MECHANISMS.has_proofs_of(one) for one in known):
        found = found.assuming(OWN_BIT)
    found = found.assuming(UNKNOWN_SEED, FIXED_ROUNDS)
    if observer.weights is None:  # nobody has said how heavy the clients are
        found = replace(found, over=f"{found.over or f'{found.rounds:,} reports'}, for a client of weight 1")
    return found.assuming(*(PUBLIC_DESIGN for one in known if getattr(one, "designed", False)))


def check_parts(parts: Sequence[_Provenance], observer: Observer) -> None:
    """Refuse to continue for an observer against whom an earlier part has no promise.

    Raises:
        ValueError: the reason, and the remedy.
    """
    for part in parts:
        _promise(part, [], observer)


def _promise(part: _Provenance, before: Sequence[_Provenance], observer: Observer) -> Certificate | None:
    """Of one part, after those before it."""
    if part["mechanism"]["kind"] not in MECHANISMS:
        return None
    mechanism = _mechanism(part)
    averaging = Averaging(**part.get("averaging", {}))
    found = certificate(mechanism, replace(observer, averaging=averaging, weights=None))
    if mechanism.needs_public_average and any(_moved_by(one) != "bit" for one in before):
        return replace(found, epsilon=math.inf, why=_PRIVATE_AVERAGE)
    return found


def _mechanism(part: _Provenance) -> Mechanism:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were shown when the run was made
        return mechanism_from_settings(Table(part["mechanism"], "mechanism"))


def _moved_by(part: _Provenance) -> str | None:
    """What averages moved by; None: a file of an earlier version does not say."""
    by: str | None = part.get("averaging", {}).get("by")
    return by


_PROVENANCE = "provenance.json"
"""The part of a saved run that people can read: `unzip -p run.npz provenance.json`."""

_FORMAT = 1


def _save(trajectory: Trajectory, path: str | Path) -> None:
    """Write a run, whole or not at all."""
    path = check_writable(path)
    arrays: dict[str, npt.NDArray[Any]] = {
        "signal": trajectory.signal,
        "participants": trajectory.participants,
        "capacity": trajectory.capacity,
        "checkpoints": trajectory.checkpoints,
    }
    if trajectory.seen is not None:
        arrays["seen"] = trajectory.seen
    arrays |= {name: values for name, values in trajectory.columns().items() if values is not None}
    if trajectory.keep.distance_to is not None:
        arrays["distance_to"] = np.asarray(trajectory.keep.distance_to)
    if trajectory.state is not None:
        arrays["state_participations"] = trajectory.state.participations
        arrays["state_rounds"] = np.asarray(trajectory.state.rounds)
    if trajectory.problem is not None and isinstance(trajectory.problem.costs, PolynomialCosts):
        arrays["coefficients"] = trajectory.problem.costs.coefficients
        arrays["powers"] = np.array(trajectory.problem.costs.powers)
        if trajectory.problem.weights is not None:
            arrays["weights"] = trajectory.problem.weights
    provenance = dict(trajectory.provenance)
    mechanism = provenance.get("mechanism", {})
    for name, value in mechanism.items():  # parameters by client are data, not text
        if isinstance(value, np.ndarray):
            arrays[f"mechanism_{name}"] = value
    text = {
        "format": _FORMAT,
        "keep": trajectory.keep.settings(),
        "problem_capacity": None if trajectory.problem is None else trajectory.problem.capacity,
        "controller_state": trajectory.controller_numbers,
        "provenance": provenance
        | {
            "mechanism": {
                name: "array" if isinstance(value, np.ndarray) else value for name, value in mechanism.items()
            }
        },
    }
    with whole_file(path) as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo(_PROVENANCE), json.dumps(text, indent=1, default=_number))
        for name, values in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(values), allow_pickle=False)


def _number(value: Any) -> Any:
    """A NumPy number (or, of an earlier part, one per client) as JSON takes it."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"{value!r} cannot be saved")


def _load(path: str | Path) -> Trajectory:
    """Read a run that `save` wrote."""
    try:
        if not _is_archive(path):
            raise FileProblem(f"{path}: cannot be read (not a saved run): give a file that simulate wrote")
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            if _PROVENANCE not in archive.files:
                raise FileProblem(f"{path}: not a saved run (no {_PROVENANCE} in it): give a file that simulate wrote")
            text = json.loads(archive[_PROVENANCE])
            arrays = {name: archive[name] for name in archive.files if name != _PROVENANCE}
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        why = "no such file" if isinstance(error, FileNotFoundError) else f"truncated or not a saved run: {error}"
        raise FileProblem(f"{path}: cannot be read ({why}): check the path, or run simulate again") from error
    if not isinstance(text, dict) or text.get("format") != _FORMAT:
        raise FileProblem(f"{path}: of another format than {_FORMAT}: use the version that wrote it")
    try:
        return _assemble(arrays, text)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise FileProblem(f"{path}: damaged inside ({type(error).__name__}: {error}): run simulate again") from error


def _is_archive(path: str | Path) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"PK"


def _check_noise(arrays: dict[str, npt.NDArray[Any]], provenance: _Provenance) -> None:
    """Refuse a file whose parts contradict each other: a total would be of another run than this one."""
    rounds = len(arrays["participants"])
    if provenance.get("rounds", rounds) != rounds:  # what a coordinator exports does not say how many
        raise ValueError(f"{provenance['rounds']} rounds in its settings, and {rounds} in its numbers")
    if not provenance.get("noise"):
        if "seen" in arrays:
            raise ValueError("sums with noise, and no noise in its settings")
        return
    opened = np.isfinite(noise_from_settings(Table(provenance["noise"], "noise")).sigmas(0, rounds))
    if "seen" not in arrays or not np.array_equal(np.isfinite(arrays["seen"]), opened):
        raise ValueError("the sums with noise must be those that its settings open")
    if not provenance["heaviest"] >= np.max(arrays.get("weights", 1)):
        raise ValueError("a client is heavier than the heaviest in its settings")


def _assemble(arrays: dict[str, npt.NDArray[Any]], text: dict[str, Any]) -> Trajectory:
    provenance = text["provenance"]
    for name, value in provenance.get("mechanism", {}).items():
        if value == "array":
            provenance["mechanism"][name] = arrays[f"mechanism_{name}"]
    _check_noise(arrays, provenance)
    problem = None
    if "coefficients" in arrays:
        powers = tuple(int(power) for power in arrays["powers"])
        costs = PolynomialCosts(arrays["coefficients"], powers)
        problem = Problem(costs, text["problem_capacity"], arrays.get("weights"))
    state = None
    if "state_participations" in arrays:
        rounds = arrays["state_rounds"]
        state = ClientState(arrays["state_participations"], float(rounds) if rounds.ndim == 0 else rounds)
    return Trajectory(
        signal=arrays["signal"],
        participants=arrays["participants"],
        seen=arrays.get("seen"),
        capacity=arrays["capacity"],
        checkpoints=arrays["checkpoints"],
        **{name: arrays.get(name) for name in _COLUMNS},
        state=state,
        controller_state=text["controller_state"],
        problem=problem,
        keep=keep_from_settings(Table(text["keep"], "keep"), arrays.get("distance_to")),
        provenance=provenance,
    )
