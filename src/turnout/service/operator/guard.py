"""Who may use the operator's listener: password, host, no pages of other sites; and what browsers may do there."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from turnout.errors import FileProblem, invalid
from turnout.service import Log, SparingLog
from turnout.service.http import Application, Limiter, Message, Receive, Scope, Send, address_group

# Some 50 ms and 16 MB a guess; the limits keep a foreign hash from asking for all the memory there is.
_COST, _BLOCK, _LANES = 2**14, 8, 1
_MOST_MEMORY = 64 * 2**20
_HASH = re.compile(r"scrypt\$(\d{1,7})\$(\d{1,2})\$(\d{1,2})\$([\w+/=]{8,200})\$([\w+/=]{8,200})")

LONGEST = 200
"""Characters of a password."""


def generate() -> str:
    """A new password: 24 characters, 144 random bits.

    Example:
        >>> len(generate())
        24
    """
    return secrets.token_urlsafe(18)


def hashed(password: str) -> str:
    """What is stored instead of a password: a salted scrypt hash, with its parameters.

    Raises:
        ValueError: it is empty or too long.
    """
    if not 1 <= len(password) <= LONGEST:
        raise invalid("password", f"of 1 to {LONGEST} characters", len(password), "let `turnout serve` make one")
    salt = secrets.token_bytes(16)
    found = hashlib.scrypt(_bytes(password), salt=salt, n=_COST, r=_BLOCK, p=_LANES, maxmem=_MOST_MEMORY)
    return f"scrypt${_COST}${_BLOCK}${_LANES}${base64.b64encode(salt).decode()}${base64.b64encode(found).decode()}"


def matches(password: str, stored: str) -> bool:
    """Whether it is the password of a hash; a wrong one takes as long to check.

    Raises:
        ValueError: `stored` is no hash that `hashed` made.

    Example:
        >>> matches("open sesame", hashed("open sesame")), matches("open, sesame", hashed("open sesame"))
        (True, False)
    """
    _, *numbers, salt_text, hash_text = _checked_hash(stored).split("$")
    (cost, block, lanes), salt, expected = map(int, numbers), base64.b64decode(salt_text), base64.b64decode(hash_text)
    given = hashlib.scrypt(
        _bytes(password[:LONGEST]), salt=salt, n=cost, r=block, p=lanes, dklen=len(expected), maxmem=_MOST_MEMORY
    )
    return hmac.compare_digest(given, expected) and len(password) <= LONGEST


def _checked_hash(stored: str) -> str:
    """The same, if it is a hash of the form that `hashed` gives.

    Raises:
        ValueError: it is not; the message does not repeat it.
    """
    if not _HASH.fullmatch(stored):
        remedy = "make one with `turnout operate password FILE`"
        raise invalid("password hash", "of the form scrypt$n$r$p$salt$hash", "another text", remedy)
    return stored


def new_password_file(path: Path, *, hash_only: bool = False) -> str:
    """Make a password, and a new file with it that only its owner may read (mode 0600); returns the password.

    Args:
        path: of the file.
        hash_only: write its hash instead: then the password is stored nowhere.

    Raises:
        FileProblem: there is such a file already, or it cannot be written.
    """
    password = generate()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write((hashed(password) if hash_only else password) + "\n")
    except OSError as error:
        raise FileProblem(f"{path}: cannot be made ({error.strerror}): choose another path") from error
    return password


def read_password(path: Path) -> str:
    """The password of a password file.

    Raises:
        FileProblem: it cannot be read, is empty, holds no more than a hash, or others may read it too.
    """
    line = _first_line(path)
    if _HASH.fullmatch(line):
        raise FileProblem(f"{path}: holds the hash of a password: give a file that has the password itself")
    return line


def password_hash(path: Path) -> str:
    """The hash to check against, from a password file: of the password in it, or the hash that it holds itself.

    Raises:
        FileProblem: it cannot be read, is empty, or others may read it too.
    """
    line = _first_line(path)
    return line if _HASH.fullmatch(line) else hashed(line)


def _first_line(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            others = os.name == "posix" and os.fstat(file.fileno()).st_mode & 0o077
            line = file.readline(LONGEST + 2).strip()
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or "not text"
        raise FileProblem(f"{path}: the password cannot be read ({said}): give the file that has it") from error
    if others:
        raise FileProblem(f"{path}: others may read this password: chmod 600 it, and better make a new one")
    if not line:
        raise FileProblem(f"{path}: holds no password: write it in the first line, or remove the file")
    return line


def _bytes(password: str) -> bytes:
    return password.encode("utf-8", "surrogatepass")


Headers = dict[bytes, bytes]

USER = "operator"
"""The one name."""

CHANGE_HEADER = "x-turnout"
"""Every request that changes something carries it, with any value: a form of another site cannot."""

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""The host names of a listener on this machine."""

OPEN_PATHS = ("/healthz", "/readyz")
"""They need no password, under any host name: they say only that the listener runs, and whether it can do its work."""

WRONG_AT_ONCE, WRONG_A_SECOND = 8, 0.1
"""The number of wrong passwords from an address at once, and then per second."""

_SECURITY = {
    b"content-security-policy": b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), microphone=(), geolocation=()",
    b"cache-control": b"no-store",
}


class Guard:
    """Lets a request through to an ASGI application if it comes from the operator; every response gets strict headers.

    Args:
        app: what is guarded.
        password_hash: as `turnout.service.operator.guard.hashed` gives it.
        allowed_hosts: the names by which browsers may call the listener, "*" for any: another name is
            a foreign page whose name was pointed at us (DNS rebinding).
        clock: seconds, for the limits.

    Attributes:
        count: is called with the name of a fault for each; who counts faults puts it there.

    Raises:
        ValueError: the hash is invalid.
    """

    def __init__(
        self,
        app: Application,
        password_hash: str,
        allowed_hosts: Iterable[str] = LOOPBACK,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._hash = _checked_hash(password_hash)
        self._hosts = frozenset(host.lower() for host in allowed_hosts)
        self._wrong, self._clock = Limiter(WRONG_A_SECOND, WRONG_AT_ONCE), clock
        self._key, self._known = secrets.token_bytes(32), b""
        self._one_at_a_time = asyncio.Lock()
        self._log = SparingLog(Log("operator"), clock=clock)
        self.count: Callable[[str], None] = lambda fault: None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI calls it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._answer(scope, receive, _strict(send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Headers = dict(scope["headers"])
        if scope["path"] not in OPEN_PATHS and not (
            await self._is_called_by_name(headers, send) and await self._admits(scope, headers, send)
        ):
            return
        if scope["method"] in ("GET", "HEAD", "OPTIONS") or await _is_ours(headers, send):
            await self._app(scope, receive, send)

    async def _is_called_by_name(self, headers: Headers, send: Send) -> bool:
        """Whether it was called by one of its names; if not, an error is sent."""
        if "*" in self._hosts or _host(headers) in self._hosts:
            return True
        allowed = ", ".join(sorted(self._hosts))
        remedy = "use one of these names, or start `turnout serve` with --operator-name and your name"
        await _refuse(send, 400, "host", f"this listener answers to {allowed} only: {remedy}")
        return False

    async def _admits(self, scope: Scope, headers: Headers, send: Send) -> bool:
        """Whether the password is right; if not, an error is sent."""
        challenge = {b"www-authenticate": b'Basic realm="turnout operator", charset="UTF-8"'}
        given = _credentials(headers.get(b"authorization", b""))
        if given is None:
            await _refuse(send, 401, "password", "this needs the operator's name and password", challenge)
            return False
        address = address_group((scope.get("client") or ("",))[0])
        # The limit comes before the check, right or wrong: a guess that is not checked tells nothing.
        wait = self._wrong.wait(address, self._clock())
        if wait > 0.0:
            self._note("locked out after wrong passwords", address)
            again = {b"retry-after": str(math.ceil(wait)).encode()}
            await _refuse(send, 429, "attempts", f"too many wrong passwords: wait {math.ceil(wait)} seconds", again)
            return False
        if await self._is_right(*given, address):
            return True
        self._note("wrong password", address)
        await _refuse(send, 401, "password", "wrong name or password", challenge)
        return False

    def _note(self, fault: str, address: str) -> None:
        self.count(fault)
        self._log.warning(fault, address=address)

    async def _is_right(self, user: str, password: str, address: str) -> bool:
        """The hash is made once; after that, a keyed digest of the right password is compared, which is quick."""
        digest = hmac.digest(self._key, password.encode("utf-8", "surrogatepass"), hashlib.sha256)
        is_user = hmac.compare_digest(user.encode("utf-8", "surrogatepass"), USER.encode())
        if hmac.compare_digest(digest, self._known):
            return is_user
        async with self._one_at_a_time:  # each takes 16 MB
            if hmac.compare_digest(digest, self._known):
                return is_user
            if self._wrong.wait(address, self._clock()) > 0.0:
                return False
            is_right = await asyncio.to_thread(matches, password, self._hash)
            if is_right:
                self._known = digest
            if not (is_right and is_user):
                self._wrong.allow(address, self._clock())
            return is_right and is_user


async def _refuse(send: Send, status: int, error: str, message: str, more: Headers | None = None) -> None:
    """Answer with an error as JSON: {"error", "message"}."""
    body = json.dumps({"error": error, "message": message}).encode()
    headers = {b"content-type": b"application/json", b"content-length": str(len(body)).encode()} | (more or {})
    await send({"type": "http.response.start", "status": status, "headers": list(headers.items())})
    await send({"type": "http.response.body", "body": body})


def _strict(send: Send) -> Send:
    """Adds strict headers to the response; a header that the application set itself stays."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [(bytes(name).lower(), value) for name, value in message.get("headers", [])]
            names = {name for name, _ in own}
            message["headers"] = own + [(name, value) for name, value in _SECURITY.items() if name not in names]
        await send(message)

    return sending


async def _is_ours(headers: Headers, send: Send) -> bool:
    """Whether a request that changes something was made by this page or a program; if not, an error is sent.

    A browser sends the password along with a form of any site. But such a form cannot set the header, and its
    script may not, since no other origin is allowed.
    """
    origin = headers.get(b"origin")
    foreign = origin is not None and origin.partition(b"://")[2].lower() != headers.get(b"host", b"").lower()
    if foreign or headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
        await _refuse(send, 403, "site", "another site may not change anything here")
    elif CHANGE_HEADER.encode() not in headers:
        await _refuse(send, 403, "header", f"a change needs the header {CHANGE_HEADER}: 1")
    elif headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
        await _refuse(send, 400, "content-type", "a change is JSON: send Content-Type: application/json")
    else:
        return True
    return False


def _host(headers: Headers) -> str:
    """The name that the client called, without the port."""
    host = headers.get(b"host", b"").decode("latin-1").lower()
    return host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]


def _credentials(header: bytes) -> tuple[str, str] | None:
    """(name, password) of an HTTP Basic header; None where there is none."""
    scheme, _, encoded = header.partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (user, password) if colon else None
