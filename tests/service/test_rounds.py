"""One round, without clock or disk: acknowledgement, hard limit, quorum, the signal."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.played import members, play, turnouts
from turnout import IntegralController, PaperCoin, Prior, SelfTuningController, paper_population, simulate
from turnout.algorithm import Averaging, Clamp
from turnout.service.rounds import (
    MISSING,
    NO,
    REFUSED,
    YES,
    Members,
    Position,
    close,
    first_position,
    pack,
    pack_codes,
    thinning,
    unpack,
    unpack_codes,
)
from turnout.service.rules import Rules, Safety


def rules(missing: str = "absent", **safety: float) -> Rules:
    return Rules(Clamp(1.0), IntegralController(0.1, 2.0), Safety(missing, **safety))  # type: ignore[arg-type]


def reports(text: str) -> np.ndarray:
    """`y`, `n` or `.` by slot."""
    return np.array([{"y": YES, "n": NO, ".": MISSING}[letter] for letter in text], dtype=np.uint8)


def closed_with(rule: Rules, text: str, capacity: float = 2.0, position: Position | None = None, weight=1):
    where = position or first_position(rule)
    return close(rule, where, members(len(text), weight), reports(text), capacity, np.random.default_rng(1))


def test_a_round_is_closed_and_the_signal_follows_the_turnout() -> None:
    closed, after = closed_with(rules(), "yyynn")
    assert (closed.participants, closed.demand, closed.heard, closed.members, closed.frozen) == (3, 3, 5, 5, False)
    assert after.round == 1
    assert after.signal == pytest.approx(2.0 - 0.1 * (3 - 2))
    assert after.offered == 2.0, "the paper's lag: round 1 is decided by Theta(0)"


def test_without_a_lag_the_next_round_is_decided_by_the_newest_signal() -> None:
    rule = Rules(Clamp(1.0), SelfTuningController(), Safety("absent"))
    _, after = closed_with(rule, "nnnnn")
    assert after.offered == after.signal > 1.0


@given(st.lists(st.sampled_from("yn."), min_size=1, max_size=40), st.integers(0, 40), st.integers(0, 2**32))
def test_never_more_than_the_hard_limit_is_acknowledged(text: list[str], limit: int, seed: int) -> None:
    weight = np.random.default_rng(seed).integers(1, 9, len(text))
    rule = rules(hard_limit=limit)
    closed, _ = close(
        rule, first_position(rule), members(len(text), weight), reports("".join(text)), 2.0, np.random.default_rng(seed)
    )
    assert closed.participants <= limit
    assert closed.participants == weight[closed.codes == YES].sum()
    refused = closed.codes == REFUSED
    assert (reports("".join(text))[refused] == YES).all()
    assert closed.demand == weight[reports("".join(text)) == YES].sum()
    if refused.any():  # nobody is refused who would still fit
        assert closed.participants + weight[refused].min() > limit


def test_who_is_refused_is_drawn_and_not_first_come_first_served() -> None:
    rule, refused = rules(hard_limit=5), np.zeros(10)
    for seed in range(200):
        closed, _ = close(rule, first_position(rule), members(10), reports("y" * 10), 2.0, np.random.default_rng(seed))
        refused += closed.codes == REFUSED
    assert refused.sum() == 1000
    assert refused.min() > 50  # 100 expected of each, standard deviation 7
    assert refused.max() < 150


def test_a_hard_limit_at_the_capacity_does_not_hide_the_excess_from_the_signal() -> None:
    _, after = closed_with(rules(hard_limit=2), "yyyyn", capacity=2.0)
    assert after.signal < 2.0


def test_below_the_quorum_the_signal_does_not_rise() -> None:
    position = first_position(rules())
    for _ in range(100):
        closed, position = closed_with(rules(), "n........................", position=position)
        assert closed.frozen
    assert position.signal <= 2.0
    _, live = closed_with(rules(quorum=0.0), "n........................")
    assert live.signal > 2.0, "without a quorum an outage winds it up"


def test_a_round_without_any_report_or_device_is_frozen() -> None:
    assert closed_with(rules(quorum=0.0), "....")[0].frozen
    rule = rules()
    closed, _ = close(rule, first_position(rule), members(0), reports(""), 2.0, np.random.default_rng(1))
    assert closed.frozen
    assert closed.participants == 0


def test_the_signal_is_bounded_above() -> None:
    rule, position = rules(most_signal=2.5), None
    for _ in range(20):
        _, position = closed_with(rule, "nnnnn", capacity=100.0, position=position)
        assert position.signal <= 2.5
    default = rules().most_signal(100.0)
    assert default == 2.0 + 100 * 0.1 * 100.0


def test_a_missing_device_counts_as_the_operator_has_chosen() -> None:
    for missing, counted in (("absent", 1), ("last", 2)):
        _, position = closed_with(rules(missing), "yynnn")
        closed, after = closed_with(rules(missing), "y.nn.", position=position)
        assert closed.demand == counted
        assert closed.participants == 1
        later, _ = closed_with(rules(missing), "n.nn.", position=after)
        assert later.demand == counted - 1, "its last state is that of the last round it was heard in"


def test_room_under_the_hard_limit_is_kept_for_those_presumed_on() -> None:
    rule = rules("last", hard_limit=3)
    _, position = closed_with(rule, "yynnn")
    closed, _ = closed_with(rule, "..yyy", position=position)
    assert closed.participants == 1


def test_stopping_everyone_acknowledges_nobody_and_leaves_the_signal() -> None:
    rule = rules()
    closed, after = close(
        rule, first_position(rule), members(4), reports("yynn"), 2.0, np.random.default_rng(1), acknowledge=False
    )
    assert closed.participants == 0
    assert list(closed.codes) == [REFUSED, REFUSED, NO, NO]
    assert after.signal == 2.0


def test_who_left_is_not_counted_whatever_it_reported() -> None:
    here = Members(np.ones(3, dtype=np.int64), np.zeros(3, dtype=np.int64), np.array([True, False, True]))
    rule = rules()
    closed, _ = close(rule, first_position(rule), here, reports("yyn"), 2.0, np.random.default_rng(1))
    assert closed.participants == 1
    assert closed.members == 2
    assert closed.code(1) == MISSING
    assert closed.code(99) == MISSING


@given(st.lists(st.integers(0, 3), max_size=30))
def test_codes_and_bits_are_packed_and_unpacked(codes: list[int]) -> None:
    found = np.array(codes, dtype=np.uint8)
    assert np.array_equal(unpack_codes(pack_codes(found), len(found)), found)
    bits = found > 1
    assert np.array_equal(unpack(pack(bits), len(bits)), bits)
    longer = unpack(pack(bits), len(bits) + 9)
    assert not longer[8 * math.ceil(len(bits) / 8) :].any()


@pytest.mark.parametrize("controller", [IntegralController(0.0075, 0.35), SelfTuningController()])
def test_rounds_closed_one_by_one_are_the_simulation(controller) -> None:
    problem, mechanism, prior = paper_population().problem(600), PaperCoin(3.5), Prior(0.5, 10)
    run = simulate(problem, mechanism, controller, 60, seed=3, start=prior)
    books = play(Rules(mechanism, controller, Safety("absent"), prior), problem, 60, seed=3)
    assert np.array_equal([closed.signal for closed in books], run.signal)
    assert np.array_equal(turnouts(books), run.participants)


def test_the_thinning_is_that_of_the_missing_devices_own_histories() -> None:
    rule = Rules(Clamp(1.0), IntegralController(0.1, 2.0), Safety("absent"), averaging=Averaging(remember=50))
    position = Position(30, 2.0, {"signal": 2.0})
    closed, _ = close(rule, position, members(4, joined=10), reports("n..."), 2.0, np.random.default_rng(1))
    assert thinning(rule, closed, members(4, joined=10)) == pytest.approx(30 / 31)
    late = Position(1000, 2.0, {"signal": 2.0})
    closed, _ = close(rule, late, members(4), reports("n..."), 2.0, np.random.default_rng(1))
    assert thinning(rule, closed, members(4)) == pytest.approx(49 / 50), "a history that fades forgets at its own rate"
