"""What a ledger's lines add up to: never below an exact composition, and not far above it."""

import json
import math
from collections import Counter

import pytest

from turnout.algorithm import Clamp
from turnout.privacy import FIXED_NUMBER, NOT_ADAPTIVE, ONE_LEDGER, total_epsilon, total_epsilon_of_plan
from turnout.privacy.spending import UNKNOWN, Kind, Spending, total_of

DELTA = 1e-6


def kind(mechanism):
    return Kind(mechanism.epsilon, *mechanism.parameters())


@pytest.mark.parametrize(
    "counts",
    [
        {Kind(1.0): 500, Kind(0.1): 500},
        {Kind(0.5): 20, Kind(1.0): 20, Kind(2.0): 5},
        {Kind(0.05): 5000, Kind(3.0): 2},
    ],
    ids=["the issue's", "three", "one large"],
)
def test_several_kinds_against_loss_distributions(counts):
    plan = [(*kind.box, number) for kind, number in counts.items()]
    exact = total_epsilon_of_plan(plan, DELTA).epsilon
    found = total_of(counts, DELTA)
    assert exact <= found.epsilon * (1 + 1e-9)
    assert found.epsilon < 1.08 * exact
    assert found.assumptions == (NOT_ADAPTIVE,)
    weakest = Kind(min(kind.epsilon for kind in counts))
    assert found.epsilon > total_of({weakest: sum(counts.values())}, DELTA).epsilon  # what the twin would have shown


def test_boxes_that_are_not_symmetric_count_for_less_than_their_epsilon():
    boxes = {kind(Clamp(1.0, 0.1)): 300, kind(Clamp(0.5)): 300}
    found, alike = total_of(boxes, DELTA).epsilon, total_of({Kind(1.0): 300, Kind(0.5): 300}, DELTA).epsilon
    both = [total_of({kind: number}, DELTA).epsilon for kind, number in boxes.items()]
    assert max(both) < found < alike


def test_one_kind_is_exact_and_its_box_counts():
    clamp = Clamp(0.1, 0.1)
    assert total_of({kind(clamp): 1000}, DELTA).epsilon == total_epsilon(*clamp.parameters(), 1000, DELTA).epsilon  # type: ignore[call-arg]
    assert total_of({kind(clamp): 1000}, DELTA).epsilon < 0.5 * total_of({Kind(0.1): 1000}, DELTA).epsilon
    for epsilon in (1e-6, 0.3, 1.0, 5.0, 29.0):
        low, high = Kind(epsilon).box
        assert math.log(high) - math.log(low) >= epsilon * (1.0 - 1e-15)  # never a box that gives away less


def test_releases_add_up_and_reports_without_a_certificate_have_no_bound():
    spent = Spending(Counter({Kind(0.5): 3}), [2.0, 4.0])
    found = spent.total(DELTA)
    assert found.epsilon == pytest.approx(6.0 + total_of({Kind(0.5): 3}, DELTA).epsilon)
    assert (found.over, found.assumptions) == ("all reports from 2 releases and 3 others", (FIXED_NUMBER, ONE_LEDGER))
    assert Spending(releases=[2.0]).total(DELTA).delta == 0.0
    assert total_of({UNKNOWN: 1, Kind(0.1): 5}, DELTA).epsilon == math.inf
    assert total_of({Kind(0.0): 5}, DELTA).epsilon == 0.0


def test_a_very_long_life_is_counted_by_divergences():
    found = total_of({Kind(0.01): 3_000_000}, DELTA)
    assert found.how == "Rényi divergences"
    assert found.epsilon < 0.01 * 3_000_000


def test_it_is_the_same_again_from_a_file():
    spent = Spending(Counter({Kind(0.5): 3, Kind(1.0, 0.2, 0.4): 2, UNKNOWN: 1}), [2.0])
    again = Spending.read(json.loads(json.dumps(spent.body())))
    assert (again.reports, again.releases) == (spent.reports, spent.releases)
    assert spent.beyond(Spending(Counter({Kind(0.5): 1}))).reports[Kind(0.5)] == 2
