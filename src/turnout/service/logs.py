"""Structured logs: one event per line, as JSON or readable on a terminal, and nothing secret in either.

    log = Log("coordinator")
    log.info("round closed", round=17, participants=402, seconds=9.98)

Nobody should ever pass a token, an enrolment code or a cost. Should it happen nevertheless, or hide in a library's
message or a traceback, the line says "[withheld]" there.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TextIO

from turnout.errors import invalid

FORMATS = ("auto", "json", "human")
WITHHELD = "[withheld]"

SECRET_NAMES = frozenset(
    {
        *("token", "code", "nonce", "password", "secret", "authorization", "cookie", "key", "ledger", "lemma"),
        *("cost", "slope", "intent", "coin", "probability", "average", "participates", "bit"),
    }
)
"""Fields that no log has: what admits somebody, and what is a device's own."""

_SECRET_TEXT = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[^\s\"',;]+"), rf"\1 {WITHHELD}"),
    (re.compile(r"(://[^\s/@:]*):[^\s/@]+@"), rf"\1:{WITHHELD}@"),
    (
        re.compile(
            r"(?i)([\"']?\b(?:token|code|nonce|password|secret|cost)s?[\"']?\s*[:=]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;}]+)"
        ),
        rf"\1{WITHHELD}",
    ),
    (re.compile(r"(?i)\b[a-z0-9]{4}(?:-[a-z0-9]{4}){4,}\b"), WITHHELD),  # an enrolment code
    # A random word: long, with capitals, small letters and digits all in it. Names of runs and classes are not.
    (re.compile(r"\b(?=[\w-]*[A-Z])(?=[\w-]*[a-z])(?=[\w-]*\d)[A-Za-z0-9_-]{20,}"), WITHHELD),
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Log:
    """Writes events with their fields to the standard `logging`, under the name `turnout.<part>`.

    Args:
        part: of the program, such as "coordinator".

    Example:
        >>> Log("coordinator").debug("round closed", round=17)
    """

    def __init__(self, part: str) -> None:
        self._logger = logging.getLogger(f"turnout.{part}")

    def debug(self, event: str, **named: Any) -> None:
        """For whoever looks for an error."""
        self._write(logging.DEBUG, event, named)

    def info(self, event: str, **named: Any) -> None:
        """What goes as it should."""
        self._write(logging.INFO, event, named)

    def warning(self, event: str, **named: Any) -> None:
        """What an operator should look at."""
        self._write(logging.WARNING, event, named)

    def error(self, event: str, *, trace: BaseException | bool = False, **named: Any) -> None:
        """What has failed; `trace` adds the exception at hand, or the one given."""
        self._write(logging.ERROR, event, named, trace)

    def _write(self, level: int, event: str, named: dict[str, Any], trace: BaseException | bool = False) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", event, exc_info=trace or None, extra={"turnout_fields": named})


def start_logging(format: str = "auto", level: str = "info", stream: TextIO | None = None) -> None:
    """Send all logs of this process, the libraries' too, to one stream; what another call set up is replaced.

    Args:
        format: "json", "human", or "auto": human on a terminal.
        level: "debug", "info", "warning" or "error".
        stream: standard error by default.

    Raises:
        ValueError: there is no such format or level.
    """
    if format not in FORMATS:
        raise invalid("format", f"one of {FORMATS}", repr(format), "try auto")
    if level not in ("debug", "info", "warning", "error"):
        raise invalid("level", "debug, info, warning or error", repr(level), "try info")
    stream = stream or sys.stderr
    terminal = stream.isatty()
    human = format == "human" or (format == "auto" and terminal)
    handler = _Handler(stream)
    handler.setFormatter(_HumanLines(terminal and not os.environ.get("NO_COLOR")) if human else JsonLines())
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())


class _Handler(logging.StreamHandler[TextIO]):
    """A handler of turnout, as distinct from others."""


class JsonLines(logging.Formatter):
    """`{"time": ..., "level": ..., "event": ..., "part": ..., fields...}`, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line = {
            "time": _time(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": without_secrets(record.getMessage()),
            "part": record.name.removeprefix("turnout."),
        }
        for name, value in _fields(record).items():
            line[f"{name}_" if name in line else name] = value
        if record.exc_info:
            line["trace"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(line, default=str)


def json_line(part: str, event: str) -> str:
    """What a program prints beside its log, as a line of it.

    Example:
        >>> json.loads(json_line("serve", "run test, stored in turnout.db"))["event"]
        'run test, stored in turnout.db'
    """
    known = {"name": f"turnout.{part}", "levelname": "INFO", "msg": "%s", "args": (event,)}
    return JsonLines().format(logging.makeLogRecord(known))


class _HumanLines(logging.Formatter):
    """`14:05:59 warning  devices are late  late=17`, with what could steer a terminal made visible.

    Args:
        colour: mark warnings and errors.
    """

    def __init__(self, colour: bool = False) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback if there is one."""
        level = record.levelname.lower()
        if self._colour and record.levelno >= logging.WARNING:
            level = f"\x1b[{31 if record.levelno >= logging.ERROR else 33}m{level:<8}\x1b[0m"
        named = "".join(f"  {name}={_plain(value)}" for name, value in _fields(record).items())
        event = _plain(without_secrets(record.getMessage()))
        line = f"{_time(record).astimezone():%H:%M:%S} {level:<8} {event}{named}"
        if record.exc_info:
            trace = without_secrets(self.formatException(record.exc_info))
            line += "".join(f"\n    {_plain(row)}" for row in trace.splitlines())
        return line


def without_secrets(text: str) -> str:
    """The text, with what looks like a secret withheld.

    Example:
        >>> without_secrets("POST /v1/report Authorization: Bearer abc123")
        'POST /v1/report Authorization: Bearer [withheld]'
    """
    for pattern, instead in _SECRET_TEXT:
        text = pattern.sub(instead, text)
    return text


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    named = getattr(record, "turnout_fields", {})
    return {name: _clean(name, value) for name, value in named.items()}


def _clean(name: str, value: Any) -> Any:
    """A field as it may be shown, whatever it is nested in."""
    if any(word.removesuffix("s") in SECRET_NAMES or word in SECRET_NAMES for word in name.lower().split("_")):
        return WITHHELD
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {str(key): _clean(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean("", inner) for inner in value]
    return without_secrets(str(value))


def _plain(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


class SparingLog:
    """Writes the first warning of a kind at once, then at most one a second, which says how many it stands for.

    So `times`, added up over the lines of a kind, is how often it happened. The other fields are those of the
    last one. To be used within a running event loop; what is left when it ends is written as well.

    Args:
        log: where they go.
        seconds: between two lines of a kind.
        clock: seconds that never go back.
    """

    def __init__(self, log: Log, seconds: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._seconds, self._clock = log, seconds, clock
        self._kinds: dict[str, _Kind] = {}
        weakref.finalize(self, _write_all, log, self._kinds)  # at the process's end at the latest

    def warning(self, event: str, **named: Any) -> None:
        """What an operator should look at, however often it comes; `event` is its kind."""
        kind, now = self._kinds.setdefault(event, _Kind()), self._clock()
        kind.times, kind.named = kind.times + 1, named
        if now >= kind.due:
            self._write(event)
        elif kind.times == 1:
            import asyncio  # not at the top: a device logs nothing, and waits for no event loop

            asyncio.get_running_loop().call_later(kind.due - now + 0.001, self._write, event)

    def _write(self, event: str) -> None:
        kind, now = self._kinds[event], self._clock()
        if now >= kind.due:
            kind.due = now + self._seconds
            kind.write(self._log, event)


@dataclass
class _Kind:
    """What has come of a kind since its last line, and when the next one is due."""

    times: int = 0
    named: dict[str, Any] = field(default_factory=dict)
    due: float = -math.inf

    def write(self, log: Log, event: str) -> None:
        if self.times:
            log.warning(event, **self.named, times=self.times)
            self.times = 0


def _write_all(log: Log, kinds: dict[str, _Kind]) -> None:
    for event, kind in kinds.items():
        kind.write(log, event)
