"""One self-contained page: text, numbers, tables and interactive plots that need no network.

    page = Page("A run", "What it reached.")
    page.heading("Turnout")
    page.figure(chart([line(rounds, turnout, "turnout")], x="Round", y="Clients"), "Turnout over time.")
    page.save("run.html")

All text is escaped, unless it is `Markup`. How the page looks is in page.css, how plots follow its
colours and its width in page.js.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from turnout.errors import MissingExtra, invalid
from turnout.files import check_writable, whole_file
from turnout.version import __version__

# The browser itself refuses whatever would leave the file, even if a plot asked for a map tile.
# (Plots that use WebGL compile their own code, hence unsafe-eval.)
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; worker-src blob:"
)


NOTHING = ("", "–")
"""What stands in a table where there is no number."""


_NUMBER = re.compile(r"[+−-]?[\d.,]+(e[+−]?\d+)?( ± [\d.,]+)?( %)?|−?inf|nan")


class Markup(str):
    """Text that is HTML already, and is put into a page as it is.

    The only way around escaping, so that a search for this name finds every place to review.

    Example:
        >>> escape(Markup("<b>yes</b>")), escape("<b>no</b>")
        ('<b>yes</b>', '&lt;b&gt;no&lt;/b&gt;')
    """

    __slots__ = ()


def escape(value: object) -> Markup:
    """Anything as HTML: `Markup` unchanged, all else as text with &, <, > and quotes escaped.

    Example:
        >>> escape("a < b & c")
        'a &lt; b &amp; c'
    """
    return value if isinstance(value, Markup) else Markup(html.escape(str(value)))


class Page:
    """A page in the making; parts appear in the order in which they are added.

    Every method that adds a part returns the page, so that calls can be chained.

    Args:
        title: the name of the page, its only first-level heading.
        lead: one or two sentences that say what the page shows.

    Example:
        >>> page = Page("A run", "What it reached.").heading("Numbers").table(["run", "cost"], [["a", 3.5]], "Costs.")
        >>> "<h2>Numbers</h2>" in page.html()
        True
    """

    def __init__(self, title: str, lead: str) -> None:
        self.title = title
        self.lead = lead
        self._parts: list[str] = []
        self._level = 1
        self._figures = 0

    def heading(self, text: str, level: int = 2) -> Page:
        """Start a section (level 2) or a part of one (3 or 4).

        Raises:
            ValueError: a level is left out, which loses people who go from heading to heading.
        """
        if not 2 <= level <= min(self._level + 1, 4):
            raise invalid("level", f"from 2 to {min(self._level + 1, 4)} here", level, "leave out no level")
        self._level = level
        return self._add(f"<h{level}>{escape(text)}</h{level}>")

    def text(self, text: str) -> Page:
        """Add paragraphs: plain text, cut at blank lines, or `Markup`."""
        return self._add(_prose(text))

    def facts(self, facts: Iterable[tuple[str, object, str]]) -> Page:
        """Add a row of big numbers.

        Args:
            facts: (label, value, note) of each; the note may be empty.
        """
        rows = []
        for label, value, note in facts:
            small = f'<dd class="note">{escape(note)}</dd>' if note else ""
            rows.append(f'<div><dt>{escape(label)}</dt><dd class="value">{_cell(value)}</dd>{small}</div>')
        return self._add(f'<dl class="facts">{"".join(rows)}</dl>')

    def table(self, header: Sequence[object], rows: Iterable[Sequence[object]], caption: str) -> Page:
        """Add a table; the first cell of a row names it, and columns of numbers are aligned right.

        Args:
            header: the names of the columns.
            rows: as many cells each; numbers are formatted, all else is text (or `Markup`).
            caption: what the table shows, in a sentence.

        Raises:
            ValueError: a row has more or fewer cells than the header.
        """
        body = [list(row) for row in rows]
        for row in body:
            if len(row) != len(header):
                raise invalid("row", f"of {len(header)} cells, as the header", len(row), "fill empty cells with ''")
        numeric = [_is_numeric([row[column] for row in body]) for column in range(len(header))]
        style = [' class="number"' if is_number else "" for is_number in numeric]
        head = "".join(f'<th scope="col"{looks}>{escape(name)}</th>' for name, looks in zip(header, style, strict=True))
        lines = []
        for row in body:
            cells = [f"<td{looks}>{_cell(value)}</td>" for value, looks in zip(row, style, strict=True)]
            cells[:1] = [f'<th scope="row"{style[0]}>{_cell(row[0])}</th>']
            lines.append(f"<tr>{''.join(cells)}</tr>")
        # A wide table scrolls in its own box, which the keyboard must be able to reach.
        return self._add(
            f"<figure><figcaption>{escape(caption)}</figcaption>"
            f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}">'
            f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div></figure>"
        )

    def figure(self, figure: Any, caption: str, *, height: int = 380) -> Page:
        """Add an interactive plot, in the colours of the page.

        Args:
            figure: a Plotly figure, or a dict of data and layout as `turnout.report.traces.chart`
                makes. A colour "var(--ink)" follows light and dark; so do backgrounds and grids.
            caption: what the plot shows, in a plain sentence; also read out in its place.
            height: in pixels, without the legend; a phone takes less.

        Raises:
            ValueError: not a figure.
        """
        name = f"figure-{self._figures + 1}"
        # A script ends at the first </script>, wherever it stands: so no < at all.
        data = json.dumps(_plain(_figure_dict(figure)), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
        self._figures += 1
        return self._add(
            f'<figure><div class="plot" id="{name}" role="img" aria-label="{escape(caption)}" '
            f'data-height="{int(height)}" style="min-height:{int(height) // 2}px"></div>'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
            f'<script type="application/json" id="{name}-data">{data}</script>'
        )

    def details(self, summary: str, text: str) -> Page:
        """Add something that few will want to see, folded away: plain text or `Markup`."""
        return self._add(f"<details><summary>{escape(summary)}</summary><div>{_prose(text)}</div></details>")

    def html(self) -> str:
        """The whole page as text.

        Raises:
            MissingExtra: there are figures, and Plotly is not installed.
        """
        here = files("turnout.report")
        scripts = ""
        if self._figures:
            drawing = (here / "page.js").read_text(encoding="utf-8")
            scripts = f"<script>{plotly_source()}</script>\n<script>{drawing}</script>\n"
        unseen = "<noscript><p>The plots of this page need JavaScript.</p></noscript>\n" if self._figures else ""
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n'
            '<link rel="icon" href="data:,">\n'  # or a browser would ask for one
            f"<title>{escape(self.title)}</title>\n"
            f"<style>{(here / 'page.css').read_text(encoding='utf-8')}</style>\n</head>\n<body>\n"
            f'<header><h1>{escape(self.title)}</h1>\n<p class="lead">{escape(self.lead)}</p></header>\n'
            f"<main>\n{unseen}{''.join(self._parts)}</main>\n"
            f"<footer>Made by turnout {escape(__version__)}. This file needs no network.</footer>\n"
            f"{scripts}</body>\n</html>\n"
        )

    def save(self, path: str | Path) -> Path:
        """Write the page to one file, whole or not at all, and give back its path.

        Raises:
            FileProblem: the file cannot be written.
            MissingExtra: there are figures, and Plotly is not installed.
        """
        path = check_writable(path)
        content = self.html().encode("utf-8", "replace")  # a file's name may hold what UTF-8 cannot say
        with whole_file(path) as file:
            file.write(content)
        return path

    def _add(self, part: str) -> Page:
        self._parts.append(part + "\n")
        return self


def plotly_source() -> str:
    """The Plotly library for browsers, as the Python package brings it, fit for a script tag.

    Raises:
        MissingExtra: Plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise MissingExtra("a report", library="plotly", extra="lab") from None
    return str(get_plotlyjs()).replace("</script", "<\\/script")


def _prose(text: str) -> str:
    if isinstance(text, Markup):
        return f'<div class="prose">{text}</div>'
    return "".join(f"<p>{escape(part.strip())}</p>" for part in text.split("\n\n") if part.strip())


def _is_numeric(column: Sequence[object]) -> bool:
    """Whether a column holds numbers only (some perhaps formatted), and dashes where there are none."""
    texts = [text for text in map(_cell, column) if text not in NOTHING]
    return bool(texts) and all(_NUMBER.fullmatch(text) for text in texts)


def _cell(value: object) -> str:
    """A value for people: thousands apart, a true minus, six digits at most."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return escape(value)
    number = float(value)
    is_whole = abs(number) < 1e15 and number == math.floor(number)
    return (f"{number:,.0f}" if is_whole else f"{number:,.6g}").replace("-", "−")


def _figure_dict(figure: Any) -> dict[str, Any]:
    found = figure if isinstance(figure, Mapping) else getattr(figure, "to_plotly_json", dict)()
    if "data" not in found:
        raise invalid("figure", "a Plotly figure or a dict with data", type(figure).__name__, "use traces.chart")
    layout = {name: value for name, value in found.get("layout", {}).items() if name != "template"}
    return {"data": found["data"], "layout": layout}  # a template would bring colours of its own


def _plain(value: Any) -> Any:
    """A figure as JSON takes it: arrays as lists, seven digits (a screen shows four), gaps as null."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    return value
