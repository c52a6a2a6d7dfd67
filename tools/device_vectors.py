"""Test vectors for devices in other languages: what turnout's own code decides, case by case.

    python tools/device_vectors.py                 write examples/device-vectors.json
    python tools/device_vectors.py --check         only compare

Each case has a state, a signal, a cost, a mechanism and a word of the coin, and what follows from them. Floats are
written so that they are the same doubles when read. docs/another-device.md explains every field.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from turnout.algorithm import (
    Averaging,
    CappedCoin,
    Clamp,
    Classical,
    ClientState,
    Mechanism,
    Memoized,
    PaperCoin,
    Public,
    RandomizedResponse,
    TrackingClamp,
    client_step,
)
from turnout.client import settings_of
from turnout.problem import PolynomialCosts

FILE = Path(__file__).parents[1] / "examples" / "device-vectors.json"
WORDS = 2**53
SEED = 17
CASES_EACH = 12
"""Cases for each mechanism below."""

MECHANISMS: list[Mechanism] = [
    Classical(),
    Clamp(1.0),
    Clamp(0.1, 0.3),
    Clamp(3.3, 0.9),
    Clamp(30.0),
    RandomizedResponse(2.0),
    TrackingClamp(1.0),
    TrackingClamp(0.2, 0.05),
    PaperCoin(3.5),
    CappedCoin(1.0, 0.8),
    Memoized(8.0, 10.0),
]

COSTS = [([3.0], [2]), ([0.7, 2.5], [2, 4]), ([1.0, 0.0, 12.5], [2, 4, 6]), ([40.0], [4]), ([0.25], [2])]
STATES = [(5.0, 10.0), (0.0, 10.0), (10.0, 10.0), (37.0, 121.0), (0.0005, 0.001), (4.625, 20.0)]
SIGNALS = [2.0, 0.1, 5.5, 0.0, -1.0, 1e6, 1e300, 11.0, 3.0, 0.7]
AVERAGINGS = [Averaging(), Averaging(remember=20.0), Averaging(by="probability"), Averaging(200.0, "probability")]


def vectors() -> dict[str, Any]:
    """The whole file."""
    return {
        "about": "What a device decides, for docs/another-device.md. Made by tools/device_vectors.py.",
        "words": WORDS,
        "cases": [case for mechanism in MECHANISMS for case in itertools.islice(_cases(mechanism), CASES_EACH)],
    }


def _cases(mechanism: Mechanism) -> Iterator[dict[str, Any]]:
    chance = random.Random(f"{SEED} {mechanism!r}")
    for kind in itertools.cycle(("any", "last yes", "first no")):
        coefficients, powers = chance.choice(COSTS)
        averaging = chance.choice(AVERAGINGS)
        if mechanism.needs_public_average:
            averaging = Averaging(averaging.remember)
        found = {
            "mechanism": settings_of(mechanism),
            "weight": chance.choice([1, 1, 3]),
            "remember": averaging.remember,
            "by": averaging.by,
            "state": dict(zip(("participations", "rounds"), chance.choice(STATES), strict=True)),
            "signal": chance.choice(SIGNALS),
            "cost": {"coefficients": coefficients, "powers": powers},
            "release": None,
        }
        if mechanism.releases_once:  # the cost matters no more
            found |= {"cost": None, "release": _release(mechanism, coefficients, powers, chance)}
        word = chance.randrange(WORDS)
        probability = _decided(found, mechanism, averaging, word)["probability"]
        threshold = math.ceil(probability * WORDS)
        if kind != "any":
            word = threshold - (kind == "last yes")
        if 0 <= word < WORDS:  # a "no" cannot happen at 1, nor a "yes" at 0
            yield found | {"word": word} | _decided(found, mechanism, averaging, word)


def _release(mechanism: Mechanism, coefficients: Any, powers: Any, chance: random.Random) -> dict[str, Any]:
    released = mechanism.enrol(PolynomialCosts([coefficients], tuple(powers)), np.array([chance.random()]), 2)
    assert isinstance(released, PolynomialCosts)
    return {"coefficients": released.coefficients[0].tolist(), "powers": list(released.powers), "weight": 2}


def _decided(given: dict[str, Any], mechanism: Mechanism, averaging: Averaging, word: int) -> dict[str, Any]:
    """What `client_step` makes of it."""
    before = ClientState(np.array([given["state"]["participations"]]), given["state"]["rounds"])
    release, costs = given["release"], given["cost"]
    if release is not None:
        share = given["weight"] / release["weight"]
        costs = {"coefficients": (np.array(release["coefficients"]) * share).tolist(), "powers": release["powers"]}
    acting = PolynomialCosts([costs["coefficients"]], tuple(costs["powers"]))
    state = ClientState(before.participations, before.rounds, None if release is None else acting)
    uniform = np.array([word * 2.0**-53])
    step = client_step(acting, mechanism, state, given["signal"], uniform, weights=given["weight"], averaging=averaging)
    probability = float(step.probability[0])
    low, high = mechanism.box(Public(average=state.average, signal=given["signal"]))
    not_counted = before.after(np.zeros(1), averaging) if averaging.takes_back else step.state
    return {
        "box": [float(np.squeeze(low)), float(np.squeeze(high))],
        "average": float(state.average[0]),
        "intent": float(step.intent[0]),
        "probability": probability,
        "threshold": math.ceil(probability * WORDS),
        "participates": bool(step.participates[0]),
        "next": _state(step.state),
        "next_if_not_counted": _state(not_counted),
    }


def _state(state: ClientState) -> dict[str, float]:
    return {"participations": float(state.participations[0]), "rounds": float(np.max(state.rounds))}


def text_of(found: dict[str, Any]) -> str:
    """One case a line."""
    head = {name: value for name, value in found.items() if name != "cases"}
    cases = ",\n".join(json.dumps(case) for case in found["cases"])
    return json.dumps(head)[:-1] + ', "cases": [\n' + cases + "\n]}\n"


if __name__ == "__main__":
    text = text_of(vectors())
    if "--check" not in sys.argv:
        FILE.write_text(text)
    elif FILE.read_text() != text:
        sys.exit(f"{FILE.name} is not what the code decides: run python tools/device_vectors.py")
