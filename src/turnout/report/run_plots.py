"""The plots of the page for saved runs, each with one sentence that says what to see."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.problem import Array, Optimum, Problem, optimum
from turnout.report.page import Page
from turnout.report.traces import INK, Look, Trace, Values, bars, chart, focus, line, look, points
from turnout.settings import Table
from turnout.simulation import ABSENT, Schedule, Trajectory, schedule_from_settings

MOST_STRETCHES = 24
"""With more changes than this, only the last stretch is solved: an optimum of a million clients takes seconds."""


@dataclass(frozen=True, eq=False)
class _Stretch:
    """Rounds in which the same clients are members and the same capacity is needed.

    Attributes:
        first: the first round.
        stop: the round after the last.
        capacity: the turnout that is needed in each round.
        members: the clients that belong, shape (clients,).
        best: their optimum; None where the file does not hold the problem, or it has no solution.
    """

    first: int
    stop: int
    capacity: float
    members: npt.NDArray[np.bool_]
    best: Optimum | None


def stretches(trajectory: Trajectory) -> list[_Stretch]:
    """The stretches of a run, in order, each with its optimum; never empty."""
    clients = int(trajectory.provenance["clients"])
    schedule = _schedule(trajectory)
    changes = set((np.flatnonzero(np.diff(trajectory.capacity)) + 1).tolist())
    changes |= {when for when in (*schedule.join, *schedule.leave) if 0 < when < trajectory.rounds}
    edges = [0, *sorted(changes), trajectory.rounds]
    found = []
    for first, stop in itertools.pairwise(edges):
        capacity, members = float(trajectory.capacity[first]), schedule.status_at(first, clients) != ABSENT
        is_solved = len(edges) - 1 <= MOST_STRETCHES or stop == trajectory.rounds
        best = _best(trajectory.problem, capacity, members) if is_solved else None
        found.append(_Stretch(first, stop, capacity, members, best))
    return found


def _schedule(trajectory: Trajectory) -> Schedule:
    settings = trajectory.provenance.get("schedule")
    return schedule_from_settings(Table(settings, "schedule")) if settings else Schedule()


def _best(problem: Problem | None, capacity: float, members: npt.NDArray[np.bool_]) -> Optimum | None:
    """The optimum of the members alone; None if it is unknown, or they cannot meet the capacity."""
    if problem is None or not members.any():
        return None
    who = np.flatnonzero(members)
    weights = None if problem.weights is None else problem.weights[who]
    try:
        return optimum(Problem(problem.costs[who], capacity, weights))
    except ValueError:
        return None


TAIL = 400
"""The rounds at the end over which turnout is summed up."""

_DOTS = 3000  # in all runs together: more would hide each other and slow a phone
_KEPT = 6  # clients whose averages are drawn: as many as there are colours


@dataclass(frozen=True, eq=False)
class ShownRun:
    """A run as the page shows it.

    Attributes:
        name: what it is called.
        trajectory: what it recorded.
        stretches: the optimum it is measured against, as capacity and members change.
        look: its colour and dash in all plots.
    """

    name: str
    trajectory: Trajectory
    stretches: list[_Stretch]
    look: Look

    @property
    def clients(self) -> int:
        """The number of all clients, also of those that left."""
        return int(self.trajectory.provenance["clients"])

    @property
    def present(self) -> int:
        """How many clients are members at the end."""
        return int(np.sum(self.stretches[-1].members))

    @property
    def capacity(self) -> float:
        """The capacity at the end."""
        return self.stretches[-1].capacity

    @property
    def best(self) -> Optimum | None:
        """The optimum at the end, where it is known."""
        return self.stretches[-1].best

    @property
    def is_weighted(self) -> bool:
        """Whether clients have other weights than 1."""
        problem = self.trajectory.problem
        return problem is not None and problem.weights is not None

    @property
    def gap(self) -> float | None:
        """How far the final cost is off the optimum, in percent."""
        cost = self.trajectory.cost
        return None if cost is None or self.best is None else 100.0 * (float(cost[-1]) / self.best.cost - 1.0)

    def profile(self, of: str) -> tuple[list[int], list[float | None]]:
        """A staircase over the rounds: "capacity", or "cost" or "price" of the optimum (None: unknown)."""
        x: list[int] = []
        y: list[float | None] = []
        for stretch in self.stretches:
            source = stretch if of == "capacity" else stretch.best
            x += [stretch.first, stretch.stop - 1]
            y += [None if source is None else float(getattr(source, of))] * 2
        return x, y


def add(page: Page, runs: Sequence[ShownRun]) -> None:
    """Add every plot that the runs have data for."""
    _turnout(page, runs)
    _seen(page, [run for run in runs if run.trajectory.seen is not None])
    _signal(page, runs)
    _cost(page, runs)
    _averages(page, runs)
    _kept(page, runs)


def _turnout(page: Page, runs: Sequence[ShownRun]) -> None:
    """Turnout by round, and its distribution at the end; relative where the runs need different numbers."""
    relative = len({run.capacity for run in runs}) > 1
    unit = "Turnout (% of capacity)" if relative else f"Turnout ({_unit(runs)})"
    page.heading("Turnout over time")
    _strips(page, runs, unit, relative)
    spreads = [_spread(run, relative) for run in runs]
    aim = 100.0 if relative else runs[0].capacity
    highest = max(float(np.max(spread["y"])) for spread in spreads)
    last = min(TAIL, *(run.trajectory.rounds for run in runs))
    page.heading("Turnout at the end")
    page.figure(
        chart(
            [*spreads, line([aim, aim], [0, highest], "capacity", colour=INK, dash="dash", width=1.5)],
            x=unit,
            y="Share of rounds per point (%)" if relative else "Share of rounds (%)",
            hovermode="closest",
        ),
        f"How the last {last:,} rounds spread around the capacity: the narrower, the steadier the server's supply.",
        height=320,
    )


def _strips(page: Page, runs: Sequence[ShownRun], unit: str, relative: bool) -> None:
    """Turnout over time, one strip per run on one scale: one noise over another would show neither."""
    traces: list[Trace] = []
    axes: dict[str, Any] = {}
    every = []
    share = 1.0 / len(runs)
    for index, run in enumerate(runs):
        axis = f"y{index + 1}" if index else "y"
        turnout = run.trajectory.participants / (run.trajectory.capacity / 100.0 if relative else 1.0)
        rounds, mean, window = moving_mean(turnout)
        strip = []
        if window > 1:
            strip.append(line(np.arange(len(turnout)), turnout, "", colour=run.look["colour"], width=0.75))
            strip[0]["opacity"] = 0.45
        strip.append(line(rounds, mean, run.name, **run.look))
        if relative:
            needed = [line([0, len(turnout) - 1], [100, 100], "capacity", colour=INK, dash="dash", width=1.5)]
        else:
            needed = _references([run], "capacity", "capacity")
        for one in needed:
            one["showlegend"] = index == len(runs) - 1
        every += [turnout, *(one["y"] for one in needed)]
        traces += [trace | {"yaxis": axis} for trace in (*strip, *needed)]
        top = 1.0 - index * share
        axes[axis.replace("y", "yaxis")] = {"domain": [top - share * 0.86, top], "matches": "y", "title": {"text": ""}}
        if len(runs) > 1:
            axes[axis.replace("y", "yaxis")]["nticks"] = 4
    del axes["yaxis"]["matches"]
    axes[f"yaxis{len(runs) // 2 + 1}" if len(runs) > 1 else "yaxis"]["title"] = {"text": unit}
    caption = "The turnout of each round, and the capacity: thin lines are single rounds, thick ones moving means."
    if noisy := [run.name for run in runs if run.trajectory.seen is not None]:
        which = "" if len(noisy) == len(runs) else f" of {', '.join(noisy)}"
        caption += f" The server{which} does not know this turnout: further down is what it saw instead."
    view = focus(every)
    if view is not None:
        axes["yaxis"]["range"] = view
        caption += _OUTSIDE
    height = 380 if len(runs) < 3 else min(140 * len(runs), 900)
    page.figure(chart(traces, x="Round", y=unit, xaxis={"anchor": axis}, **axes), caption, height=height)


def _seen(page: Page, runs: Sequence[ShownRun]) -> None:
    """Of runs with noise, the opened sums beside the true turnout, one figure per run."""
    if runs:
        page.heading("What the server saw")
    for run in runs:
        server = run.trajectory.server
        opened = line(server.opened, server.seen[server.opened], "opened sum, with noise", **run.look, width=0.75)
        opened["opacity"] = 0.45
        rounds, mean, window = moving_mean(run.trajectory.participants)
        true = line(rounds, mean, "true turnout" + (", moving mean" if window > 1 else ""), colour=INK)
        if len(runs) > 1:
            page.heading(run.name, level=3)
        page.figure(
            chart([opened, true], x="Round", y=f"Sum ({_unit([run])})"),
            "The server saw these sums with noise, and nothing else of the turnout. The true turnout beside them "
            "moves as little as the server's gain lets the signal follow the noise.",
        )


_OUTSIDE = " The start lies outside the view: double-click the plot to see it."


def _over_time(page: Page, traces: Sequence[Trace], y: str, caption: str) -> None:
    """A plot over the rounds, with a view that a steep start does not flatten."""
    view = focus([trace["y"] for trace in traces])
    layout: dict[str, Any] = {} if view is None else {"yaxis": {"range": view}}
    page.figure(chart(traces, x="Round", y=y, **layout), caption + ("" if view is None else _OUTSIDE))


def _unit(runs: Sequence[ShownRun]) -> str:
    return "sum of weights" if any(run.is_weighted for run in runs) else "clients"


def _spread(run: ShownRun, relative: bool) -> Trace:
    """The last rounds' turnout as a histogram, in bins of whole numbers (others would look like a comb)."""
    tail = run.trajectory.last(TAIL)
    low, high = int(tail.min()), int(tail.max())
    width = max(1, -(-(high - low + 1) // 30))
    edges = np.arange(low, high + width + 1, width) - 0.5
    share = 100.0 * np.histogram(tail, edges)[0] / len(tail)
    scale = 100.0 / run.capacity if relative else 1.0
    return bars(edges * scale, share / (width * scale if relative else 1.0), run.name, **run.look)


def _signal(page: Page, runs: Sequence[ShownRun]) -> None:
    lines = [
        line(np.arange(run.trajectory.rounds), run.trajectory.signal, run.name, **run.look, width=1.0) for run in runs
    ]
    prices = _references(runs, "price", "optimal price")
    page.heading("The signal")
    aim = " Without privacy it settles at the optimal price, with privacy somewhat away from it." if prices else ""
    _over_time(
        page,
        [*lines, *prices],
        "Signal Θ",
        f"The one public number that the server moves until enough clients participate.{aim}",
    )


def _cost(page: Page, runs: Sequence[ShownRun]) -> None:
    """Total cost and, where recorded, the distance from reference averages."""
    with_cost = [run for run in runs if run.trajectory.cost is not None]
    if with_cost:
        lines = [_recorded(run, "cost") for run in with_cost]
        optima = _references(with_cost, "cost", "optimum")
        page.heading("Total cost")
        least = ", and the dashed line is the smallest possible." if optima else "."
        if any(len(run.stretches) > 1 for run in with_cost):
            least += " After a change, averages still contain the rounds before it."
        _over_time(page, [*lines, *optima], "Total cost", f"The total cost of the clients' averages{least}")
    with_distance = [run for run in runs if run.trajectory.mean_distance is not None]
    if with_distance:
        page.heading("Distance from the reference")
        _over_time(
            page,
            [_recorded(run, "mean_distance") for run in with_distance],
            "Mean distance",
            "How far the clients' averages are, on average, from the reference averages that the run was given.",
        )


def _recorded(run: ShownRun, column: str) -> Trace:
    values: Array = getattr(run.trajectory, column)
    return line(run.trajectory.checkpoints, values, run.name, **run.look)


def _averages(page: Page, runs: Sequence[ShownRun]) -> None:
    """The clients' final averages: all together, and each against its optimum."""
    known = [run for run in runs if run.trajectory.state is not None]
    if not known:
        return
    edges = np.linspace(0.0, 1.0, 41)
    traces = [bars(edges, _shares(_final(run), edges), run.name, **run.look) for run in known]
    solved = [(run, run.best) for run in known if run.best is not None]
    optima = [_shares(best.average, edges) for _, best in solved]
    if has_one := bool(optima) and all(np.allclose(one, optima[0]) for one in optima):
        traces.append(bars(edges, optima[0], "optimum", colour=INK, dash="dash"))  # several would hide everything
    page.heading("How often clients participate")
    page.figure(
        chart(traces, x="Final average of a client", y="Share of clients (%)"),
        "How the clients differ: 0 never participates, 1 always does"
        + (", and the dashed outline is the optimum." if has_one else "."),
        height=320,
    )
    if not solved:
        return
    dots = [_against(run, best, _DOTS // len(solved)) for run, best in solved]
    diagonal = line([0, 1], [0, 1], "optimum", colour=INK, dash="dash", width=1.5)
    page.heading("Each client against its optimum", level=3)
    page.figure(
        chart(
            [*dots, diagonal],
            x="Optimal average",
            y="Final average",
            hovermode="closest",
            legend={"itemsizing": "constant"},
        ),
        "Each dot is a client; on the dashed line it participates exactly as often as in the optimum. "
        + (
            "Only some clients, evenly chosen, are shown."
            if any(run.present > len(dot["x"]) for (run, _), dot in zip(solved, dots, strict=True))
            else ""
        ),
        height=440,
    )


def _final(run: ShownRun) -> Array:
    """The final averages of those who are members at the end."""
    return run.trajectory.average[run.stretches[-1].members]


def _shares(averages: Array, edges: Values) -> Array:
    counts: Array = np.histogram(averages, edges)[0] * (100.0 / max(len(averages), 1))
    return counts


def _against(run: ShownRun, best: Optimum, most: int) -> Trace:
    """Clients evenly chosen in the order of their optimum, as dots."""
    order = np.argsort(best.average, kind="stable")
    chosen = order[np.unique(np.linspace(0, len(order) - 1, min(most, len(order))).astype(np.int64))]
    who = np.flatnonzero(run.stretches[-1].members)[chosen]
    dots = points(best.average[chosen], _final(run)[chosen], run.name, colour=run.look["colour"], size=4.5)
    template = "client %{text}<br>optimum %{x:.3f}, final %{y:.3f}"
    return dots | {"text": [str(client) for client in who], "hovertemplate": template}


def _kept(page: Page, runs: Sequence[ShownRun]) -> None:
    """The averages of chosen clients over time, one figure per run."""
    keeping = [run for run in runs if run.trajectory.averages is not None and run.trajectory.averages.shape[1]]
    if not keeping:
        return
    page.heading("Clients whose averages were recorded")
    for run in keeping:
        trajectory = run.trajectory
        assert trajectory.averages is not None
        who = trajectory.keep.chosen(run.clients)
        shown = np.unique(np.linspace(0, len(who) - 1, min(_KEPT, len(who))).astype(np.int64))
        member = {int(client): place for place, client in enumerate(np.flatnonzero(run.stretches[-1].members))}
        traces: list[Trace] = []
        for index, column in enumerate(shown):
            client, style = int(who[column]), look(index)
            x = trajectory.checkpoints
            y = trajectory.averages[:, column].copy()
            for stretch in run.stretches:
                if not stretch.members[client]:
                    y[(x >= stretch.first) & (x < stretch.stop)] = np.nan  # no member, no average
            traces.append(line(x, y, f"client {client}", **style))
            if run.best is not None and client in member:
                level = float(run.best.average[member[client]])
                traces.append(line([x[0], x[-1]], [level, level], "", colour=style["colour"], dash="dot", width=1.25))
        if len(keeping) > 1:
            page.heading(run.name, level=3)
        some = f"{len(shown)} of the {len(who):,} clients" if len(shown) < len(who) else "The clients"
        dotted = "; dotted lines are their optima" if run.best is not None else ""
        page.figure(
            chart(traces, x="Round", y="Average", yaxis={"range": [0, 1.02]}),
            f"{some} whose averages the run recorded{dotted}.",
            height=320,
        )


def _references(runs: Sequence[ShownRun], of: str, label: str) -> list[Trace]:
    """Dashed staircases to compare with, one for all runs that share it."""
    found = []
    for run in runs:
        x, y = run.profile(of)
        if any(value is not None for value in y):
            found.append((run.name, (x, y)))
    # Runs of different length share a staircase if it is the same up to its end.
    groups: list[tuple[list[str], tuple[list[int], list[float | None]]]] = []
    for name, (x, y) in sorted(found, key=lambda one: -one[1][0][-1]):
        for names, (longer, levels) in groups:
            if levels == y and longer[:-1] == x[:-1]:
                names.append(name)
                break
        else:
            groups.append(([name], (x, y)))
    return [
        line(
            x,
            np.array(y, dtype=np.float64),
            _label(label, names, len(groups)),
            colour=INK,
            dash=dash,
            width=1.5,
        )
        for (names, (x, y)), dash in zip(groups, itertools.cycle(("dash", "dot", "dashdot")), strict=False)
    ]


def _label(what: str, names: Sequence[str], groups: int) -> str:
    return what if groups == 1 else f"{what} of {', '.join(sorted(names))}"


def moving_mean(values: Values) -> tuple[Values, Array, int]:
    """A series' mean over a window of a hundredth of it, at some 400 places.

    Args:
        values: the series.

    Returns:
        the places, the means, and the window; a short series (window 1) comes back as it is.

    Example:
        >>> moving_mean(np.arange(5.0))
        (array([0, 1, 2, 3, 4]), array([0., 1., 2., 3., 4.]), 1)
    """
    window = max(1, len(values) // 100)
    if window == 1:
        return np.arange(len(values)), np.asarray(values, dtype=np.float64), 1
    places = np.unique(np.linspace(0, len(values) - 1, 400).astype(np.int64))
    total = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    first, stop = np.maximum(places - window // 2, 0), np.minimum(places + (window + 1) // 2, len(values))
    return places, (total[stop] - total[first]) / (stop - first), window
