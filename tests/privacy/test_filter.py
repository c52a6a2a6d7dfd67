"""Boxes chosen on the way."""

import itertools
import json
import math
from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as some

from turnout.errors import TurnoutError
from turnout.privacy.accounting import report_epsilon, total_epsilon
from turnout.privacy.filter import RenyiFilter, renyi_epsilon

DELTA = 1e-6


def symmetric(epsilon):
    low = 1 / (1 + math.exp(epsilon))
    return low, 1 - low


def spend_all(watch, box):
    while watch.allows(*box):
        watch.spend(*box)
    return watch.reports


@given(
    ends=some.tuples(some.floats(0.001, 0.999), some.floats(0.001, 0.999)),
    order=some.floats(1.01, 50.0),
)
def test_the_divergence_is_the_greater_direction_and_below_its_bounds(ends, order):
    low, high = min(ends), max(ends)
    plain = max(
        math.log(a**order * b ** (1 - order) + (1 - a) ** order * (1 - b) ** (1 - order)) / (order - 1)
        for a, b in ((low, high), (high, low))
    )
    found = renyi_epsilon(low, high, order)
    assert found >= plain - 1e-12
    assert found == pytest.approx(plain, rel=1e-6, abs=1e-10)
    pure = report_epsilon(low, high)
    assert found <= min(pure, order * pure**2 / 2) * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize(("total", "epsilon"), [(1, 0.01), (8, 0.1), (20, 0.5), (100, 1)])
def test_equal_reports_never_pass_the_exact_total(total, epsilon):
    reports = spend_all(RenyiFilter(total, DELTA), symmetric(epsilon))
    assert total_epsilon(*symmetric(epsilon), reports, DELTA).epsilon <= total
    assert total_epsilon(*symmetric(epsilon), math.ceil(reports / 0.8), DELTA).epsilon > total  # nor waste much


def test_a_filter_that_forgot_is_caught():
    class Forgetful(RenyiFilter):
        def _after(self, low, high):
            return [0.5 * value for value in super()._after(low, high)]

    watch, box = Forgetful(8, DELTA), symmetric(0.1)
    for _ in range(2000):
        watch.spend(*box)
    assert total_epsilon(*box, watch.reports, DELTA).epsilon > 8


def test_pure_reports_are_counted_exactly_where_that_is_better():
    assert spend_all(RenyiFilter(3, 1e-6), symmetric(1)) == 3
    assert spend_all(RenyiFilter(3, 0.0), symmetric(0.1)) == 30


def test_the_limit_holds_and_refusal_books_nothing():
    watch = RenyiFilter(2, DELTA)
    assert watch.spent_epsilon() == 0.0
    spend_all(watch, symmetric(0.2))
    before = watch.state()
    with pytest.raises(TurnoutError, match="allows no further report"):
        watch.spend(*symmetric(0.2))
    assert not watch.allows(0.0, 0.5)
    assert watch.state() == before
    assert watch.spent_epsilon() <= 2 * (1 + 1e-9)
    assert "Rényi filter" in repr(watch.account())
    assert watch.allows(0.3, 0.3)  # says nothing, costs nothing


def test_state_survives_json():
    watch = RenyiFilter(2, DELTA, orders=(4.0, 16.0))
    watch.spend(0.4, 0.6)
    watch.spend(0.1, 0.12)
    again = RenyiFilter.from_state(json.loads(json.dumps(watch.state())))
    assert again.state() == watch.state()
    assert again.spent_epsilon() == watch.spent_epsilon()
    with pytest.raises(ValueError, match="spent must be"):
        RenyiFilter.from_state(watch.state() | {"spent": [-1.0, 0.0, 0.0]})


def test_several_orders_share_delta():
    box = symmetric(0.1)
    alone, two = RenyiFilter(8, DELTA, orders=(5.0,)), RenyiFilter(8, DELTA, orders=(5.0, 5.5))
    assert spend_all(two, box) < spend_all(alone, box)


def test_nonsense_is_refused():
    for arguments in ((0.0, DELTA), (math.nan, DELTA), (1.0, -0.1), (1.0, DELTA, (1.0,))):
        with pytest.raises(ValueError, match="must be"):
            RenyiFilter(*arguments)
    with pytest.raises(ValueError, match="order must be"):
        renyi_epsilon(0.1, 0.2, 1.0)


@pytest.mark.parametrize("order", [1.01, 2.0, 7.5, 60.0])
@pytest.mark.parametrize("box", [(0.25, 0.75), (0.1, 0.2), (0.6, 0.95), (0.3, 0.3001), (0.01, 0.9)])
def test_a_divergence_is_the_greater_direction_rounded_upwards(box, order):
    """Against ln(sum of P^order Q^(1 - order)) / (order - 1), in 50 digits."""
    with localcontext(prec=50):
        power = Decimal(order)
        exact = max(
            (p**power * q ** (1 - power) + (1 - p) ** power * (1 - q) ** (1 - power)).ln() / (power - 1)
            for p, q in itertools.permutations(map(Decimal, box))
        )
    found = Decimal(renyi_epsilon(*box, order))
    assert exact <= found <= exact * (1 + Decimal("2e-9")) + Decimal("1e-11")


def test_the_usual_order_lasts_longest():
    box = 0.48, 0.52
    others = [spend_all(RenyiFilter(2.0, DELTA, (order,)), box) for order in (2.0, 5.0, 40.0, 200.0)]
    assert spend_all(RenyiFilter(2.0, DELTA), box) > max(others)
    assert spend_all(RenyiFilter(2.0, 0.0), box) == int(2.0 / report_epsilon(*box))


@pytest.mark.parametrize(
    "arguments", [(0.0, DELTA), (-1.0, DELTA), (1.0, 1.0), (1.0, DELTA, (1.0,)), (1.0, DELTA, (math.inf,))]
)
def test_bad_filters(arguments):
    with pytest.raises(ValueError, match="must be"):
        RenyiFilter(*arguments)


def test_a_saved_filter_must_be_whole():
    watch = RenyiFilter(2.0, 1e-6)
    watch.spend(0.4, 0.6)
    again = RenyiFilter.from_state(watch.state())
    assert (again.spent, again.reports, again.orders) == (watch.spent, 1, watch.orders)
    for bad in ([0.0], [0.0, 0.0, 0.0], [-1.0, 0.0], [math.nan, 0.0]):
        with pytest.raises(ValueError, match="spent must be 2 numbers"):
            RenyiFilter.from_state(watch.state() | {"spent": bad})
