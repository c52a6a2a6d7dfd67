"""A listener's certificate, which follows its files: whoever renews it need not restart the coordinator."""

from __future__ import annotations

import ssl
from pathlib import Path

from turnout.errors import FileProblem
from turnout.service import Log

_log = Log("certificate")


class Certificate:
    """A certificate and its key, from PEM files.

    Args:
        certificate: with the chain.
        key: None: it is in the same file.

    Attributes:
        context: what connections are made with, from now on and as long as it lives.

    Raises:
        FileProblem: a file is missing, of another kind, locked by a password, or not of the other one.
    """

    def __init__(self, certificate: Path, key: Path | None = None) -> None:
        self._certificate, self._key = certificate, key
        self._taken = self._tried = self._stamps()
        self.context: ssl.SSLContext = tls_context(certificate, key)

    def follow(self) -> bool:
        """Take the files if they have changed and belong together; who is connected stays so. Says whether it did.

        They are tried on a context of their own, since a wrong key would spoil the one in use. Of two files one is
        written first: until the other is there too, the old certificate stays.
        """
        stamps = self._stamps()
        if stamps == self._taken:
            return False
        try:
            tls_context(self._certificate, self._key)
            self.context.load_cert_chain(self._certificate, self._key)
        except (FileProblem, OSError) as problem:
            if stamps != self._tried:  # said once for each change
                _log.error("a new certificate cannot be used; the old one stays", reason=str(problem))
            self._tried = stamps
            return False
        self._taken = self._tried = stamps
        _log.info("new certificate taken", file=str(self._certificate))
        return True

    def _stamps(self) -> list[tuple[int, ...] | None]:
        return [_stamp(path) for path in (self._certificate, self._key) if path is not None]


def _stamp(path: Path) -> tuple[int, ...] | None:
    """What changes when a file is written, replaced, or the link to it moved; None: it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def tls_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """TLS 1.2 or newer with this certificate.

    Raises:
        FileProblem: a file is missing, of another kind, locked by a password, or not of the other one.
    """

    def no_password() -> str:
        raise FileProblem(f"{key or certificate}: the key is locked by a password: give an unlocked one")

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, no_password)
    except OSError as problem:
        what = f"{certificate}{'' if key is None else f', {key}'}"
        remedy = "give a PEM certificate and the key that belongs to it"
        why = problem.strerror or problem
        raise FileProblem(f"{what}: cannot serve with this certificate ({why}): {remedy}") from problem
    return context
