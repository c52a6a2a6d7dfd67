"""Addresses and connections: the parts of a coordinator's URL, how TLS verifies it, and enough open files."""

from __future__ import annotations

import re
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from turnout.errors import FileProblem, TurnoutError, invalid

if TYPE_CHECKING:
    import ssl

Result = TypeVar("Result")


def allow_files(wanted: int) -> int:
    """Let this process open more files, since every connection is one; as many as the system grants.

    Returns:
        How many it may open now; that may be fewer than wanted.
    """
    try:
        import resource
    except ImportError:  # not on Windows, which has no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    granted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < granted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))
        soft = granted
    return wanted if soft == resource.RLIM_INFINITY else soft


def run_in_loop(main: Coroutine[Any, Any, Result]) -> Result:
    """Run it in a new event loop: uvloop's where it is installed."""
    import asyncio  # not at the top: a device has no event loop

    try:
        import uvloop
    except ImportError:
        factory = None
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


class Unreachable(TurnoutError):
    """No usable reply: the network, the coordinator, or something in between failed.

    Args:
        message: what failed.
        held: somebody had taken the request, and kept it for a while, before the connection broke.

    Example:
        >>> Unreachable("http://localhost:8440: connection refused").held
        False
    """

    def __init__(self, message: str, *, held: bool = False) -> None:
        super().__init__(message)
        self.held = held


@dataclass(frozen=True)
class Address:
    """Where a coordinator listens.

    Attributes:
        host: name or number.
        port: from 1.
        prefix: what stands before every path, behind a proxy.
        tls: how it must prove who it is; None: a plain connection.
    """

    host: str
    port: int
    prefix: str = ""
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, url: str, ca: str | Path | None = None) -> Address:
        """From a URL, such as https://coordinator.example:8443.

        Args:
            url: http or https; a path before the protocol's is allowed.
            ca: a PEM file with the authority that signed the coordinator's certificate; then no other is trusted.

        Raises:
            ValueError: it is no such URL, or an authority is given for http.
            FileProblem: the PEM file cannot be used.

        Example:
            >>> Address.of("http://localhost:8440/fleet/")
            Address(host='localhost', port=8440, prefix='/fleet', tls=None)
        """
        remedy = "give it as `turnout serve` shows it, such as https://coordinator.example:8443"
        try:
            parts = urlsplit(url)
            port = parts.port
        except (ValueError, AttributeError):
            raise invalid("URL", "http:// or https:// with a host", repr(url)[:200], remedy) from None
        good = parts.scheme in ("http", "https") and parts.hostname and not (parts.query or parts.fragment)
        if not good or parts.username is not None or not re.fullmatch(r"[\x21-\x7e]+", url):
            raise invalid("URL", "http:// or https:// with a host, no user and no query", repr(url)[:200], remedy)
        secure = parts.scheme == "https"
        if ca is not None and not secure:
            raise invalid("ca", "left out for http", repr(str(ca)), "use https, or leave it out")
        tls = _trusting(ca) if secure else None
        return cls(str(parts.hostname), port or (443 if secure else 80), parts.path.rstrip("/"), tls)

    @property
    def name(self) -> str:
        """Host and port, as in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"http{'s' if self.tls else ''}://{self.name}{self.prefix}"


_OTHER_NAME = "call it by a name that its certificate has"
_CERTIFICATES = {
    9: "set this machine's clock",
    10: "have it renewed, or set this machine's clock",
    62: _OTHER_NAME,
    64: _OTHER_NAME,
}
"""What to do about OpenSSL's verdicts: not yet valid, expired, another host name, another IP address."""


def what_to_correct(error: BaseException, address: Address) -> str:
    """What an owner may have to correct when a first connection fails like this; "" if it is to be waited for.

    Example:
        >>> what_to_correct(ConnectionResetError(), Address("localhost", 8440))
        'if it is served with TLS, write https://'
        >>> what_to_correct(ConnectionRefusedError(), Address("localhost", 8440))
        ''
    """
    if address.tls is None:  # a TLS listener hangs up on plain HTTP, or answers in bytes that are none
        from http.client import BadStatusLine

        hung_up = isinstance(error, (BadStatusLine, ConnectionResetError))
        return "if it is served with TLS, write https://" if hung_up else ""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        usual = "--ca must name the PEM file of the authority that signed its certificate"
        return _CERTIFICATES.get(error.verify_code, usual)
    return "if it is served without TLS, write http://" if isinstance(error, ssl.SSLError) else ""


def _trusting(ca: str | Path | None) -> ssl.SSLContext:
    """TLS that trusts the authorities in a PEM file, or the system's.

    Raises:
        FileProblem: the file cannot be used.
    """
    import ssl

    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except (OSError, ssl.SSLError) as error:
        raise FileProblem(f"{ca}: not a readable PEM file of an authority ({error}): check the path") from error
