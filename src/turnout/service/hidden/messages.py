"""What the two aggregators say to each other, and a device to each: values with one form in bytes.

The leader asks and the helper answers. A conversation begins with `Hello` and has a tag: a number that the leader has
drawn for it and one that the helper has drawn. Either forgets its number when it stops. So no message from before a
restart or a restore is heard after it, however late it arrives.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, get_type_hints

from turnout.errors import TurnoutError
from turnout.service import ProtocolProblem
from turnout.service.hidden.rules import canonical


class PeerProblem(TurnoutError):
    """An aggregator says what no honest one says: nothing was written.

    Example:
        >>> issubclass(PeerProblem, TurnoutError)
        True
    """


@dataclass(frozen=True)
class Message:
    """What all messages have: one form in bytes, which says their kind."""

    kind: ClassVar[str]

    def body(self) -> bytes:
        """The message in bytes.

        Example:
            >>> Fetch(("a", "b"), 3).body()
            b'{"kind":"fetch","round":3,"tag":["a","b"]}'
        """
        return canonical({"kind": self.kind} | {one.name: _written(getattr(self, one.name)) for one in fields(self)})


@dataclass(frozen=True)
class DeviceReport(Message):
    """A device's report to one aggregator: its share alone, and the nonce that both get.

    Attributes:
        run, round: what it is for.
        nonce: the report's.
        share: of this aggregator.
    """

    kind = "report"
    run: str
    round: int
    nonce: bytes
    share: bytes = field(repr=False)


@dataclass(frozen=True)
class Opening:
    """An aggregator's noisy share of a sum, and what its commitment was made with.

    Attributes:
        share: of the sum, with all of this aggregator's noise.
        salt: only the aggregator that made it could have known it.
    """

    share: int
    salt: str


@dataclass(frozen=True)
class Closed:
    """A closed round, for the other aggregator.

    Attributes:
        record: its bytes.
        set: packed, who reported and who counts; empty where nothing was agreed.
        openings: the leader's and the helper's; none where nothing was opened.
    """

    record: bytes
    set: bytes = b""
    openings: tuple[Opening, ...] = ()


@dataclass(frozen=True)
class Hello(Message):
    """The leader begins a conversation.

    Attributes:
        tag: the leader's number.
        rules: the digest of the rules.
        key: the leader's part of the verify key.
        round: the open one.
        seen: the helper's commitment that the leader holds for it; "": none.
    """

    kind = "hello"
    tag: str
    rules: str
    key: bytes = field(repr=False)
    round: int
    seen: str


@dataclass(frozen=True)
class Standing(Message):
    """Where the helper stands.

    Attributes:
        tag: of the conversation.
        key: the helper's part of the verify key.
        round: the open one.
        before: the hash of the record before it.
        seen: the leader's commitment that the helper holds for the open round; "": none.
        void: why the open round must be void; "": it need not.
    """

    kind = "standing"
    tag: tuple[str, str]
    key: bytes = field(repr=False)
    round: int
    before: str
    seen: str
    void: str


@dataclass(frozen=True)
class Again(Message):
    """The helper does not know the conversation: begin another."""

    kind = "again"


@dataclass(frozen=True)
class Fetch(Message):
    """The leader asks for the records from a round on."""

    kind = "fetch"
    tag: tuple[str, str]
    round: int


@dataclass(frozen=True)
class Records(Message):
    """Closed rounds, one after the other."""

    kind = "records"
    tag: tuple[str, str]
    closed: tuple[Closed, ...]


@dataclass(frozen=True)
class Void(Message):
    """The leader asks that the open round be void. It opens it no more in this conversation."""

    kind = "void"
    tag: tuple[str, str]
    round: int
    why: str


@dataclass(frozen=True)
class Close(Message):
    """The leader closes the open round.

    Attributes:
        tag: of the conversation.
        round: the open one.
        roll: the digest of the members.
        slots: of the reports that it holds.
        nonces, verifiers: of each of them.
    """

    kind = "close"
    tag: tuple[str, str]
    round: int
    roll: str
    slots: tuple[int, ...]
    nonces: tuple[bytes, ...] = field(repr=False)
    verifiers: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True)
class Chosen(Message):
    """The helper has chosen the set, and made its share.

    Attributes:
        tag: of the conversation.
        round: the open one.
        set: whose reports both have and verify, who of them counts, and a digest of the members and these reports.
        commitment: to the helper's share.
    """

    kind = "chosen"
    tag: tuple[str, str]
    round: int
    set: bytes
    commitment: str

    def __post_init__(self) -> None:
        _check_commitment(self.commitment)


@dataclass(frozen=True)
class Commit(Message):
    """The leader has made its share of the same set."""

    kind = "commit"
    tag: tuple[str, str]
    round: int
    commitment: str

    def __post_init__(self) -> None:
        _check_commitment(self.commitment)


@dataclass(frozen=True)
class Opened(Message):
    """The helper opens its share; the leader's comes with the record."""

    kind = "opened"
    tag: tuple[str, str]
    round: int
    opening: Opening


def read(body: bytes, *kinds: type[Message]) -> Any:
    """A message of one of these kinds, from its bytes.

    Raises:
        ProtocolProblem: it is none, or not in the one form.

    Example:
        >>> read(b'{"kind":"again"}', Again)
        Again()
        >>> read(b'{"kind": "again"}', Again)
        Traceback (most recent call last):
        ...
        turnout.service.protocol.ProtocolProblem: a message must be in the form of again: not our peer
    """
    try:
        values = json.loads(body)
        name = values.pop("kind")
        kind = next(one for one in kinds if one.kind == name)
        found = _read(values, kind)
        if found.body() == body:
            return found
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration, RecursionError):
        pass
    known = ", ".join(kind.kind for kind in kinds)
    raise ProtocolProblem(f"a message must be in the form of {known}: not our peer") from None


def _check_commitment(value: str) -> None:
    if not re.fullmatch("[0-9a-f]{64}", value):
        raise ValueError("a commitment has 64 hexadecimal digits")


def _written(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return [_written(one) for one in value]
    if isinstance(value, (Opening, Closed)):
        return {one.name: _written(getattr(value, one.name)) for one in fields(value)}
    return value


def _read(value: Any, kind: Any) -> Any:
    """A value of the type that a field has; canonical bytes are compared afterwards."""
    if kind is bytes:
        return bytes.fromhex(value)
    parts = getattr(kind, "__args__", None)
    if parts is not None:  # a tuple: of any length, or a tag
        if parts[-1] is Ellipsis:
            return tuple(_read(one, parts[0]) for one in value)
        return tuple(_read(one, part) for one, part in zip(value, parts, strict=True))
    if hasattr(kind, "__dataclass_fields__"):
        hints = get_type_hints(kind)
        if set(value) != {one.name for one in fields(kind)}:
            raise ValueError("other fields")
        return kind(**{one.name: _read(value[one.name], hints[one.name]) for one in fields(kind)})
    if type(value) is not kind:
        raise TypeError("another type")
    return value
