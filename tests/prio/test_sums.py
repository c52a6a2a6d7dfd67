"""Sums of shares: public weights, negative noise, several batches; and the context's bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prio.batches import both
from turnout.prio import MODULUS, added, opened, report_context, split, weighted_sum
from turnout.prio.draft import HEAVIEST

PARTS = st.tuples(
    st.text("ab\x00", min_size=1, max_size=4),
    st.integers(0, 2**40),
    st.binary(min_size=16, max_size=18),
    st.floats(0.0, 1e6),
    st.integers(1, 200),
)


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 200), st.integers(0, MODULUS - 1), st.booleans()), max_size=50
    ),
    st.integers(-(2**40), 2**40),
    st.integers(-(2**40), 2**40),
)
def test_noisy_sums_are_exact_also_below_zero(devices, one, two):
    """Shares as `split` makes them: any word, and the bit less that word."""
    bits, weights, mine, counted = ([device[at] for device in devices] for at in range(4))
    leader = np.array([(bit - word) % MODULUS for bit, word in zip(bits, mine, strict=True)], np.uint64)
    chosen = np.array(counted, np.bool_)
    shares = [weighted_sum(side, chosen, weights) for side in (leader, np.array(mine, np.uint64))]
    expected = sum(bit * weight for bit, weight, _, fits in devices if fits)
    assert opened(*shares) == expected
    assert opened(added(shares[0], one), added(shares[1], two)) == expected + one + two
    assert all(0 <= added(share, one) < MODULUS for share in shares)


def test_reports_of_weights_up_to_200_and_noise_below_all_of_them():
    weights = [1 + number % 200 for number in range(400)]
    contexts = [report_context("run", 3, bytes(32), 400.0, weight) for weight in weights]
    bits = [number % 3 == 0 for number in range(400)]
    found = both([split(bit, context) for bit, context in zip(bits, contexts, strict=True)], contexts)
    assert found.counted.all()
    total = sum(weight for weight, bit in zip(weights, bits, strict=True) if bit)
    leader, helper = (weighted_sum(side.out_shares, found.counted, weights) for side in (found.leader, found.helper))
    assert opened(added(leader, -(10**6)), added(helper, 17)) == total - 10**6 + 17
    none = np.zeros(400, np.bool_)
    assert opened(weighted_sum(found.leader.out_shares, none, weights), 0) == 0


def test_sums_of_batches_add_up():
    found = both([split(1, b"c") for _ in range(10)], b"c")
    sides = found.leader.out_shares, found.helper.out_shares
    halves = [[weighted_sum(side[part], found.counted[part]) for part in (slice(4), slice(4, 10))] for side in sides]
    assert opened(added(*halves[0]), added(*halves[1])) == 10


@pytest.mark.parametrize("number", [0, 1, -1, 2**62, -(2**62), MODULUS // 2, -(MODULUS // 2)])
def test_a_sum_is_decoded_around_zero(number):
    for share in (0, 1, MODULUS - 1, 12345678901234567890):
        assert opened(share, added(number, -share)) == number


@pytest.mark.parametrize("share", [-1, MODULUS, 2**64, 1.0, True, None, b"12345678"])
def test_a_share_of_a_sum_is_checked(share):
    with pytest.raises(ValueError, match="whole number from 0"):
        opened(share, 0)
    with pytest.raises(ValueError, match="helper must be"):
        opened(0, share)


@pytest.mark.parametrize("weights", [-1, 2**32, 0.5, [1.0, 2.0], [1, -1]])
def test_weights_are_whole_and_not_negative(weights):
    with pytest.raises(ValueError, match=r"weights(\[[01]\])? must be whole numbers from 0 to 4,294,967,295"):
        weighted_sum(np.ones(2, np.uint64), np.ones(2, np.bool_), weights)


def test_one_weight_and_one_flag_per_report():
    for counted, weights in ((np.ones(3, np.bool_), 1), (np.ones(2, np.bool_), [1, 2, 3]), (np.ones(2, np.bool_), [])):
        with pytest.raises(ValueError, match="one per report"):
            weighted_sum(np.ones(2, np.uint64), counted, weights)


def test_the_largest_weights_and_shares():
    shares = np.full(1_000, MODULUS - 1, np.uint64)
    assert weighted_sum(shares, np.ones(1_000, np.bool_), 2**32 - 1) == -1_000 * (2**32 - 1) % MODULUS


@given(PARTS, PARTS)
def test_different_parts_have_different_contexts(one, two):
    assert (report_context(*one) == report_context(*two)) == (one == two)


def test_a_context_says_what_it_is_in_fixed_bytes():
    """Both sides and other programs must make the same bytes for ever."""
    context = report_context("boilers", 258, bytes(range(16)), 1.5, 7)
    parts = (b"turnout", b"boilers", bytes(6) + b"\x01\x02", bytes(range(16)), bytes.fromhex("3ff8000000000000"))
    assert context == b"".join(bytes([len(part)]) + part for part in (*parts, bytes(7) + b"\x07"))
    assert report_context("r", 0, bytes(16), -0.0, 1) == report_context("r", 0, bytes(16), 0, 1)


def test_a_context_at_its_limits():
    context = report_context("r" * 255, 2**53, bytes(64), 0.0, HEAVIEST)
    assert len(context) == 8 + 256 + 9 + 65 + 9 + 9
    assert both([split(1, context)], context).counted.all()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"run": ""}, "run"),
        ({"run": "ü" * 128}, "run"),
        ({"round": -1}, "round"),
        ({"round": 1.5}, "round"),
        ({"round": True}, "round"),
        ({"rules": bytes(15)}, "rules"),
        ({"rules": bytes(65)}, "rules"),
        ({"sigma": float("nan")}, "sigma"),
        ({"sigma": -1.0}, "sigma"),
        ({"weight": 0}, "weight"),
        ({"weight": HEAVIEST + 1}, "weight"),
        ({"weight": "3"}, "weight"),
    ],
)
def test_what_a_context_refuses(change, name):
    usual = {"run": "r", "round": 0, "rules": bytes(32), "sigma": 1.0, "weight": 1}
    with pytest.raises(ValueError, match=f"^{name} must be"):
        report_context(**usual | change)
