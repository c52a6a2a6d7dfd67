"""The report: the whole story on one page."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np

from turnout.paper.claims import CONDITION, FAILS, HOLDS, MISPRINT
from turnout.paper.figures import COLOURS, FIGURES, LABELS
from turnout.paper.runs import Numbers
from turnout.paper.settings import CLASSICAL, SETTINGS, beta_name
from turnout.paper.tables import Store, forecasts, seeds
from turnout.report import INK, Markup, Page, Trace, band, bars, chart, escape, line

_COLOURS = COLOURS | {CLASSICAL: INK}  # on a page, grey follows light and dark
_LOG = {"type": "log", "dtick": 1}


def _in_formulas(text: str) -> Markup:
    """Text for a page, with its formulas set: x_i* and e^(−β) get their indices and exponents.

    Example:
        >>> _in_formulas("|x_i − x_i*| < e^(−β)")
        '|x<sub>i</sub> − x<sub>i</sub><sup>*</sup>| &lt; e<sup>−β</sup>'
    """
    found = re.sub(r"(?<=[A-Za-zε])_i\b(\*?)", lambda index: f"<sub>i</sub>{index[1] and '<sup>*</sup>'}", escape(text))
    return Markup(re.sub(r"\^\(([^()]*)\)", r"<sup>\1</sup>", found))


def make_page(store: Store, results: dict[str, Any]) -> Page:
    """All figures, the forecast, the claims and the settings, in plain words."""
    page = Page(
        "Clients that decide for themselves",
        "“Near-optimal Differentially Private Client Selection in Federated Settings” (Alam, Shukla, Rao; Allerton 2023), "
        "reproduced, forecast without simulating, and checked claim by claim.",
    )
    _opening(page, results)
    for write, figure in zip((_figure_1, _figure_2, _figure_3, _figure_4, _figure_5), FIGURES, strict=True):
        write(page, figure.compute(store))
    _forecast(page, store, results)
    _claims(page, results["claims"])
    _closing(page, results)
    return page


def _opening(page: Page, results: dict[str, Any]) -> None:
    for text in (
        "A server needs 600 of 1,200 clients in each round. Taking part costs each client something, more the more often it does, "
        "and the cost is private. The server broadcasts one number, the signal, and corrects it by the turnout it "
        "sees. Each client decides by itself, from its own cost, its own past, and a coin.",
        "The paper adds a privacy coin: a client that does not want to participate does so anyway with probability (β/2)e^(−β). "
        "Here is what that costs, what it hides, and what it does not.",
    ):
        page.text(Markup(f"<p>{_in_formulas(text)}</p>"))
    gaps = results["cost_gap_percent"]
    page.facts(
        [
            ("smallest possible cost", round(results["optimum_cost"], 1), "the exact optimum"),
            ("clients chosen at random", round(results["random_cost"], 1), "as frameworks do now"),
            ("self-chosen, β = 3.5", f"{gaps[beta_name(3.5)]['mean']:+.2f} %", "above the optimum"),
            ("self-chosen, β = 1", f"{gaps[beta_name(1.0)]['mean']:+.2f} %", "above the optimum"),
        ]
    )
    page.text(
        f"All numbers are over {SETTINGS['seeds'].value} seeds of {SETTINGS['rounds'].value:,} rounds; shaded bands hold 95 % of the seeds. "
        "Dotted lines are the forecast, which simulates nothing."
    )


def _figure_1(page: Page, numbers: Numbers) -> None:
    page.heading("Fig. 1: how far clients are from the optimum")
    traces: list[Trace] = []
    for name, colour in COLOURS.items():
        if name != CLASSICAL:
            distances = numbers[f"{name} to the optimum"]
            middle, high = np.percentile(distances, [50, 95], axis=1)
            traces.append(line(numbers["rounds"], middle, LABELS[name], colour=colour))
            traces.append(line(numbers["rounds"], high, "", colour=colour, dash="dash", width=1.5))
    page.figure(
        chart(traces, x="round k", y=_in_formulas("|x_i(k) − x_i*|"), yaxis={"range": [0, 0.2]}),
        "Distance of the clients' averages from the exact optimum: the median over clients, and dashed the 95 % quantile.",
    )
    page.text(
        "The paper takes the classical run's last average for the optimum; the figures in print (fig1-distance.png) show every client, "
        "for both meanings, and both β = 1.5 and β = 1, since caption and text disagree."
    )


def _figure_2(page: Page, numbers: Numbers) -> None:
    page.heading("Fig. 2: what privacy costs")
    traces: list[Trace] = []
    for name, colour in _COLOURS.items():
        traces += _over_seeds(numbers["rounds"], numbers[f"{name} to the optimum"], name, start=1)
        later = numbers[f"{name} forecast rounds"] >= numbers["rounds"][1]
        forecast = numbers[f"{name} forecast"][later]
        traces.append(
            line(numbers[f"{name} forecast rounds"][later], forecast, "", colour=colour, dash="dot", width=1.5)
        )
    page.figure(
        chart(traces, x="round k", y="|cost − optimum|", xaxis=_LOG, yaxis=_LOG),
        "Absolute difference of the total cost from the optimum's. The dip of β = 3.5 is where it passes from below to above.",
    )


def _figure_3(page: Page, numbers: Numbers) -> None:
    page.heading("Fig. 3: the paper's privacy error")
    names = [name for name in COLOURS if name in numbers]
    traces = [trace for name in names for trace in _over_seeds(numbers["rounds"], numbers[name], name, start=1)]
    page.figure(
        chart(traces, x="round k", y="the Lemma's ε, per report", yaxis={"rangemode": "tozero"}),
        "The Lemma's value, averaged over the clients for whom it is finite.",
    )
    counts = [
        trace for name in names for trace in _over_seeds(numbers["rounds"], numbers[f"{name} saturated"], name, start=1)
    ]
    page.figure(
        chart(counts, x="round k", y="clients of 1,200", yaxis={"rangemode": "tozero"}),
        "Clients with intent 1, for whom it is infinite: the plain mean over all clients, as the paper defines it, is infinite.",
        height=300,
    )
    page.text(
        "The Lemma says how deniable a “yes” is. A “no” proves that the client did not want to participate, whatever β is, and nothing in "
        "the paper adds up over rounds. It is a diagnostic, not a guarantee of differential privacy."
    )


def _figure_4(page: Page, numbers: Numbers) -> None:
    page.heading("Fig. 4: turnout")
    capacity, chosen = SETTINGS["capacity"].value, SETTINGS["chosen rounds"].value
    rounds = np.arange(SETTINGS["rounds"].value - chosen, SETTINGS["rounds"].value)
    traces = [line(rounds, numbers[name][-chosen:], LABELS[name], colour=colour) for name, colour in _COLOURS.items()]
    traces.append(line(rounds[[0, -1]], [capacity, capacity], "capacity", colour=INK, dash="dash", width=1.0))
    page.figure(
        chart(traces, x="round k", y="participants"),
        f"Turnout of the last {chosen} rounds; the same coins in all five runs.",
    )
    edges = np.arange(capacity - 65, capacity + 66, 10)
    histograms = []
    for name in (beta_name(3.5), CLASSICAL):
        counts, spread = np.histogram(numbers[name], edges)[0], float(numbers[f"{name} forecast spread"])
        histograms.append(bars(edges, counts, LABELS[name], colour=_COLOURS[name]))
        fine = np.linspace(edges[0], edges[-1], 120)
        height = counts.sum() * 10 / (spread * np.sqrt(2 * np.pi)) * np.exp(-0.5 * ((fine - capacity) / spread) ** 2)
        histograms.append(line(fine, height, "", colour=_COLOURS[name], dash="dot", width=1.5))
    page.figure(
        chart(histograms, x="participants", y="rounds"),
        "Turnout of the last 400 rounds, and the forecast of its spread.",
        height=320,
    )


def _figure_5(page: Page, numbers: Numbers) -> None:
    page.heading("Fig. 5: the averages add up, and the signal settles")
    sums = [
        trace
        for name in COLOURS
        for trace in _over_seeds(numbers["rounds"], numbers[f"{name} aggregate"], name, start=1)
    ]
    page.figure(
        chart(sums, x="round k", y=_in_formulas("Σ x_i(k)"), xaxis=_LOG),
        "The sum of the averages goes to the capacity, 600.",
        height=300,
    )
    traces: list[Trace] = []
    for name, colour in _COLOURS.items():
        traces += _over_seeds(numbers["rounds"], numbers[f"{name} signal"], name)
        traces.append(
            line(
                numbers[f"{name} forecast rounds"],
                numbers[f"{name} forecast"],
                "",
                colour=colour,
                dash="dot",
                width=1.5,
            )
        )
    page.figure(
        chart(traces, x="round k", y="signal Θ(k)", yaxis={"rangemode": "tozero"}),
        "The signal. Without privacy it settles at the price of the optimum; by the coin some clients participate at any signal, so it settles lower.",
    )


def _over_seeds(x: Any, runs: Any, name: str, start: int = 0) -> list[Trace]:
    """The median of many runs and the band that holds 95 % of them."""
    low, middle, high = np.percentile(runs[:, start:], [2.5, 50, 97.5], axis=0)
    shade = "#888888" if name == CLASSICAL else COLOURS[name]
    return [band(x[start:], low, high, colour=shade), line(x[start:], middle, LABELS[name], colour=_COLOURS[name])]


def _forecast(page: Page, store: Store, results: dict[str, Any]) -> None:
    page.heading("Forecast against simulation")
    page.text(
        "In the long run a client's average is its own probability, and the averages add up to the capacity: equations that need no "
        "simulation. For a finite run the mean and variance of each client's average are followed instead."
    )
    rows = []
    for name, expected in forecasts(store).items():
        runs, gap = seeds(store)[name], results["cost_gap_percent"][name]
        rows.append(
            [
                LABELS[name],
                f"{float(expected['last_signal']):.3f}",
                f"{runs['late_signal'].mean():.3f}",
                f"{100 * float(expected['gap']):+.3f} %",
                f"{gap['mean']:+.3f} %",
                f"{float(expected['spread']):.1f}",
                f"{runs['turnout_spread'].mean():.1f}",
            ]
        )
    header = [
        "run",
        "signal, forecast",
        "simulated",
        "cost gap, forecast",
        "simulated",
        "spread, forecast",
        "simulated",
    ]
    page.table(
        header, rows, f"The same population after {SETTINGS['rounds'].value:,} rounds; simulated: mean over the seeds."
    )


def _claims(page: Page, claims: list[dict[str, str]]) -> None:
    page.heading("What the paper says, and what we found")
    counts = Counter(claim["verdict"] for claim in claims)
    page.text(
        f"Of {counts.total() - counts[MISPRINT]} checkable sentences, {counts[HOLDS]} hold, {counts[CONDITION]} hold with a condition, "
        f"and {counts[FAILS]} do not hold; {counts[MISPRINT]} more is a misprint. "
        "Each verdict is computed from the numbers beside it, over 100 populations or 100 seeds."
    )
    rows = [
        [
            _in_formulas(claim["sentence"]),
            claim["where"],
            Markup(f"<strong>{claim['verdict']}</strong>"),
            _in_formulas(claim["measured"]),
            _in_formulas(claim["why"]),
        ]
        for claim in claims
    ]
    page.table(
        ["the paper says", "where", "verdict", "we measured", "condition or reason"], rows, "Claims and verdicts."
    )


def _closing(page: Page, results: dict[str, Any]) -> None:
    page.heading("Settings")
    rows = [[name, str(setting.value), setting.source, setting.note] for name, setting in SETTINGS.items()]
    page.table(["setting", "value", "source", "note"], rows, "Stated in the paper, assumed by us, or our own addition.")
    page.heading("Your own population")
    page.text(
        Markup(
            "<p>Describe it in a file, run it, and make the same kind of page:</p>"
            "<pre>turnout simulate mine.toml --output mine.npz\nturnout report mine.npz</pre>"
            "<p>where <code>mine.toml</code> is</p>"
            "<pre>capacity = 50\nrounds = 5000\n[population]\nseed = 1\n[[population.groups]]\nclients = 100\n"
            'cost = { 2 = { uniform = [1, 20] } }\n[mechanism]\nkind = "paper-coin"\nbeta = 3.5\n</pre>'
        )
    )
    page.details("Provenance", "\n\n".join(f"{key}: {value}" for key, value in results["provenance"].items()))
