"""The whole reproduction: once in full, and small ones for what must hold of any."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from report.browser import chromium, opened
from turnout.errors import MissingExtra
from turnout.paper import FIGURES, reproduce
from turnout.paper.claims import CONDITION, FAILS, HOLDS, MISPRINT
from turnout.paper.page import _claims as add_claims
from turnout.paper.settings import SETTINGS
from turnout.paper.tables import Store, fingerprint
from turnout.report import Page

README = Path(__file__).parents[2] / "README.md"

EXPECTED_VERDICTS = [
    CONDITION, FAILS, HOLDS, CONDITION, HOLDS, HOLDS, CONDITION, CONDITION,
    FAILS, HOLDS, HOLDS, HOLDS, CONDITION, FAILS, MISPRINT,
]  # fmt: skip


@pytest.mark.deployment
def test_the_paper_is_reproduced(tmp_path):
    """Paper: Fig. 1, Fig. 2, Fig. 3, Fig. 4, Fig. 5, Section V."""
    report = reproduce(tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    for figure in FIGURES:
        for ending in ("png", "svg"):
            assert (tmp_path / "figures" / f"{figure.name}.{ending}").stat().st_size > 10_000
    gaps = [results["cost_gap_percent"][f"beta={beta:g}"]["mean"] for beta in SETTINGS["betas"].value]
    np.testing.assert_allclose(gaps, [0.67, 2.68, 7.55, 9.29], rtol=0.02)
    for name, expected in results["forecast"].items():
        assert expected["signal"] == pytest.approx(results["signal"][name]["mean"], rel=0.01)
        assert expected["cost_gap_percent"] == pytest.approx(results["cost_gap_percent"][name]["mean"], abs=0.1)
    assert [claim["verdict"] for claim in results["claims"]] == EXPECTED_VERDICTS
    check_readme(results)
    store = Store(tmp_path)
    numbers = {figure.name: figure.compute(store) for figure in FIGURES}
    for beta in (3.5, 2.5, 1.5, 1.0):
        assert numbers["fig1-distance"][f"beta={beta:g} to the classical run"].shape == (201, 1200)
        assert np.all(numbers["fig3-privacy-error"][f"beta={beta:g} saturated"][:, 1:] > 0)
    assert len(numbers["fig4-turnout"]["classical"]) == 400
    assert numbers["fig5-signal"]["classical aggregate"][:, -1] == pytest.approx(600, abs=1)
    assert numbers["fig2-cost"]["rounds"][-1] == 9_999
    with chromium() as browser:
        for scheme in ("light", "dark"):
            for width in (1100, 360):
                with opened(browser, report, scheme=scheme, width=width) as view:
                    view.assert_healthy()
                    assert view.overflow() == 0
                    assert len(view.plots()) == 8


def check_readme(results):
    """The README's table and counts are this reproduction's."""
    text = README.read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("| β") or line.startswith("| classical")
    ]
    assert len(rows) == 5
    for label, gap, expected_gap, spread, expected_spread in rows:
        name = label.replace("β = ", "beta=")
        forecast = results["forecast"][name]
        assert gap == percent(results["cost_gap_percent"][name]["mean"])
        assert expected_gap == percent(forecast["cost_gap_percent"])
        assert spread == f"{results['turnout_spread'][name]['mean']:.1f}"
        assert expected_spread == f"{forecast['turnout_spread']:.1f}"
    assert f"costs {100 * (results['random_cost'] / results['optimum_cost'] - 1):.1f} % more" in text
    counts = [sum(claim["verdict"] == verdict for claim in results["claims"]) for verdict in (HOLDS, CONDITION, FAILS)]
    assert (
        "paper's {} checkable sentences {} hold, {} hold with a\ncondition, and {} do not hold;".format(
            sum(counts), *counts
        )
        in text
    )


def percent(value):
    return f"{value:+.2f} %".replace("-", "−")


@pytest.fixture
def small(monkeypatch):
    """A reproduction of seconds: fewer rounds and seeds."""
    for name, value in {"rounds": 420, "seeds": 4, "clients": 200, "capacity": 100, "gain": 0.045}.items():
        monkeypatch.setitem(SETTINGS, name, SETTINGS[name]._replace(value=value))


def comparable(folder):
    results = json.loads((folder / "results.json").read_text())
    provenance = results.pop("provenance")
    assert provenance["code and settings"] == fingerprint()
    return json.dumps(results)


@pytest.mark.deployment
def test_the_same_seed_gives_the_same_results(small, tmp_path):
    for name in ("one", "two"):
        reproduce(tmp_path / name)
    assert comparable(tmp_path / "one") == comparable(tmp_path / "two")
    for figure in FIGURES:
        name = f"figures/{figure.name}.svg"
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.deployment
def test_an_interrupted_reproduction_finishes_the_rest(small, tmp_path):
    told = []

    def stop_among_the_populations(stage, done, total):
        if stage == "populations" and done == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce(tmp_path / "broken", stop_among_the_populations)
    data = tmp_path / "broken" / "data"
    done = {path.name: path.stat().st_mtime_ns for path in data.iterdir()}
    finished = sum(name.startswith("populations") for name in done)
    assert len(done) == 15 + finished  # a run in full, the forecast and the seeds of five settings
    assert 1 <= finished <= 3
    reproduce(tmp_path / "broken", lambda *news: told.append(news))
    for name, moment in done.items():
        assert (data / name).stat().st_mtime_ns == moment
    left = 4 * (5 - finished)
    assert [news for news in told if news[0] == "populations"] == [("populations", n, left) for n in range(left + 1)]
    assert {stage for stage, _, _ in told} == {"populations", "figures", "claims and report"}
    reproduce(tmp_path / "whole")
    assert comparable(tmp_path / "broken") == comparable(tmp_path / "whole")


def test_a_table_that_was_cut_short_is_made_again(tmp_path):
    store = Store(tmp_path)
    store.numbers("x", lambda: {"a": np.arange(1000)})
    path = tmp_path / "data" / "x.npz"
    path.write_bytes(path.read_bytes()[:100])
    assert not store.has("x")
    assert len(store.numbers("x", lambda: {"a": np.arange(5)})["a"]) == 5


def test_what_is_missing_is_said_before_anything_is_run(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[reproduce.__module__], "find_spec", lambda library: None)
    with pytest.raises(MissingExtra, match=r"matplotlib, which is not installed: pip install 'turnout\[lab\]'"):
        reproduce(tmp_path / "paper")
    assert not (tmp_path / "paper").exists()


def test_a_misprint_is_no_sentence_that_fails():
    verdicts = [HOLDS, HOLDS, CONDITION, FAILS, MISPRINT]
    claims = [{"sentence": "", "where": "", "measured": "", "why": "", "verdict": verdict} for verdict in verdicts]
    page = Page("claims", "")
    add_claims(page, claims)
    told = "Of 4 checkable sentences, 2 hold, 1 hold with a condition, and 1 do not hold; 1 more is a misprint."
    assert told in page.html()


def test_formulas_are_set_and_not_shown_as_they_are_typed():
    claim = {"sentence": "|x_i(k) − x_i*| < 0.1", "where": "", "measured": "(max Σ x_i / f_i'(x_i))", "why": "e^(−β)"}
    page = Page("claims", "")
    add_claims(page, [claim | {"verdict": HOLDS}])
    for shown in ("|x<sub>i</sub>(k) − x<sub>i</sub><sup>*</sup>| &lt; 0.1", "f<sub>i</sub>&#x27;", "e<sup>−β</sup>"):
        assert shown in page.html()
    assert "_i" not in page.html().partition("<main>")[2]
