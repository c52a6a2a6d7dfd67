"""A run continued with another mechanism promises what the worst of its parts does, wherever it is shown."""

import json
import math
import zipfile

import numpy as np
import pytest
from typer.testing import CliRunner

from turnout import (
    Clamp,
    Classical,
    Memoized,
    PaperCoin,
    SelfTuningController,
    TrackingClamp,
    Trajectory,
    certificate,
    paper_population,
    simulate,
)
from turnout.cli import app
from turnout.privacy.certificate import worst_of
from turnout.report.picture import plot
from turnout.report.run_report import run_page
from turnout.simulation.parts import mechanisms_in_words, privacy_in_words

PROBLEM, SERVER = paper_population(clients=200).problem(100), SelfTuningController()


def ran(*mechanisms, problem=PROBLEM, start=None, **options):
    """Ten rounds of each, one after the other."""
    for mechanism in mechanisms:
        start = simulate(problem, mechanism, SERVER, 10, start=start, engine="numpy", **options)
    return start


def test_reports_without_privacy_are_never_certified(tmp_path):
    file = tmp_path / "mixed.npz"
    ran(Classical(), Clamp(1.0)).save(file)
    run = Trajectory.load(file)
    assert run.provenance["earlier"] == [{"rounds": 10, "mechanism": {"kind": "classical"}}]
    shown = json.loads(CliRunner().invoke(app, ["show", str(file), "--json"]).stdout)
    assert shown["privacy"].startswith("no bound per report: the probability is the intent itself")
    told = CliRunner().invoke(app, ["show", str(file)]).stdout
    assert "no bound per report" in told
    assert "10 rounds of classical, then clamp" in " ".join(told.split())
    for page in (run._repr_html_(), run_page([run], ["mixed"]).html()):
        assert "no bound per report" in page
        assert "pure epsilon" not in page
    assert "classical, then clamp" in plot(run).legends[0].get_texts()[0].get_text()


def test_it_stays_so_however_often_it_is_continued_and_saved(tmp_path):
    run = ran(Clamp(1.0), PaperCoin(np.full(200, 3.5)), Clamp(1.0))
    run.save(tmp_path / "run.npz")
    longer = ran(Clamp(1.0), start=Trajectory.load(tmp_path / "run.npz"))
    assert [part["rounds"] for part in longer.provenance["earlier"]] == [10, 10]
    assert privacy_in_words(longer.provenance).startswith('no bound per report: at intent 1 a "no" cannot happen')
    json.loads(CliRunner().invoke(app, ["show", str(tmp_path / "run.npz"), "--json"]).stdout)
    assert "3.5" in run_page([longer], ["run"]).html()


def test_of_several_promises_the_worst_is_stated():
    two = worst_of([certificate(Clamp(0.5)), certificate(TrackingClamp(2.0)), certificate(Clamp(1.0))], "them")
    assert (two.epsilon, two.per) == (2.0, "report")
    assert two.against == certificate(TrackingClamp(2.0)).against  # the narrower claim
    assert privacy_in_words(ran(Clamp(2.0), Clamp(0.5)).provenance).startswith("pure epsilon 2 per report")
    assert math.isinf(worst_of([certificate(Clamp(0.5)), certificate(Classical())], "them").epsilon)


def test_a_second_release_is_no_promise_for_a_lifetime(tmp_path):
    once, other = Memoized(4.0, 10.0), paper_population(1, 200).problem(100)
    first = ran(once)
    first.save(tmp_path / "first.npz")
    for before in (first, Trajectory.load(tmp_path / "first.npz")):
        same = ran(once, start=before)
        assert "earlier" not in same.provenance
        assert privacy_in_words(same.provenance).startswith("pure epsilon 4 per lifetime")
    for again in (
        ran(once, start=first, seed=5),  # other coins, other levels
        ran(once, start=first, problem=other),
        ran(Memoized(4.0, 11.0), start=first),
        ran(Clamp(1.0), start=first),
        ran(once, start=ran(Clamp(1.0))),
    ):
        assert privacy_in_words(again.provenance).startswith("pure epsilon 4 per report")


@pytest.mark.parametrize("options", [{"seed": 7}, {"problem": paper_population(1, 200).problem(80)}])
def test_the_same_mechanism_goes_on(options):
    run = ran(Clamp(1.0), start=ran(Clamp(1.0)), **options)
    assert "earlier" not in run.provenance
    assert privacy_in_words(run.provenance) == str(certificate(Clamp(1.0)))


def test_a_mechanism_of_ones_own_promises_nothing_here():
    own, clamp = {"kind": "own"}, Clamp(1.0).settings()
    assert privacy_in_words({"mechanism": own}).startswith("unknown")
    for before, after in ((own, clamp), (clamp, own), (own, own)):
        mixed = {"mechanism": after, "earlier": [{"rounds": 1, "mechanism": before}]}
        assert privacy_in_words(mixed).startswith("unknown")
    known = {"mechanism": Classical().settings(), "earlier": [{"rounds": 1, "mechanism": own}]}
    assert privacy_in_words(known).startswith("no bound")
    assert mechanisms_in_words(known) == "1 rounds of own, then classical"


def test_a_file_from_before_parts_were_known_still_loads(tmp_path):
    run = ran(Clamp(1.0))
    run.save(tmp_path / "run.npz")
    with zipfile.ZipFile(tmp_path / "run.npz") as archive:
        assert "earlier" not in json.loads(archive.read("provenance.json"))["provenance"]
    assert privacy_in_words(Trajectory.load(tmp_path / "run.npz").provenance) == str(certificate(Clamp(1.0)))
