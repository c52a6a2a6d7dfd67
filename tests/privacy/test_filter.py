"""Boxes chosen on the way."""

import itertools
import json
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as some
from scipy.optimize import minimize_scalar

from turnout.errors import TurnoutError
from turnout.privacy.accounting import EVERYTHING, report_epsilon, total_epsilon
from turnout.privacy.filter import RenyiFilter, renyi_epsilon, renyi_to_epsilon

DELTA = 1e-6


def symmetric(epsilon) -> tuple[float, float]:
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
    for total in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="epsilon must be a total above 0"):
            RenyiFilter(total, DELTA)
    for delta in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match="delta must be"):
            RenyiFilter(1.0, delta)
    for orders in ((1.0,), (math.inf,), (0.5, 4.0), (4.0, 0.5), (math.nan,)):
        with pytest.raises(ValueError, match="orders must be finite and above 1"):
            RenyiFilter(1.0, DELTA, orders)
    with pytest.raises(ValueError, match="order must be"):
        renyi_epsilon(0.1, 0.2, 1.0)
    for box in ((0.6, 0.4), (-0.1, 0.5), (0.5, 1.1)):
        with pytest.raises(ValueError, match="low and high must be"):
            RenyiFilter(1.0, DELTA).allows(*box)


def exact_divergence(box, order):
    """ln(sum of P^order Q^(1 - order)) / (order - 1), the greater direction, in 60 digits."""
    with localcontext(prec=60):
        power = Decimal(order)
        return max(
            (p**power * q ** (1 - power) + (1 - p) ** power * (1 - q) ** (1 - power)).ln() / (power - 1)
            for p, q in itertools.permutations(map(Decimal, box))
        )


BOXES = [(0.25, 0.75), (0.1, 0.2), (0.6, 0.95), (0.3, 0.3001), (0.01, 0.9)]


@pytest.mark.parametrize(
    ("box", "order"), [*itertools.product(BOXES, [1.01, 2.0, 7.5, 60.0]), ((1e-20, 0.5), 1.01), ((1e-20, 0.5), 8.0)]
)
def test_a_divergence_is_the_greater_direction_rounded_upwards(box: tuple[float, float], order):
    exact, found = exact_divergence(box, order), Decimal(renyi_epsilon(*box, order))
    assert exact <= found <= exact * (1 + Decimal("2e-9")) + Decimal("1e-11")


@pytest.mark.parametrize("order", [1.2, 3.0, 60.0])
@pytest.mark.parametrize("low", [0.05, 0.3, 0.7])
@pytest.mark.parametrize("width", [1e-7, 1e-9, 1e-12])
def test_a_hair_of_a_box_is_rounded_upwards_too(low, width, order):
    """Where the divergence is far below the rounding of its terms, which are of the size of order * width."""
    exact, found = exact_divergence((low, low + width), order), Decimal(renyi_epsilon(low, low + width, order))
    rounding = Decimal(256.0 * 2.0**-52 * order * width / (order - 1.0))
    assert exact <= found <= exact * (1 + Decimal("2e-9")) + rounding


def test_what_is_certain_or_says_nothing_has_a_divergence_too():
    for order in (1.5, 8.0, math.inf):
        assert renyi_epsilon(0.0, 0.5, order) == renyi_epsilon(0.5, 1.0, order) == math.inf
        for certain in (0.0, 0.3, 1.0):
            assert renyi_epsilon(certain, certain, order) == 0.0
    with pytest.raises(ValueError, match="order must be above 1"):
        renyi_epsilon(0.3, 0.3, math.nan)


@pytest.mark.parametrize("box", [(1e-6, 0.3), symmetric(1.0), (0.2, 0.2 * math.e)])
def test_a_large_order_is_the_pure_epsilon(box: tuple[float, float]):
    """From below: so it may stand for orders whose powers no float can hold."""
    pure = report_epsilon(*box)
    assert renyi_epsilon(*box, math.inf) == pure
    for times in (601.0, 900.0, 1e5):
        assert renyi_epsilon(*box, times / pure) == pure
    assert pure - 0.05 < renyi_epsilon(*box, 599.0 / pure) < pure
    assert renyi_epsilon(*box, 2.0) < 0.96 * pure


@pytest.mark.parametrize("order", [1.1, 2.0, 8.0, 300.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.1])
def test_a_total_is_what_the_formula_says_rounded_upwards(order, delta):
    """divergence + (ln(1 / delta) + (order - 1) ln(1 - 1/order) - ln(order)) / (order - 1), in 60 digits."""
    with localcontext(prec=60):
        a, chance = Decimal(order), Decimal(delta)
        extra = ((1 / chance).ln() + (a - 1) * (1 - 1 / a).ln() - a.ln()) / (a - 1)
    for divergence in (0.003, 0.7, 3.0, 40.0, abs(float(extra))):
        exact, found = Decimal(divergence) + extra, Decimal(renyi_to_epsilon(divergence, order, delta))
        assert max(Decimal(0), exact) <= found
        assert found <= max(Decimal(0), exact + Decimal("4e-14") * (Decimal(divergence) + abs(extra)))


def test_a_total_is_never_negative_and_an_infinite_one_is_infinite():
    assert renyi_to_epsilon(0.0, 8.0, 0.9) == 0.0
    assert renyi_to_epsilon(0.25, math.inf, 1e-6) == 0.25
    assert renyi_to_epsilon(math.inf, 8.0, 1e-6) == math.inf


def test_the_usual_order_lasts_longest():
    box = 0.48, 0.52
    others = [spend_all(RenyiFilter(2.0, DELTA, (order,)), box) for order in (2.0, 5.0, 40.0, 200.0)]
    assert spend_all(RenyiFilter(2.0, DELTA), box) > max(others)
    assert spend_all(RenyiFilter(2.0, 0.0), box) == int(2.0 / report_epsilon(*box))


def test_a_saved_filter_must_be_whole():
    watch = RenyiFilter(2.0, 1e-6)
    watch.spend(0.4, 0.6)
    again = RenyiFilter.from_state(watch.state())
    assert (again.spent, again.reports, again.orders) == (watch.spent, 1, watch.orders)
    for bad in ([0.0], [0.0, 0.0, 0.0], [-1.0, 0.0], [math.nan, 0.0]):
        with pytest.raises(ValueError, match="spent must be 2 numbers"):
            RenyiFilter.from_state(watch.state() | {"spent": bad})


def test_each_order_has_its_share_of_delta_and_the_best_one_counts():
    box = 0.4, 0.6
    for orders in ((1.5,), (4.0,), (4.0, 16.0), (4.0, 16.0, 90.0)):
        watch = RenyiFilter(100.0, DELTA, orders)
        for reports in range(1, 40):
            watch.spend(*box)
            totals = [renyi_to_epsilon(reports * renyi_epsilon(*box, a), a, DELTA / len(orders)) for a in orders]
            assert watch.spent_epsilon() == pytest.approx(min(*totals, reports * report_epsilon(*box)), rel=1e-12)
    assert RenyiFilter(1.0, 0.0, (4.0,)).orders == (math.inf,)  # without delta only the sum of pure ones counts


def test_the_account_promises_the_limit_and_a_billionth():
    watch = RenyiFilter(8.0, DELTA)
    watch.spend(0.4, 0.6)
    promised = watch.account()
    assert promised.epsilon == pytest.approx(8.0 * (1.0 + 1e-9), rel=1e-12)
    assert (promised.delta, promised.rounds, promised.against) == (DELTA, 1, EVERYTHING)


def test_the_limit_is_kept_from_the_first_report_to_the_last_float():
    assert not RenyiFilter(0.5, DELTA).allows(*symmetric(0.6))
    assert RenyiFilter(0.5, DELTA).allows(*symmetric(0.4))
    watch = RenyiFilter(0.5, 0.0)
    last = watch.account().epsilon
    for spent, allowed in ((last, True), (math.nextafter(last, 1.0), False)):
        full = RenyiFilter.from_state(watch.state() | {"spent": [spent], "reports": 3})
        assert full.allows(0.3, 0.3) == allowed  # which costs nothing


def test_what_was_spent_is_never_rounded_down_and_nothing_costs_nothing():
    watch = RenyiFilter(1e3, 0.0)
    exact = Fraction(0)
    for number in range(1, 300):
        box = symmetric(number / 300)
        watch.spend(*box)
        exact += Fraction(report_epsilon(*box))
        assert exact <= Fraction(watch.spent[0]) <= exact * (1 + Fraction(number, 2**51))
    before = watch.state()
    for certain in (0.0, 0.3, 1.0):
        watch.spend(certain, certain)
    assert watch.state() == before | {"reports": before["reports"] + 3}


@pytest.mark.parametrize("total", [0.1, 1.0, 8.0, 100.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.01])
def test_the_usual_order_is_the_best_for_small_reports(total, delta):
    """They cost order * c each, whatever c: the most are allowed where (total - conversion) / order is greatest."""

    def lasting(logarithm):
        order = 1.0 + math.exp(logarithm)
        conversion = (-math.log(delta) - math.log(order)) / (order - 1.0) + math.log1p(-1.0 / order)
        return -(total - conversion) / order

    best = minimize_scalar(lasting, bounds=(-6.0, 10.0), method="bounded", options={"xatol": 1e-9})
    (order, _) = RenyiFilter(total, delta).orders
    assert abs(math.log(order - 1.0) - best.x) <= 0.0101  # half the distance of the orders that are tried


def test_a_new_filter_can_be_saved():
    watch = RenyiFilter(2.0, DELTA)
    again = RenyiFilter.from_state(watch.state())
    assert again.state() == watch.state() == watch.state() | {"spent": [0.0, 0.0], "reports": 0}
