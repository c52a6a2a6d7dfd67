"""The protocol's file and the coordinator agree, whatever is sent: no 5xx, no answer that the file does not have."""

from __future__ import annotations

import copy
import dataclasses
import json
from importlib.resources import files
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings

from service.running import Running, begun, codes_for, send, usual_rules
from turnout.algorithm import MECHANISMS, Averaging, Memoized, mechanism_from_settings
from turnout.client import settings_of
from turnout.service.protocol import ENROL, LEAVE, OUTCOMES, REPORT, ROUND, RULES, Answer, Offer, Welcome
from turnout.service.rules import Timing
from turnout.settings import Table

FILE = json.loads(files("turnout.service").joinpath("openapi.json").read_bytes())


def closed(file: dict[str, Any]) -> dict[str, Any]:
    """The same, where a message holds nothing else than what the file says. Devices must not rely on that, but we do:
    nothing is told that was not meant to be."""
    found = copy.deepcopy(file)
    for name, one in found["components"]["schemas"].items():
        if "properties" in one and name not in ("Enrolment", "Report", "OtherMechanism"):
            one["additionalProperties"] = False
    return found


schema = schemathesis.openapi.from_dict(closed(FILE))

NEAR = closed(FILE)
"""The same, with reports that mostly hit the run and its first rounds."""
NEAR["components"]["schemas"]["Report"]["properties"]["run"]["enum"] = ["test"]
NEAR["components"]["schemas"]["Report"]["properties"]["round"]["maximum"] = 5
near = schemathesis.openapi.from_dict(NEAR).include(path="/v1/report")

NOT_HERE = [schemathesis.checks.CHECKS.get_one(name) for name in ("ignored_auth", "missing_required_header")]
"""Our token is put into every request; requests without one have a test of their own."""

NEGATIVE = schemathesis.checks.CHECKS.get_one("negative_data_rejection")

OFTEN = settings(
    max_examples=100,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory):
    """Rounds of a tenth of a second, so that held requests are answered soon."""
    store = begun(tmp_path_factory.mktemp("api") / "run.db", usual_rules(Timing(0.0, deadline=0.1, hold=0.1)))
    [code] = codes_for(store, 1)
    found = Running(store)
    _, welcome = send(found.url, "POST", ENROL, {"code": code, "nonce": "n" * 20})
    found.token = welcome["token"]  # type: ignore[attr-defined]
    yield found
    found.stop()


def check(case, coordinator, excluded=()) -> None:
    if case.path not in (ENROL, LEAVE):  # who leaves has no token any more
        case.headers = dict(case.headers or {}) | {"Authorization": f"Bearer {coordinator.token}"}
    response = case.call(base_url=coordinator.url)
    assert response.status_code < 500, response.text
    if response.status_code == 413:  # a refusal too, though not one that the check below knows
        excluded = [NEGATIVE]
    case.validate_response(response, excluded_checks=[*NOT_HERE, *excluded])


@schema.parametrize()
@OFTEN
def test_the_coordinator_keeps_to_its_file(case, coordinator) -> None:
    check(case, coordinator)


@near.parametrize()
@OFTEN
def test_the_hot_route_keeps_to_its_file(case, coordinator) -> None:
    check(case, coordinator, [NEGATIVE])  # 6 is as good as 5


@pytest.mark.parametrize(("method", "path"), [("POST", REPORT), ("GET", ROUND), ("GET", RULES), ("POST", LEAVE)])
def test_without_a_token_nothing_is_said(coordinator, method: str, path: str) -> None:
    for token in (None, "", "wrong", coordinator.token[:-1], coordinator.token + "x"):
        status, said = send(coordinator.url, method, path, {}, token)
        assert status in (401, 429)
        assert said["error"] in ("token", "rate")


def test_every_path_is_described() -> None:
    assert {ENROL, REPORT, ROUND, RULES, LEAVE, "/healthz", "/readyz", "/v1/openapi.json"} == set(FILE["paths"])


def test_the_file_is_served(coordinator) -> None:
    assert send(coordinator.url, "GET", "/v1/openapi.json") == (200, FILE)


# The schema against the code.

OFFERED = {kind: made for kind, made in MECHANISMS.items() if not made.needs_population}
SCHEMAS = FILE["components"]["schemas"]
USUAL: dict[str, dict[str, Any]] = {
    "classical": {},
    "paper-coin": {"beta": 3.5},
    "capped-coin": {"beta": 1.0, "cap": 0.8},
    "clamp": {"epsilon": 1.0, "center": 0.5},
    "randomized-response": {"epsilon": 2.0},
    "tracking-clamp": {"epsilon": 1.0, "floor": 0.005},
    "memoized": {"epsilon": 2.0, "price": 10.0, "levels": [0.2, 0.8], "least": [0.3, 0.3]},
}
TRIED = [-1.0, 0.0, 1e-5, 1e-4, 0.3, 0.499, 0.5, 0.999, 1.0, 7.5, 30.0, 30.5, 500.0]
WELCOME = {
    **{"version": 1, "run": "chargers", "token": "t" * 43, "weight": 3, "prior_average": 0.5, "prior_rounds": 10},
    **{"remember": None, "by": "bit", "mechanism": {"kind": "classical"}, "offer": {"round": 4, "signal": 1.25}},
}


def keeps_to(name: str, value: Any) -> bool:
    """Whether a message is what the file says."""
    whole = {"$ref": f"#/components/schemas/{name}", "components": closed(FILE)["components"]}
    return bool(jsonschema_rs.Draft202012Validator(whole).is_valid(value))


def is_taken(mechanism: dict[str, Any]) -> bool:
    """Whether the code makes a mechanism of it."""
    try:
        mechanism_from_settings(Table(dict(mechanism)))
    except ValueError:
        return False
    return True


def test_every_mechanism_that_a_run_may_propose_is_in_the_file() -> None:
    mapping = SCHEMAS["Mechanism"]["discriminator"]["mapping"]
    assert set(mapping) == set(OFFERED) == set(USUAL)
    listed = [one["$ref"] for one in SCHEMAS["Mechanism"]["oneOf"]]
    assert set(mapping.values()) == set(listed) - {"#/components/schemas/OtherMechanism"}
    assert set(SCHEMAS["OtherMechanism"]["properties"]["kind"]["not"]["enum"]) == set(OFFERED)
    for kind, place in mapping.items():
        found, made = SCHEMAS[place.rpartition("/")[2]], OFFERED[kind]
        assert place.rpartition("/")[2] == made.__name__
        assert found["properties"]["kind"] == {"const": kind}
        assert set(found["properties"]) == {"kind", *(one.name for one in dataclasses.fields(made))}


@pytest.mark.parametrize("kind", OFFERED)
@pytest.mark.filterwarnings("ignore:beta below 1")
def test_what_is_sent_of_a_mechanism_is_in_the_file(kind: str) -> None:
    sent = settings_of(mechanism_from_settings(Table({"kind": kind} | USUAL[kind])))
    assert keeps_to("Mechanism", sent)
    assert set(SCHEMAS[OFFERED[kind].__name__]["required"]) == set(sent)
    assert not keeps_to("Mechanism", sent | {"unheard": 1.0})
    for name in USUAL[kind]:
        less = {key: value for key, value in sent.items() if key != name}
        assert not keeps_to("Mechanism", less)


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, usual in USUAL.items() for name in usual if kind != "memoized"]
)
@pytest.mark.filterwarnings("ignore:beta below 1")
def test_the_limits_of_a_parameter_are_those_of_the_code(kind: str, name: str) -> None:
    found = {value: keeps_to("Mechanism", {"kind": kind} | USUAL[kind] | {name: value}) for value in TRIED}
    assert found == {value: is_taken({"kind": kind} | USUAL[kind] | {name: value}) for value in TRIED}
    assert True in found.values()
    assert False in found.values()


@pytest.mark.parametrize(
    "wrong",
    [
        {"price": 0.0},
        {"epsilon": 31.0},
        {"levels": [0.2]},
        {"levels": [0.2, 0.2]},
        {"levels": [0.0, 0.5]},
        {"levels": [0.5, 1.5]},
        {"least": [0.0, 0.5]},
        {"levels": [n / 100 for n in range(1, 66)], "least": []},
    ],
)
def test_what_memoized_refuses_is_not_in_the_file(wrong: dict[str, Any]) -> None:
    given = {"kind": "memoized"} | USUAL["memoized"] | wrong
    assert not is_taken(given)
    assert not keeps_to("Mechanism", given)


def test_a_designed_channel_says_so() -> None:
    sent = settings_of(Memoized(2.0, 10.0, (0.2, 0.8), (0.3, 0.3), designed=True))
    assert keeps_to("Mechanism", sent)
    assert sent["designed"] is True


def test_a_mechanism_of_another_package_is_allowed_for() -> None:
    assert keeps_to("Mechanism", {"kind": "sortition", "seats": 3})
    assert not keeps_to("Mechanism", {"kind": "clamp"})


@pytest.mark.parametrize("remember", [None, 1, 1.5, 200, 0.5, 0, -1])
@pytest.mark.parametrize("by", ["bit", "probability", "intent"])
def test_how_histories_move_is_in_the_file(remember: float | None, by: str) -> None:
    try:
        taken = bool(Averaging(remember, by))
    except ValueError:
        taken = False
    assert keeps_to("Welcome", WELCOME | {"remember": remember, "by": by}) == taken


def test_messages_have_the_fields_of_the_code() -> None:
    for name, made in (("Welcome", Welcome), ("Answer", Answer), ("Offer", Offer)):
        own = {one.name for one in dataclasses.fields(made)} | ({"version"} if made is Welcome else set())
        assert own == set(SCHEMAS[name]["properties"]) >= set(SCHEMAS[name]["required"]), name
    assert set(SCHEMAS["Answer"]["properties"]["outcome"]["enum"]) == set(OUTCOMES)
    assert keeps_to("Welcome", WELCOME)
    assert not keeps_to("Welcome", WELCOME | {"token": "short"})


def test_no_message_is_closed_to_new_fields() -> None:
    assert "additionalProperties" not in json.dumps(FILE)


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        (REPORT, {"run": "test", "round": 0}, "the report's participates must be true or false, got nothing"),
        (REPORT, {"run": "test", "round": "0", "participates": True}, "the report's round must be a whole number"),
        (REPORT, {"run": "test", "round": -1, "participates": True}, "the report's round must be from 0 to 2^53 - 1"),
        (REPORT, b"{", "the body must be JSON in UTF-8"),
        (ENROL, {"code": "x"}, "the enrolment's nonce must be a text, got nothing"),
        (ENROL, {"code": "x", "nonce": "n"}, "the enrolment's nonce must have 16 to 200 characters, got 1"),
    ],
)
def test_a_stranger_is_told_which_field_is_wrong(coordinator, path: str, body: Any, said: str) -> None:
    status, answer = send(coordinator.url, "POST", path, body, coordinator.token)
    assert (status, answer["error"]) == (400, "malformed")
    assert answer["message"].startswith(said)
    assert "update" not in answer["message"]
