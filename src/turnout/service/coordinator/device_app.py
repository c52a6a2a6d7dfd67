"""The devices' HTTP interface. The report is the hot route: plain ASGI, no routing, no models, bytes joined by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from turnout.service import (
    ENROL,
    LARGEST_BODY,
    LEAVE,
    LEAVING,
    MISSING,
    NO,
    PREFIX,
    REFUSED,
    REPORT,
    ROUND,
    RULES,
    YES,
    Log,
    ProtocolProblem,
    Report,
    SparingLog,
    fields,
    lasting,
    read_json,
    rules_name,
)
from turnout.service.coordinator.closed_rounds import Answered
from turnout.service.coordinator.coordinator import Coordinator
from turnout.service.coordinator.open_round import Entry
from turnout.service.http import CLOSE, NO_STORE, BodyReader, Limiter, Receive, Scope, Send, address_group, send_json
from turnout.service.store import StoreProblem

Headers = tuple[tuple[bytes, bytes], ...]
Answer = tuple[int, bytes, Headers]
"""Status, body, headers."""

REPORTS_A_SECOND, REPORTS_AT_ONCE = 50.0, 200.0
"""Of one device: one per round is usual, a few more after a bad connection; rehearsals have very short rounds."""

ENROLMENTS_A_SECOND, ENROLMENTS_AT_ONCE = 1000.0, 5000.0
"""From one address, behind which there may be many devices."""

WRONG_A_SECOND, WRONG_AT_ONCE = 0.5, 20.0
"""Wrong codes or tokens from one address before it is told to wait; right ones are always honoured."""

HELD_AT_ONCE = 2
"""Requests of one device that are held; one, and one more that replaces it after a broken connection."""

MUST_UPDATE = (
    "the rules have changed, and this device decides under a mechanism that is in force no more: update turnout on it; "
    "it keeps its token, number and history"
)

_KINDS = {"run": str, "round": int, "participates": bool}


class DeviceApp:
    """The ASGI application for devices.

    Args:
        coordinator: whose rounds they participate in.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self._sync, self._events, self._requests = coordinator.sync, coordinator.events, coordinator.devices
        self._reports = Limiter(REPORTS_A_SECOND, REPORTS_AT_ONCE)
        self._enrolments = Limiter(ENROLMENTS_A_SECOND, ENROLMENTS_AT_ONCE)
        self._wrong = Limiter(WRONG_A_SECOND, WRONG_AT_ONCE)
        self._bodies = BodyReader(LARGEST_BODY)
        self._held: dict[int, int] = {}
        self._log = SparingLog(Log("devices"))
        self._rest = Starlette(
            routes=[
                Route(ENROL, self._enrol, methods=["POST"]),
                Route(ROUND, self._round, methods=["GET"]),
                Route(RULES, self._rules, methods=["GET"]),
                Route(LEAVE, self._leave, methods=["POST"]),
                Route(f"{PREFIX}/openapi.json", self._openapi, methods=["GET"]),
                Route("/healthz", self._health, methods=["GET"]),
                Route("/readyz", self._ready, methods=["GET"]),
            ],
            exception_handlers={HTTPException: _http_problem, StoreProblem: _store_problem},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] != REPORT:
            await self._rest(scope, receive, send)
        elif scope["method"] != "POST":
            await send_json(send, *_refusal(405, "request", "Method Not Allowed", ((b"allow", b"POST"),)))
        else:
            try:
                answer = await self._report(scope, receive)
            except StoreProblem:
                answer = _refusal(503, "store", "the database cannot be read now: try again", _RETRY)
            await send_json(send, *answer)

    # The hot route.

    async def _report(self, scope: Scope, receive: Receive) -> Answer:
        arrived = self._sync.clock()
        body = await self._bodies.read(receive)
        if body is None:
            return _NO_BODY
        slot, refusal = await self._device(scope, arrived)
        if refusal is not None:
            return refusal
        try:
            message = read_json(body)
            found = fields(message, _KINDS, "report") | {"rules": rules_name(message, "report")}
            left = Report.left_of(message)
            if not 0 <= found["round"] < 2**53:
                allowed, got = "from 0 to 2^53 - 1", str(found["round"])[:40]
                raise ProtocolProblem(f"the report's round must be {allowed}, got {got}: send the one that was offered")
        except (ValueError, ProtocolProblem) as problem:
            return self._malformed(problem)
        if wait := self._reports.allow(slot, arrived):
            return self._over_the_rate(wait)
        if self._events.stopping:  # whoever was just told "pending" reports again at once: nobody is held any more
            return _refusal(503, "stopping", "this coordinator is about to stop: try again", _RETRY)
        if self._sync.roll.note_left(slot, left):
            self._log.warning(
                "a device has few reports left", device=slot, detail=lasting(left or 0, self._sync.rules.timing.round)
            )
        status, text = await self._answer(slot, found, arrived)
        return status, text, _RETRY if status == 429 else ()

    async def _answer(self, slot: int, report: Mapping[str, Any], arrived: float) -> tuple[int, bytes]:
        """What a report is answered, after waiting for its round to close if it is the open one."""
        sync, requests = self._sync, self._requests
        round, bit = report["round"], report["participates"]
        if report["run"] != sync.run.name:
            return self._conflict(slot, "run", f"this coordinator's run is {sync.run.name}")
        if round > sync.open.number:
            await sync.up_to_date()  # another may have closed it a moment ago
        outcome, open = "closed", sync.open
        if round > open.number:
            requests.replays.note(slot, round, open.number)
            message = f"round {open.number} is open: this coordinator was restored from a copy"
            return self._conflict(slot, "ahead", message)
        if round == open.number:
            if requests.must_update(slot, report["rules"]):
                return self._conflict(slot, "rules", MUST_UPDATE)
            entry = requests.report(slot, bit)
            if entry is Entry.CONFLICT:
                return self._conflict(slot, "conflict", f"another bit was reported for round {round}: it stands")
            outcome = "closed" if entry is Entry.LATE else entry.value
            if not await self._wait(slot, arrived):
                return 429, b'{"error":"held","message":"two requests of this device are held already"}'
        closed = await requests.answered(round)
        if closed is None:
            return 200, b'{"round":%d,"outcome":"pending","counted":false,"lease":0.0,"next":null}' % round
        return self._settled(closed, slot, round, bit, outcome, arrived)

    async def _wait(self, slot: int, arrived: float) -> bool:
        """Wait until the round has closed or the request has been held long enough; False if too many wait."""
        held = self._held.get(slot, 0)
        if held >= HELD_AT_ONCE:
            return False
        self._held[slot] = held + 1
        try:
            await self._sync.open.held.add(arrived, slot)
        finally:
            if self._held[slot] == 1:
                del self._held[slot]
            else:
                self._held[slot] -= 1
        return True

    def _settled(
        self, closed: Answered, slot: int, round: int, bit: bool, outcome: str, arrived: float
    ) -> tuple[int, bytes]:
        code = closed.codes[slot] if slot < len(closed.codes) else MISSING
        if (code == NO and bit) or (code in (YES, REFUSED) and not bit):
            return self._conflict(slot, "conflict", f"another bit was reported for round {round}: it stands")
        if code == MISSING:
            outcome = "closed"
        lease = 0.0
        if code == YES and closed.closed is not None:  # counted from when the device sent it, or earlier
            after = self._sync.versions.at(round + 1).rules  # it lasts into the next round, and must not outlast it
            lease = max(0.0, closed.closed - arrived + after.timing.lease)
        counted = b"true" if code in (YES, NO) else b"false"
        millis = math.floor(1000.0 * lease)
        return 200, b'{"round":%d,"outcome":"%s","counted":%s,"lease":%d.%03d,"next":%s}' % (
            round,
            outcome.encode(),
            counted,
            millis // 1000,
            millis % 1000,
            self._sync.open.offer,
        )

    def _conflict(self, slot: int, error: str, message: str) -> tuple[int, bytes]:
        self._events.count(f"conflicts ({error})")
        self._log.warning(f"conflict ({error})", device=slot)
        text = json.dumps({"error": error, "message": message}).encode()
        return 409, text[:-1] + b',"next":' + self._sync.open.offer + b"}"

    async def _device(self, scope: Scope, now: float) -> tuple[int, Answer | None]:
        """The slot behind the bearer token, or else what to answer."""
        known = False
        for name, value in scope["headers"]:
            if name == b"authorization" and value[:7].lower() == b"bearer ":
                token = value[7:].decode("latin-1")
                slot = await self._requests.slot_of(token)
                if slot is not None:
                    return slot, None
                known = self._requests.has_left(token)
        address = _address(scope)
        if not known:
            self._events.count("wrong tokens")
            self._log.warning("wrong token", address=address)
        wait = self._wrong.allow(address, now)
        return -1, _slower(wait) if wait else _NO_TOKEN

    # The rest.

    async def _enrol(self, request: Request) -> Response:
        address, now = _address(request.scope), self._sync.clock()
        if wait := self._enrolments.allow(address, now):
            return _response(self._over_the_rate(wait))
        body = await self._bodies.read(request.receive)
        if body is None:
            return _response(_NO_BODY)
        try:
            found = fields(read_json(body), {"code": str, "nonce": str}, "enrolment")
            if not 16 <= len(found["nonce"]) <= 200:
                got = len(found["nonce"])
                raise ProtocolProblem(f"the enrolment's nonce must have 16 to 200 characters, got {got}: draw one")
        except (ValueError, ProtocolProblem) as problem:
            return _response(self._malformed(problem))
        welcome = await self._requests.enrol(found["code"].strip().lower(), found["nonce"])
        if welcome is None:
            self._events.count("wrong codes")
            self._log.warning("wrong code", address=address)
            if wait := self._wrong.allow(address, now):
                return _response(_slower(wait))
            text = "this code is unknown, expired or used: ask the operator for another"
            return _response(_refusal(403, "code", text))
        return _response((201, json.dumps(welcome.body()).encode(), (NO_STORE,)))

    async def _round(self, request: Request) -> Response:
        _, refusal = await self._device(request.scope, self._sync.clock())
        if refusal is not None:
            return _response(refusal)
        run = json.dumps(self._sync.run.name).encode()
        return Response(b'{"run":' + run + b"," + self._sync.open.offer[1:], media_type="application/json")

    async def _rules(self, request: Request) -> Response:
        _, refusal = await self._device(request.scope, self._sync.clock())
        return _response(refusal) if refusal is not None else JSONResponse(self._requests.proposal().body())

    async def _leave(self, request: Request) -> Response:
        slot, refusal = await self._device(request.scope, self._sync.clock())
        if refusal is not None:
            return _response(refusal)
        body = await self._bodies.read(request.receive)
        if body is None:
            return _response(_NO_BODY)
        await self._sync.withdraw(slot, "device", "left", _reason(body))
        return JSONResponse({"left": True})

    async def _openapi(self, request: Request) -> Response:
        text = files("turnout.service").joinpath("openapi.json").read_bytes()
        return Response(text, media_type="application/json")

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _ready(self, request: Request) -> Response:
        why_not = self._sync.unready()
        return _response(_refusal(503, "unready", why_not, _RETRY)) if why_not else JSONResponse({"status": "ready"})

    def _malformed(self, problem: Exception) -> Answer:
        self._events.count("malformed requests")
        told = str(problem)
        if not isinstance(problem, ProtocolProblem):
            told = f"the body must be JSON in UTF-8, without NaN and infinities: got something else ({told[:80]})"
        return _refusal(400, "malformed", told)

    def _over_the_rate(self, wait: float) -> Answer:
        self._events.count("requests over the rate")
        return _slower(wait)


def _reason(body: bytes) -> str:
    """Why a device leaves, in our words; empty if it does not say, or says what we do not know."""
    try:
        said = read_json(body)
    except ValueError:
        return ""
    return LEAVING.get(str(said.get("reason")), "") if isinstance(said, dict) else ""


def _refusal(status: int, error: str, message: str, headers: Headers = ()) -> Answer:
    return status, json.dumps({"error": error, "message": message}).encode(), headers


_RETRY: Headers = ((b"retry-after", b"1"),)
_NO_BODY = _refusal(413, "size", f"a body has at most {LARGEST_BODY} bytes, and is sent at once", (CLOSE,))
_NO_TOKEN: Answer = (
    401,
    b'{"error":"token","message":"no device has this token, or it was revoked: enrol again"}',
    ((b"www-authenticate", b"Bearer"),),
)


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return address_group(client[0]) if client else ""


def _slower(wait: float) -> Answer:
    text = b'{"error":"rate","message":"too many requests: wait as long as Retry-After says"}'
    return 429, text, ((b"retry-after", b"%d" % math.ceil(wait)),)


def _response(answer: Answer) -> Response:
    status, body, headers = answer
    return Response(body, status, {name.decode(): value.decode() for name, value in headers}, "application/json")


async def _http_problem(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    answer = _response(_refusal(problem.status_code, "request", str(problem.detail)))
    answer.headers.update(problem.headers or {})
    return answer


async def _store_problem(_: Request, problem: Exception) -> Response:
    return _response(_refusal(503, "store", "the database cannot be written now: try again", _RETRY))
