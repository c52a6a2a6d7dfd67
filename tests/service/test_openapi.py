"""The protocol's file and the coordinator agree, whatever is sent: no 5xx, no answer that the file does not have."""

from __future__ import annotations

import copy
import json
from importlib.resources import files

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings

from service.running import Running, begun, codes_for, send, usual_rules
from turnout.service.protocol import ENROL, LEAVE, REPORT, ROUND, RULES
from turnout.service.rules import Timing

FILE = json.loads(files("turnout.service").joinpath("openapi.json").read_bytes())
schema = schemathesis.openapi.from_dict(FILE)

NEAR = copy.deepcopy(FILE)
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
    assert {ENROL, REPORT, ROUND, RULES, LEAVE, "/healthz", "/v1/openapi.json"} == set(FILE["paths"])


def test_the_file_is_served(coordinator) -> None:
    assert send(coordinator.url, "GET", "/v1/openapi.json") == (200, FILE)
