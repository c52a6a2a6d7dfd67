"""Devices, sites and codes by name: lists, search, what is ambiguous, over HTTP, and at a real coordinator."""

import time
from dataclasses import replace

import numpy as np
import pytest

from service.fake_operated import DEVICES, FakeOperated, names_of, served
from service.operator_client import ask, change
from service.running import begun, running, send
from service.served import eventually
from turnout.service import MISSING, YES, ClosedRound
from turnout.service.coordinator.enrolment import GONE_AFTER, Roll, hashed, issue_codes
from turnout.service.coordinator.listing import (
    PAGE,
    code_list,
    device_list,
    one_code,
    one_device,
    roll_of,
    site_list,
)
from turnout.service.coordinator.overview import Overview
from turnout.service.operator.metrics import exposition
from turnout.service.store import Code, Device, Enrolment, Names, open_store

FLEET = [
    Names("Charger 4", "hall 2"),
    Names("charger 41", "hall 2"),
    Names("gate", "hall 4"),
    Names("", ""),
    Names("gate", "depot"),
    Names("5", "depot", "its label is a number"),
]


def roll_with(names, gone=(), left=()):
    """Device i's tag begins with i + 10, as eight hexadecimal digits."""
    roll = Roll()
    tokens = [(slot + 10).to_bytes(4, "big") + bytes(28) for slot in range(len(names))]
    roll.take(Device(slot, tokens[slot], 1, 0, 7 if slot in left else None, 0, name) for slot, name in enumerate(names))
    for slot in gone:
        roll.missed[slot] = GONE_AFTER
    return roll


def found(roll, **asked):
    return [device["number"] for device in device_list(roll, **asked)["devices"]]


@pytest.mark.parametrize(
    ("search", "devices"),
    [
        ("charger", [0, 1]),
        ("CHARGER 4", [0, 1]),
        ("41", [1]),
        ("  gate ", [2, 4]),
        ("hall", [0, 1, 2]),
        ("depot", [4, 5]),
        ("0000000c", [2]),
        ("0000000", [0, 1, 2, 3, 4, 5]),
        ("000", []),  # too short for the beginning of a tag
        ("3", [3]),
        ("4", [4, 0, 1, 2]),  # its number first, then labels and sites that have a 4
        ("5", [5]),
        ("its label", []),  # notes are not searched
        ("nobody", []),
        ("", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_searching(search, devices):
    assert found(roll_with(FLEET), search=search) == devices


def test_search_site_and_state_together():
    roll = roll_with(FLEET, gone=[1], left=[2])
    assert found(roll, search="charger", state="gone") == [1]
    assert found(roll, site="hall 2") == [0, 1]
    assert found(roll, site="hall 2", search="4", state="here") == [0]
    assert found(roll, site="") == [3]
    assert found(roll, site="hall") == [], "a site is meant as a whole"
    assert device_list(roll, site="hall 2", state="gone")["counts"] == {"here": 1, "gone": 1, "left": 0}
    assert device_list(roll, search="gate")["counts"] == {"here": 1, "gone": 0, "left": 1}
    with pytest.raises(ValueError, match="search must be of at most 60 characters, got 61"):
        device_list(roll, search="x" * 61)


def test_sites_and_who_is_there():
    roll = roll_with([*FLEET, Names("", "Annex")], gone=[1, 4], left=[2])
    assert [list(site.values()) for site in site_list(roll)] == [
        ["Annex", 1, 0, 0],
        ["depot", 1, 1, 0],
        ["hall 2", 1, 1, 0],
        ["hall 4", 0, 0, 1],
        ["", 1, 0, 0],
    ]


def test_one_device_by_what_it_is_called():
    roll = roll_with(FLEET)
    for called, slot in {"charger 4": 0, " CHARGER 41": 1, "3": 3, "0000000F": 5, "0": 0}.items():
        assert one_device(roll, called).slot == slot
    with pytest.raises(ValueError, match=r"got 'gate', which 2 devices have: device 2 \('gate', tag 0000000c, site"):
        one_device(roll, "gate")
    with pytest.raises(ValueError, match=r"got 'charger': give the whole label: device 0 .*, device 1 "):
        one_device(roll, "charger")
    assert one_device(roll_with([*FLEET, Names("0", "")]), "00000010").slot == 6
    with pytest.raises(ValueError, match=r"got '0', which 2 devices have: device 0 .*, device 6 \('0'"):
        one_device(roll_with([*FLEET, Names("0", "")]), "0")  # a number, and another's label
    for wrong in ("", "nobody", "-1", "6"):
        with pytest.raises(ValueError, match="device must be the number, tag or label of one, got"):
            one_device(roll, wrong)
    assert one_device(roll_with(FLEET, left=[2]), "gate").slot == 4, "of two, the one that is a member"
    with pytest.raises(ValueError, match="and 2 more"):
        one_device(roll_with([Names("same")] * 12), "same")


def test_codes_are_listed_by_state_and_found_by_name():
    used = Code(hashed("a"), 1, 50.0, slot=3, names=Names("gate", "hall 2"))
    codes = [
        used,
        Code(hashed("b"), 1, 50.0, names=Names("gate", "hall 4")),
        Code(hashed("c"), 7, None, names=Names("", "hall 2", "spare")),
        Code(hashed("d"), 1, None, voided_at=1.0),
    ]
    lines = code_list(codes, 49.0)
    assert lines["counts"] == {"unused": 2, "used": 1, "expired": 0, "void": 1}
    assert [line["state"] for line in lines["codes"]] == ["unused", "unused", "used", "void"]
    assert code_list(codes, 50.0)["counts"] == {"unused": 1, "used": 1, "expired": 1, "void": 1}
    assert lines["codes"][2] == {
        "tag": used.tag, "state": "used", "weight": 1, "expires_at": 50.0, "device": 3,
        "label": "gate", "site": "hall 2", "note": "",
    }  # fmt: skip
    assert [line["label"] for line in code_list(codes, 0.0, search="GATE")["codes"]] == ["gate", "gate"]
    assert [line["tag"] for line in code_list(codes, 0.0, search=used.tag[:5])["codes"]] == [used.tag]
    assert code_list(codes, 0.0, site="hall 2", state="unused")["found"] == 1
    assert one_code(codes, "gate") == codes[1], "the one that is not used"
    assert one_code(codes, "a") == used, "the code itself"
    assert one_code(codes, used.tag.upper()) == used
    with pytest.raises(ValueError, match=f"which 2 codes have: {used.tag} "):
        one_code([used, Code(hashed("e"), 1, 1.0, 4, names=Names("gate"))], "gate")
    with pytest.raises(ValueError, match="code must be a tag, a label or the code itself, got ''"):
        one_code(codes, "")
    assert code_list([Code(hashed(str(n)), 1, None) for n in range(PAGE + 1)], 0.0, page=9)["page"] == 2


def test_ten_thousand_named_devices_are_searched_in_no_time():
    roll = roll_with([Names(f"charger {slot}", f"site {slot % 300}") for slot in range(10_000)])
    began = time.process_time()
    assert device_list(roll, search="charger 99")["found"] == 111
    assert len(site_list(roll)) == 300
    assert time.process_time() - began < 0.5


# Over HTTP.


@pytest.fixture(scope="module")
def server():
    operated = FakeOperated(rounds=5)
    with served(operated) as found:
        found.operated = operated
        yield found


def test_search_and_sites_over_http(server):
    one = ask(server, "/api/devices?search=charger%201199").json
    assert [device["number"] for device in one["devices"]] == [1199]
    assert one["devices"][0]["label"] == names_of(1199).label
    assert ask(server, "/api/devices?site=hall%202").json["found"] == 300
    assert ask(server, "/api/devices?site=").json["found"] == DEVICES - 900
    sites = ask(server, "/api/sites").json
    assert (sites["found"], sites["sites"][0]) == (4, {"site": "depot north", "here": 293, "gone": 7, "left": 0})
    for path in (f"/api/devices?search={'x' * 61}", "/api/codes?state=here", "/api/codes?page=0"):
        assert ask(server, path).status == 400
    for path in ("/api/sites", "/api/codes", "/api/devices?search=x"):
        assert ask(server, path, auth=False).status == 401


def test_naming_and_voiding_over_http(server):
    named = change(server, "/api/devices/7/name", {"label": "gate", "site": "hall 9"})
    assert (named.status, named.json["label"], named.json["site"]) == (200, "gate", "hall 9")
    for path, body, status in (
        ("/api/devices/7/name", {}, 400),
        ("/api/devices/7/name", {"label": 4}, 400),
        ("/api/devices/7/name", {"label": "x" * 61}, 400),
        ("/api/devices/7/name", {"label": "a\u0000b"}, 400),
        ("/api/devices/7/name", {"weight": "4"}, 400),
        ("/api/devices/99999/name", {"label": "x"}, 404),
        ("/api/devices/gate/name", {"label": "x"}, 404),
        ("/api/codes", {"count": 2, "label": "x"}, 400),
        ("/api/codes", {"site": 3}, 400),
        ("/api/codes/gate/void", {}, 404),
        ("/api/codes/000000000000/void", {}, 400),
    ):
        assert change(server, path, body).status == status, (path, body)
    made = change(server, "/api/codes", {"label": "gate 2", "site": "hall 9", "note": "spare"}).json["codes"]
    (line,) = ask(server, "/api/codes?search=gate%202").json["codes"]
    assert (line["label"], line["site"], line["note"], line["state"]) == ("gate 2", "hall 9", "spare", "unused")
    assert made[0] not in ask(server, "/api/codes").content.decode()
    assert change(server, f"/api/codes/{line['tag']}/void", {}).json == {"voided": line["tag"]}
    assert ask(server, "/api/codes?state=void").json["found"] == 1


# At a real coordinator.


def test_names_reach_a_coordinator_that_runs_and_nothing_but_the_operators_lists(tmp_path):
    store = begun(tmp_path / "run.db")
    (code,) = issue_codes(store, 1, 1, 24.0, "me", [Names("charger 4", "hall 2", "rare words")])
    with running(store) as found:
        overview, sync = Overview(found.coordinator), found.coordinator.sync
        welcome = send(found.url, "POST", "/v1/enrol", {"code": code, "nonce": "n" * 20})[1]
        assert "charger" not in str(welcome), "the device is not told"
        assert sync.roll[0].names.site == "hall 2"
        other = open_store(str(tmp_path / "run.db"))
        other.rename(0, "command line", site="hall 7")
        eventually(lambda: sync.roll[0].names.site == "hall 7")
        other.close()
        assert found.call(overview.devices, site="hall 7")["found"] == 1
        assert found.call(overview.sites)["sites"] == [{"site": "hall 7", "here": 1, "gone": 0, "left": 0}]
        found.call(overview.rename, 0, "operator page", label="gate")
        assert sync.roll[0].names == Names("gate", "hall 7", "rare words")
        (line,) = found.call(overview.codes, state="used")["codes"]
        assert (line["device"], line["label"]) == (0, "charger 4")
        (spare,) = found.call(overview.issue_codes, 1, 1, 24.0, "operator page", Names("spare"))
        found.call(overview.void_code, hashed(spare).hex()[:12], "operator page")
        assert send(found.url, "POST", "/v1/enrol", {"code": spare, "nonce": "m" * 20})[0] == 403
        names = ("charger", "gate", "hall", "rare")
        told = str(overview.snapshot()) + exposition(overview.snapshot())
        assert not any(name in told for name in names), "nor do the state and the metrics have them"


def test_who_is_here_without_a_coordinator(tmp_path):
    """As of the last closed rounds, which the store has."""
    store = begun(tmp_path / "run.db")
    codes = issue_codes(store, 4, 1, 24.0, "me", [Names(label) for label in ("one", "two", "three", "four")])
    requests = [Enrolment(hashed(code), hashed("nonce"), hashed(f"token {code}")) for code in codes]
    assert all(store.enrol(requests[:3], 0.0))
    store.withdraw(2, "me", "revoked")
    for round in range(GONE_AFTER):
        assert [roll_of(store).state(slot) for slot in range(3)] == ["here", "here", "left"]
        reports = np.array([YES, MISSING, MISSING], dtype=np.uint8)
        closed = ClosedRound(round, 0.4, 2.0, reports, 1, 1, 2, 1, False, 9.5, 1e9)
        store.close_round(closed, replace(store.position(), round=round + 1))
    assert all(store.enrol(requests[3:], 0.0))
    assert [roll_of(store).state(slot) for slot in range(4)] == ["here", "gone", "left", "here"]
    store.close()
