"""What the operator has fixed for a run: the algorithm's public settings, and the limits that keep it safe.

A part of it may change while the run lives, by a new version of the rules, from a stated round on.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from turnout.algorithm import (
    QUORUM,
    Averaging,
    Controller,
    IntegralController,
    Mechanism,
    Prior,
    SelfTuningController,
    check_known,
    controller_from_settings,
    mechanism_from_settings,
)
from turnout.errors import invalid
from turnout.privacy import ABSENT, EVERY_REPORT, LAST, Observer
from turnout.settings import Table

NO_LIMIT = "none"
"""Instead of a hard limit: there is none, on purpose."""

WORTH_OF_CLIMBING = 100
"""The default bound: so many rounds without participants lift an integral controller's signal to it."""


@dataclass(frozen=True)
class Safety:
    """The limits that hold whatever fails.

    Args:
        missing: "absent" or "last"; there is no safe default: where participating uses power, a device that is gone
            is best counted as absent; where participating saves power (curtailment), as in its last report.
        hard_limit: the largest turnout that is acknowledged in a round, in units of weight; None: no limit.
        quorum: the share of devices that must report, or else the signal does not follow the turnout.
        most_signal: its upper bound; None: chosen from the controller.

    Example:
        >>> Safety(missing="absent", hard_limit=700)
        Safety(missing='absent', hard_limit=700, quorum=0.5, most_signal=None)
    """

    missing: str
    hard_limit: float | None = None
    quorum: float = QUORUM
    most_signal: float | None = None

    def __post_init__(self) -> None:
        if self.missing not in (ABSENT, LAST):
            got = repr(self.missing) if self.missing else "nothing"
            remedy = "absent if taking part uses something scarce (a silent device then counts as not taking part), "
            remedy += "last if it saves it (a silent device counts as it last was)"
            raise invalid("--missing (safety.missing in a file)", "absent or last", got, remedy)
        if self.hard_limit is not None and not 0.0 <= self.hard_limit < math.inf:
            raise invalid("hard_limit", "0 or more", self.hard_limit, "give the most that may take part at once")
        if not 0.0 <= self.quorum <= 1.0:
            raise invalid("quorum", "from 0 to 1", self.quorum, "give the share of devices, such as 0.5")
        if self.most_signal is not None and not 0.0 < self.most_signal < math.inf:
            raise invalid("most_signal", "above 0 and finite", self.most_signal, "try ten times the usual signal")


@dataclass(frozen=True)
class Timing:
    """When rounds close and how long a participation lasts, in seconds.

    Args:
        round: the shortest time from one round's close to the next, however early all have reported.
        deadline: the longest; at least `round`. By default three halves of it, and 5 seconds at least.
        lease: how long a participation lasts that is not renewed. By default the deadline, so that work continues
            from round to round. At most `round`: work of two rounds never overlaps, not even of a device whose
            answer got lost.
        hold: the longest that one request is kept waiting.

    Example:
        >>> Timing(round=60).deadline, Timing(round=60).lease
        (90.0, 90.0)
    """

    round: float = 10.0
    deadline: float = 0.0
    lease: float = 0.0
    hold: float = 30.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.round < math.inf:
            raise invalid("round", "0 seconds or more", self.round, "try 10")
        if not self.deadline:
            object.__setattr__(self, "deadline", max(5.0, 1.5 * self.round))
        if not max(self.round, 0.01) <= self.deadline < math.inf:
            raise invalid("deadline", f"at least the round's {self.round} s", self.deadline, "leave it out")
        if not self.lease:
            object.__setattr__(self, "lease", self.deadline)
        if not 0.0 < self.lease < math.inf:
            raise invalid("lease", "above 0 seconds", self.lease, "leave it out")
        if not 0.1 <= self.hold <= 3600.0:
            raise invalid("hold", "from 0.1 to 3600 seconds", self.hold, "try 30, less than the timeout of any proxy")


@dataclass(frozen=True)
class Rules:
    """What holds in every round until a new version of the rules (`RulesVersion`); capacity and mode are no rules.

    Args:
        mechanism: proposed to the devices.
        controller: how the signal moves.
        prior: the public start of every history. It is sent to devices: capacity / devices would tell them that ratio.
        averaging: how histories move.
        safety: the limits.
        timing: the seconds.
        wait_for: no round closes before this number of devices has enrolled.
        delta: the slack of the total that is shown (see `Account`).
        observer: against whom devices have a promise: "every-report" (the coordinator), or also "sum" (other
            devices, and whoever collects signals). What would make a promise against the sum false is then refused.
            The coordinator always sees every report: the account that is shown is against it.
        assuming: further assumptions, each a clause; `turnout plan` writes how its settings were made.

    Example:
        >>> from turnout.algorithm import Clamp
        >>> rules = Rules(Clamp(1.0), SelfTuningController(), safety=Safety("absent"))
        >>> rules_from_settings(Table(rules.settings())) == rules
        True
    """

    mechanism: Mechanism
    controller: Controller
    safety: Safety
    prior: Prior = field(default_factory=lambda: Prior(0.5, 10))
    averaging: Averaging = field(default_factory=Averaging)
    timing: Timing = field(default_factory=Timing)
    wait_for: int = 1
    delta: float = 1e-6
    observer: str = EVERY_REPORT
    assuming: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.mechanism.needs_population:
            remedy = "give memoized with its price and levels: `turnout plan` finds them"
            raise invalid("mechanism", "one that a device can use by itself", self.mechanism.kind, remedy)
        check_known(self.mechanism)
        for observer in self.observers:
            observer.check(self.mechanism)
        for name, value in self.mechanism.settings().items():
            if np.ndim(value) and not self.mechanism.releases_once:  # its levels are one public list for all
                allowed = "one number for the whole fleet"
                raise invalid(f"mechanism.{name}", allowed, f"a list of {np.size(value)}", "give the smallest of them")
        if self.wait_for < 0:
            raise invalid("wait_for", "0 or more devices", self.wait_for, "try 1")

    def __repr__(self) -> str:
        seconds = f"a round in {self.timing.round:g} to {self.timing.deadline:g} s"
        return f"Rules({self.mechanism}, {self.controller}, missing={self.safety.missing!r}, {seconds})"

    @property
    def observers(self) -> list[Observer]:
        """Who sees what: the coordinator every report; where it is counted on, other devices no more than the sum."""
        coordinator = Observer(averaging=self.averaging, missing=self.safety.missing, assuming=self.assuming)
        if self.observer == EVERY_REPORT:
            return [coordinator]
        return [
            coordinator,
            replace(coordinator, sees=self.observer, honest=0),
        ]  # the number of honest others is unknown

    def most_signal(self, capacity: float) -> float:
        """The upper bound of the signal: the operator's, or one that an outage reaches late and leaves soon."""
        if self.safety.most_signal is not None:
            return self.safety.most_signal
        if isinstance(self.controller, IntegralController):
            return self.controller.initial + WORTH_OF_CLIMBING * self.controller.gain * capacity
        return 1e6 * float(self.controller.start().signal)

    def settings(self) -> dict[str, Any]:
        """Everything that makes these rules again, as JSON holds it."""
        return {
            "mechanism": self.mechanism.settings(),
            "controller": self.controller.settings(),
            "start": asdict(self.prior),
            "averaging": _given(asdict(self.averaging)),
            "safety": _given(asdict(self.safety)),
            "timing": asdict(self.timing),
            "wait_for": self.wait_for,
            "delta": self.delta,
            **({} if self.observer == EVERY_REPORT else {"observer": self.observer}),
            **({"assuming": list(self.assuming)} if self.assuming else {}),
        }


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def rules_from_settings(table: Table) -> Rules:
    """Rules from a table, such as a file of `turnout plan -o`.

    Everything but `safety.missing` has a default (a new run of `turnout serve` also asks for `safety.hard_limit`: a
    number, or "none")::

        [mechanism]                 # clamp with 1.0 per report
        [controller]                # self-tuning
        [start]
        [averaging]
        [safety]
        missing = "absent"
        hard_limit = 700
        [timing]
        round = 10

    `observer = "sum"` before all tables asks for a promise against other devices, too: see `Rules`.

    Example:
        >>> rules_from_settings(Table({"safety": {"missing": "absent"}})).timing.deadline
        15.0
    """
    table.ignore(
        "capacity", "population", "rounds", "seed", "engine", "keep", "schedule", "honest", "devices", "weight"
    )
    safety, timing = table.table("safety", {}), table.table("timing", {})
    start, averaging = table.table("start", {}), table.table("averaging", {})
    mechanism = mechanism_from_settings(table.table("mechanism", {"kind": "clamp", "epsilon": 1.0}))
    controller = _controller(table.table("controller", {}))
    limits = (
        safety.text("missing", ""),
        _hard_limit(safety),
        safety.number("quorum", QUORUM),
        safety.number("most_signal", None),
    )
    seconds = (
        timing.number("round", 10.0),
        _seconds(timing, "deadline"),
        _seconds(timing, "lease"),
        timing.number("hold", 30.0),
    )
    prior = (start.number("average", 0.5), start.number("rounds", 10))
    history = (averaging.number("remember", None), averaging.text("by", "bit"))
    wait_for, delta = table.whole("wait_for", 1), table.number("delta", 1e-6)
    observer, assuming = table.text("observer", EVERY_REPORT), table.texts("assuming")
    for part in (table, safety, timing, start, averaging):  # a misspelt key is reported before a missing one
        part.finish()
    fixed = (Safety(*limits), Prior(*prior), Averaging(*history), Timing(*seconds))
    return Rules(mechanism, controller, *fixed, wait_for, delta, observer, assuming)


def _hard_limit(safety: Table) -> float | None:
    """As given; the word "none" says that there is none on purpose, which a new run of `turnout serve` asks for."""
    if safety.take("hard_limit", (int, float, str), "a number, or none", None) in (None, NO_LIMIT):
        return None
    return safety.number("hard_limit")


def _seconds(timing: Table, name: str) -> float:
    """As given; 0, which stands for the default, if it is missing. An explicit 0 is refused."""
    value: float | None = timing.number(name, None)
    if value is not None and not value > 0.0:
        raise invalid(f"timing.{name}", "above 0 seconds", value, "leave it out, and it follows from the round")
    return value or 0.0


def _controller(table: Table) -> Controller:
    """Self-tuning, unless a kind or a gain says otherwise."""
    if "kind" in table or "gain" in table:
        return controller_from_settings(table)
    controller = SelfTuningController(table.number("initial", 1.0))
    table.finish()
    return controller


FIXED = {
    "start": "every device's history has begun with it",
    "averaging": "the histories on both sides have moved by it",
    "controller": "its state, with the signal, cannot be carried over to another one",
    "safety.missing": "the signal, and the account of the run, are built on what silence has counted as",
    "delta": "every total that was shown was at this delta",
    "observer": "it is a promise that devices were told when they joined",
    "assuming": "it is a promise that devices were told when they joined",
}
"""What no version of the rules can change, and why."""

CHANGEABLE = (
    "the mechanism, safety.hard_limit, quorum and most_signal, timing.round, deadline, lease and hold, "
    "and wait_for until the first round closes"
)


@dataclass(frozen=True)
class RulesVersion:
    """The rules of a run from a round on, until the next version; what is stored never changes.

    Attributes:
        number: 1 when the run begins, then 2, 3, …
        since: the first round that is decided under it. It is later than the round that was open when it was made.
        settings: as `Rules.settings` gives them.
        at: when it was made; the wall clock, seconds since 1970.
        who: made it.

    Example:
        >>> RulesVersion(2, 40, {"mechanism": {"kind": "clamp", "epsilon": 1.0}}, 0.0, "me").name
        '2-7dea7966'
    """

    number: int
    since: int
    settings: Mapping[str, Any]
    at: float
    who: str

    @cached_property
    def rules(self) -> Rules:
        """The rules themselves."""
        return rules_from_settings(Table(dict(self.settings)))

    @cached_property
    def mechanism(self) -> str:
        """The mechanism's settings as one text, in whatever form an older release has stored them."""
        return json.dumps(self.rules.mechanism.settings(), sort_keys=True)

    @cached_property
    def name(self) -> str:
        """What devices know it by: the number, and a part of the hash of all that they are told, the mechanism. After a
        restore another version may get the same number, and devices must notice. The first one has no name: "".
        """
        if self.number == 1:
            return ""
        told = json.dumps(self.settings["mechanism"], sort_keys=True)
        return f"{self.number}-{hashlib.sha256(told.encode()).hexdigest()[:8]}"


class RulesVersions(Sequence[RulesVersion]):
    """All versions of a run's rules, the oldest first.

    Args:
        versions: the first one holds from round 0 on.

    Example:
        >>> first, second = (RulesVersion(1, 0, {}, 0.0, ""), RulesVersion(2, 40, {}, 0.0, "me"))
        >>> versions = RulesVersions([first, second])
        >>> versions.at(39).number, versions.at(40).number
        (1, 2)
    """

    def __init__(self, versions: Sequence[RulesVersion]) -> None:
        self._versions = list(versions)

    def __getitem__(self, index: Any) -> Any:
        return self._versions[index]

    def __len__(self) -> int:
        return len(self._versions)

    def at(self, round: int) -> RulesVersion:
        """The version that a round is decided and closed under."""
        return next(version for version in reversed(self._versions) if version.since <= round)

    def in_force(self, round: float) -> list[RulesVersion]:
        """Those that are in force up to a round, without those that a later one replaced before they began.

        Example:
            >>> made = [RulesVersion(number, since, {}, 0.0, "") for number, since in ((1, 0), (2, 900), (3, 40))]
            >>> [version.number for version in RulesVersions(made).in_force(1000)]
            [1, 3]
        """
        found, earliest = [], math.inf
        for version in reversed(self._versions):
            if version.since < earliest:
                found.append(version)
                earliest = version.since
        return [version for version in reversed(found) if version.since <= round]

    def same_mechanism(self, one: int, other: int) -> bool:
        """Whether two rounds have the same mechanism."""
        first, second = self.at(one), self.at(other)
        return first is second or first.mechanism == second.mechanism


def settings_over(has: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run with those that are given in their place; a table of another kind as a whole."""
    found = dict(has)
    for name, value in given.items():
        known = has.get(name)
        same = isinstance(value, dict) and isinstance(known, dict) and value.get("kind") in (None, known.get("kind"))
        found[name] = {**known, **value} if same else value  # type: ignore[dict-item]
    return found


def differences(has: Mapping[str, Any], given: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(name, the one, the other) of every setting that differs; None: there is none.

    Example:
        >>> list(differences({"timing": {"round": 10.0}}, {"timing": {"round": 30.0}, "delta": 0.1}))
        [('delta', None, 0.1), ('timing.round', 10.0, 30.0)]
    """
    for name in sorted({*has, *given}):
        one, other = has.get(name), given.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from differences(one, other, f"{path}{name}.")
        elif one != other:
            yield f"{path}{name}", one, other


def in_words(value: object) -> str:
    """The value of a setting, as messages have it.

    Example:
        >>> in_words(None), in_words("absent"), in_words(8.0)
        ('not set', "'absent'", '8.0')
    """
    return "not set" if value is None else repr(value)


def changed_settings(has: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the next version of the rules. A time that was not chosen, but followed from the round's, does so
    again.

    Args:
        has: the settings of the newest version.
        given: what is to differ, as in a settings file; "none" takes a limit away.

    Raises:
        ValueError: something in it cannot change, or is out of range.

    Example:
        >>> has = rules_from_settings(Table({"safety": {"missing": "absent"}})).settings()
        >>> changed_settings(has, {"timing": {"round": 30}})["timing"]["deadline"]
        45.0
    """
    has = _plain(rules_from_settings(Table(dict(has))))  # as this release writes them
    merged = settings_over(has, given)
    if isinstance(merged["controller"], dict) and "initial" in has["controller"]:
        merged["controller"]["initial"] = has["controller"]["initial"]  # the first signal: of no use in a living run
    for name in ("safety", "timing", "mechanism"):
        if not isinstance(merged[name], dict):
            raise invalid(name, "a table", repr(merged[name]), f"write --set {name}.… = …")
    merged["timing"] = _followed(Timing(**has["timing"]), merged["timing"], given.get("timing", {}))
    found = _plain(rules_from_settings(Table(merged)))
    for path, one, other in differences(has, found):
        why = FIXED.get(path) or FIXED.get(path.partition(".")[0])
        if why is not None:
            remedy = f"{why}: begin another run for it. What may change: {CHANGEABLE}"
            raise invalid(path, f"{in_words(one)}, as the run began with it", in_words(other), remedy)
    return found


def _plain(rules: Rules) -> dict[str, Any]:
    """The settings as JSON holds them."""
    found: dict[str, Any] = json.loads(json.dumps(rules.settings()))
    return found


def _followed(has: Timing, merged: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(merged)
    if "deadline" not in given and has.deadline == Timing(round=has.round).deadline:
        del found["deadline"]
    if "lease" not in given and has.lease == has.deadline:
        del found["lease"]
    return found
