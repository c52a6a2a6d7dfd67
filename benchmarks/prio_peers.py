"""What split reports cost: a device's split, and 10,000 reports of each aggregator, beside a verifier in plain Python.

    python benchmarks/prio_peers.py [--turns 5] [--json]

All take turns, and the best turn of each counts. The plain verifier follows the draft's words, one report at a time.
"""

import argparse
import json
import time

from turnout.prio import MODULUS, prepare, report_context, split, turboshake128, verified, weighted_sum

REPORTS, SAMPLE = 10_000, 100
"""In a batch; and of them, those that the plain verifier reads in a turn."""

KEY = bytes(range(32))
ROOT = pow(7, (MODULUS - 1) // 4, MODULUS)


def expand(usage, context, seed, tail, count):
    """Words of the field from a seed, as the draft says it."""
    domain = bytes([18, 0, 0, 0, 0, 1, 0, usage]) + context
    stream = turboshake128(len(domain).to_bytes(2, "little") + domain + bytes([len(seed)]) + seed + tail, 1, 168)
    words = [int.from_bytes(stream[at : at + 8], "little") for at in range(0, 168, 8)]
    return [word for word in words if word < MODULUS][:count]


def at(point, values):
    """The polynomial with these values at these places, at a point: Lagrange's formula."""
    total = 0
    for place, value in values.items():
        for other in values.keys() - {place}:
            value = value * (point - other) * pow(place - other, -1, MODULUS) % MODULUS
        total += value
    return total % MODULUS


def plain_verifier(role, key, context, nonce, share):
    """One report's verifier, and the share of its bit."""
    if role == "leader":
        words = [int.from_bytes(share[start : start + 8], "little") for start in range(0, 48, 8)]
    else:
        words = expand(1, context, share, b"\1", 1) + expand(2, context, share, b"\1\1", 5)
    bit, first, second, *product = words
    (point,) = expand(5, context, key, b"\1" + nonce, 1)
    lines = [at(point, {1: blind, MODULUS - 1: bit}) for blind in (first, second)]
    whole = at(point, dict(zip((1, ROOT, MODULUS - 1), product, strict=True)))
    return b"".join(word.to_bytes(8, "little") for word in ((product[2] - bit) % MODULUS, *lines, whole)), bit


def plainly_verified(leader, helper):
    """Whether one report is a bit."""
    sides = [[int.from_bytes(side[at : at + 8], "little") for at in range(0, 32, 8)] for side in (leader, helper)]
    difference, first, second, product = (sum(pair) % MODULUS for pair in zip(*sides, strict=True))
    return difference == 0 and first * second % MODULUS == product


def tasks(reports, context):
    """What is measured: a name, the work, and for how many reports it stands."""
    nonces = [report.nonce for report in reports]
    shares = {role: [getattr(report, role) for report in reports] for role in ("leader", "helper")}
    sides = {role: prepare(role, KEY, context, nonces, shares[role]) for role in shares}
    ours, theirs = (sides[role].verifiers for role in ("leader", "helper"))
    counted = verified(ours, theirs)
    assert counted.all()

    def plain(role):
        return [
            plain_verifier(role, KEY, context, *pair)[0] for pair in zip(nonces[:SAMPLE], shares[role], strict=False)
        ]

    assert plain("leader") + plain("helper") == ours[:SAMPLE] + theirs[:SAMPLE]
    return {
        "a device splits": (lambda: [split(1, context) for _ in range(SAMPLE)], SAMPLE),
        "the leader prepares": (lambda: prepare("leader", KEY, context, nonces, shares["leader"]), len(reports)),
        "the leader prepares, in plain Python": (lambda: plain("leader"), SAMPLE),
        "the helper prepares": (lambda: prepare("helper", KEY, context, nonces, shares["helper"]), len(reports)),
        "the helper prepares, in plain Python": (lambda: plain("helper"), SAMPLE),
        "both decide": (lambda: verified(ours, theirs), len(reports)),
        "both decide, in plain Python": (
            lambda: all(map(plainly_verified, ours[:SAMPLE], theirs[:SAMPLE])),
            SAMPLE,
        ),
        "a weighted sum": (lambda: weighted_sum(sides["leader"].out_shares, counted, 3), len(reports)),
    }


def measure(turns, reports=REPORTS):
    """Seconds of the processor per report, of each task in its best turn."""
    context = report_context("boilers", 7, bytes(32), 400.0, 3)
    some = [split(number & 1, context) for number in range(min(reports, 500))]
    todo = tasks((some * (reports // len(some) + 1))[:reports], context)
    best = dict.fromkeys(todo, float("inf"))
    for _ in range(turns):
        for name, (work, number) in todo.items():
            begun = time.process_time()
            work()
            best[name] = min(best[name], (time.process_time() - begun) / number)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="seconds per report")
    options = parser.parse_args()
    found = measure(options.turns)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{'':38}ms per report   ms per {REPORTS:,} reports")
    for name, seconds in found.items():
        print(f"{name:38}{1e3 * seconds:13.4f}{1e3 * REPORTS * seconds:22.1f}")


if __name__ == "__main__":
    main()
