"""The list of devices: pages, states, look-up, over HTTP as well, and revoking at a real coordinator."""

import re
import time
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest

from service.fake_operated import DEVICES, GONE, PASSWORD, FakeOperated, served
from service.faults import Served
from service.operator_client import ask, change
from service.running import begun, codes_for, send, usual_rules
from turnout.service.coordinator.enrolment import GONE_AFTER, Roll, hashed
from turnout.service.coordinator.listing import PAGE, device_list
from turnout.service.rules import Timing
from turnout.service.store.backup import open_store
from turnout.service.store.store import Device

FIELDS = {"number", "tag", "label", "site", "note", "weight", "joined", "left", "missed", "state"}
NO_NAMES = {"label": "", "site": "", "note": ""}


def roll_of(devices, gone=(), left=()):
    roll = Roll()
    roll.take(Device(slot, hashed(f"token {slot}"), 1, 0, 7 if slot in left else None, 0) for slot in range(devices))
    for slot in gone:
        roll.missed[slot] = GONE_AFTER
    return roll


def slots(found):
    return [device["number"] for device in found["devices"]]


def test_pages_have_every_device_once_and_in_order():
    roll = roll_of(2 * PAGE + 3)
    pages = [device_list(roll, page=page) for page in (1, 2, 3)]
    assert [len(page["devices"]) for page in pages] == [PAGE, PAGE, 3]
    assert [slot for page in pages for slot in slots(page)] == list(range(2 * PAGE + 3))
    assert {(page["found"], page["pages"], page["size"]) for page in pages} == {(2 * PAGE + 3, 3, PAGE)}


@pytest.mark.parametrize(("devices", "pages"), [(0, 1), (1, 1), (PAGE, 1), (PAGE + 1, 2)])
def test_the_number_of_pages(devices, pages):
    assert device_list(roll_of(devices))["pages"] == pages


def test_beyond_the_last_page_is_the_last():
    found = device_list(roll_of(PAGE + 1), page=9)
    assert (found["page"], slots(found)) == (2, [PAGE])


def test_states_are_told_apart_as_rounds_are_closed_by_them():
    roll = roll_of(10, gone=(2, 3, 4), left=(4, 5))
    roll.missed[6] = GONE_AFTER - 1  # still waited for
    wanted = {"here": [0, 1, 6, 7, 8, 9], "gone": [2, 3], "left": [4, 5]}
    assert {state: slots(device_list(roll, state=state)) for state in wanted} == wanted
    assert wanted["here"] == [slot for slot in range(10) if roll.is_awaited(slot)]
    assert len(wanted["gone"]) == len(roll.gone())
    counts = device_list(roll, state="gone")["counts"]
    assert counts == {state: len(which) for state, which in wanted.items()}, "of all, whatever state is asked for"


def test_a_line_has_what_an_operator_needs_and_nothing_private():
    roll = roll_of(3, gone=(1,), left=(2,))
    roll.take([replace(roll[1], weight=3500, joined=12)])
    lines = device_list(roll)["devices"]
    assert [line.pop("tag") for line in lines] == [hashed(f"token {slot}").hex()[:8] for slot in range(3)]
    assert lines[0] == NO_NAMES | {"number": 0, "weight": 1, "joined": 0, "left": None, "missed": 0, "state": "here"}
    assert lines[1] == NO_NAMES | {
        "number": 1,
        "weight": 3500,
        "joined": 12,
        "left": None,
        "missed": 3,
        "state": "gone",
    }
    assert lines[2] == NO_NAMES | {"number": 2, "weight": 1, "joined": 0, "left": 7, "missed": None, "state": "left"}


def test_looking_one_up():
    roll = roll_of(200, gone=(150,))
    assert slots(device_list(roll, number=150)) == [150]
    assert slots(device_list(roll, number=150, state="gone")) == [150]
    assert slots(device_list(roll, number=150, state="here")) == []
    assert device_list(roll, number=200)["found"] == 0


@pytest.mark.parametrize("wrong", [{"state": "participates"}, {"state": ""}, {"page": 0}, {"page": -1}])
def test_what_is_no_state_and_no_page(wrong):
    with pytest.raises(ValueError, match=r"must be .*, got .*: "):
        device_list(roll_of(3), **wrong)


def test_ten_thousand_devices_are_no_burden():
    """A look takes milliseconds of the coordinator, and little of the line."""
    roll = roll_of(10_000, gone=range(0, 10_000, 3))
    began = time.process_time()
    for page in range(1, 21):
        assert len(device_list(roll, state="gone", page=page)["devices"]) == PAGE
    assert (time.process_time() - began) / 20 < 0.1


# Over HTTP.


@pytest.fixture(scope="module")
def server():
    operated = FakeOperated(rounds=5)
    with served(operated) as found:
        found.operated = operated
        yield found


def test_the_list_over_http(server):
    first, last = ask(server, "/api/devices").json, ask(server, f"/api/devices?page={DEVICES // PAGE}").json
    assert (first["round"], first["counts"]) == (5, {"here": DEVICES - len(GONE), "gone": len(GONE), "left": 0})
    assert (slots(first)[0], slots(last)[-1]) == (0, DEVICES - 1)
    assert all(set(device) == FIELDS for device in first["devices"])
    assert slots(ask(server, "/api/devices?state=gone").json) == list(GONE)
    assert slots(ask(server, "/api/devices?number=1199").json) == [1199]
    assert len(ask(server, "/api/devices?page=7").content) < 12_000


def test_an_unknown_number_finds_nothing_and_is_no_error(server):
    reply = ask(server, f"/api/devices?number={DEVICES}")
    assert (reply.status, reply.json["found"], reply.json["devices"]) == (200, 0, [])


WRONG = ("number=", "number=-1", "number=x", "number=1.0", "number=%D9%A3", f"number={'9' * 4000}", "number=1e3")
WRONG += ("page=0", "page=-1", "page=", "page=1.5", "page=1234567890", "state=", "state=Gone", "state=%00", "state=bit")


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_input_is_refused(server, wrong):
    reply = ask(server, f"/api/devices?{wrong}")
    assert reply.status == 400
    assert set(reply.json) == {"error", "message"}
    assert len(reply.json["message"]) < 200


def test_the_list_needs_the_password_and_is_only_read(server):
    assert ask(server, "/api/devices", auth=False).status == 401
    assert ask(server, "/api/devices?number=1", auth=False).status == 401
    usual = {"Content-Type": "application/json", "X-Turnout": "1"}
    assert ask(server, "/api/devices/3/revoke", "POST", "{}", usual, auth=False).status == 401
    assert change(server, "/api/devices", {}).status == 405
    assert ask(server, "/api/devices/3/revoke").status == 405
    assert not server.operated.left


# At a real coordinator.


@pytest.fixture
def run(tmp_path):
    """`turnout serve` with three devices: one that reports, one that is silent, and one that leaves."""
    store = begun(tmp_path / "run.db", usual_rules(Timing(round=0.0, deadline=0.6, hold=5.0), wait_for=3))
    codes = codes_for(store, 3, weight=40)
    store.close()
    secret = tmp_path / "password"
    secret.write_text(PASSWORD)
    secret.chmod(0o600)
    with Served(tmp_path, tmp_path / "run.db") as process:
        process.wait()
        port = int(re.search(r"operator's page http://[\d.]+:(\d+)", process.output)[1])
        enrolled = [send(process.url, "POST", "/v1/enrol", {"code": code, "nonce": "n" * 20})[1] for code in codes]
        tokens = [welcome["token"] for welcome in enrolled]
        yield SimpleNamespace(port=port, url=process.url, tokens=tokens, store=tmp_path / "run.db")


def report(run, device, round):
    body = {"run": "test", "round": round, "participates": True}
    return send(run.url, "POST", "/v1/report", body, run.tokens[device])


def test_a_real_run(run):
    assert send(run.url, "POST", "/v1/leave", {}, run.tokens[2])[0] == 200
    rounds = [0]
    while rounds[-1] < GONE_AFTER + 1:
        status, answer = report(run, 0, rounds[-1])
        assert status in (200, 409), answer
        rounds.append(answer["next"]["round"])
    assert all(one < other for one, other in pairwise(rounds))
    assert change(run, "/api/control", {"mode": "paused"}).status == 200  # it stays as it is
    found = ask(run, "/api/devices").json
    assert found["counts"] == {"here": 1, "gone": 1, "left": 1}
    assert [device["state"] for device in found["devices"]] == ["here", "gone", "left"]
    assert [device["weight"] for device in found["devices"]] == [40, 40, 40]
    assert found["devices"][1]["missed"] >= GONE_AFTER
    assert found["devices"][2]["left"] == 0
    assert set(found) == {"round", "counts", "found", "page", "pages", "size", "devices"}, "each name is known"
    assert all(set(device) == {*FIELDS, "why"} for device in found["devices"])
    assert [device["why"] for device in found["devices"]] == [None, None, "it gave no reason"]


def test_revoking_voids_the_token_once_and_is_in_the_log(run):
    assert send(run.url, "GET", "/v1/round", None, run.tokens[1])[0] == 200
    for _ in range(2):
        assert change(run, "/api/devices/1/revoke", {}).json == {"revoked": 1}
    assert send(run.url, "GET", "/v1/round", None, run.tokens[1])[0] == 401
    assert report(run, 1, 0)[0] == 401
    assert send(run.url, "GET", "/v1/round", None, run.tokens[0])[0] == 200
    assert slots(ask(run, "/api/devices?state=left").json) == [1]
    lines = [line for line in ask(run, "/api/log").json["changes"] if line["what"] == "revoked"]
    assert [(line["who"], line["detail"]) for line in lines] == [("operator page", "device 1")]
    assert change(run, "/api/devices/3/revoke", {}).status == 404
    assert [device.left is None for device in open_store(str(run.store)).devices()] == [True, False, True]
