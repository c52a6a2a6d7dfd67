"""The operator's listener: a live page, its interface for programs, and metrics.

    app = operator_app(Overview(coordinator), password_hash=hashed(password))
    uvicorn.run(app, host="127.0.0.1", port=8441)

It shows counts and which devices are here, never what a device decided. Call `app.end_streams()` before the server
stops, or it waits for pages.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import hashlib
import json
import math
import re
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any, Protocol

from turnout.errors import MissingExtra, TurnoutError
from turnout.service.operator import metrics
from turnout.service.operator.guard import LOOPBACK, Guard
from turnout.service.store import LONGEST_NAME, MODES, USUAL_HOURS, Change, Names

_KINDS = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}

PARTS = ("operator.css", "operator.js", "asking.js", "codes.js", "devices.js", "showing.js")
"""The files of the page under /static/."""


@dataclass(frozen=True)
class _Part:
    """Something to send to a browser.

    Attributes:
        content: its bytes.
        kind: its media type.
        zipped: the same, compressed; None if it is small.
        tag: changes with the content.
    """

    content: bytes
    kind: str
    zipped: bytes | None
    tag: str


@functools.cache
def _static_part(name: str) -> _Part:
    """A file of the page: "operator.html", or one of `PARTS`.

    Example:
        >>> _static_part("operator.html").kind
        'text/html; charset=utf-8'
    """
    content = (files("turnout.service.operator") / "static" / name).read_bytes()
    return _Part(content, _KINDS[name.rpartition(".")[2]], None, _tag(content))


@functools.cache
def plotly() -> _Part:
    """The Plotly library for browsers, from the Python package. Compressing it takes a moment, once.

    Raises:
        MissingExtra: Plotly is not installed.
    """
    try:
        content = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    except (ImportError, FileNotFoundError):
        raise MissingExtra("the operator's page", library="plotly", extra="server") from None
    return _Part(content, _KINDS["js"], gzip.compress(content, 5, mtime=0), _tag(content))


@functools.cache
def _policy() -> str:
    """What the page may do: only its own files, no eval, no inline script (the Content-Security-Policy).

    Plotly draws our lines without eval. It adds an empty style element, which it fills from code, and one with
    the style of its maps: these two are allowed by their hashes.
    """
    source = plotly().content.decode()
    added = re.findall(r"""createElement\("style"\);\w+\.id="\w+",\w+\.textContent=(['"`])(.*?)(?<!\\)\1""", source)
    styles = ["", *(text.encode().decode("unicode_escape") for _, text in added)]
    hashes = " ".join(f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in styles)
    return (
        f"default-src 'none'; script-src 'self'; style-src 'self' {hashes}; img-src data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _tag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:16]}"'


try:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route
except ImportError:
    raise MissingExtra("the operator's view", library="starlette", extra="server") from None

WHO = "operator page"
"""In the audit log."""

MOST_ROUNDS = 500
"""The largest number of closed rounds on a page."""

MOST_STREAMS = 32
"""The largest number of open pages."""

_LARGEST_BODY = 4096
_DIGITS = re.compile("[0-9]{1,9}")
_PAUSE, _BEAT = 0.25, 5.0
"""Seconds: at least between two events, at most between two signs of life."""


class _Operated(Protocol):
    """What the operator sees and changes: the coordinator, or a stand-in for it in tests."""

    def snapshot(self) -> dict[str, Any]:
        """The state: run, round, mode, capacity, hard_limit, members, heard, late, gone, account, faults…"""
        ...

    def unready(self) -> str:
        """Why it should get no requests now; "" if it should."""
        ...

    def recent(self, rounds: int) -> list[dict[str, Any]]:
        """The last closed rounds, oldest first: round, signal, participants, demand, capacity, heard, frozen…"""
        ...

    async def changed(self, since: int) -> int:
        """Wait until something changed after that version; at most 4 times a second. Returns the newer version."""
        ...

    async def change(self, who: str, *, capacity: float | None = None, mode: str | None = None) -> Any:
        """Set capacity or mode or both."""
        ...

    async def revoke(self, slot: int, who: str) -> Any:
        """Revoke a device: it is no member any more, and its token is invalid."""
        ...

    async def rename(self, slot: int, who: str, **names: str) -> Any:
        """Change a device's label, site or note."""
        ...

    async def issue_codes(self, count: int, weight: int, hours: float, who: str, names: Names) -> list[str]:
        """Make one-time enrolment codes, valid for this number of hours; their devices get these names."""
        ...

    async def codes(self, *, state: str, site: str | None, search: str, page: int) -> dict[str, Any]:
        """A page of the codes that were made, without the codes themselves: counts, found, page, pages, codes."""
        ...

    async def void_code(self, tag: str, who: str) -> Any:
        """Void a code that no device has used."""
        ...

    async def log(self) -> list[Change]:
        """The audit log, oldest first."""
        ...

    async def devices(
        self,
        *,
        state: str = "all",
        number: int | None = None,
        site: str | None = None,
        search: str = "",
        page: int = 1,
    ) -> dict[str, Any]:
        """A page of the devices that are asked for: round, counts, found, page, pages, devices."""
        ...

    async def sites(self) -> dict[str, Any]:
        """The sites, with how many of their devices are here, gone and left: found, sites."""
        ...


class _Refused(Exception):
    """A request that is answered with an error.

    Args:
        status: of HTTP.
        error: a word for programs.
        message: a sentence for people.

    Example:
        >>> _Refused(400, "capacity", "capacity must be above 0").status
        400
    """

    def __init__(self, status: int, error: str, message: str) -> None:
        super().__init__(message)
        self.status, self.error = status, error


class _OperatorApp(Guard):
    """The application of the operator's listener, as ASGI has it; `operator_app` makes it."""

    def __init__(self, view: _View, password_hash: str, allowed_hosts: Iterable[str]) -> None:
        problems: dict[Any, Any] = dict.fromkeys((_Refused, HTTPException, TurnoutError, ClientDisconnect), _problem)
        routed = Starlette(routes=view.routes(), exception_handlers=problems | {Exception: _problem})
        super().__init__(routed, password_hash, allowed_hosts)
        self._view = view

    def end_streams(self) -> None:
        """Close the live connections of all pages, so that the server can stop; pages reconnect by themselves."""
        self._view.stopping.set()


def operator_app(operated: _Operated, *, password_hash: str, allowed_hosts: Iterable[str] = LOOPBACK) -> _OperatorApp:
    """The application of the operator's listener.

    Args:
        operated: the coordinator's `Overview`.
        password_hash: of the operator's password, as `turnout.service.operator.guard.hashed` gives it.
        allowed_hosts: the names by which browsers may call it (no ports), "*" for any.

    Raises:
        ValueError: the hash is invalid.
        MissingExtra: Plotly is not installed.
    """
    _policy()  # reads Plotly now: says if it is missing, and is ready for the first page
    return _OperatorApp(_View(operated), password_hash, allowed_hosts)


class _View:
    """The routes about one coordinator."""

    def __init__(self, operated: _Operated) -> None:
        self.operated = operated
        self.stopping = asyncio.Event()
        self.streams = 0

    def routes(self) -> list[Route]:
        return [
            Route("/", _page),
            Route("/static/{name}", _static),
            Route("/plotly.js", _plotly),
            Route("/api/snapshot", self.snapshot),
            Route("/api/rounds", self.rounds),
            Route("/api/events", self.events),
            Route("/api/log", self.log),
            Route("/api/control", self.control, methods=["POST"]),
            Route("/api/codes", self.codes),
            Route("/api/codes", self.make_codes, methods=["POST"]),
            Route("/api/codes/{tag}/void", self.void, methods=["POST"]),
            Route("/api/devices", self.devices),
            Route("/api/devices/{number}/name", self.name, methods=["POST"]),
            Route("/api/devices/{number}/revoke", self.revoke, methods=["POST"]),
            Route("/api/sites", self.sites),
            Route("/metrics", self.prometheus),
            Route("/healthz", self.health),
            Route("/readyz", self.ready),
        ]

    def now(self) -> dict[str, Any]:
        snapshot = self.operated.snapshot()
        return snapshot | {"troubles": metrics.troubles(snapshot)}

    async def health(self, request: Request) -> Response:
        return _json({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        if why_not := self.operated.unready():
            return _json({"error": "unready", "message": why_not}, 503, {"retry-after": "1"})
        return _json({"status": "ready"})

    async def snapshot(self, request: Request) -> Response:
        return _json(self.now())

    async def rounds(self, request: Request) -> Response:
        last = _digits(request.query_params.get("last", str(MOST_ROUNDS)), "last")
        if not 1 <= last <= MOST_ROUNDS:
            raise _Refused(400, "last", f"last must be from 1 to {MOST_ROUNDS}")
        return _json({"rounds": self.operated.recent(last)})

    async def log(self, request: Request) -> Response:
        return _json({"changes": [asdict(change) for change in (await self.operated.log())[-MOST_ROUNDS:]]})

    async def prometheus(self, request: Request) -> Response:
        last = self.operated.recent(1)
        text = metrics.exposition(self.operated.snapshot(), last[-1] if last else None)
        return Response(text, headers={"content-type": metrics.CONTENT_TYPE})

    async def control(self, request: Request) -> Response:
        asked = await _body(request, {"capacity", "mode"})
        if not asked:
            raise _Refused(400, "nothing", "give a capacity, a mode, or both")
        capacity, mode = asked.get("capacity"), asked.get("mode")
        if "capacity" in asked:
            capacity = _number(capacity, "capacity")
        if "mode" in asked and mode not in MODES:
            raise _Refused(400, "mode", f"mode must be one of {', '.join(MODES)}")
        await _carried_out(self.operated.change(WHO, capacity=capacity, mode=mode))
        return _json(self.now())

    async def codes(self, request: Request) -> Response:
        return _json(await _carried_out(self.operated.codes(**_asked_for(request))))

    async def make_codes(self, request: Request) -> Response:
        asked = await _body(request, {"count", "weight", "hours", *LONGEST_NAME})
        count, weight = _whole(asked.get("count", 1), "count"), _whole(asked.get("weight", 1), "weight")
        hours = _number(asked.get("hours", USUAL_HOURS), "hours")
        names = Names(**_names(asked))
        made = await _carried_out(self.operated.issue_codes(count, weight, hours, WHO, names))
        return _json({"codes": made, "weight": weight, "hours": hours}, 201)

    async def void(self, request: Request) -> Response:
        await _body(request, set())
        tag = request.path_params["tag"]
        if not re.fullmatch("[0-9a-f]{12}", tag):
            raise _Refused(404, "code", "there is no code of this tag")
        await _carried_out(self.operated.void_code(tag, WHO))
        return _json({"voided": tag})

    async def devices(self, request: Request) -> Response:
        asked = request.query_params
        number = _digits(asked["number"], "number") if "number" in asked else None
        return _json(await _carried_out(self.operated.devices(number=number, **_asked_for(request))))

    async def sites(self, request: Request) -> Response:
        return _json(await self.operated.sites())

    async def name(self, request: Request) -> Response:
        asked = _names(await _body(request, set(LONGEST_NAME)))
        if not asked:
            raise _Refused(400, "nothing", f"give one of {', '.join(LONGEST_NAME)}")
        number = await self._known(request)
        await _carried_out(self.operated.rename(number, WHO, **asked))
        return _json((await self.operated.devices(number=number))["devices"][0])

    async def revoke(self, request: Request) -> Response:
        await _body(request, set())
        number = await self._known(request)
        await _carried_out(self.operated.revoke(number, WHO))
        return _json({"revoked": number})

    async def _known(self, request: Request) -> int:
        """The number of a device, of the request's path."""
        number = request.path_params["number"]
        if not _DIGITS.fullmatch(number) or not (await self.operated.devices(number=int(number)))["found"]:
            raise _Refused(404, "device", "there is no device of this number")
        return int(number)

    async def events(self, request: Request) -> Response:
        """Server-sent events: a snapshot with the rounds that are new, at each change."""
        if request.method == "HEAD":
            return Response(headers={"content-type": "text/event-stream"})
        if self.streams >= MOST_STREAMS:
            raise _Refused(429, "streams", f"{MOST_STREAMS} pages are open already: close one")
        after = request.headers.get("last-event-id", request.query_params.get("after", ""))
        headers = {"content-type": "text/event-stream", "x-accel-buffering": "no"}
        return StreamingResponse(self._stream(after), headers=headers)

    async def _stream(self, after: str) -> AsyncIterator[str]:
        self.streams += 1
        stopping = asyncio.ensure_future(self.stopping.wait())
        version, seen, change = -1, after, None
        try:
            yield "retry: 1000\n\n"
            while not stopping.done():
                seen, event = self._event(seen)
                sent = time.monotonic()
                yield event
                change = asyncio.ensure_future(self.operated.changed(version))
                while not (await asyncio.wait({change, stopping}, timeout=_BEAT, return_when="FIRST_COMPLETED"))[0]:
                    yield ": still here\nevent: beat\ndata: 0\n\n"
                if change.done():
                    version = change.result()
                await asyncio.wait({stopping}, timeout=max(0.0, sent + _PAUSE - time.monotonic()))
        except TurnoutError:
            pass  # the coordinator has ended; the page will reconnect
        finally:
            self.streams -= 1
            for task in (stopping, change):
                if task is not None:
                    task.cancel()

    def _event(self, seen: str) -> tuple[str, str]:
        """(the new position, the event); "RUN/ROUND" is the last round of a run that was sent."""
        snapshot = self.now()
        run, _, last = seen.rpartition("/")
        following = int(last) + 1 if re.fullmatch(r"[0-9]{1,15}", last) and run == snapshot["run"] else -1
        is_fresh = not 0 <= following <= snapshot["round"]  # another run, or this one restored from an older copy
        first = 0 if is_fresh else following
        missing = min(MOST_ROUNDS, snapshot["round"] - first)
        rounds = [closed for closed in self.operated.recent(missing) if closed["round"] >= first] if missing else []
        news = {"snapshot": snapshot, "rounds": rounds, "fresh": is_fresh}
        now = f"{snapshot['run']}/{rounds[-1]['round']}" if rounds else "" if is_fresh else seen
        return now, f"id: {now}\ndata: {_dumped(news)}\n\n"


async def _page(request: Request) -> Response:
    sent = _static_part("operator.html")
    headers = {"content-type": sent.kind, "content-security-policy": _policy()}
    return Response(sent.content, headers=headers)


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in PARTS:
        raise _Refused(404, "path", "there is nothing here")
    sent = _static_part(name)
    return Response(sent.content, headers={"content-type": sent.kind})


async def _plotly(request: Request) -> Response:
    """Plotly, which is large and public: a browser may cache it, and asks whether it is still the same."""
    sent = plotly()
    headers = {"content-type": sent.kind, "etag": sent.tag, "cache-control": "private, no-cache"}
    headers["vary"] = "accept-encoding"
    if request.headers.get("if-none-match") == sent.tag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(sent.zipped, headers=headers | {"content-encoding": "gzip"})
    return Response(sent.content, headers=headers)


def _asked_for(request: Request) -> dict[str, Any]:
    """Which part of a list a request asks for."""
    asked = request.query_params
    page = _digits(asked.get("page", "1"), "page")
    return {
        "state": asked.get("state", "all"),
        "site": asked.get("site"),
        "search": asked.get("search", ""),
        "page": page,
    }


def _names(asked: Mapping[str, Any]) -> dict[str, str]:
    """The names that a body gives; the coordinator checks what they are."""
    found = {name: asked[name] for name in LONGEST_NAME if name in asked}
    for name, value in found.items():
        if not isinstance(value, str):
            raise _Refused(400, name, f"{name} must be a text of at most {LONGEST_NAME[name]} characters")
    return found


async def _carried_out(work: Awaitable[Any]) -> Any:
    """The coordinator's result; what it refuses is an error of the request."""
    try:
        return await work
    except ValueError as error:
        raise _Refused(400, "refused", str(error)) from error


async def _body(request: Request, names: set[str]) -> dict[str, Any]:
    """The JSON object of a request, with no other names than these."""
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > _LARGEST_BODY:
            raise _Refused(413, "size", f"at most {_LARGEST_BODY} bytes")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise _Refused(400, "json", "the body is not JSON") from None
    if not isinstance(found, dict) or not found.keys() <= names:
        raise _Refused(400, "json", f"the body must be an object with {', '.join(sorted(names)) or 'nothing'} in it")
    return found


def _number(value: object, name: str) -> float:
    """A number of a usual size; the coordinator checks its own limits."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 < value <= 1e15:
        raise _Refused(400, name, f"{name} must be a number above 0 and at most 1e15")
    return float(value)


def _whole(value: object, name: str) -> int:
    if not isinstance(value, int):
        raise _Refused(400, name, f"{name} must be a whole number")
    return int(_number(value, name))


def _digits(text: str, name: str) -> int:
    """A number of an address."""
    if not _DIGITS.fullmatch(text):
        raise _Refused(400, name, f"{name} must be a whole number of at most 9 digits")
    return int(text)


async def _problem(request: Request, error: Exception) -> Response:
    """Any failure as JSON; a known one (a full disk) says why, an unexpected one does not."""
    if isinstance(error, _Refused):
        return _json({"error": error.error, "message": str(error)}, error.status)
    if isinstance(error, ClientDisconnect):
        return _json({"error": "request", "message": "the request was cut off"}, 400)
    if isinstance(error, HTTPException):
        said = {404: ("path", "there is nothing here"), 405: ("method", "not with this method")}
        word, sentence = said.get(error.status_code, ("request", str(error.detail)))
        return _json({"error": word, "message": sentence}, error.status_code, error.headers)
    if isinstance(error, TurnoutError):
        return _json({"error": "trouble", "message": str(error)}, 503, {"retry-after": "5"})
    return _json({"error": "internal", "message": "something failed here: see the coordinator's log"}, 500)


def _json(value: Mapping[str, Any], status: int = 200, more: Mapping[str, str] | None = None) -> Response:
    return Response(_dumped(value), status, {"content-type": "application/json", **(more or {})})


def _dumped(value: Any) -> str:
    return json.dumps(_plain(value), separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    """As JSON has it: no infinity."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
