"""The figures of the paper: the numbers of each, and its drawing in print, in one style."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from turnout.errors import MissingExtra
from turnout.files import whole_file
from turnout.paper.runs import Numbers, paper_problem
from turnout.paper.settings import CLASSICAL, SETTINGS, beta_name
from turnout.paper.tables import Store, forecasts, full_runs, seeds
from turnout.problem import optimum
from turnout.report import PALETTE, STYLE


class _Figure(NamedTuple):
    """A figure: the name of its files, its numbers from the tables, and its drawing into a folder."""

    name: str
    compute: Callable[[Store], Numbers]
    draw: Callable[[Numbers, Path], None]


COLOURS = {CLASSICAL: "#444444"} | {
    beta_name(beta): colour for beta, colour in zip(SETTINGS["betas"].value, PALETTE, strict=False)
}
"""The colour of each of the five runs, the same in every figure."""

LABELS = {CLASSICAL: "classical"} | {beta_name(beta): f"β = {beta:g}" for beta in SETTINGS["betas"].value}


@contextmanager
def panels(
    folder: Path, name: str, columns: int, *, width: float = 3.3, height: float = 2.7, rows: int = 1
) -> Iterator[Any]:
    """Axes of a figure with some panels; saved as PNG and SVG when the block ends.

    Args:
        folder: where to save.
        name: of the files.
        columns, rows: how many panels.
        width, height: of one panel, in inches.
    """
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("the paper's figures", library="matplotlib", extra="lab") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context(STYLE | {"figure.dpi": 110, "savefig.dpi": 220}):
        figure, axes = pyplot.subplots(
            rows, columns, figsize=(width * columns, height * rows), layout="constrained", squeeze=False
        )
        yield axes.ravel()
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(folder / f"{name}.png") as file:
            figure.savefig(file, format="png")
        with whole_file(folder / f"{name}.svg") as file:
            figure.savefig(file, format="svg", metadata={"Date": None})
        pyplot.close(figure)


def _letter(axes: Any, number: int, title: str) -> None:
    """Title a panel (a), (b), …"""
    axes.set_title(f"({'abcdefgh'[number]}) {title}")


def _band(axes: Any, x: Any, runs: Any, colour: str, label: str) -> None:
    """The median of many runs, and between which 95 % of them lie."""
    import numpy as np

    low, middle, high = np.percentile(runs, [2.5, 50, 97.5], axis=0)
    axes.fill_between(x, low, high, color=colour, alpha=0.25, linewidth=0)
    axes.plot(x, middle, color=colour, label=label)


# Fig. 1 (label fig1-single): |x_i(k) - x_i*| for all clients, by beta.


def _distance(store: Store) -> Numbers:
    """Distances at every checkpoint, shape (checkpoints, clients), for both meanings of x*.

    Paper: Fig. 1.
    """
    runs = full_runs(store)
    exact, classical = optimum(paper_problem()).average, runs[CLASSICAL]["averages"][-1]
    found: Numbers = {"rounds": runs[CLASSICAL]["rounds"]}
    for name, run in runs.items():
        found[f"{name} to the optimum"] = np.abs(run["averages"] - exact)
        found[f"{name} to the classical run"] = np.abs(run["averages"] - classical)
    return found


def _draw_distance(numbers: Numbers, folder: Path) -> None:
    """One panel per beta for each meaning of x*; one thin line per client, quantiles on top."""
    shown = [name for name in COLOURS if name != CLASSICAL]
    with panels(folder, "fig1-distance", len(shown), width=2.6, height=2.5, rows=2) as axes:
        for row, meaning in enumerate(("to the classical run", "to the optimum")):
            for column, name in enumerate(shown):
                panel = axes[row * len(shown) + column]
                _panel(panel, numbers["rounds"], numbers[f"{name} {meaning}"], COLOURS[name])
                _letter(panel, row * len(shown) + column, f"{LABELS[name]}, {meaning}")
                panel.set_xlabel("round k")
            axes[row * len(shown)].set_ylabel("$|x_i(k) - x_i^*|$")


def _panel(panel: Any, rounds: Any, distances: Any, colour: str) -> None:
    from matplotlib.collections import LineCollection

    # One artist for all clients: matplotlib takes a millisecond for each of its own, several times over.
    lines = [np.column_stack((rounds, distance)) for distance in distances.T]
    clients = LineCollection(lines, colors=colour, linewidths=0.15, alpha=0.25, rasterized=True)
    panel.add_collection(clients, autolim=False)
    for quantile, style in ((50, "-"), (95, "--")):
        panel.plot(
            rounds,
            np.percentile(distances, quantile, axis=1),
            style,
            color="black",
            linewidth=1,
            label=f"{quantile} % of clients",
        )
    panel.set(ylim=(0, 0.4), xlim=(0, rounds[-1]))
    panel.legend(loc="upper right", fontsize=7)


# Fig. 2 (label fig3-single): the absolute aggregate cost difference over time.


def _cost(store: Store) -> Numbers:
    """|cost(k) - cost(x*)| of every seed, shape (seeds, checkpoints), and of the forecast.

    Paper: Fig. 2.
    """
    found: Numbers = {}
    last = seeds(store)[CLASSICAL]["cost"][:, -1].mean()  # the paper's x*: where the classical run ends
    for name, runs in seeds(store).items():
        found["rounds"] = runs["rounds"][0]
        best = float(runs["optimum_cost"][0])
        found[f"{name} to the optimum"] = np.abs(runs["cost"] - best)
        found[f"{name} to the classical run"] = np.abs(runs["cost"] - last)
        expected = forecasts(store)[name]
        found[f"{name} forecast rounds"] = expected["rounds"]
        found[f"{name} forecast"] = np.abs(expected["cost"] - best)
    return found


def _draw_cost(numbers: Numbers, folder: Path) -> None:
    """The median over seeds with a 95 % band, and the forecast as a dotted line, for both meanings of x*."""
    with panels(folder, "fig2-cost", 2, width=4.0, height=3.2) as axes:
        for number, meaning in enumerate(("to the classical run", "to the optimum")):
            panel = axes[number]
            for name, colour in COLOURS.items():
                rounds = numbers["rounds"]
                _band(panel, rounds[1:], numbers[f"{name} {meaning}"][:, 1:], colour, LABELS[name])
                if meaning == "to the optimum":
                    later = numbers[f"{name} forecast rounds"] >= rounds[1]
                    panel.plot(
                        numbers[f"{name} forecast rounds"][later],
                        numbers[f"{name} forecast"][later],
                        ":",
                        color="black",
                        linewidth=0.9,
                    )
            panel.set(xscale="log", yscale="log", xlabel="round k", ylim=(0.05, 3000))
            _letter(panel, number, f"cost difference {meaning}")
        axes[0].set_ylabel(r"$|\sum f_i(x_i(k)) - \sum f_i(x_i^*)|$")
        axes[0].plot([], [], ":", color="black", label="forecast (b)")
        axes[0].legend(fontsize=7, ncols=3, loc="upper center")


# Fig. 3 (label fig2-single): the paper's mean privacy error over time, and for how many clients it is infinite.


def _privacy_error(store: Store) -> Numbers:
    """The Lemma's value, averaged over clients with intent below 1, and the number of the others.

    Paper: Fig. 3, Lemma IV.1, Theorem IV.3.
    """
    found: Numbers = {}
    for name, runs in seeds(store).items():
        if name != CLASSICAL:  # without a coin it is infinite for everyone
            found |= {"rounds": runs["rounds"][0], name: runs["lemma_epsilon"], f"{name} saturated": runs["saturated"]}
            expected = forecasts(store)[name]
            found |= {f"{name} forecast": expected["limit_lemma_epsilon"]}
    return found


def _draw_privacy_error(numbers: Numbers, folder: Path) -> None:
    """Medians over seeds with 95 % bands."""
    with panels(folder, "fig3-privacy-error", 2, width=4.0, height=3.0) as axes:
        for name in (name for name in COLOURS if name in numbers):
            _band(axes[0], numbers["rounds"][1:], numbers[name][:, 1:], COLOURS[name], LABELS[name])
            axes[0].axhline(float(numbers[f"{name} forecast"]), color="black", linestyle=":", linewidth=0.9)
            _band(axes[1], numbers["rounds"][1:], numbers[f"{name} saturated"][:, 1:], COLOURS[name], LABELS[name])
        _letter(axes[0], 0, "mean over clients with intent < 1")
        _letter(axes[1], 1, "clients with intent 1: value infinite")
        axes[0].set(xlabel="round k", ylabel="the Lemma's ε, per report", ylim=(0, None))
        axes[1].set(xlabel="round k", ylabel="clients of 1,200", ylim=(0, None))
        axes[0].plot([], [], ":", color="black", label="forecast")
        axes[0].legend(fontsize=7, ncols=3)


# Fig. 4 (label fig5-single): the turnout, over 60 rounds and as histograms of the last 400.


def _turnout(store: Store) -> Numbers:
    """The last rounds of the five runs, and the spread that the forecast gives.

    Paper: Fig. 4.
    """
    found: Numbers = {}
    for name, run in full_runs(store).items():
        found[name] = run["participants"][-SETTINGS["last rounds"].value :]
        found[f"{name} forecast spread"] = forecasts(store)[name]["spread"]
    return found


def _draw_turnout(numbers: Numbers, folder: Path) -> None:
    """(a) the last 60 rounds, (b) beta = 3.5, (c) classical; the curve is the forecast."""
    capacity, chosen = SETTINGS["capacity"].value, SETTINGS["chosen rounds"].value
    first = SETTINGS["rounds"].value - chosen
    with panels(folder, "fig4-turnout", 3, width=3.3, height=2.8) as axes:
        for name, colour in COLOURS.items():
            axes[0].plot(
                np.arange(first, first + chosen),
                numbers[name][-chosen:],
                color=colour,
                linewidth=0.9,
                label=LABELS[name],
            )
        axes[0].axhline(capacity, color="black", linewidth=0.8, linestyle="--")
        axes[0].set(xlabel="round k", ylabel="participants", ylim=(capacity - 75, capacity + 105))
        axes[0].legend(fontsize=7, ncols=3, loc="upper center")
        _letter(axes[0], 0, f"the last {chosen} rounds")
        for number, name in enumerate((beta_name(3.5), CLASSICAL), start=1):
            turnout, spread = numbers[name], float(numbers[f"{name} forecast spread"])
            edges = np.arange(capacity - 65, capacity + 66, 10)
            axes[number].hist(turnout, edges, color=COLOURS[name], alpha=0.75)
            fine = np.linspace(edges[0], edges[-1], 200)
            height = len(turnout) * 10 / (spread * np.sqrt(2 * np.pi))
            axes[number].plot(fine, height * np.exp(-0.5 * ((fine - capacity) / spread) ** 2), ":k", label="forecast")
            axes[number].axvline(capacity, color="black", linewidth=0.8, linestyle="--")
            axes[number].set(xlabel="participants", ylabel="rounds")
            axes[number].legend(fontsize=7)
            _letter(axes[number], number, f"{LABELS[name]}, last {len(turnout)} rounds")


# Fig. 5 (label fig6-single): the aggregate average participation, and the public signal.


def _signal(store: Store) -> Numbers:
    """The sum of the averages and the signal of every seed, and the forecast's signal.

    Paper: Fig. 5.
    """
    found: Numbers = {}
    for name, runs in seeds(store).items():
        found |= {"rounds": runs["rounds"][0], f"{name} aggregate": runs["aggregate"], f"{name} signal": runs["signal"]}
        expected = forecasts(store)[name]
        found |= {f"{name} forecast rounds": expected["rounds"], f"{name} forecast": expected["signal"]}
    return found


def _draw_signal(numbers: Numbers, folder: Path) -> None:
    """Medians over seeds with 95 % bands; the forecast as a dotted line."""
    rounds, capacity = numbers["rounds"], SETTINGS["capacity"].value
    with panels(folder, "fig5-signal", 2, width=4.0, height=3.0) as axes:
        for name, colour in COLOURS.items():
            _band(axes[0], rounds[1:], numbers[f"{name} aggregate"][:, 1:], colour, LABELS[name])
            _band(axes[1], rounds, numbers[f"{name} signal"], colour, LABELS[name])
            axes[1].plot(
                numbers[f"{name} forecast rounds"], numbers[f"{name} forecast"], ":", color="black", linewidth=0.9
            )
        axes[0].axhline(capacity, color="black", linewidth=0.8, linestyle="--")
        axes[0].set(xscale="log", xlabel="round k", ylabel=r"$\sum x_i(k)$")
        axes[1].set(xlabel="round k", ylabel=r"signal $\Theta(k)$", ylim=(0, None))
        axes[1].plot([], [], ":", color="black", label="forecast")
        axes[1].legend(fontsize=7, ncols=2, loc="lower right")
        _letter(axes[0], 0, "aggregate average participation")
        _letter(axes[1], 1, "the public signal")


FIGURES = (
    _Figure("fig1-distance", _distance, _draw_distance),
    _Figure("fig2-cost", _cost, _draw_cost),
    _Figure("fig3-privacy-error", _privacy_error, _draw_privacy_error),
    _Figure("fig4-turnout", _turnout, _draw_turnout),
    _Figure("fig5-signal", _signal, _draw_signal),
)
"""In the paper's order."""
