"""Reports of honest and dishonest devices, and what both aggregators make of them."""

import secrets
from types import SimpleNamespace

import numpy as np

from turnout.prio import MODULUS, Report, draft, prepare, split, verified
from turnout.prio import device as device_side

KEY = bytes(range(32))
CONTEXT = b"context"


def both(reports, contexts=CONTEXT, key=KEY, helpers_nonces=None):
    """What each aggregator has, and which reports verify; the helper may have heard other nonces."""
    nonces = [report.nonce for report in reports]
    leader = prepare("leader", key, contexts, nonces, [report.leader for report in reports])
    nonces = nonces if helpers_nonces is None else helpers_nonces
    helper = prepare("helper", key, contexts, nonces, [report.helper for report in reports])
    return SimpleNamespace(leader=leader, helper=helper, counted=verified(leader.verifiers, helper.verifiers))


def counted(report, context=CONTEXT, key=KEY):
    """Whether one report verifies."""
    return bool(both([report], context, key).counted[0])


def words_of(share):
    return np.frombuffer(share, "<u8").tolist()


def share_of(words):
    return np.array(words, "<u8").tobytes()


def moved(report, changes):
    """The report with these numbers added to its bit and the five words of its proof, modulo p."""
    words = [(word + change) % MODULUS for word, change in zip(words_of(report.leader), changes, strict=True)]
    return Report(report.nonce, share_of(words), report.helper)


def cheat(value, context=CONTEXT):
    """A report of any number, with the proof that an honest device would make for it."""
    randomness = secrets.token_bytes(64)
    one = split(1, context, randomness=randomness)
    blinds = draft.expand(draft.BLINDS, context, randomness[32:], 2)
    proofs = [device_side._proof(number, *blinds) for number in (1, value)]
    return moved(one, [value - 1, *(new - old for old, new in zip(*proofs, strict=True))])


def disguised(value, context=CONTEXT):
    """The same, but the proof says that the number's square is the number."""
    return moved(cheat(value, context), [0, 0, 0, 0, 0, value - value * value])
