"""The messages between server and client: one small record each way, without anything private.

The question travels as a *train* message without a model, because the mod sits on the train function: an app needs
no second registration. The training message carries the same record beside the model, so a client that said no
never trains, whatever the server sends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from flwr.app import ConfigRecord, Error, Message, RecordDict

from turnout.algorithm import Mechanism, check_known, mechanism_from_settings
from turnout.errors import invalid
from turnout.settings import Table

RECORD = "turnout"
"""The name of the record, in questions, answers and a client's local state."""

QUESTION = "question"
VERSION = 1

ABSTAINED, REFUSED, STOPPED, LOST, INELIGIBLE = 7301, 7302, 7303, 7304, 7305
"""Our own error codes; Flower's are below 100."""

APP_RAISED, UNAVAILABLE = 2, 5
"""Two of Flower's own."""

REASONS = {
    ABSTAINED: "abstained",
    REFUSED: "refused",
    STOPPED: "its budget of reports is spent",
    LOST: "no report for this round",
    INELIGIBLE: "it cannot train now",
}

_TYPES = {
    "version": int,
    "phase": str,
    "round": int,
    "signal": float,
    "mechanism": str,
    "prior_average": float,
    "prior_rounds": float,
    "not_counted": list,
}


@dataclass(frozen=True)
class Question:
    """What the server tells every node in a round: all of it public.

    Attributes:
        phase: "ask" (will you participate?) or "train" (if you said yes).
        round: the server's round, from 1.
        signal: the one number.
        mechanism: its settings, as JSON; the client makes its own certificate from them.
        prior_average: the public average that a history starts from.
        prior_rounds: how many rounds it is worth.
        not_counted: earlier rounds of this node whose report never arrived.
        version: of this protocol.
    """

    phase: str
    round: int
    signal: float
    mechanism: str
    prior_average: float
    prior_rounds: float
    not_counted: tuple[int, ...] = ()
    version: int = VERSION

    def record(self) -> ConfigRecord:
        """As a record of a message: one line of JSON, in which a float is the same number again."""
        return ConfigRecord({QUESTION: json.dumps(vars(self))})

    def not_counting(self, rounds: Iterable[int]) -> Question:
        """The same for a node whose answers in these rounds were lost."""
        return replace(self, not_counted=tuple(rounds))

    @classmethod
    def read(cls, record: object) -> Self:
        """The question in a record.

        Raises:
            ValueError: it is none, or of another version.
        """
        text = record.get(QUESTION) if isinstance(record, ConfigRecord) else None
        if not isinstance(text, str):
            raise invalid("question", "a line of JSON", type(text).__name__, "update turnout on both sides")
        values = json.loads(text)
        if not isinstance(values, dict) or {name: type(value) for name, value in values.items()} != _TYPES:
            raise invalid("question", f"with {', '.join(_TYPES)}, each of its type", text[:200], "update both sides")
        if values["version"] != VERSION or values["phase"] not in ("ask", "train"):
            got = f"version {values['version']}, phase {values['phase']!r}"
            raise invalid("question", f"of version {VERSION}", got, "use the same turnout on server and clients")
        return cls(**values | {"not_counted": tuple(values["not_counted"])})


def answer(question: Message, round: int, participates: bool) -> Message:
    """The client's answer: the round and the bit, nothing else."""
    record = ConfigRecord({"round": round, "participates": participates})
    return Message(RecordDict({RECORD: record}), reply_to=question)


def no_answer(question: Message, code: int, reason: str | None = None) -> Message:
    """An error reply with one of our codes; the reason must hold nothing private."""
    return Message(Error(code, reason or REASONS[code]), reply_to=question)


def app_raised(message: Message, error: Exception) -> Message:
    """The reply that Flower makes of an exception in a ClientApp."""
    return Message(Error(APP_RAISED, f"{type(error)}:<'{error}'>"), reply_to=message)


def read_answer(message: Message, round: int) -> bool:
    """The bit in a client's answer.

    Raises:
        ValueError: the answer is not of the one form allowed: a fault of that client.
    """
    content = message.content
    record = content.get(RECORD)
    if set(content) != {RECORD} or not isinstance(record, ConfigRecord):
        raise ValueError(f"its answer must be the one record {RECORD!r}, got {sorted(content)}")
    if set(record) != {"round", "participates"}:
        raise ValueError(f"its answer must hold round and participates, got {sorted(record)}")
    bit, when = record["participates"], record["round"]
    if type(bit) is not bool or type(when) is not int or when != round:
        raise ValueError(f"its answer must be true or false for round {round}, got {bit!r} for round {when!r}")
    return bit


def mechanism_text(mechanism: Mechanism) -> str:
    """A mechanism as JSON, the same for all clients.

    Raises:
        ValueError: a parameter differs by client.

    Example:
        >>> from turnout.algorithm import Clamp
        >>> mechanism_text(Clamp(epsilon=1.0, center=0.3))
        '{"kind": "clamp", "epsilon": 1.0, "center": 0.3}'
    """
    check_known(mechanism)
    settings = mechanism.settings()
    for name, value in settings.items():
        if isinstance(value, np.ndarray):
            remedy = "in Flower every client has the same mechanism: give one number"
            raise invalid(f"{mechanism.kind} {name}", "one number for all clients", f"{value.size} numbers", remedy)
    return json.dumps(settings)


def mechanism_from_text(text: str) -> Mechanism:
    """The mechanism that `mechanism_text` described.

    Raises:
        ValueError: no mechanism of this package.

    Example:
        >>> mechanism_from_text('{"kind": "clamp", "epsilon": 1.0, "center": 0.3}')
        Clamp(epsilon=1.0, center=0.3)
    """
    settings = json.loads(text)
    if not isinstance(settings, dict):
        raise invalid("mechanism", "a table with its kind and parameters", repr(settings), "send its settings")
    return mechanism_from_settings(Table(settings, "mechanism"))
