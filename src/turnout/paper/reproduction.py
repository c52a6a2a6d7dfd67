"""`make paper`: all figures, results.json and report.html in one folder."""

from __future__ import annotations

import contextlib
import json
import platform
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from turnout.errors import MissingExtra
from turnout.files import whole_file
from turnout.paper.claims import judge
from turnout.paper.figures import FIGURES
from turnout.paper.page import make_page
from turnout.paper.settings import CLASSICAL, SETTINGS
from turnout.paper.tables import Say, Store, fingerprint, forecasts, make_tables, on_all_cores, seeds
from turnout.version import __version__


def reproduce(folder: str | Path, say: Say = lambda stage, done, total: None) -> Path:
    """Make everything that is missing; returns the report's path.

    Args:
        folder: where figures, results.json and report.html go.
        say: called with a stage, how many of its parts are done, and how many there are to do.

    Raises:
        MissingExtra: what draws is not installed; said at once, not after minutes of runs.
    """
    for library in ("matplotlib", "plotly"):
        if find_spec(library) is None:
            raise MissingExtra("the paper's reproduction", library=library, extra="lab")
    store = Store(folder)
    make_tables(store, say)
    drawings = {figure.name: partial(_draw, store.folder, number) for number, figure in enumerate(FIGURES)}
    say("figures", 0, len(drawings))
    with contextlib.closing(on_all_cores(drawings)) as drawn:
        for done, _ in enumerate(drawn, start=1):
            say("figures", done, len(drawings))
    say("claims and report", 0, 1)
    results = _summarise(store)
    text = json.dumps(results, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    with whole_file(store.folder / "results.json") as file:
        file.write(text.encode())
    report = make_page(store, results).save(store.folder / "report.html")
    say("claims and report", 1, 1)
    return report


def _summarise(store: Store) -> dict[str, Any]:
    """The numbers of the reproduction; all but `provenance` is the same whenever it is made."""
    runs, expected = seeds(store), forecasts(store)
    best, random = float(runs[CLASSICAL]["optimum_cost"][0]), float(runs[CLASSICAL]["random_cost"][0])
    return {
        "settings": {name: {"value": s.value, "source": s.source, "note": s.note} for name, s in SETTINGS.items()},
        "optimum_cost": best,
        "random_cost": random,
        "cost_gap_percent": {name: _spread(100.0 * (run["cost"][:, -1] / best - 1.0)) for name, run in runs.items()},
        "mean_distance": {name: _spread(run["mean_distance"][:, -1]) for name, run in runs.items()},
        "signal": {name: _spread(run["late_signal"]) for name, run in runs.items()},
        "turnout_mean": {name: _spread(run["turnout_mean"]) for name, run in runs.items()},
        "turnout_spread": {name: _spread(run["turnout_spread"]) for name, run in runs.items()},
        "lemma_epsilon_per_report": {
            name: _spread(run["lemma_epsilon"][:, -1]) for name, run in runs.items() if name != CLASSICAL
        },
        "saturated_clients": {
            name: _spread(run["saturated"][:, -1]) for name, run in runs.items() if name != CLASSICAL
        },
        "forecast": {
            name: {
                "signal": float(one["last_signal"]),
                "cost_gap_percent": 100.0 * float(one["gap"]),
                "limit_cost_gap_percent": 100.0 * float(one["limit_gap"]),
                "turnout_spread": float(one["spread"]),
            }
            for name, one in expected.items()
        },
        "claims": judge(store),
        "provenance": {
            "turnout": __version__,
            "code and settings": fingerprint(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "machine": platform.machine(),
        },
    }


def _spread(values: Any) -> dict[str, float]:
    """Mean over seeds, and between which 95 % of them lie."""
    low, high = np.percentile(values, [2.5, 97.5])
    return {"mean": float(np.mean(values)), "low": float(low), "high": float(high)}


def _draw(folder: Path, number: int) -> None:
    """Numbers and pictures of one figure, unless they are there."""
    store, figure = Store(folder), FIGURES[number]
    pictures = [folder / "figures" / f"{figure.name}.{ending}" for ending in ("png", "svg")]
    drawn = store.has(figure.name) and all(picture.exists() for picture in pictures)
    numbers = store.numbers(figure.name, lambda: figure.compute(store))
    if not drawn:
        figure.draw(numbers, folder / "figures")
