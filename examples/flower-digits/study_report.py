"""What the study found: a table for the terminal and for the documentation, a page, and pictures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from turnout.files import whole_file
from turnout.report import INK, PALETTE, Page, chart, line

SELECTIONS = {
    "random": "random",
    "classical": "no privacy",
    "coin": "the paper's coin",
    "clamp": "Clamp, certified",
}
WEIGHTS = {"plain": "plain", "inverse-participation": "inverse participation", "stored-updates": "stored updates"}
FAMILIES = {"paper": "Costs like the paper's", "quadratic": "Quadratic costs"}
HEADER = (
    "selection",
    "weights",
    "client cost / optimum",
    "client cost / random",
    "accuracy, %",
    "against random",
    "costly group, %",
    "against random",
    "rounds to 90 %",
    "turnout",
)
"""Of the table, but for the account, which says over how many reports."""

Run = dict[str, Any]


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean over seeds and its standard error (0 for one seed)."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0


def summary(runs: list[Run]) -> list[dict[str, Any]]:
    """One row for each family, selection and weights, over the seeds for which there is also plain random selection.

    Everything that is "against random" is a difference (or ratio) for each seed, to random selection with plain
    weights, of which then the mean is taken.
    """
    baseline = {(r["costs"], r["seed"]): r for r in runs if r["selection"] == "random" and r["weights"] == "plain"}
    rows = []
    for family in FAMILIES:
        for selection in SELECTIONS:
            for weights in WEIGHTS:
                found = [r for r in runs if (r["costs"], r["selection"], r["weights"]) == (family, selection, weights)]
                pairs = [(r, baseline[family, r["seed"]]) for r in found if (family, r["seed"]) in baseline]
                if pairs:
                    rows.append({"costs": family, "selection": selection, "weights": weights} | _means(pairs))
    return rows


def _means(pairs: list[tuple[Run, Run]]) -> dict[str, Any]:
    runs = [run for run, _ in pairs]
    reached = [run["rounds_to_target"] for run in runs]
    return {
        "seeds": len(runs),
        "over_optimum": mean_and_error([run["client_cost"] / run["optimum_cost"] for run in runs]),
        "over_random": mean_and_error([run["client_cost"] / usual["client_cost"] for run, usual in pairs]),
        "accuracy": mean_and_error([100 * run["accuracy"] for run in runs]),
        "gain": mean_and_error([100 * (run["accuracy"] - usual["accuracy"]) for run, usual in pairs]),
        "costly": mean_and_error([100 * run["costly_accuracy"] for run in runs]),
        "costly_gain": mean_and_error(
            [100 * (run["costly_accuracy"] - usual["costly_accuracy"]) for run, usual in pairs]
        ),
        "rounds": None if None in reached else float(np.mean(reached)),
        "turnout": float(np.mean([run["turnout"] for run in runs])),
        "epsilon_per_report": runs[0]["epsilon_per_report"],
        "epsilon_total": runs[0]["epsilon_total"],
        "curve": np.mean([run["curve"] for run in runs], axis=0).tolist(),
        "costly_curve": np.mean([run["costly_curve"] for run in runs], axis=0).tolist(),
    }


def header(rounds: int) -> tuple[str, ...]:
    """The columns' names; the account is against the server, which sees every report."""
    return (*HEADER, f"certified total ε against the server, {rounds} reports, δ = 1e-6")


def account(row: dict[str, Any]) -> str:
    """Bounds are rounded upwards."""
    if row["selection"] == "random":
        return "no report"
    return "none" if row["epsilon_total"] is None else f"≤ {np.ceil(10 * row['epsilon_total']) / 10:.1f}"


def cells(row: dict[str, Any]) -> list[str]:
    """A row for people."""

    def signed(value: tuple[float, float]) -> str:
        return f"{value[0]:+.2f} ± {value[1]:.2f}".replace("-", "−")

    return [
        SELECTIONS[row["selection"]],
        WEIGHTS[row["weights"]],
        f"{row['over_optimum'][0]:.2f}",
        f"{100 * row['over_random'][0]:.0f} %",
        f"{row['accuracy'][0]:.2f} ± {row['accuracy'][1]:.2f}",
        signed(row["gain"]),
        f"{row['costly'][0]:.2f} ± {row['costly'][1]:.2f}",
        signed(row["costly_gain"]),
        "not all" if row["rounds"] is None else f"{row['rounds']:.0f}",
        f"{row['turnout']:.2f}",
        account(row),
    ]


def markdown(runs: list[Run], settings: dict[str, Any]) -> str:
    """The tables of the documentation, one for each family of costs."""
    parts = []
    for family, title in FAMILIES.items():
        rows = [cells(row) for row in summary(runs) if row["costs"] == family]
        lines = [
            "| " + " | ".join(row) + " |"
            for row in (header(settings["rounds"]), ["---"] * 2 + ["---:"] * 8 + ["---"], *rows)
        ]
        parts.append(f"**{title}**\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def terminal_table(runs: list[Run]) -> Table:
    """The table on the screen: the means, without the account."""
    table = Table(
        "costs", "selection", "weights", "cost/best", "cost/random", "acc. %", "costly %", "to 90 %", "turnout"
    )
    for row in summary(runs):
        _, _, best, usual, right, _, costly, _, rounds, turnout, _ = (cell.split(" ±")[0] for cell in cells(row))
        names = (row["costs"], row["selection"], row["weights"].split("-")[0])
        table.add_row(
            *names, best, usual, right, costly, rounds, turnout, end_section=row["weights"] == "stored-updates"
        )
    return table


def page(runs: list[Run], settings: dict[str, Any], folder: Path) -> Path:
    """report.html: the tables and the curves."""
    rows, rounds = summary(runs), settings["rounds"]
    made = Page(
        "What self-selection does to learning",
        f"Label-skewed digits, {settings['clients']} clients, capacity {settings['capacity']}, {rounds} rounds, "
        f"{max(row['seeds'] for row in rows)} seeds. The holders of 7, 8 and 9 are the costly group.",
    )
    for family, title in FAMILIES.items():
        own = [row for row in rows if row["costs"] == family]
        if not own:
            continue
        made.heading(title)
        caption = (
            f"Means over seeds ± standard errors; accuracy over the last {max(1, rounds // 6)} rounds. Differences are "
            "to random selection with plain weights, seed by seed."
        )
        made.table(header(rounds), [cells(row) for row in own], caption)
        traces = [
            line(_rounds(row), 100 * np.array(row["costly_curve"]), _name(row), colour=colour, dash=dash)
            for row in own
            for colour, dash in [_look(row)]
        ]
        figure = chart(traces, x="Round", y="Accuracy on the costly group's digits, %")
        made.figure(
            figure,
            "Accuracy on 7, 8 and 9: dashed with plain weights, solid with inverse participation, "
            "dotted with stored updates.",
            height=480,
        )
    return made.save(folder / "report.html")


def pictures(runs: list[Run], settings: dict[str, Any], folder: Path) -> list[Path]:
    """learning-costs.png (what is saved, and what it takes) and learning-curves.png."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    style = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True}
    style |= {"grid.color": "#dddddd", "grid.linewidth": 0.5, "legend.frameon": False, "axes.titlelocation": "left"}
    rows, paths = summary(runs), []
    with matplotlib.rc_context(style):
        for name, draw in (("learning-costs", _draw_costs), ("learning-curves", _draw_curves)):
            figure, axes = pyplot.subplots(1, 2, figsize=(9.6, 4.3), layout="constrained", sharey=True)
            for panel, (family, title) in zip(axes, FAMILIES.items(), strict=True):
                legend = draw(panel, [row for row in rows if row["costs"] == family])
                panel.set_title(title)
            axes[0].set_ylabel("Accuracy on the costly group's digits, %")
            figure.legend(handles=legend, loc="outside lower center", ncols=4, fontsize=8)
            paths.append(folder / f"{name}.png")
            with whole_file(paths[-1]) as file:
                figure.savefig(file, format="png", dpi=150)
            pyplot.close(figure)
    return paths


_MARKERS = {"plain": "x", "inverse-participation": "o", "stored-updates": "D"}
_APART = {"plain": -1.5, "inverse-participation": 0.0, "stored-updates": 1.5}
_CURVES = {"plain": (PALETTE[1], "--"), "inverse-participation": (PALETTE[0], "-"), "stored-updates": (PALETTE[2], "-")}
_DASHES = {"plain": "dash", "inverse-participation": "solid", "stored-updates": "dot"}
_COLOURS = dict(zip(SELECTIONS, ("#444444", *PALETTE), strict=False))


def _look(row: dict[str, Any]) -> tuple[str, str]:
    colour = INK if row["selection"] == "random" else _COLOURS[row["selection"]]
    return colour, _DASHES[row["weights"]]


def _name(row: dict[str, Any]) -> str:
    return f"{SELECTIONS[row['selection']]}: {WEIGHTS[row['weights']]}"


def _rounds(row: dict[str, Any]) -> list[float]:
    window = 10
    return [window * (place + 0.5) for place in range(len(row["curve"]))]


def _draw_costs(axes: Any, rows: list[dict[str, Any]]) -> list[Any]:
    """The costly group's accuracy against what the clients pay; markers of one selection are set apart a little."""
    from matplotlib.lines import Line2D

    for row in rows:
        x, (y, error) = 100 * row["over_random"][0] + _APART[row["weights"]], row["costly"]
        looks = {"marker": _MARKERS[row["weights"]], "color": _COLOURS[row["selection"]], "linestyle": "none"}
        axes.errorbar(x, y, yerr=error, markersize=6, elinewidth=1.0, **looks)
    axes.set_xlabel("Client cost, % of random selection's")
    axes.set_xlim(0, 110)
    legend = [Line2D([], [], color=_COLOURS[key], linewidth=4, label=name) for key, name in SELECTIONS.items()]
    shape = {"color": "#444444", "linestyle": "none"}
    return legend + [Line2D([], [], marker=_MARKERS[key], label=name, **shape) for key, name in WEIGHTS.items()]


def _draw_curves(axes: Any, rows: list[dict[str, Any]]) -> list[Any]:
    """The costly group's accuracy over the rounds: random selection, and the paper's coin with each of the weights."""
    legend = []
    for row in rows:
        if row["selection"] == "coin":
            colour, dash = _CURVES[row["weights"]]
        elif (row["selection"], row["weights"]) == ("random", "plain"):
            colour, dash = _COLOURS["random"], "-"
        else:
            continue
        legend += axes.plot(_rounds(row), 100 * np.array(row["costly_curve"]), dash, color=colour, label=_name(row))
    axes.set_xlabel("Round")
    axes.set_ylim(bottom=0 if len(rows) == 0 or len(rows[0]["curve"]) < 10 else 50)
    return legend
