"""The messages between coordinator and device: small JSON, without anything private and without the turnout.

A device enrols with a one-time code and receives all that is public: prior, mechanism, round, signal. From
then on one request per round, which the coordinator holds until the round is closed: the device's bit goes up,
the acknowledgement and the next signal come down. The file `openapi.json` describes the same for programs.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from turnout.errors import TurnoutError, invalid

VERSION = 1
PREFIX = f"/v{VERSION}"
ENROL, REPORT, ROUND, LEAVE = f"{PREFIX}/enrol", f"{PREFIX}/report", f"{PREFIX}/round", f"{PREFIX}/leave"
RULES = f"{PREFIX}/rules"

LARGEST_BODY = 2048
"""Bytes of a request; a report has about 60."""

LARGEST_REPLY = 64 * 1024
"""Bytes of a reply that a device reads; an enrolment's has under 1,000, or more with a released channel."""

HEAVIEST = 2**40
"""The largest weight of a device: sums of a million of them are still exact."""

RULES_NAME = re.compile(r"([1-9][0-9]{0,8}-[0-9a-f]{8})?")
"""How a version of the rules is called; the first one has no name, and is not mentioned."""

RUN_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
"""A run's name is also a folder's on the device."""

OUTCOMES = ("accepted", "confirmed", "closed", "pending")
"""Of a report: new; the same bit again; too late, the round had closed; not closed yet, send it again."""


class ProtocolProblem(TurnoutError):
    """A message that is not of this protocol, or of another version of it.

    Example:
        >>> issubclass(ProtocolProblem, TurnoutError)
        True
    """


def tag_of(hashed_token: bytes) -> str:
    """A device's tag, from its token's hash, which both sides know. A number would reveal how many enrolled before it.

    Example:
        >>> tag_of(hashlib.sha256(b"a token of 32 random bytes").digest())
        '8978c109'
    """
    return hashed_token.hex()[:8]


def boot_clock() -> float:
    """Seconds on the clock by which leases count: it continues while the machine sleeps, and nobody can set it.

    Example:
        >>> boot_clock() <= boot_clock()
        True
    """
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


@dataclass(frozen=True)
class Offer:
    """A round that is open: the signal that decides it, the rules that it is decided under, and nothing else of it.

    Attributes:
        round: from 0.
        signal: the public number; any float that JSON holds.
        rules: the name of the version of the rules; "": the first. Who has agreed to another asks for it (`Proposal`).
    """

    round: int
    signal: float
    rules: str = ""

    def body(self) -> bytes:
        """As it is sent to every device; a float's repr is the same number again.

        Example:
            >>> Offer(7, 0.1).body()
            b'{"round":7,"signal":0.1}'
            >>> Offer(8, 0.1, "2-7dea7966").body()
            b'{"round":8,"signal":0.1,"rules":"2-7dea7966"}'
        """
        rules = b',"rules":"%s"' % self.rules.encode() if self.rules else b""
        return b'{"round":%d,"signal":%s%s}' % (self.round, repr(float(self.signal)).encode(), rules)

    @classmethod
    def read(cls, value: object) -> Self:
        """From a message.

        Raises:
            ProtocolProblem: it is none.
        """
        found = fields(value, {"round": int, "signal": float}, "offer")
        return cls(_round(found["round"]), found["signal"], rules_name(value, "offer"))


@dataclass(frozen=True)
class Report:
    """A device's bit for a round of a run.

    Attributes:
        run: its name.
        round: the round that was offered.
        participates: the bit, as it is stored on the device.
        reports_left: how many more reports its owner allows, said only once a tenth of them or less is left, so that
            the operator knows; None: not said. It depends on no cost.
        rules: the version of the rules that the device has agreed to; "": the one that it joined under. A device that
            does not know of versions says nothing, and is told to update once another mechanism is in force.
    """

    run: str
    round: int
    participates: bool
    reports_left: int | None = None
    rules: str = ""

    def body(self) -> bytes:
        """As a request's body."""
        return json.dumps(_named({name: value for name, value in vars(self).items() if value is not None})).encode()

    @staticmethod
    def left_of(message: Mapping[str, Any]) -> int | None:
        """`reports_left` of a message that may have it.

        Raises:
            ProtocolProblem: it is no number of reports.
        """
        if "reports_left" not in message:
            return None
        left: int = fields(message, {"reports_left": int}, "report")["reports_left"]
        if not 0 <= left < 2**53:
            raise ProtocolProblem("the report's reports_left must be from 0 to 2^53 - 1: leave it out")
        return left


@dataclass(frozen=True)
class Answer:
    """What became of a report.

    Attributes:
        round: the one reported.
        outcome: one of `OUTCOMES`.
        counted: whether both histories now have the bit as reported; if not, as not participating.
        lease: seconds, from the moment the device *sent* this request, for which a counted participation lasts; so
            a slow network or clock can only shorten it. 0: it must not start, and must end.
        next: the round that is open now; None if there is none yet.
    """

    round: int
    outcome: str
    counted: bool
    lease: float
    next: Offer | None

    @classmethod
    def read(cls, value: object, round: int) -> Self:
        """From a reply to the report of a round.

        Raises:
            ProtocolProblem: it is no answer, or to another report.
        """
        kinds = {"round": int, "outcome": str, "counted": bool, "lease": float, "next": object}
        found = fields(value, kinds, "answer")
        if found["round"] != round:
            raise ProtocolProblem(f"the answer must be to round {round}, got {found['round']!r}: not our coordinator")
        if found["outcome"] not in OUTCOMES:
            allowed, got = ", ".join(OUTCOMES), found["outcome"][:40]
            raise ProtocolProblem(f"the answer's outcome must be one of {allowed}, got {got!r}: {_EVERY_FIELD}")
        lease = found["lease"] if 0.0 < found["lease"] < math.inf else 0.0
        following = None if found["next"] is None else Offer.read(found["next"])
        return cls(round, found["outcome"], found["counted"], lease, following)


@dataclass(frozen=True)
class Welcome:
    """What a device receives once, at enrolling: all public but the token.

    Attributes:
        run: the run's name, for the device's ledger and its folder.
        token: the device's secret; the coordinator keeps its hash only.
        weight: how much it adds to the turnout, set by the operator with the code.
        prior_average, prior_rounds: the public start of its history.
        remember, by: how its history moves, as in `turnout.Averaging`.
        mechanism: the settings of the proposed one; the device makes its own certificate from them.
        offer: the round at which it joins, its signal, and the version of the rules that all of this is from.
        round_seconds: the shortest time from one round to the next, which says how long a number of reports lasts;
            None: an older coordinator, which does not say.
    """

    run: str
    token: str = field(repr=False)
    weight: int
    prior_average: float
    prior_rounds: float
    remember: float | None
    by: str
    mechanism: Mapping[str, Any]
    offer: Offer
    round_seconds: float | None = None

    @property
    def tag(self) -> str:
        """By which people on both sides know the device."""
        return tag_of(hashlib.sha256(self.token.encode()).digest())

    def body(self) -> dict[str, Any]:
        """As a message."""
        body = {"version": VERSION} | asdict(self) | {"offer": _named(asdict(self.offer))}
        return body if self.round_seconds is not None else {k: v for k, v in body.items() if k != "round_seconds"}

    @classmethod
    def read(cls, value: object) -> Self:
        """From a reply.

        Raises:
            ProtocolProblem: it is none, of another version, or holds what no honest coordinator sends.
        """
        kinds = {"run": str, "token": str, "weight": int, "prior_average": float, "prior_rounds": float}
        kinds |= {"remember": object, "by": str, "mechanism": dict, "offer": object, "version": int}
        found = fields(value, kinds, "welcome")
        if (version := found.pop("version")) != VERSION:
            remedy = "use the same turnout on both sides"
            raise ProtocolProblem(f"the welcome's version (of the protocol) must be {VERSION}, got {version}: {remedy}")
        check_run_name(found["run"])
        if not 1 <= found["weight"] <= HEAVIEST:
            told = f"must be from 1 to {HEAVIEST:,}, got {found['weight']}"
            raise ProtocolProblem(f"the welcome's weight {told}: {_EVERY_FIELD}")
        if not re.fullmatch(r"[A-Za-z0-9_-]{20,200}", found["token"]):
            raise ProtocolProblem(f"the welcome's token must be 20 to 200 of A-Z, a-z, 0-9, _ and -: {_EVERY_FIELD}")
        if found["remember"] is not None:
            found["remember"] = fields({"remember": found["remember"]}, {"remember": float}, "welcome")["remember"]
        return cls(**found | {"offer": Offer.read(found["offer"]), "round_seconds": _round_seconds(value)})


@dataclass(frozen=True)
class Proposal:
    """The version of the rules that is in force, as far as it concerns devices: the mechanism.

    Attributes:
        run: the run's name.
        mechanism: the settings of the proposed one.
        offer: the open round, which is decided under it; with the version's name.
        round_seconds: the shortest time from one round to the next; None: it was not said.
    """

    run: str
    mechanism: Mapping[str, Any]
    offer: Offer
    round_seconds: float | None = None

    def body(self) -> dict[str, Any]:
        """As a message."""
        return asdict(self) | {"offer": _named(asdict(self.offer))}

    @classmethod
    def read(cls, value: object) -> Self:
        """From a reply.

        Raises:
            ProtocolProblem: it is none.
        """
        found = fields(value, {"run": str, "mechanism": dict, "offer": object}, "rules")
        return cls(found["run"], found["mechanism"], Offer.read(found["offer"]), _round_seconds(value))


def rules_name(value: object, where: str) -> str:
    """The version of the rules that a message names; "" if it names none.

    Raises:
        ProtocolProblem: it is no such name.
    """
    name = value.get("rules", "") if isinstance(value, Mapping) else ""
    if not isinstance(name, str) or not RULES_NAME.fullmatch(name):
        raise ProtocolProblem(f"the {where}'s rules must be a name such as 2-7dea7966: send it as it was offered")
    return name


def _named(body: dict[str, Any]) -> dict[str, Any]:
    """A message without the name of the first version, which older programs do not know."""
    return {name: value for name, value in body.items() if name != "rules" or value}


def check_run_name(name: str) -> str:
    """The name, if it is one that a run may have.

    Raises:
        ValueError: it is not.

    Example:
        >>> check_run_name("chargers-2026")
        'chargers-2026'
    """
    if not isinstance(name, str) or not RUN_NAME.fullmatch(name):
        raise invalid("run", "1 to 63 of a-z, 0-9 and -", repr(name)[:80], "name it like chargers-2026")
    return name


def _round_seconds(welcome: Any) -> float | None:
    """What a welcome says about the length of rounds; None if it says nothing that makes sense: it is for people."""
    found = welcome.get("round_seconds")
    usable = isinstance(found, (int, float)) and not isinstance(found, bool) and 0.0 <= found < 1e9
    return float(found) if usable else None


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse)  # `json.loads` would make one for each text, which takes longer


def read_json(body: bytes) -> Any:
    """The value of a JSON text in UTF-8; NaN and infinities are none.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return _JSON.decode(body.decode())
    except RecursionError:
        raise ValueError("too deeply nested") from None


_EVERY_FIELD = "a coordinator's /v1/openapi.json has every field of every message"

_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    dict: "an object",
    list: "a list",
    object: "there",
    type(None): "null",
}


def _word(kind: type) -> str:
    """A type as JSON has it: who wrote the other side need not know Python."""
    return _WORDS.get(kind, kind.__name__)


def fields(value: object, kinds: Mapping[str, type], name: str) -> dict[str, Any]:
    """The fields of a message, all of them there and of their type; 3 passes for a float, 3.0 for an int.

    Raises:
        ProtocolProblem: one is missing or of another type. What the message holds beyond is ignored: a newer side.
    """
    if not isinstance(value, Mapping):
        raise ProtocolProblem(f"the {name} must be an object, got {_word(type(value))}: {_EVERY_FIELD}")
    found = {}
    for key, kind in kinds.items():
        got = value.get(key, fields)
        if kind is float and isinstance(got, int) and not isinstance(got, bool):
            got = float(got) if abs(got) < 2**1000 else math.inf
        elif kind is int and isinstance(got, float) and got.is_integer():  # to JSON, 3.0 is the number 3
            got = int(got)
        if got is fields or not isinstance(got, kind) or (kind is int and isinstance(got, bool)):
            what = "nothing" if got is fields else _word(type(got))
            raise ProtocolProblem(f"the {name}'s {key} must be {_word(kind)}, got {what}: {_EVERY_FIELD}")
        found[key] = got
    return found


def _round(round: int) -> int:
    if not 0 <= round < 2**53:
        raise ProtocolProblem(f"a round must be from 0 to 2^53 - 1, got {round}: not our coordinator")
    return round
