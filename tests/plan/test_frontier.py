"""The frontier: totals are kept, nothing lies below the floor, and the numbers of docs/frontier.md."""

import re
from pathlib import Path

import numpy as np
import pytest

from turnout import Problem, optimum, paper_population
from turnout.plan.frontiers import _crowd, _noise_makers, frontier, growing, measured_gaps, measured_with_noise
from turnout.plan.goal import Goal
from turnout.plan.offers import largest_within, makers
from turnout.privacy import (
    OTHERS_REPORT,
    PUBLIC_DESIGN,
    PUBLIC_HISTORY,
    RELEASED_ONCE,
    TRUSTED_AGGREGATOR,
    floor,
    total_epsilon,
)
from turnout.report import error_rows, percent

DOC = Path(__file__).parents[2] / "docs" / "frontier.md"
PAPER = paper_population(seed=0).problem(600)
FALSE_ALARM = 1e-6


@pytest.fixture(scope="module")
def small():
    return frontier(paper_population(0, 120).problem(60), 200, totals=[2.0, 6.0], beyond=[50.0, 400.0])


def test_totals_are_kept_and_gaps_fall(small):
    assert [curve.name for curve in small.curves] == [
        "clamp", "randomized-response", "memoized", "learned-memoized", "tracking-clamp"
    ]  # fmt: skip
    for curve in small.curves:
        assert curve.missing == ""
        assert all(0.9 * point.asked < point.total_epsilon <= point.asked for point in curve.points if point.asked < 12)
        assert all(point.total_epsilon <= point.asked for point in curve.points)
        gaps = [point.gap for point in curve.points]
        assert gaps == sorted(gaps, reverse=True)


def test_equal_boxes_have_equal_totals_and_released_levels_end_at_the_largest(small):
    clamp, response, memoized, *_ = small.curves
    assert [point.total_epsilon for point in clamp.points] == [point.total_epsilon for point in response.points]
    assert all(a.gap < b.gap for a, b in zip(clamp.points, response.points, strict=True))
    assert [point.total_epsilon for point in memoized.points] == [2.0, 6.0, 12.0]
    assert memoized.per == "release"
    assert clamp.per == "report"


def test_no_forecast_lies_below_the_floor(small):
    assert [found.total_epsilon for found in small.floors] == [2.0, 6.0]
    for found in small.floors:
        assert found.gap <= found.reached
        at = [point.gap for curve in small.curves for point in curve.points if point.asked == found.total_epsilon]
        assert len(at) == 5
        assert min(at) >= found.gap


def lies_below(gaps, bound):
    """Whether the mean of runs is below a bound, wrongly said once in a million times."""
    from scipy import stats

    room = stats.t.ppf(1.0 - FALSE_ALARM, len(gaps) - 1) * np.std(gaps, ddof=1) / len(gaps) ** 0.5
    return np.mean(gaps) + room < bound


@pytest.mark.deployment
def test_no_measured_gap_lies_below_the_floor():
    """The floor is about the mean, and levels are released at random: hence several runs of each."""
    lowest = floor(PAPER, 4.0).gap
    goal = Goal(PAPER, 500, budget=4.0)
    for maker in makers(goal):
        gaps = measured_gaps(maker, largest_within(maker, 4.0), 10)
        assert not lies_below(gaps, lowest), maker.kind
    memoized = next(maker for maker in makers(goal) if maker.kind == "memoized")
    assert lies_below(measured_gaps(memoized, 6.0, 10), lowest)  # 6, sold as 4


@pytest.mark.deployment
def test_the_sum_has_no_floor_and_says_so():
    found = frontier(PAPER, 100, observer="sum", totals=[2.0], beyond=[])
    assert found.floors == ()
    assert "no floor is known" in found.no_floor
    assert found.honest == 1198
    assert "tracking-clamp" not in [curve.name for curve in found.curves]
    # As the document says; so the server's floor is no floor here.
    assert round(100 * found.curves[0].points[0].gap) == 13
    assert round(100 * floor(PAPER, 2.0).gap) == 59


def test_fewer_honest_others_hide_less():
    problem = paper_population(0, 120).problem(60)
    asked = {"rounds": 100, "observer": "sum", "totals": [4.0], "beyond": []}
    many, few = (frontier(problem, honest=honest, **asked).curves[0].points[0] for honest in (118, 40))
    assert few.epsilon < many.epsilon
    assert few.gap > many.gap


def test_what_is_known_without_any_total():
    first = next(growing(PAPER, 1000))
    assert first.random_gap == pytest.approx(PAPER.cost(np.full(1200, 0.5)) / optimum(PAPER).cost - 1)
    assert percent(first.random_gap) == "100.4 %"
    assert [(name, percent(gap)) for name, gap in first.promises_nothing] == [
        ("paper coin, β = 3.5", "0.69 %"), ("paper coin, β = 1", "9.3 %"), ("classical", "0.00 %")
    ]  # fmt: skip


def test_a_capacity_out_of_reach_is_said():
    found = frontier(paper_population(0, 100).problem(2), 50, observer="sum", totals=[2.0], beyond=[4.0])
    curves = {curve.name: curve for curve in found.curves}
    assert curves["clamp"].points == ()
    assert curves["clamp"].missing == "up to total epsilon 4: within the total, its coin alone misses the capacity"
    assert len(curves["clamp around 0.02"].points) == 2
    assert found.promises_nothing[0][1] is None  # the paper's coin alone brings more


def test_too_many_rounds_for_a_total_is_said():
    found = frontier(paper_population(0, 40).problem(20), 300_000, totals=[0.2], beyond=[])
    assert "its smallest epsilon per report gives away more" in found.curves[0].missing


def test_weights_of_many_sizes_have_no_floor():
    costs = paper_population(0, 40).costs
    problem = Problem(costs, 400.0, np.arange(1, 41))
    found = frontier(problem, 50, totals=[2.0], beyond=[])
    assert "of at most 12 different sizes" in found.no_floor
    assert all(len(curve.points) == 1 for curve in found.curves if curve.per == "report")
    assert len(found.curves) >= 4


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"totals": []}, "totals must be above 0 and rising"),
        ({"totals": [0.0, 1.0]}, "totals must be above 0 and rising"),
        ({"totals": [2.0, 1.0]}, "totals must be above 0 and rising"),
        ({"totals": [20.0]}, "totals must be above 0 and rising"),  # beyond begins there
        ({"check": -1}, "check must be 0 seeds or more"),
        ({"observer": "nobody"}, "observer must be 'every-report' or 'sum'"),
        ({"honest": 3}, "honest must be"),
        ({"crowds": [40]}, "crowds must be given for an observer of the 'noisy-sum'"),
        ({"observer": "noisy-sum", "crowds": []}, "crowds must be numbers of clients of at least 3, rising"),
        ({"observer": "noisy-sum", "crowds": [40, 40]}, "crowds must be numbers of clients of at least 3, rising"),
    ],
)
def test_bad_input(given, says):
    with pytest.raises(ValueError, match=says):
        frontier(PAPER, 100, **given)


@pytest.fixture(scope="module")
def with_noise():
    problem = paper_population(0, 240).problem(120)
    return frontier(problem, 300, observer="noisy-sum", totals=[0.5, 2.0], crowds=[120, 240, 960])


@pytest.mark.deployment
def test_sums_with_noise_go_below_the_floor_and_above_the_bound_of_the_turnout(with_noise):
    *noisy, memoized = with_noise.curves
    assert [curve.clients for curve in noisy] == [120, 240, 960]
    assert [curve.name for curve in noisy] == ["noise, 120 clients", "noise, 240 clients", "noise, 960 clients"]
    assert memoized.name == "memoized"
    assert with_noise.against == "an observer of the sums with noise"
    assert with_noise.promises_nothing == ()
    assert "sums with noise go below it" in with_noise.no_floor
    for number, lowest in enumerate(with_noise.floors):
        assert memoized.points[number].gap >= lowest.gap
        assert all(curve.points[number].gap < 0.1 * lowest.gap for curve in noisy)
    for curve in noisy:
        for point in curve.points:
            assert 0.99 * point.asked < point.total_epsilon <= point.asked
            assert 0.0 < point.turnout.least < point.turnout.least_normal < point.turnout.by_noise
            assert point.turnout.by_noise < point.turnout.with_coins
        first, second = (point.turnout for point in curve.points)
        assert second.least < first.least
        assert second.mean < first.mean


def test_noise_that_is_too_large_for_a_forecast_is_said():
    found = frontier(paper_population(0, 40).problem(20), 300, observer="noisy-sum", totals=[0.2], crowds=[40])
    assert found.curves[0].points == ()
    told = "the noise makes the turnout wrong by more than 25 %, and there is no forecast (sensible from some "
    assert found.curves[0].missing.startswith(f"up to total epsilon 0.2: within the total, {told}")


@pytest.mark.deployment
def test_larger_crowds_have_smaller_errors(with_noise):
    for number in range(2):
        errors = [curve.points[number].turnout for curve in with_noise.curves[:3]]
        for name in ("by_noise", "with_coins", "mean", "least", "least_normal"):
            found = [getattr(error, name) for error in errors]
            assert found == sorted(found, reverse=True), name


def test_crowds_keep_the_share_that_is_wanted():
    made = _crowd(PAPER, 200)
    assert (len(made), made.capacity) == (200, 100.0)
    assert optimum(made).price == pytest.approx(optimum(PAPER).price, rel=0.2)
    assert optimum(_crowd(PAPER, 2400)).cost == pytest.approx(2 * optimum(PAPER).cost)
    weighted = Problem(paper_population(0, 40).costs, 100, np.arange(1, 41))
    few = _crowd(weighted, 20)
    assert few.capacity / few.most == pytest.approx(100 / 820)


def test_usual_crowds():
    def names(clients):
        problem = paper_population(0, clients).problem(clients / 2)
        return [maker.goal.problem for maker in _noise_makers(Goal(problem, 10, 1.0, observer="noisy-sum"), None)][:-1]

    assert [len(problem) for problem in names(1200)] == [200, 1200, 12_000]
    assert [len(problem) for problem in names(40)] == [40, 400]


@pytest.mark.deployment
def test_measured_errors_are_as_predicted_and_above_the_bound():
    """Five runs: their mean error is within a quarter of the forecast. A twin with three times the error is not."""
    maker = _noise_makers(Goal(PAPER, 2000, 1.0, observer="noisy-sum"), [1200])[0]
    gaps, errors = measured_with_noise(maker, 1.0, 5)
    (found,) = frontier(PAPER, 2000, observer="noisy-sum", totals=[1.0], crowds=[1200]).curves[0].points
    assert np.mean(errors) == pytest.approx(found.turnout.with_coins, rel=0.25)
    assert min(errors) > found.turnout.least_normal
    assert np.mean(gaps) == pytest.approx(found.gap, abs=0.001)
    assert found.gap < 0.005


def table_rows(name):
    """The cells of a table of the document, by the total epsilon."""
    part = DOC.read_text().split(f"<!-- table: {name},")[1].split("<!-- end -->")[0]
    rows = [[cell.strip() for cell in row.strip("|\n").split("|")] for row in part.splitlines() if row.startswith("|")]
    return {row[0]: row[1:] for row in rows}


def documented(observer):
    (_, header), _, *rows = table_rows(observer).items()
    return {total: dict(zip(header, row, strict=True)) for total, row in rows}


@pytest.mark.deployment
def test_the_tables_of_the_document():
    server = documented("every-report")
    again = frontier(PAPER, 10_000, totals=[4.0], beyond=[1000.0])
    for total, column in (("4", 4.0), ("1,000", 1000.0)):
        for curve in again.curves:
            said = [percent(point.gap) for point in curve.points if point.asked == column]
            assert server[total][curve.name] == (said[0] if said and point_is_shown(curve, column) else "–")
    assert server["4"]["the floor"] == percent(again.floors[0].gap, down=True)
    clamp = next(iter(makers(Goal(PAPER, 10_000, budget=4.0, observer="sum"))))
    assert documented("sum")["4"]["clamp"] == percent(clamp.gap(largest_within(clamp, 4.0)))


def point_is_shown(curve, total):
    return curve.per == "report" or total <= 12  # the document's released levels end at 12


@pytest.mark.deployment
def test_the_tables_of_sums_with_noise():
    again = frontier(PAPER, 10_000, observer="noisy-sum", totals=[1.0], crowds=[200, 1200])
    told = {total: list(row.values()) for total, row in documented("noisy-sum").items()}["1"]
    few, many, memoized = (percent(curve.points[0].gap) for curve in again.curves)
    assert [*told[:3], told[-1]] == [percent(again.floors[0].gap, down=True), few, many, memoized]
    _, (row,) = error_rows(again.facts())
    assert table_rows("turnout")["1"][:6] == row[1:]
    errors = [curve.points[0].turnout for curve in again.curves[:2]]
    coins = [100 * (error.with_coins**2 - error.by_noise**2) ** 0.5 for error in errors]
    assert "wrong by {:.1f} %, {:.1f} % and 0.78 %".format(*coins) in DOC.read_text()
    assert f"{600 * errors[1].least_normal:.2f} clients" == "4.22 clients"
    assert f"{600 * errors[1].mean:.2f}" == "4.33"
    assert f"wrong by {100 * errors[0].with_coins:.1f} % of the capacity" in DOC.read_text()


@pytest.mark.deployment
def test_learned_memoized_is_drawn_at_what_it_reaches():
    """As docs/floor.md has it measured: at total 1 it was drawn at 85 %, the gap of a channel that knows all."""
    rows = re.findall(r"^\| ([\d.]+) \| (.+) \|$", (DOC.parent / "floor.md").read_text(), re.MULTILINE)
    measured = {total: [cell.strip() for cell in cells.split("|")] for total, cells in rows}
    assert list(measured) == ["1", "2", "4", "6", "8"]
    for observer in ("every-report", "sum"):
        drawn = documented(observer)
        assert {total: drawn[total]["learned-memoized"] for total in measured} == {
            total: cells[3] for total, cells in measured.items()
        }
    learned = next(maker for maker in makers(Goal(PAPER, 10_000, budget=8.0)) if maker.kind == "learned-memoized")
    for total in ("1", "8"):
        assert percent(learned.gap(float(total))) == measured[total][3]


def test_what_each_curve_rests_on(small):
    found = {curve.name: curve.assumptions for curve in small.curves}
    assert found["clamp"] == found["randomized-response"] == (PUBLIC_DESIGN,)
    assert found["tracking-clamp"] == (PUBLIC_HISTORY, PUBLIC_DESIGN)
    assert found["memoized"] == found["learned-memoized"] == (RELEASED_ONCE, PUBLIC_DESIGN)
    assert small.against == "an observer of every report"
    sums = frontier(paper_population(0, 40).problem(20), 20, observer="sum", totals=[2.0], beyond=[])
    assert sums.against == "an observer of the sum alone, with 38 honest others"
    assert sums.curves[0].assumptions == (TRUSTED_AGGREGATOR, OTHERS_REPORT, PUBLIC_DESIGN)


def test_what_the_document_concludes():
    server, sums = documented("every-report"), documented("sum")
    number = lambda cell: float(re.fullmatch(r"([\d.]+) %", cell)[1])  # noqa: E731
    for total in ("1", "2", "3", "4", "6", "8"):
        row = {name: number(cell) for name, cell in server[total].items()}
        assert row["memoized"] - row["the floor"] < 1.1  # both are rounded
        assert abs(row["clamp"] - 100.4) < 2.5
        assert row["tracking-clamp"] > 100.4
        assert number(sums[total]["memoized"]) < number(sums[total]["clamp"])
    assert 96 < total_epsilon(1 / (1 + np.exp(0.1)), 1 / (1 + np.exp(-0.1)), 10_000, 1e-6).epsilon < 97
