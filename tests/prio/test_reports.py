"""Which reports verify: the honest ones, and no others."""

import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prio.batches import CONTEXT, KEY, both, cheat, counted, disguised, moved, share_of, words_of
from turnout.prio import (
    MODULUS,
    Report,
    added,
    aggregator,
    arrays,
    device,
    draft,
    opened,
    prepare,
    report_context,
    split,
    turboshake128,
    verified,
    weighted_sum,
)

CONTEXTS = st.one_of(st.sampled_from([b"", b"x", bytes(107), bytes(108)]), st.binary(max_size=200))


@pytest.fixture(scope="module")
def report():
    return split(1, CONTEXT, nonce=bytes(range(16)), randomness=bytes(range(100, 164)))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.booleans(), CONTEXTS, st.integers(0, 200)), min_size=1, max_size=12), st.integers(1, 5))
def test_honest_reports_verify_in_any_mixture_and_their_sum_is_exact(devices, batch):
    reports = [split(bit, context) for bit, context, _ in devices]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aggregator, "_BATCH", batch)
        found = both(reports, [context for _, context, _ in devices])
    assert found.counted.all()
    bits = arrays.add(found.leader.out_shares, found.helper.out_shares)
    assert bits.tolist() == [int(bit) for bit, _, _ in devices]
    weights = [weight for _, _, weight in devices]
    shares = (weighted_sum(side.out_shares, found.counted, weights) for side in (found.leader, found.helper))
    assert opened(*shares) == sum(bit * weight for bit, _, weight in devices)


def test_a_report_in_a_large_batch_is_the_same_as_alone(report):
    crowd = [split(number & 1, CONTEXT) for number in range(30)] * 100
    crowd[2_777] = report
    found, alone = both(crowd), both([report])
    assert found.counted.all()
    assert found.leader.verifiers[2_777] == alone.leader.verifiers[0]
    assert found.helper.verifiers[2_777] == alone.helper.verifiers[0]


def altered_by(report, change):
    """What both aggregators hear, as 112 bytes with the nonce for each, changed: a report, and the helper's nonce."""
    data = bytearray(report.nonce + report.leader + report.nonce + report.helper)
    change(data)
    return Report(bytes(data[:16]), bytes(data[16:64]), bytes(data[80:])), bytes(data[64:80])


def test_every_bit_flipped_fails(report):
    def flip(place, data):
        data[place // 8] ^= 1 << place % 8

    altered = [altered_by(report, partial(flip, place)) for place in range(8 * 112)]
    assert not both([one for one, _ in altered], helpers_nonces=[nonce for _, nonce in altered]).counted.any()
    assert counted(report)


def test_the_nonce_is_not_proven_a_report_verifies_under_any_that_both_have(report):
    """So a nonce is no protection against the same shares sent twice: who reported is."""
    assert counted(Report(bytes(16), report.leader, report.helper))


@pytest.mark.parametrize("value", [2, -1, 3, 200, MODULUS // 2, MODULUS - 2])
def test_other_numbers_fail_with_an_honest_proof_and_with_a_false_one(value):
    assert counted(cheat(0))
    assert counted(disguised(1))
    assert not counted(cheat(value))
    assert not counted(disguised(value))


@pytest.mark.parametrize("check", ["square", "product"])
def test_a_verifier_that_skips_a_check_lets_a_cheat_through(monkeypatch, check):
    def careless(verifiers):
        difference, first, second, product = verifiers.T
        return difference == 0 if check == "square" else arrays.multiply(first, second) == product

    monkeypatch.setattr(aggregator, "_is_decided", careless)
    passes = disguised(2) if check == "square" else cheat(2)
    fails = cheat(2) if check == "square" else disguised(2)
    assert counted(passes)
    assert not counted(fails)


def small_blind():
    """A report of a device that chose its blinds so that one word of the leader's is 5."""
    seed = bytes(range(32))
    theirs = draft.expand(draft.BIT_SHARE, CONTEXT, seed, 1) + draft.expand(draft.PROOF_SHARE, CONTEXT, seed, 5)
    whole = [1, *device._proof(1, (5 + theirs[1]) % MODULUS, 77)]
    return bytes(16), seed, [(one - two) % MODULUS for one, two in zip(whole, theirs, strict=True)]


def test_a_word_of_p_or_more_is_refused_though_it_is_the_same_number(monkeypatch):
    nonce, seed, words = small_blind()
    assert words[1] == 5
    honest = Report(nonce, share_of(words), seed)
    other = Report(nonce, share_of([words[0], 5 + MODULUS, *words[2:]]), seed)
    found = both([honest, other])
    assert found.counted.tolist() == [True, False]
    assert found.leader.well_formed.tolist() == [True, False]
    assert found.leader.verifiers[1] == b""
    assert found.leader.out_shares[1] == 0
    monkeypatch.setattr(aggregator, "is_in_field", lambda words: np.ones(words.shape, np.bool_))
    assert both([honest, other]).counted.all()  # so it is that check that refuses it


def test_a_verifier_with_a_word_of_p_or_more_is_refused(report):
    found = both([report])
    for side in ("leader", "helper"):
        shares = {"leader": found.leader.verifiers, "helper": found.helper.verifiers}
        shares[side] = [share_of([MODULUS, *words_of(shares[side][0])[1:]])]
        assert not verified(**shares).any()


@pytest.mark.parametrize(
    "other",
    [
        report_context("run", 8, bytes(32), 400.0, 3),
        report_context("run", 7, bytes(32), 400.0, 4),
        report_context("run", 7, b"\1" * 32, 400.0, 3),
        report_context("run", 7, bytes(32), 401.0, 3),
        report_context("ruN", 7, bytes(32), 400.0, 3),
        report_context("run", 7, bytes(32), 400.0, 3) + b"\0",
        b"",
    ],
)
def test_another_context_fails(other):
    context = report_context("run", 7, bytes(32), 400.0, 3)
    report = split(1, context)
    assert counted(report, context)
    assert not counted(report, other)


def test_aggregators_that_disagree_on_context_nonce_or_key_count_nothing(report):
    leader = prepare("leader", KEY, CONTEXT, [report.nonce], [report.leader])
    for key, context, nonce in (
        (bytes(32), CONTEXT, report.nonce),
        (KEY, b"another", report.nonce),
        (KEY, CONTEXT, bytes(16)),
    ):
        helper = prepare("helper", key, context, [nonce], [report.helper])
        assert not verified(leader.verifiers, helper.verifiers).any()


def test_the_longest_context():
    longest = bytes(2**16 - 9)
    assert counted(split(1, longest), longest)
    with pytest.raises(ValueError, match="context must be"):
        split(1, longest + b"0")


def test_shares_of_two_reports_do_not_verify_together(report):
    other = split(1, CONTEXT, nonce=report.nonce)
    assert not counted(Report(report.nonce, report.leader, other.helper))
    assert not counted(Report(report.nonce, other.leader, report.helper))


SIZES = [0, 1, 8, 15, 17, 31, 32, 33, 40, 47, 48, 49, 56, 96, 200]


@pytest.mark.parametrize("part", ["nonce", "leader", "helper"])
def test_a_wrong_size_is_not_valid_and_harms_no_other_report(report, part):
    good = {"nonce": report.nonce, "leader": report.leader, "helper": report.helper}
    sizes = [size for size in SIZES if size != len(good[part])]
    bad = [Report(**good | {part: (good[part] * 14)[:size]}) for size in sizes]
    found = both([report, *bad, report])
    assert found.counted.tolist() == [True, *[False] * len(bad), True]
    for side in (found.leader, found.helper):
        assert [len(verifier) for verifier in side.verifiers] == [32 * fits for fits in side.well_formed]
        assert not side.out_shares[~side.well_formed].any()


@given(st.lists(st.tuples(*[st.binary(max_size=60)] * 3), max_size=6))
def test_anything_may_come_and_nothing_stops_the_batch(items):
    found = both([Report(*item) for item in items])
    assert found.counted.shape == (len(items),)
    assert not found.counted.any()


def test_added_parts_of_a_report_fail(report):
    """Each of the words of a share matters, alone."""
    for place in range(6):
        for change in (1, -1, 2**32, MODULUS // 2):
            assert not counted(moved(report, [change if place == at else 0 for at in range(6)]))


@pytest.mark.parametrize("point", [1, MODULUS - 1])
def test_at_a_point_that_shows_what_lines_hide_the_report_is_given_up(report, point, monkeypatch):
    real = arrays.expand

    def chosen(messages, count):
        found = real(messages, count)
        return np.full_like(found, point) if messages[0, 9] == draft.QUERY_POINT else found

    monkeypatch.setattr(aggregator, "expand", chosen)
    found = both([report])
    assert not found.leader.well_formed.any()
    assert found.helper.verifiers == [b""]


def test_two_query_points_give_the_bit_away():
    """Why there is one verify key for a run, and one nonce for a report: two values of a line are the line."""
    for bit in (0, 1):
        report, points, values = split(bit, CONTEXT), [], []
        for key in (KEY, bytes(32)):
            found = both([report], key=key)
            message = draft.message_head(draft.QUERY_POINT, CONTEXT) + key + b"\1" + report.nonce
            points.append(int.from_bytes(turboshake128(message, 1, 8), "little"))
            sides = (words_of(side.verifiers[0])[1] for side in (found.leader, found.helper))
            values.append(sum(sides) % MODULUS)
        slope = (values[1] - values[0]) * pow(points[1] - points[0], -1, MODULUS)
        assert (values[0] + slope * (-1 - points[0])) % MODULUS == bit


@pytest.mark.deployment
def test_of_100_000_altered_reports_none_verifies():
    random, number = np.random.default_rng(11), 100_000
    honest = [split(index & 1, CONTEXT) for index in range(500)] * (number // 500)
    lines = [one.nonce + one.leader + one.nonce + one.helper for one in honest]
    whole = np.frombuffer(b"".join(lines), np.uint8).reshape(number, 112)
    data, rows, kind = whole.copy(), np.arange(number), random.integers(0, 4, number)
    data[rows, random.integers(0, 112, number)] += random.integers(1, 256, number, np.uint8)  # one byte of any place
    data[kind == 1] = whole[kind == 1]
    for word in range(2, 8):  # or all words of the leader's share
        data.view("<u8")[kind == 1, word] = random.integers(0, MODULUS, np.count_nonzero(kind == 1), np.uint64)
    data[kind == 2] = whole[kind == 2]
    data[kind == 2, 16:24] = random.integers(0, 255, (np.count_nonzero(kind == 2), 8))  # or the share of the bit alone
    data[kind == 3, 80:] = random.integers(0, 256, (np.count_nonzero(kind == 3), 32))  # or the helper's seed, too
    assert (data != whole).any(axis=1).all()

    def part(start, stop):
        return [line.tobytes() for line in data[:, start:stop]]

    altered = [Report(*fields) for fields in zip(part(0, 16), part(16, 64), part(80, 112), strict=True)]
    assert not both(altered, helpers_nonces=part(64, 80)).counted.any()
    assert both(honest).counted.all()


def test_a_device_loads_no_numpy():
    program = "import sys; from turnout.prio import split; split(1, b''); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_two_reports_of_one_bit_have_nothing_in_common():
    one, two = split(1, CONTEXT), split(1, CONTEXT)
    assert one.nonce != two.nonce
    assert one.helper != two.helper
    assert not set(words_of(one.leader)) & set(words_of(two.leader))


def test_a_share_is_not_printed(report):
    assert report.leader.hex() not in repr(report)
    assert repr(report.helper) not in repr(report)
    assert "out_shares" not in repr(prepare("leader", KEY, CONTEXT, [report.nonce], [report.leader]))


@pytest.mark.parametrize("bit", [2, -1, 0.5, 1.0, None, "1", MODULUS])
def test_a_bit_is_0_or_1(bit):
    with pytest.raises(ValueError, match="bit must be 0 or 1"):
        split(bit, CONTEXT)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("leader", b"short", CONTEXT, [], []), "verify_key must be 32 bytes"),
        (("judge", KEY, CONTEXT, [], []), 'role must be "leader" or "helper"'),
        (("leader", KEY, CONTEXT, [bytes(16)], []), "one of each per report"),
        (("leader", KEY, [CONTEXT], [bytes(16)] * 2, [bytes(48)] * 2), "one of each per report"),
        (("leader", KEY, bytes(2**16 - 8), [bytes(16)], [bytes(48)]), "context must be at most 65527 bytes"),
    ],
)
def test_what_the_caller_does_wrong_is_an_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        prepare(*arguments)


def test_sizes_of_what_is_given_for_tests():
    for more in ({"nonce": bytes(15)}, {"randomness": bytes(63)}):
        with pytest.raises(ValueError, match="bytes, got"):
            split(1, CONTEXT, **more)
    with pytest.raises(ValueError, match="verifiers of the same reports"):
        verified([b""], [])
    assert added() == 0
