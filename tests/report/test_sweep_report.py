"""The page for a sweep, as a reader sees it."""

import math
import re

import pytest

from report.browser import WIDTHS, chromium, opened
from report.test_page import figures
from turnout.report.sweep_report import GAP, axis_title, described, differing, grouped, sweep_page
from turnout.sweep import design_from_settings, results_so_far, sweep

BASE = {
    "rounds": 20,
    "engine": "numpy",
    "capacity": 20,
    "population": {"kind": "paper", "clients": 40},
    "controller": {"gain": 0.1, "initial": 0.35},
    "mechanism": {"kind": "clamp", "epsilon": 2.0},
}
KINDS = [
    {"kind": "paper-coin", "beta": [1.5, 2.5, 3.5]},
    {"kind": "clamp", "epsilon": [0.2, 1, 8]},
    {"kind": "memoized", "epsilon": [3, 6], "price": 9},
    {"kind": "classical"},
]
GRID = BASE | {"sweep": {"seeds": 3, "grid": {"mechanism": KINDS, "capacity": [1, 18, 20]}}}
RANDOM = BASE | {"sweep": {"random": {"samples": 70, "mechanism.epsilon": {"loguniform": [0.5, 8]}}}}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    found = {}
    for name, values in {"grid": GRID, "random": RANDOM, "seeds": BASE | {"sweep": {"seeds": 2}}}.items():
        found[name] = sweep(design_from_settings(values), tmp_path_factory.mktemp(name), jobs=1)
    found["nothing"] = results_so_far(design_from_settings(GRID), tmp_path_factory.mktemp("nothing"))
    return found


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


def text(page):
    html = re.sub(r"<(script|style)\b.*?</\1>", "", page.html(), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


@pytest.mark.parametrize(("scheme", "width"), [("light", "desk"), ("dark", "desk"), ("dark", "phone")])
@pytest.mark.parametrize("name", ["grid", "random"])
def test_a_browser_shows_it(browser, results, tmp_path, name, scheme, width):
    page = sweep_page(results[name], name)
    with opened(browser, page.save(tmp_path / "sweep.html"), scheme=scheme, width=WIDTHS[width]) as view:
        view.assert_healthy()
        assert len(view.plots()) == len(figures(page)) == {"grid": 4, "random": 2}[name]


def test_what_the_page_says(results):
    said = text(sweep_page(results["grid"], "grid"))
    assert "81 runs of the same algorithm" in said
    assert "capacity 3 1, 18, 20" in said
    assert "mechanism.beta 3 1.5, 2.5, 3.5" in said
    assert "seed 3 0, 1, 2" in said
    assert "mechanism.price" not in said.partition("Where the numbers")[0]  # the same in all runs
    assert "clamp, epsilon 8 per report, capacity 18" in said
    assert "memoized, epsilon 6 in total, capacity 20" in said
    failed = [row for row in results["grid"].rows if row["error"]]
    assert f"Failed {len(failed)} see below" in said
    assert "capacity must be above" in said.partition("Failures")[2]
    assert "No bound, and so not shown: classical, paper-coin." in said
    assert "0 of 81 runs so far" in text(sweep_page(results["nothing"], "nothing"))
    assert "all runs" in text(sweep_page(results["seeds"], "seeds"))


def test_noise_in_the_turnout_is_no_cost(tmp_path):
    """Settings were ranked by how near to the optimum's cost the noise had brought the turnout."""
    noisy = BASE | {"mechanism": {"kind": "classical"}, "rounds": 60, "start": {"average": 0.5}, "noise": {"sigma": 40}}
    noisy |= {"controller": {"kind": "falling-gain", "initial": 10, "floor": 0.02}}
    floors = {"controller.floor": [0.02, 0.3]}
    found = sweep(design_from_settings(noisy | {"sweep": {"grid": floors}}), tmp_path, jobs=1)
    for row in found.rows:
        assert row["brought"] != pytest.approx(20, abs=0.05)
        assert 0 < row["own_turnout_gap_percent"] < abs(row["cost_gap_percent"])
    best = min(found.rows, key=lambda row: row["own_turnout_gap_percent"])
    said = text(sweep_page(found, "noisy"))
    assert f"Closest to the optimum +{best['own_turnout_gap_percent']:.2f} %" in said
    assert "Where the sums have noise, the optimum is the one for the run" in said


def test_the_means_are_those_of_the_rows(results):
    found = results["grid"]
    assert differing(found) == ["mechanism.kind", "mechanism.beta", "mechanism.epsilon", "capacity"]
    group = next(one for one in grouped(found.good, differing(found)) if one.point["mechanism.epsilon"] == 8)
    gaps = [row[GAP] for row in group.rows]
    assert len(gaps) == 3
    mean = sum(gaps) / 3
    error = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / 2) / math.sqrt(3)
    assert group.mean(GAP) == pytest.approx(mean)
    assert group.error(GAP) == pytest.approx(error)
    cell = f"{mean:,.2f} ± {error:,.2f}".replace("-", "−")
    assert f"{group.described()} 3 {cell}" in text(sweep_page(found, "grid"))
    drawn = figures(sweep_page(found, "grid"))[0]["data"]
    assert [trace["name"] for trace in drawn if trace["showlegend"]] == ["paper-coin"]
    assert list(drawn[1]["x"]) == [1.5, 2.5, 3.5]
    for beta, height in zip(drawn[1]["x"], drawn[1]["y"], strict=True):
        rows = [row[GAP] for row in found.good if row["mechanism.beta"] == beta]
        assert height == pytest.approx(sum(rows) / len(rows), rel=1e-6)


def test_what_was_drawn_is_dots(results):
    for name, mode in (("grid", "lines+markers"), ("random", "markers")):
        drawn = [trace for figure in figures(sweep_page(results[name], name)) for trace in figure["data"]]
        assert {trace["mode"] for trace in drawn if trace["showlegend"]} == {mode}


def test_an_epsilon_says_for_how_long(results):
    rows = [row for row in results["grid"].good if row["mechanism.epsilon"] is not None]
    assert axis_title(rows, "mechanism.epsilon") == "mechanism.epsilon (per report; of memoized in total)"
    assert axis_title(results["random"].good, "mechanism.epsilon") == "mechanism.epsilon (per report)"
    memoized = [row for row in rows if row["mechanism.kind"] == "memoized"]
    assert axis_title(memoized, "mechanism.epsilon") == "mechanism.epsilon (in total, for a lifetime)"
    assert axis_title(rows, "capacity") == "capacity"
    assert described(memoized[0], ["mechanism.epsilon"]) == "epsilon 3 in total"
    learned = {"mechanism.kind": "learned-memoized", "mechanism.epsilon": 6.0}
    assert described(learned, list(learned)) == "learned-memoized, epsilon 6 in total"
