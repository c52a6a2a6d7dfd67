"""Messages are read strictly: what a hostile side sends is refused with a sentence, never a crash."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.service.protocol import (
    OUTCOMES,
    Answer,
    Offer,
    ProtocolProblem,
    Report,
    Welcome,
    check_run_name,
    fields,
    read_json,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
WELCOME = Welcome(
    run="chargers",
    token="t" * 43,
    weight=3,
    prior_average=0.5,
    prior_rounds=10.0,
    remember=None,
    by="bit",
    mechanism={"kind": "clamp", "epsilon": 1.0, "center": 0.5},
    offer=Offer(4, 1.25),
)
ANSWER = {"round": 3, "outcome": "accepted", "counted": True, "lease": 12.5, "next": {"round": 4, "signal": 0.1}}


def test_a_welcome_is_read_as_it_was_written() -> None:
    assert Welcome.read(json.loads(json.dumps(WELCOME.body()))) == WELCOME


def test_a_report_has_the_bit_and_what_it_is_for() -> None:
    assert json.loads(Report("chargers", 3, True).body()) == {"run": "chargers", "round": 3, "participates": True}


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_signal_is_the_same_number_again(signal: float) -> None:
    assert Offer.read(json.loads(json.dumps({"round": 0, "signal": signal}))).signal == signal


@given(JSON)
def test_whatever_comes_is_read_or_refused(value: object) -> None:
    for read in (Offer.read, Welcome.read, lambda found: Answer.read(found, 3)):
        with pytest.raises(ProtocolProblem):
            read(value)


@given(st.sampled_from(sorted(WELCOME.body())), JSON)
def test_a_welcome_with_one_thing_changed_is_read_or_refused(name: str, value: object) -> None:
    try:
        found = Welcome.read(WELCOME.body() | {name: value})
    except (ProtocolProblem, ValueError):
        return
    assert found.offer.round >= 0
    assert found.weight >= 1


@given(st.sampled_from(sorted(ANSWER)), JSON)
def test_an_answer_with_one_thing_changed_is_read_or_refused(name: str, value: object) -> None:
    try:
        found = Answer.read(ANSWER | {name: value}, 3)
    except ProtocolProblem:
        return
    assert found.round == 3
    assert found.outcome in OUTCOMES
    assert 0.0 <= found.lease < math.inf


def test_an_answer_to_another_round_is_refused() -> None:
    with pytest.raises(ProtocolProblem, match="to round 2"):
        Answer.read(ANSWER, 2)


def test_what_a_newer_side_adds_is_ignored() -> None:
    assert Answer.read(ANSWER | {"more": 1}, 3).counted


@pytest.mark.parametrize("lease", [-1.0, 0.0, math.inf, 2**2000])
def test_a_lease_that_is_none_is_zero(lease: float) -> None:
    assert Answer.read(ANSWER | {"lease": lease}, 3).lease == 0.0


@pytest.mark.parametrize("text", [b"NaN", b"[Infinity]", b"{", b"", b"\xff", b"[" * 100_000])
def test_what_is_not_json_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        read_json(text)


@pytest.mark.parametrize("name", ["", "../up", "a/b", "A", "a" * 64, "-a", "a b", ".", "a\n"])
def test_a_name_that_could_be_a_path_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="run must be"):
        check_run_name(name)


def test_a_flag_is_no_number() -> None:
    with pytest.raises(ProtocolProblem, match="offer's round must be a whole number, got true or false"):
        fields({"round": True}, {"round": int}, "offer")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([1], "the report must be an object, got a list"),
        ({}, "the report's round must be a whole number, got nothing"),
        ({"round": None}, "the report's round must be a whole number, got null"),
        ({"round": 1.5}, "the report's round must be a whole number, got a number"),
        ({"round": "1"}, "the report's round must be a whole number, got a text"),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_json(value: object, said: str) -> None:
    """To whoever wrote a device in another language: the field, what is allowed, what came, where to read more."""
    with pytest.raises(ProtocolProblem) as problem:
        fields(value, {"round": int}, "report")
    assert str(problem.value) == f"{said}: a coordinator's /v1/openapi.json has every field of every message"


def test_a_welcome_of_another_version_names_it() -> None:
    with pytest.raises(ProtocolProblem, match=r"version \(of the protocol\) must be 1, got 2"):
        Welcome.read(WELCOME.body() | {"version": 2})
