"""One round, without clock or disk: acknowledgement, hard limit, quorum, the signal."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.played import members, play, turnouts
from turnout import IntegralController, PaperCoin, Prior, SelfTuningController, paper_population, simulate
from turnout.algorithm import Clamp, Presence, RandomizedResponse, in_reach
from turnout.service.operator import troubles
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
    pack_presence,
    reachable,
    unpack,
    unpack_codes,
    unpack_presence,
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
    _, live = closed_with(rules(quorum=0.0), "n........................", capacity=10.0)
    assert live.signal > 2.0, "without a quorum a single report moves it"


def test_a_round_without_any_report_or_device_is_frozen() -> None:
    assert closed_with(rules(quorum=0.0), "....")[0].frozen
    rule = rules()
    closed, _ = close(rule, first_position(rule), members(0), reports(""), 2.0, np.random.default_rng(1))
    assert closed.frozen
    assert closed.participants == 0


def test_the_signal_is_bounded_above() -> None:
    rule, position = rules(most_signal=2.5), None
    for _ in range(20):
        _, position = closed_with(rule, "nnnnn", capacity=3.0, position=position)
        assert position.signal <= 2.5
    assert position.signal == 2.5
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


def test_a_capacity_out_of_reach_moves_the_signal_from_the_wrong_end_alone() -> None:
    """Clamp(1.0) lets ten devices bring 2.7 to 7.3."""
    for capacity, beyond in ((2.6, True), (2.7, False), (7.3, False), (7.4, True)):
        closed, after = closed_with(rules(), "yyyyynnnnn", capacity=capacity)
        assert closed.beyond_reach == beyond, capacity
        assert closed.expected == 10
        assert (after.signal == 2.0) == (capacity == 7.4), "5 of at most 7.3 is as much as may be asked for"
    low, after = closed_with(rules(), "ynnnnnnnnn", capacity=7.4)
    assert low.beyond_reach
    assert after.signal > 2.0, "but 1 is not"
    low, after = closed_with(rules(), "yyynnnnnnn", capacity=2.6)
    assert low.beyond_reach
    assert after.signal == pytest.approx(2.0 + 0.1 * (2.7 + 0.46 - 3), abs=0.01), "it aims at a tenth above the least"


@pytest.mark.parametrize("clients", [20, 300])
def test_a_capacity_that_was_out_of_reach_for_long_is_met_soon_when_it_is_back(clients) -> None:
    """It was below the least for 300 rounds. The signal must not have fallen to nothing. The seeds are fixed."""
    rule, half = Rules(Clamp(1.0), SelfTuningController(), Safety("absent"), Prior(0.5, 10)), clients / 2
    low = 0.2 * clients
    found = [
        play(rule, paper_population(seed, clients).problem(half), 420, seed, capacities={60: low, 360: half})
        for seed in range(4)
    ]
    during, after = (
        np.mean([turnouts(books)[rounds] for books in found]) for rounds in (slice(100, 360), slice(370, 420))
    )
    assert 0.269 * clients < during < 0.34 * clients
    assert after == pytest.approx(half, rel=0.05)
    assert min(closed.signal for books in found for closed in books) > 0.1


def test_presumed_on_is_on_at_any_signal() -> None:
    """Five of ten are missing, and were on: what the others can bring is added to them."""
    _, position = closed_with(rules("last"), "yyyyynnnnn", capacity=5.0)
    closed, _ = closed_with(rules("last", quorum=0.1), ".....nnnnn", capacity=7.0, position=position)
    assert not closed.beyond_reach
    closed, _ = closed_with(rules("last", quorum=0.1), ".....nnnnn", capacity=5.5, position=position)
    assert closed.beyond_reach, "five are on already, and the others bring 1.3 at least"


def test_the_page_says_of_the_reach_what_the_round_did() -> None:
    """It counts who is presumed on, and it calls the least turnout out of reach, as no signal brings it quite."""
    rule, weights = rules("last", quorum=0.1), np.ones(10)
    _, position = closed_with(rule, "yyyyynnnnn", capacity=5.0)
    for capacity in (5.5, 6.34, 6.35, 7.0, 8.6, 8.7):
        closed, after = closed_with(rule, ".....nnnnn", capacity, position)
        able = reachable(rule, members(10), float(weights.sum()), closed.codes != MISSING, after.on)
        assert in_reach(capacity, *able) != closed.beyond_reach, capacity
    half = Rules(RandomizedResponse(math.log(3.0)), IntegralController(0.1, 2.0), Safety("absent"))
    least, most = reachable(half, members(8), 8.0, np.ones(8, np.bool_), b"")
    assert closed_with(half, "yynnnnnn", capacity=least)[0].beyond_reach
    assert not closed_with(half, "yynnnnnn", capacity=most)[0].beyond_reach
    now = {"mode": "running", "members": 8, "reachable": [least, most]}
    assert troubles(now | {"capacity": least})
    assert not troubles(now | {"capacity": most})


def test_who_returns_is_counted_little_by_little() -> None:
    """Eight of sixteen miss ten rounds, and say yes from then on; so do the others."""
    rule, position, heard = rules(quorum=0.1), None, []
    for _ in range(10):
        closed, position = closed_with(rule, 8 * "y" + 8 * ".", capacity=8.0, position=position)
    for _ in range(12):
        closed, position = closed_with(rule, 16 * "y", capacity=8.0, position=position)
        heard.append(closed.participants)
        assert (closed.codes[8:] == REFUSED).sum() + (closed.codes[8:] == YES).sum() == 8
    assert heard[0] == 8, "nobody counts in the round in which it returns"
    assert heard == sorted(heard)
    assert heard[-1] == 16
    assert max(np.diff(heard)) <= 2


def test_one_missed_round_changes_nothing() -> None:
    _, position = closed_with(rules(), "yynn.")
    closed, _ = closed_with(rules(), "nnnny", position=position)
    assert closed.participants == 1


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 20), st.booleans()), max_size=30))
def test_presence_is_packed_and_unpacked(rows: list[tuple[int, int, bool]]) -> None:
    columns = [np.array(column) for column in zip(*rows, strict=True)] or [np.empty(0)] * 3
    presence = Presence(*(column.astype(kind) for column, kind in zip(columns, (int, int, bool), strict=True)))
    again = unpack_presence(pack_presence(presence), len(rows) + 2)
    for one, other in zip(presence, again, strict=True):
        assert np.array_equal(one, other[: len(rows)])
    assert again.expected[len(rows) :].all()
