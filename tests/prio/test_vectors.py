"""The published test vectors, byte for byte, on the device's side and on the aggregators'."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from prio.batches import share_of, words_of
from turnout.prio import MODULUS, arrays, draft, opened, prepare, split, turboshake128, verified, weighted_sum

VECTORS = Path(__file__).parent / "vectors"
FILES = sorted(VECTORS.glob("Prio3Count_*.json"))
ROLES = ("leader", "helper", "helper")


def read(path):
    """The vector, with the texts of hexadecimal digits that matter as bytes."""
    found = json.loads(path.read_text())
    for report in found["reports"]:
        report["nonce"] = bytes.fromhex(report["nonce"])
        report["input_shares"] = [bytes.fromhex(share) for share in report["input_shares"]]
    return found, bytes.fromhex(found["ctx"]), bytes.fromhex(found["verify_key"])


def steps(found, operation, **more):
    return [step for step in found["operations"] if step["operation"] == operation and more.items() <= step.items()]


def prepared(found, context, key, aggregator, monkeypatch):
    """One aggregator's step; the vectors with three have a second helper, whose number is 2."""
    monkeypatch.setattr(draft, "HELPER", max(aggregator, 1))
    reports = found["reports"]
    nonces, shares = [one["nonce"] for one in reports], [one["input_shares"][aggregator] for one in reports]
    return prepare(ROLES[aggregator], key, context, nonces, shares)


def test_all_seven_files_are_here():
    assert len(FILES) == 7
    assert draft.DRAFT in (VECTORS / "README.md").read_text()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_device_makes_the_published_shares(path, monkeypatch):
    found, context, _ = read(path)
    for step in steps(found, "shard"):
        report = found["reports"][step["report_index"]]
        randomness = bytes.fromhex(report["rand"])
        *seeds, blinding = (randomness[at : at + 32] for at in range(0, len(randomness), 32))
        made = split(report["measurement"], context, nonce=report["nonce"], randomness=seeds[0] + blinding)
        ours = words_of(made.leader)
        for number, seed in enumerate(seeds[1:], 2):  # a further helper takes its share from the leader's
            monkeypatch.setattr(draft, "HELPER", number)
            theirs = draft.expand(draft.BIT_SHARE, context, seed, 1) + draft.expand(draft.PROOF_SHARE, context, seed, 5)
            ours = [(one - two) % MODULUS for one, two in zip(ours, theirs, strict=True)]
        assert [share_of(ours), *seeds] == report["input_shares"]
        assert report["public_share"] == ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_aggregators_compute_the_published_verifiers_and_shares(path, monkeypatch):
    found, context, key = read(path)
    for aggregator in range(found["shares"]):
        made = prepared(found, context, key, aggregator, monkeypatch)
        for number, report in enumerate(found["reports"]):
            assert made.verifiers[number].hex() == report["verifier_shares"][0][aggregator]
            if report["out_shares"]:
                assert share_of(made.out_shares[number]).hex() == report["out_shares"][aggregator]
        if found["agg_shares"]:
            total = weighted_sum(made.out_shares, made.well_formed)
            assert share_of(total).hex() == found["agg_shares"][aggregator]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_published_reports_verify_or_fail_as_published(path, monkeypatch):
    found, context, key = read(path)
    first, *others = (prepared(found, context, key, number, monkeypatch) for number in range(found["shares"]))
    helpers, out_shares = others[0].verifiers, others[0].out_shares
    for other in others[1:]:  # two helpers count as one that has the sum of their shares
        helpers = [
            share_of([(one + two) % MODULUS for one, two in zip(words_of(left), words_of(right), strict=True)])
            for left, right in zip(helpers, other.verifiers, strict=True)
        ]
        out_shares = arrays.add(out_shares, other.out_shares)
    expected = [step["success"] for step in steps(found, "verifier_shares_to_message")]
    assert verified(first.verifiers, helpers).tolist() == expected
    if found["agg_result"] is not None:
        everyone = first.well_formed
        total = opened(weighted_sum(first.out_shares, everyone), weighted_sum(out_shares, everyone))
        assert total == found["agg_result"]


def xof():
    found = json.loads((VECTORS / "XofTurboShake128.json").read_text())
    domain, seed, tail = (bytes.fromhex(found[name]) for name in ("dst", "seed", "binder"))
    return found, len(domain).to_bytes(2, "little") + domain + bytes([len(seed)]) + seed + tail


def test_the_published_stream_in_plain_python():
    found, message = xof()
    assert turboshake128(message, 1, 32).hex() == found["derived_seed"]
    stream = turboshake128(message, 1, 16 * found["length"])
    assert stream.hex() == found["expanded_vec_field128"]  # 640 bytes: no word of them is refused there


def test_the_published_stream_on_arrays():
    found, message = xof()
    rows = np.frombuffer(message * 3, np.uint8).reshape(3, -1)
    for row in arrays.first_block(rows):
        assert row.astype("<u8").tobytes().hex() == found["expanded_vec_field128"][: 2 * 168]


@pytest.mark.parametrize("length", [0, 1, 166, 167, 168, 169, 335, 336, 337, 1000])
def test_with_all_24_rounds_it_is_the_shake_of_the_standard_library(length, monkeypatch):
    """The sponge, its padding and every step of a round against another implementation."""
    message = bytes(number % 251 for number in range(length))
    first = (0x1, 0x8082, 0x800000000000808A, 0x8000000080008000, 0x808B, 0x80000001, 0x8000000080008081)
    first += (0x8000000000008009, 0x8A, 0x88, 0x80008009, 0x8000000A)
    monkeypatch.setattr(draft, "ROUND_CONSTANTS", first + draft.ROUND_CONSTANTS)
    assert turboshake128(message, 0x1F, 400) == hashlib.shake_128(message).digest(400)


@pytest.mark.parametrize("length", [0, 1, 166, 167, 168, 169, 335, 336, 337, 1000])
def test_arrays_and_plain_python_hash_alike(length):
    rows = np.random.default_rng(length).integers(0, 256, (5, length), np.uint8)
    for row, found in zip(rows, arrays.first_block(rows), strict=True):
        assert found.astype("<u8").tobytes() == turboshake128(row.tobytes(), 1, 168)
