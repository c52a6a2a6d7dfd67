"""Total epsilon against cost gap and turnout error: the tables and the page of `turnout frontier`, from plain facts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from turnout.privacy import NOISE_ADDED, NOISY_SUM, SUM, TRUSTED_AGGREGATOR, provided
from turnout.report.page import NOTHING, Page
from turnout.report.traces import INK, MUTED, Trace, chart, faded, line, look, points

Facts = Mapping[str, Any]
"""One observer's frontier, as `turnout.plan.frontiers.Frontier.facts` gives it."""

FORBIDDEN = "no mechanism can be here"
LOWEST = 0.05
"""Percent, at the foot of the plots: nearer to the optimum makes no difference."""

LOWEST_WITH_NOISE = 0.01
"""The same for sums with noise."""

IF_SEEN = "no mechanism can be here if its reports are seen"

_IF_SEEN = "the floor, if reports are seen"
_GREY = "#888888"
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def percent(gap: float | None, down: bool = False) -> str:
    """A gap with one decimal, or two where it is small; a bound is rounded down.

    Example:
        >>> percent(0.233), percent(0.00199), percent(0.0548, down=True), percent(None)
        ('23.3 %', '0.20 %', '5.4 %', '–')
    """
    if gap is None:
        return NOTHING[1]
    number, digits = 100.0 * gap, 1 if gap >= 0.00995 else 2
    return f"{math.floor(number * 10**digits) / 10**digits if down else number:.{digits}f} %"


def heading(facts: Facts) -> str:
    """The observer; where single reports must be hidden, this assumption comes first.

    Example:
        >>> heading({"observer": "sum", "against": "an observer of the sum alone, with 8 honest others"})
        'If an aggregator that you trust hides single reports: against an observer of the sum alone, with 8 honest
        others'
    """
    assumed = {SUM: TRUSTED_AGGREGATOR, NOISY_SUM: NOISE_ADDED}.get(facts["observer"])
    if assumed is not None:
        return f"If {assumed.partition(' (')[0]}: against {facts['against']}"
    return f"Against {facts['against']}"


def frontier_rows(facts: Facts) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of gaps, a row for each total; a measured gap follows in brackets.

    Example:
        >>> point = {"asked": 4.0, "total_epsilon": 4.0, "epsilon": 4.0, "gap": 0.233, "measured": ()}
        >>> curve = {"name": "memoized", "per": "release", "points": [point], "missing": ""}
        >>> frontier_rows({"floors": [{"total_epsilon": 4.0, "gap": 0.2305, "reached": 0.2325}], "curves": [curve]})
        (['total epsilon', 'the floor', 'memoized'], [['4', '23.0 %', '23.3 %']])
    """
    # A floor of 0 says nothing: what can be proven vanishes before the best mechanism's gap does.
    floors = {each["total_epsilon"]: percent(each["gap"] or None, down=True) for each in facts["floors"]}
    asked = {curve["name"]: {point["asked"]: _cell(point) for point in curve["points"]} for curve in facts["curves"]}
    named = _IF_SEEN if facts.get("observer") == NOISY_SUM else "the floor"
    header = ["total epsilon", *([named] if floors else []), *asked]
    rows = []
    for total in _totals(facts):
        first = [floors.get(total, NOTHING[1])] if floors else []
        rows.append([f"{total:,g}", *first, *(found.get(total, NOTHING[1]) for found in asked.values())])
    return header, rows


def error_rows(facts: Facts) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of the turnout's errors, three columns for each crowd; a bound is rounded down.

    Example:
        >>> error = {"by_noise": 0.01225, "with_coins": 0.0274, "least": 0.00178, "measured": ()}
        >>> curve = {"clients": 1200, "points": [{"asked": 1.0, "turnout": error}]}
        >>> header, rows = error_rows({"curves": [curve], "floors": []})
        >>> header
        ['total epsilon', '1,200 clients: at least', 'by the noise', 'with coins']
        >>> rows
        [['1', '0.17 %', '1.2 %', '2.7 %']]
    """
    curves = with_errors(facts)
    header = ["total epsilon"]
    for curve in curves:
        header += [f"{curve['clients']:,} clients: at least", "by the noise", "with coins"]
    found = [{point["asked"]: point["turnout"] for point in curve["points"]} for curve in curves]
    rows = []
    for total in sorted({asked for errors in found for asked in errors}):
        cells: list[str] = []
        for errors in found:
            error = errors.get(total)
            cells += [NOTHING[1]] * 3 if error is None else _error_cells(error)
        rows.append([f"{total:,g}", *cells])
    return header, rows


def with_errors(facts: Facts) -> list[Mapping[str, Any]]:
    """The curves of sums with noise, as far as they have points."""
    return [curve for curve in facts["curves"] if any(point.get("turnout") for point in curve["points"])]


def _error_cells(error: Mapping[str, Any]) -> list[str]:
    runs = error["measured"]
    both = two_digits(error["with_coins"])
    if runs:
        both = f"{both} ({two_digits(sum(runs) / len(runs))})".replace(" ", "\u00a0")  # kept on one line
    return [two_digits(error["least"], down=True), two_digits(error["by_noise"]), both]


def two_digits(share: float, down: bool = False) -> str:
    """A share in percent, with two significant digits; a bound is rounded down.

    Example:
        >>> two_digits(0.01225), two_digits(0.5492), two_digits(0.00178, down=True), two_digits(4.31e-6)
        ('1.2 %', '55 %', '0.17 %', '0.00043 %')
    """
    digits = 1 - math.floor(math.log10(100.0 * share)) if share > 0.0 else 1
    number = math.floor(100.0 * share * 10.0**digits) / 10.0**digits if down else 100.0 * share
    return f"{number:.{max(0, digits)}f} %"


def notes(facts: Facts) -> list[str]:
    """Notes: the assumptions of the totals, mechanisms without points or promises, the gap of random selection."""
    assumed: dict[tuple[str, ...], list[str]] = {}
    for curve in facts["curves"]:
        assumed.setdefault(tuple(curve["assumptions"]), []).append(curve["name"])
    said = [f"the totals of {', '.join(names)} hold{provided(what)}" for what, names in assumed.items() if what]
    said += [f"{curve['name']} {curve['missing']}" for curve in facts["curves"] if curve["missing"]]
    if facts["no_floor"]:
        said.append(facts["no_floor"])
    for name, gap in facts["promises_nothing"]:
        told = "cannot meet the capacity" if gap is None else f"gap {percent(gap)}"
        said.append(f"{name} has no total epsilon at all: {told}")
    said.append(f"choosing clients at random gives away nothing: gap {percent(facts['random_gap'])}")
    return said


def frontier_page(found: Sequence[Facts]) -> Page:
    """A figure and a table for each observer, with how to read them.

    Args:
        found: the frontiers, at least one, of the same problem, rounds and delta.
    """
    one = found[0]
    page = Page(
        "Privacy against cost",
        f"What a total of privacy costs {one['clients']:,} clients over {one['rounds']:,} rounds at delta "
        f"{one['delta']:.3g}, {one['capacity']:,g} wanted in each, whichever mechanism they use.",
    )
    page.text(
        "To the right is less privacy: the total epsilon bounds what all reports of a client give away together. "
        "At 1 nothing that is seen is more than 3 times as likely with one cost as with another (plus delta); a total "
        "of 4 means 55 times, 12 means 163,000 times; hundreds protect nobody. Further down is better: the cost gap is "
        "how much more all clients pay than at the optimum."
    )
    for facts in found:
        page.heading(heading(facts))
        caption = f"Cost gap against total epsilon, one line per mechanism. {heading(facts)}."
        page.figure(_frontier_chart(facts), caption, height=460)
        header, rows = frontier_rows(facts)
        runs = max((len(point["measured"]) for curve in facts["curves"] for point in curve["points"]), default=0)
        how = f"; in brackets the mean of {runs} simulated runs (dots in the plot: each of them)" if runs else ""
        page.table(header, rows, f"Expected cost gap by total epsilon{how}. {heading(facts)}.")
        if with_errors(facts):
            _add_errors(page, facts, how)
        page.text("\n\n".join(f"{note[0].upper()}{note[1:]}." for note in notes(facts)))
        header, rows = _parameter_rows(facts)
        if len(header) == 1:
            continue
        page.table(header, rows, "The epsilon per report that adds up to each total. (Others release one level, once.)")
    page.text(
        "The floor holds for every mechanism whose total is pure (delta 0), in the mean over clients drawn from this "
        "population: a single run may by luck lie a little below it. It is proven by a linear programme's dual, and "
        "what can be proven falls short of the best possible where both are below a few percent."
    )
    return page


def _add_errors(page: Page, facts: Facts, how: str) -> None:
    """The turnout's error under noise: a figure, a table, and what they say."""
    page.heading("What the turnout pays", level=3)
    page.text(
        "With noise on the sums, clients pay hardly more than at the optimum. Privacy makes the turnout uncertain "
        "instead: the server no longer knows exactly how many participate."
    )
    told = "root mean square, in percent of the capacity, once it has settled"
    caption = f"The turnout's error in a round by the noise alone and with the clients' coins: {told}."
    page.figure(_error_chart(facts), caption, height=460)
    header, rows = error_rows(facts)
    page.table(header, rows, f"The turnout's error by total epsilon: {told}{how}.")
    page.text(
        "At least: no mechanism that leaves the decision to its clients, and is private against an observer who knows "
        "everything about all others, has a smaller error for all populations of so many clients, in a round or in the "
        "mean of the run, for any number of rounds. Up to the coins the error falls with epsilon. Below them, the plan "
        "lets the server react faster, until the noise adds 30 % to the variance of the coins."
    )


def _error_chart(facts: Facts) -> dict[str, Any]:
    """A colour for each crowd: with coins, by the noise alone, and the area that is impossible."""
    areas: list[Trace] = []
    lines: list[Trace] = []
    every: list[float] = []
    for index, curve in enumerate(with_errors(facts)):
        x = [point["total_epsilon"] for point in curve["points"]]
        errors = [point["turnout"] for point in curve["points"]]
        colour, crowd = look(index)["colour"], f"{curve['clients']:,} clients"
        least, noise, both = ([100 * each[name] for each in errors] for name in ("least", "by_noise", "with_coins"))
        every += [*noise, *both]
        fill = {"fill": "toself", "fillcolor": faded(colour, 0.16), "line": {"width": 0}, "hoverinfo": "skip"}
        area = {"type": "scatter", "mode": "lines", "x": [x[0], *x, x[-1]], "y": [1e-6, *least, 1e-6]}
        named = {"name": f"{crowd}: {FORBIDDEN}", "showlegend": True}
        areas.append(area | fill | named)
        lines.append(line(x, both, f"{crowd}, with coins", colour=colour))
        lines.append(line(x, noise, f"{crowd}, by the noise alone", colour=colour, dash="dash"))
        runs = [
            (point["total_epsilon"], 100 * run) for point in curve["points"] for run in point["turnout"]["measured"]
        ]
        if runs:
            places, values = zip(*runs, strict=True)
            lines.append(points(list(places), list(values), "", colour=colour, size=6))
    totals = _totals(facts)
    foot, top = math.log10(LOWEST_WITH_NOISE), math.log10(1.6 * max(every))
    return chart(
        [*areas, *lines],
        x=f"Total epsilon, {facts['rounds']:,} rounds, δ = {facts['delta']:.3g}",
        y="Error of the turnout, % of the capacity",
        xaxis={"type": "log", "tickvals": totals, "ticktext": [f"{total:g}" for total in totals]},
        yaxis={"type": "log", "tickvals": _TICKS, "ticktext": [f"{tick:g}" for tick in _TICKS], "range": [foot, top]},
        hovermode="closest",
    )


def _frontier_chart(facts: Facts) -> dict[str, Any]:
    """Both axes logarithmic; the mechanisms without any total stand at the right edge."""
    totals = _totals(facts) or [1.0, 10.0]
    edge, lowest = (2.5 if facts["promises_nothing"] else 1.1) * totals[-1], _lowest(facts)
    traces = [*_floor_traces(facts), line([totals[0], edge], [100 * facts["random_gap"]] * 2, "chosen at random",
                                         colour=INK, dash="dash", width=1.2)]  # fmt: skip
    for index, curve in enumerate(facts["curves"]):
        x = [point["total_epsilon"] for point in curve["points"]]
        style = look(index) | ({"dash": "dot"} if curve["name"].startswith("learned") else {})
        traces.append(line(x, [100 * point["gap"] for point in curve["points"]], curve["name"], **style))
        traces.extend(_measured(curve, style["colour"]))
    for (name, gap), symbol in zip(facts["promises_nothing"], ("x", "cross", "diamond"), strict=False):
        if gap is not None:
            mark = points([edge], [max(100 * gap, 1.3 * lowest)], f"{name} (no total)", colour=INK, size=9)
            shown = {"hovertemplate": percent(gap), "cliponaxis": False}
            traces.append(mark | {"marker": mark["marker"] | {"symbol": symbol, "opacity": 1}} | shown)
    ticks = [total for total in (0.1, 0.3, 1, 2, 4, 8, 20, 100, 1000, 10_000)
             if totals[0] <= total <= totals[-1]]  # fmt: skip
    end = {edge: "none"} if facts["promises_nothing"] else {}
    top = max([facts["random_gap"], *(point["gap"] for curve in facts["curves"] for point in curve["points"])])
    return chart(
        traces,
        x=f"Total epsilon, {facts['rounds']:,} rounds, δ = {facts['delta']:.3g}",
        y="Cost gap, %",
        xaxis={"type": "log", "tickvals": [*ticks, *end],
               "ticktext": [*(f"{tick:,}" for tick in ticks), *end.values()]},
        yaxis={"type": "log", "tickvals": _TICKS, "ticktext": [f"{tick:g}" for tick in _TICKS],
               "range": [math.log10(lowest), math.log10(160 * top)]},
        annotations=_labels(facts, totals),
        hovermode="closest",
    )  # fmt: skip


def _lowest(facts: Facts) -> float:
    return LOWEST_WITH_NOISE if facts["observer"] == NOISY_SUM else LOWEST


def _floor_name(facts: Facts) -> str:
    return _IF_SEEN if facts["observer"] == NOISY_SUM else f"the floor: {FORBIDDEN}"


def _floor_traces(facts: Facts) -> list[Trace]:
    lowest = _lowest(facts)
    floors = [found for found in facts["floors"] if 100 * found["gap"] > lowest]
    if not floors:
        return []
    x = [found["total_epsilon"] for found in floors]
    y = [100 * found["gap"] for found in floors]
    fill = {"fill": "toself", "fillcolor": faded(_GREY, 0.28), "line": {"width": 0}, "hoverinfo": "skip"}
    area = {"type": "scatter", "mode": "lines", "x": [x[0], *x, x[-1]], "y": [lowest, *y, lowest]}
    return [area | fill | {"name": _floor_name(facts), "showlegend": True}]


def _labels(facts: Facts, totals: Sequence[float]) -> list[dict[str, Any]]:
    """In the plot: what the area below is, or why there is none (on a logarithmic axis, places are exponents)."""
    plain = {"showarrow": False, "font": {"color": MUTED, "size": 11}, "xanchor": "left", "align": "left"}
    left = math.log10(totals[0]) + 0.06
    if facts["observer"] == NOISY_SUM:
        return [
            plain
            | {"x": left, "y": math.log10(9.0), "text": IF_SEEN.replace(" can", "<br>can").replace(" if", "<br>if")}
        ]
    if facts["floors"]:
        return [plain | {"x": left, "y": math.log10(0.5), "text": FORBIDDEN.replace("mechanism ", "<br>mechanism<br>")}]
    return [plain | {"x": left, "y": math.log10(0.12), "text": "no floor is known<br>against this observer"}]


def _measured(curve: Mapping[str, Any], colour: str) -> list[Trace]:
    pairs = [(point["total_epsilon"], 100 * gap) for point in curve["points"] for gap in point["measured"]]
    if not pairs:
        return []
    x, y = zip(*pairs, strict=True)
    return [points(list(x), list(y), "", colour=colour, size=6)]


def _parameter_rows(facts: Facts) -> tuple[list[str], list[list[str]]]:
    curves = [curve for curve in facts["curves"] if curve["per"] == "report"]
    asked = {curve["name"]: {point["asked"]: point["epsilon"] for point in curve["points"]} for curve in curves}
    rows = []
    for total in _totals(facts):
        cells = [f"{found[total]:.3g}" if total in found else NOTHING[1] for found in asked.values()]
        rows.append([f"{total:,g}", *cells])
    return ["total epsilon", *asked], rows


def _cell(point: Mapping[str, Any]) -> str:
    runs = point["measured"]
    if not runs:
        return percent(point["gap"])
    return f"{percent(point['gap'])} ({percent(sum(runs) / len(runs))})".replace(" ", "\u00a0")  # kept on one line


def _totals(facts: Facts) -> list[float]:
    asked = {point["asked"] for curve in facts["curves"] for point in curve["points"]}
    return sorted(asked | {found["total_epsilon"] for found in facts["floors"]})
