"""The operator's password: made at random, kept in a file that nobody else may read, checked against a hash."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
from pathlib import Path

from turnout.errors import FileProblem, invalid

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
    """What to keep in a password's place: a salted scrypt hash, with its parameters.

    Raises:
        ValueError: it is empty or too long.
    """
    if not 1 <= len(password) <= LONGEST:
        raise invalid("password", f"of 1 to {LONGEST} characters", len(password), "let `turnout serve` make one")
    salt = secrets.token_bytes(16)
    found = hashlib.scrypt(_bytes(password), salt=salt, n=_COST, r=_BLOCK, p=_LANES, maxmem=_MOST_MEMORY)
    return f"scrypt${_COST}${_BLOCK}${_LANES}${base64.b64encode(salt).decode()}${base64.b64encode(found).decode()}"


def matches(password: str, stored: str) -> bool:
    """Whether it is the password of a hash; takes as long whether or not it is.

    Raises:
        ValueError: `stored` is no hash that `hashed` made.

    Example:
        >>> matches("open sesame", hashed("open sesame")), matches("open, sesame", hashed("open sesame"))
        (True, False)
    """
    _, *numbers, salt_text, hash_text = checked_hash(stored).split("$")
    (cost, block, lanes), salt, expected = map(int, numbers), base64.b64decode(salt_text), base64.b64decode(hash_text)
    given = hashlib.scrypt(
        _bytes(password[:LONGEST]), salt=salt, n=cost, r=block, p=lanes, dklen=len(expected), maxmem=_MOST_MEMORY
    )
    return hmac.compare_digest(given, expected) and len(password) <= LONGEST


def checked_hash(stored: str) -> str:
    """The same, if it is a hash of the form that `hashed` gives.

    Raises:
        ValueError: it is none; the message does not repeat it.
    """
    if not _HASH.fullmatch(stored):
        remedy = "make one with `turnout operate password FILE`"
        raise invalid("password hash", "of the form scrypt$n$r$p$salt$hash", "another text", remedy)
    return stored


def new_password_file(path: Path, *, hash_only: bool = False) -> str:
    """Make a password, and a new file with it that only its owner may read (mode 0600); returns the password.

    Args:
        path: of the file.
        hash_only: put its hash there instead: the password is nowhere then but with whoever is told.

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
