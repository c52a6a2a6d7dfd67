"""The operator's page: our HTML, style and script, and Plotly as its package brings it."""

from __future__ import annotations

import functools
import gzip
import hashlib
import re
from base64 import b64encode
from dataclasses import dataclass
from importlib.resources import files

from turnout.errors import MissingExtra

_KINDS = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}

PARTS = ("operator.css", "operator.js", "asking.js", "devices.js", "showing.js")
"""What the page asks for under /static/."""


@dataclass(frozen=True)
class Part:
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
def part(name: str) -> Part:
    """A file of the page: "operator.html", or one of `PARTS`.

    Example:
        >>> part("operator.html").kind
        'text/html; charset=utf-8'
    """
    content = (files("turnout.service.operator") / "static" / name).read_bytes()
    return Part(content, _KINDS[name.rpartition(".")[2]], None, _tag(content))


@functools.cache
def plotly() -> Part:
    """The Plotly library for browsers, from the Python package. Compressing it takes a moment, once.

    Raises:
        MissingExtra: Plotly is not installed.
    """
    try:
        content = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    except (ImportError, FileNotFoundError):
        raise MissingExtra("the operator's page", library="plotly", extra="server") from None
    return Part(content, _KINDS["js"], gzip.compress(content, 5, mtime=0), _tag(content))


@functools.cache
def policy() -> str:
    """What the page may do: nothing but ours, no eval, no inline script (the Content-Security-Policy).

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
