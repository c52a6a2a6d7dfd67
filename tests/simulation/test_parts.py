"""A run continued with another mechanism promises what the worst of its parts does, wherever it is shown."""

import json
import math
import zipfile

import numpy as np
import pytest
from typer.testing import CliRunner

from turnout import (
    Averaging,
    Clamp,
    Classical,
    IntegralController,
    Memoized,
    PaperCoin,
    PolynomialCosts,
    Prior,
    Problem,
    SelfTuningController,
    TrackingClamp,
    Trajectory,
    certificate,
    paper_population,
    simulate,
)
from turnout.algorithm import Public
from turnout.cli import app
from turnout.privacy import TRUSTED_AGGREGATOR, Observer, worst_of
from turnout.report import plot, run_page
from turnout.simulation.trajectory import _PRIVATE_AVERAGE, mechanisms_in_words, privacy_in_words

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
    by_bit = {"remember": None, "by": "bit"}
    assert run.provenance["earlier"] == [{"rounds": 10, "mechanism": {"kind": "classical"}, "averaging": by_bit}]
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


BY_PROBABILITY, BY_BIT = Averaging(by="probability"), Averaging()


def moved(*parts, start=None):
    """Ten rounds of each (mechanism, averaging), one after the other."""
    for mechanism, averaging in parts:
        start = ran(mechanism, start=start, averaging=averaging)
    return start


def test_a_box_that_follows_a_private_average_has_no_bound(tmp_path):
    """Clamp by probability, continued as tracking-clamp by bit: "pure epsilon 1" was printed; it is 1.54."""
    costs = PolynomialCosts(np.array([[1e-6], [1e6], *[[1.0]] * 98]), (2,))
    problem, start = Problem(costs, 50.0), Prior(0.5, 10)
    server = IntegralController(1e-9, 1.0)  # a signal that hardly moves
    first = simulate(problem, Clamp(1.0), server, 50, start=start, averaging=BY_PROBABILITY, engine="numpy")
    low, high = Clamp(1.0).parameters()
    averages = first.state.participations[:2] / first.state.rounds
    np.testing.assert_allclose(averages, [(5 + 50 * high) / 60, (5 + 50 * low) / 60], rtol=1e-12)
    boxes = TrackingClamp(1.0).box(Public(average=averages))
    yes = boxes[1][0], boxes[0][1]  # the one wants to, the other does not: the far ends of their boxes
    truth = max(math.log(yes[0] / yes[1]), math.log((1 - yes[1]) / (1 - yes[0])))
    assert truth == pytest.approx(1.54, abs=0.005)
    run = simulate(problem, TrackingClamp(1.0), server, 10, start=first, averaging=BY_BIT, engine="numpy")
    told = (
        f"no bound per report: {_PRIVATE_AVERAGE} (50 rounds of clamp, epsilon 1 per report, center 0.5, then tracking"
    )
    assert privacy_in_words(run.provenance).startswith(told)
    run.save(tmp_path / "run.npz")
    shown = json.loads(CliRunner().invoke(app, ["show", str(tmp_path / "run.npz"), "--json"]).stdout)
    assert shown["privacy"].startswith(told)
    longer = simulate(problem, TrackingClamp(1.0), server, 5, start=Trajectory.load(tmp_path / "run.npz"))
    assert privacy_in_words(longer.provenance).startswith(told)


@pytest.mark.parametrize(
    ("parts", "bound"),
    [
        ([(Clamp(1.0), BY_BIT), (TrackingClamp(1.0), BY_BIT)], "pure epsilon 1 per report"),
        ([(TrackingClamp(1.0), BY_BIT), (Clamp(1.0), BY_PROBABILITY)], "pure epsilon 1 per report"),
        ([(Clamp(1.0), BY_PROBABILITY), (Clamp(1.0), BY_BIT)], "pure epsilon 1 per report"),
        ([(Clamp(1.0), BY_PROBABILITY), (Clamp(1.0), BY_BIT), (TrackingClamp(1.0), BY_BIT)], "no bound per report"),
        ([(Clamp(1.0), BY_BIT), (Clamp(1.0), BY_PROBABILITY), (TrackingClamp(1.0), BY_BIT)], "no bound per report"),
        ([(Memoized(4.0, 10.0), BY_PROBABILITY), (TrackingClamp(1.0), BY_BIT)], "no bound per report"),
        ([(Memoized(4.0, 10.0), BY_BIT), (TrackingClamp(1.0), BY_BIT)], "pure epsilon 4 per report"),
        ([(TrackingClamp(1.0), BY_BIT), (Memoized(4.0, 10.0), BY_PROBABILITY)], "pure epsilon 4 per report"),
    ],
)
def test_what_averages_moved_by_is_part_of_the_provenance(parts, bound, tmp_path):
    run = moved(*parts)
    assert privacy_in_words(run.provenance).startswith(bound)
    run.save(tmp_path / "run.npz")
    assert privacy_in_words(Trajectory.load(tmp_path / "run.npz").provenance).startswith(bound)
    assert [part["averaging"]["by"] for part in run.provenance["earlier"]] == [how.by for _, how in parts[:-1]]


def test_a_part_of_an_earlier_version_does_not_say_what_moved_it():
    before = {"rounds": 1, "mechanism": Clamp(1.0).settings()}
    tracking = {"mechanism": TrackingClamp(1.0).settings(), "averaging": {"by": "bit"}, "earlier": [before]}
    assert privacy_in_words(tracking).startswith("no bound per report")
    clamp = {"mechanism": Clamp(1.0).settings(), "averaging": {"by": "bit"}, "earlier": [before]}
    assert privacy_in_words(clamp).startswith("pure epsilon 1 per report")


def test_a_promise_against_the_sum_is_kept_or_refused_however_a_run_goes_on():
    of_sum = Observer("sum", 198)
    run = ran(Clamp(1.0), averaging=BY_PROBABILITY, observer=of_sum)
    told = str(certificate(Clamp(1.0), Observer("sum", 198, averaging=BY_PROBABILITY)))
    assert TRUSTED_AGGREGATOR in told
    assert privacy_in_words(run.provenance) == told
    assert privacy_in_words(ran(Clamp(1.0), start=run).provenance) == told
    by_bit = ran(Clamp(1.0), start=run, averaging=BY_BIT, observer=Observer())  # given up, in so many words
    assert "against an observer of every report" in privacy_in_words(by_bit.provenance)
    for goes_on in (
        lambda: ran(Clamp(1.0), averaging=BY_BIT, observer=of_sum),
        lambda: ran(Clamp(1.0), start=run, averaging=BY_BIT),
        lambda: ran(Clamp(1.0), start=by_bit, averaging=BY_PROBABILITY, observer=of_sum),
        lambda: ran(TrackingClamp(1.0), start=run),
    ):
        with pytest.raises(ValueError, match=r"carries hidden bits|its box follows the average"):
            goes_on()


def test_a_file_from_before_parts_were_known_still_loads(tmp_path):
    run = ran(Clamp(1.0))
    run.save(tmp_path / "run.npz")
    with zipfile.ZipFile(tmp_path / "run.npz") as archive:
        assert "earlier" not in json.loads(archive.read("provenance.json"))["provenance"]
    assert privacy_in_words(Trajectory.load(tmp_path / "run.npz").provenance) == str(certificate(Clamp(1.0)))
