"""The parts of plots: lines, bands, points and bars as plain dicts, in colours that go together."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from turnout.errors import invalid
from turnout.report.page import escape

PALETTE = ("#3072df", "#d97230", "#18a07e", "#b72494", "#816020", "#9189c6")
"""Colours for things of a kind, in the order to use them. Each has a contrast of 3 or more on the
light page and on the dark one, and any two differ to people with any of the colour blindnesses (a
test computes both)."""

INK = "var(--ink)"
"""The page's text colour, for references that belong to no run: a capacity, an optimum."""

MUTED = "var(--muted)"
"""The page's quieter text colour."""

DASHES = ("solid", "dash", "dot", "dashdot")
"""How lines differ once the colours are used up."""

MOST_POINTS = 2000
"""No line has more: a screen has no more columns, and the file stays small."""

Trace = dict[str, Any]
Values = npt.NDArray[Any]


class Look(TypedDict):
    """How a thing is drawn wherever it appears: one of `PALETTE`, and one of `DASHES`."""

    colour: str
    dash: str


def look(index: int) -> Look:
    """The colour and the dash of the thing with this index, for `line(…, **look(index))`.

    Example:
        >>> look(0), look(7)
        ({'colour': '#3072df', 'dash': 'solid'}, {'colour': '#d97230', 'dash': 'dash'})
    """
    turn, place = divmod(index, len(PALETTE))
    return {"colour": PALETTE[place], "dash": DASHES[turn % len(DASHES)]}


def thin(x: npt.ArrayLike, y: npt.ArrayLike, most: int = MOST_POINTS) -> tuple[Values, Values]:
    """Leave out points that a screen could not show, and keep every peak.

    The series is cut into equal parts; of each, the points with the least and the largest value
    stay, in their order, and so do the two ends and a gap (a NaN).

    Args:
        x, y: the series, of equal length.
        most: about how many points may stay; at least 8.

    Raises:
        ValueError: x and y differ in length, or `most` is too small to show anything.

    Example:
        >>> x, y = thin(range(10_000), [0.0] * 5000 + [9.0] + [0.0] * 4999, most=100)
        >>> len(x) <= 100, float(max(y))
        (True, 9.0)
    """
    x, y = _pair(x, y)
    if most < 8:
        raise invalid("most", "8 or more", most, "leave it out")
    if len(y) <= most:
        return x, y
    values = np.asarray(y, dtype=np.float64)
    gaps = np.isnan(values)
    stay = {0, len(y) - 1}
    parts = (most - 2) // (3 if gaps.any() else 2)
    edges = np.linspace(0, len(y), parts + 1).astype(np.int64)
    for first, stop in itertools.pairwise(edges):
        part, gap = values[first:stop], gaps[first:stop]
        if gap.any():
            stay.add(int(first + np.argmax(gap)))
        if not gap.all():
            stay |= {int(first + np.nanargmin(part)), int(first + np.nanargmax(part))}
    chosen = sorted(stay)
    return x[chosen], y[chosen]


def line(
    x: npt.ArrayLike, y: npt.ArrayLike, name: str, *, colour: str = PALETTE[0], dash: str = "solid", width: float = 2.0
) -> Trace:
    """A line; a long one is thinned.

    Args:
        x, y: the series.
        name: for the legend and when pointing at it; "" keeps it out of the legend.
        colour: one of `PALETTE`, or `INK`.
        dash: one of `DASHES`.
        width: in pixels.
    """
    few_x, few_y = thin(x, y)
    style = {"color": colour, "dash": dash, "width": width}
    # Of a thinned line, the nearest point that is left may be some rounds away: say where it is.
    shown = {"hovertemplate": "%{y}" if np.size(x) == len(few_x) else "%{y} at %{x}"} if name else {}
    return {"type": "scatter", "mode": "lines", "x": few_x, "y": few_y, "line": style} | shown | _named(name)


def band(
    x: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike, *, colour: str = PALETTE[0], name: str = ""
) -> Trace:
    """The area between two lines, see-through, to lie under the `line` of its colour.

    A long one is thinned to the widest extent of each part, so that it still holds all it held.
    """
    x, low = _pair(x, low)
    x, high = _pair(x, high)
    if len(x) > MOST_POINTS:
        parts = np.linspace(0, len(x), MOST_POINTS // 2 + 1).astype(np.int64)[:-1]
        x, low, high = x[parts], np.minimum.reduceat(low, parts), np.maximum.reduceat(high, parts)
    there_and_back = np.concatenate([x, x[::-1]]), np.concatenate([low, high[::-1]])
    style = {"fill": "toself", "fillcolor": faded(colour, 0.2), "line": {"width": 0}, "hoverinfo": "skip"}
    return {"type": "scatter", "mode": "lines", "x": there_and_back[0], "y": there_and_back[1]} | style | _named(name)


def points(x: npt.ArrayLike, y: npt.ArrayLike, name: str, *, colour: str = PALETTE[0], size: float = 5.0) -> Trace:
    """Dots, see-through, so that a crowd looks like one. Not thinned: choose whom to show."""
    x, y = _pair(x, y)
    marker = {"color": colour, "size": size, "opacity": 0.55, "line": {"width": 0}}
    return {"type": "scatter", "mode": "markers", "x": x, "y": y, "marker": marker} | _named(name)


def bars(
    edges: npt.ArrayLike, heights: npt.ArrayLike, name: str, *, colour: str = PALETTE[0], dash: str = "solid"
) -> Trace:
    """A histogram as an outline, which may overlap others; filled, unless it is in `INK` (a reference).

    Args:
        edges: of the bins, one more than heights, as np.histogram gives them.
        heights: of the bars.
        name: for the legend and when pointing at it.
        colour, dash: as for `line`.
    """
    edges, heights = np.asarray(edges), np.asarray(heights)
    if len(edges) != len(heights) + 1:
        raise invalid("edges", f"{len(heights) + 1}, one more than heights", len(edges), "give what np.histogram gives")
    x, y = np.repeat(edges, 2), np.concatenate([[0], np.repeat(heights, 2), [0]])
    style: Trace = {"line": {"color": colour, "width": 1.5, "dash": dash}}
    if colour.startswith("#"):
        style |= {"fill": "tozeroy", "fillcolor": faded(colour, 0.12)}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y} | style | _named(name)


def faded(colour: str, opacity: float) -> str:
    """A colour of the form #rrggbb, see-through.

    Example:
        >>> faded("#3072df", 0.2)
        'rgba(48,114,223,0.2)'
    """
    if len(colour) != 7 or not colour.startswith("#"):
        raise invalid("colour", "of the form #rrggbb", colour, "take one of PALETTE")
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def chart(traces: Sequence[Trace], *, x: str, y: str, **layout: Any) -> dict[str, Any]:
    """A figure of traces for `Page.figure`, with what its axes show.

    Args:
        traces: what to draw, from the back to the front.
        x, y: the axes' titles.
        layout: anything of a Plotly layout; `xaxis` and `yaxis` are added to.

    Example:
        >>> chart([line([0, 1], [2, 3], "a")], x="Round", y="Clients")["layout"]["xaxis"]
        {'title': {'text': 'Round'}}
    """
    axes = {
        f"{axis}axis": {"title": {"text": title}} | layout.pop(f"{axis}axis", {})
        for axis, title in zip("xy", (x, y), strict=True)
    }
    return {"data": list(traces), "layout": axes | layout}


def focus(series: Sequence[npt.ArrayLike]) -> list[float] | None:
    """The range of an axis without a steep start, which would flatten all that follows.

    Args:
        series: what is drawn; the first fiftieth of each (of a constant: nothing) is its start.

    Returns:
        [low, high] of all but the starts, with room around; None where the starts take less than
        half of the height, so that nothing need be left out.

    Example:
        >>> focus([[1200.0] + [600.0, 610.0] * 50]), focus([[600.0, 610.0] * 50])
        ([599.0, 611.0], None)
    """
    everything = [np.asarray(one, dtype=np.float64) for one in series]
    rest = np.concatenate([one[-(-len(one) // 50) :] if len(one) > 2 else one for one in everything])
    low, high = float(np.nanmin(rest)), float(np.nanmax(rest))
    whole = np.concatenate(everything)
    if high == low or float(np.nanmax(whole) - np.nanmin(whole)) <= 2.0 * (high - low):
        return None
    room = 0.1 * (high - low)
    return [low - room, high + room]


def _named(name: str) -> Trace:
    # Plotly takes some HTML in names, so that an escaped one shows what was meant.
    return {"name": escape(name), "showlegend": bool(name)} | ({} if name else {"hoverinfo": "skip"})


def _pair(x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Values, Values]:
    x, y = np.asarray(x), np.asarray(y)
    if x.shape != y.shape or x.ndim != 1:
        raise invalid(
            "x and y", "two series of equal length", f"shapes {x.shape} and {y.shape}", "give one y for each x"
        )
    return x, y
