"""The verifier in plain Python, which the benchmark of split reports compares with, finds what ours finds."""

import importlib
from pathlib import Path

import numpy as np
import pytest

from turnout.prio import MODULUS, prepare, split, verified

ROOT = Path(__file__).parents[2]


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("prio_peers")


def test_both_verifiers_agree_on_good_reports_and_on_random_words(peers):
    reports = [split(number & 1, b"c") for number in range(20)]
    leaders = [report.leader for report in reports]
    leaders[10:] = [
        row.astype("<u8").tobytes() for row in np.random.default_rng(1).integers(0, MODULUS, (10, 6), np.uint64)
    ]
    nonces = [report.nonce for report in reports]
    shares = {"leader": leaders, "helper": [report.helper for report in reports]}
    sides = {role: prepare(role, peers.KEY, b"c", nonces, shares[role]) for role in shares}
    plain = {
        role: [peers.plain_verifier(role, peers.KEY, b"c", *pair) for pair in zip(nonces, shares[role], strict=True)]
        for role in shares
    }
    for role, side in sides.items():
        assert [verifier for verifier, _ in plain[role]] == side.verifiers
        assert [bit for _, bit in plain[role]] == side.out_shares.tolist()
    decided = verified(sides["leader"].verifiers, sides["helper"].verifiers).tolist()
    assert decided == [True] * 10 + [False] * 10
    pairs = zip(sides["leader"].verifiers, sides["helper"].verifiers, strict=True)
    assert [peers.plainly_verified(*pair) for pair in pairs] == decided


def test_it_measures(peers):
    assert all(seconds >= 0.0 for seconds in peers.measure(1, 200).values())
