"""Devices enrol with codes and leave, in every store."""

import re

import pytest

from conformance.places import close, hashed, request
from turnout.service.store import schema, store
from turnout.service.store.store import Device, Names, StoreProblem


def test_devices_enrol_with_codes(kept):
    kept.add_codes([hashed(n) for n in range(4)], 7, None, "me")
    kept.add_codes([hashed(10)], 2300, 50.0, "me")
    first = kept.enrol([request(0, 0, 0), request(99), request(10, 1, 1), request(0, 5, 5)], 49.9)
    assert first == [Device(0, hashed(2000), 7, 0, None, 1), None, Device(1, hashed(2001), 2300, 0, None, 2), None]
    close(kept, 2)
    assert kept.enrol([request(1, 1, 2), request(2, 2, 3)], 1e9) == [
        Device(2, hashed(2002), 7, 2, None, 3),
        Device(3, hashed(2003), 7, 2, None, 4),
    ]
    assert [device.slot for device in kept.devices()] == [0, 1, 2, 3]
    assert kept.devices(2) == kept.enrol([], 0.0) + kept.devices()[2:]
    assert kept.control().revision == 4
    assert [(line.what, line.detail) for line in kept.changes()] == [
        ("codes", "4 of weight 7"),
        ("codes", "1 of weight 2300"),
    ]


def test_a_code_expires_and_works_once(kept):
    kept.add_codes([hashed(0)], 1, 50.0, "me")
    assert kept.enrol([request(0)], 50.0) == [None]
    assert kept.enrol([request(0)], float("inf")) == [None]
    assert kept.enrol([request(0)], 49.0) == [Device(0, hashed(2000), 1, 0, None, 1)]
    assert kept.enrol([request(0, nonce=1)], 49.0) == [None]


def test_who_comes_again_with_the_nonce_gets_a_new_token_in_the_same_place(kept):
    kept.add_codes([hashed(0), hashed(1)], 1, 50.0, "me")
    kept.enrol([request(0, 0, 0), request(1, 1, 1)], 0.0)
    close(kept)
    renewed = Device(0, hashed(2009), 1, 1, None, 4)
    assert kept.enrol([request(0, 0, 8), request(0, 0, 9)], 99.0) == [Device(0, hashed(2008), 1, 1, None, 3), renewed]
    assert kept.devices() == [renewed, Device(1, hashed(2001), 1, 0, None, 2)]
    kept.withdraw(0, "me", "revoked")
    assert kept.enrol([request(0, 0, 10)], 0.0) == [None]
    assert kept.devices()[0].token == hashed(2009)


def test_a_batch_may_hold_the_same_request_twice(kept):
    kept.add_codes([hashed(0), hashed(1)], 1, None, "me")
    found = kept.enrol([request(0, 0, 0), request(0, 0, 1), request(0, 3, 2), request(1, 1, 3)], 0.0)
    assert [device and (device.slot, device.revision) for device in found] == [(0, 1), (0, 2), None, (1, 3)]
    assert [device.token for device in kept.devices()] == [hashed(2001), hashed(2003)]


def test_bad_codes_are_refused_whole(kept):
    kept.add_codes([hashed(0)], 1, None, "me")
    for batch in ([hashed(1), hashed(0)], [hashed(1), hashed(1)]):
        with pytest.raises(StoreProblem, match="none of these was added"):
            kept.add_codes(batch, 1, None, "me")
    for weight in (0, 1.5, 2**40 + 1):
        with pytest.raises(ValueError, match="weight must be a whole number"):
            kept.add_codes([hashed(1)], weight, None, "me")
    assert kept.enrol([request(1)], 0.0) == [None]
    assert len(kept.changes()) == 1


def test_a_device_leaves_once(kept):
    kept.add_codes([hashed(0), hashed(1)], 3, None, "me")
    kept.enrol([request(0), request(1, 1, 1)], 0.0)
    close(kept, 3)
    gone = kept.withdraw(1, "page", "revoked")
    assert gone == Device(1, hashed(2001), 3, 0, 3, 3)
    close(kept)
    assert kept.withdraw(1, "device", "left") == gone
    assert kept.devices(2) == [gone]
    assert kept.control().revision == 3
    assert [(line.who, line.what, line.detail) for line in kept.changes()[1:]] == [("page", "revoked", "device 1")]
    for slot in (2, -1):
        with pytest.raises(ValueError, match="slot must be a device's number"):
            kept.withdraw(slot, "page", "revoked")


def test_a_device_gets_the_names_of_its_code_and_keeps_its_own(kept, places, tmp_path):
    names = [Names("charger 4", "hall 2", "east"), Names("", "hall 2")]
    kept.add_codes([hashed(0), hashed(1)], 1, None, "me", names)
    found = kept.enrol([request(0), request(1, 1, 1)], 0.0)
    assert [device.names for device in found] == [device.names for device in kept.devices()] == names
    assert [(code.slot, code.names) for code in kept.codes()] == list(enumerate(names))
    renamed = kept.rename(0, "page", label=" To\u0308r 3 ", note="")
    assert renamed == Device(0, hashed(2000), 1, 0, None, 3, Names("Tör 3", "hall 2", ""))
    assert kept.rename(0, "page", label="Tör 3") == renamed, "and nothing is changed"
    assert kept.devices(2) == [renamed]
    assert kept.control().revision == 3
    assert kept.enrol([request(0, 0, 9)], 0.0)[0].names == renamed.names, "enrolling again takes no names"
    kept.withdraw(0, "page", "revoked")
    assert [(line.what, line.detail) for line in kept.changes()] == [
        ("codes", "2 of weight 1, label 'charger 4', site 'hall 2'"),
        ("renamed", "device 0: label 'charger 4' -> 'Tör 3', note 'east' -> ''"),
        ("revoked", "device 0, label 'Tör 3', site 'hall 2'"),
    ]
    kept.backup(tmp_path / "copy.db")
    copy = places.open(str(tmp_path / "copy.db"))
    assert (copy.devices(), copy.codes()) == (kept.devices(), kept.codes())


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"label": "x" * 61}, "label must be of at most 60 characters, got 61"),
        ({"site": "x" * 61}, "site must be of at most 60 characters, got 61"),
        ({"note": "x" * 201}, "note must be of at most 200 characters, got 201"),
        ({"label": "two\nlines"}, "label must be of printed characters alone"),
        ({"site": "bell\a"}, "site must be of printed characters alone"),
        ({"note": "right to left \u202e"}, "note must be of printed characters alone"),
        ({"label": "half \ud800"}, "label must be of printed characters alone"),
    ],
)
def test_names_are_short_and_plain(kept, wrong, told):
    kept.add_codes([hashed(0)], 1, None, "me")
    kept.enrol([request(0)], 0.0)
    with pytest.raises(ValueError, match=told):
        kept.rename(0, "me", **wrong)
    with pytest.raises(ValueError, match=told):
        kept.add_codes([hashed(1)], 1, None, "me", [Names(**wrong)])
    assert (kept.devices()[0].names, len(kept.codes()), len(kept.changes())) == (Names(), 1, 1)
    with pytest.raises(ValueError, match="names must be one for each of the 2 codes, got 1"):
        kept.add_codes([hashed(1), hashed(2)], 1, None, "me", [Names("x")])
    with pytest.raises(ValueError, match="slot must be a device's number"):
        kept.rename(1, "me", label="x")


def test_a_code_is_voided_once_and_good_for_nobody(kept):
    kept.add_codes([hashed(0), hashed(1), hashed(2)], 1, 50.0, "me", [Names("charger 4"), Names(), Names()])
    kept.enrol([request(1)], 0.0)
    voided = kept.void_code(hashed(0), "page")
    assert kept.void_code(hashed(0), "page") == voided
    assert kept.enrol([request(0)], 0.0) == [None]
    with pytest.raises(ValueError, match="one that no device has used, got 000000000000, which device 0 has used"):
        kept.void_code(hashed(1), "page")
    with pytest.raises(ValueError, match="code must be one of the store's"):
        kept.void_code(hashed(7), "page")
    assert [code.state(49.0) for code in kept.codes()] == ["void", "used", "unused"]
    assert [code.state(50.0) for code in kept.codes()] == ["void", "used", "expired"]
    assert [(line.who, line.what, line.detail) for line in kept.changes()[1:]] == [
        ("page", "voided", "code 000000000000, label 'charger 4'")
    ]


def test_a_store_of_the_version_before_has_its_devices_and_codes_after_the_migration(places):
    location = places.new()
    kept = places.begun(location)
    kept.add_codes([hashed(0), hashed(1)], 7, 50.0, "me")
    kept.enrol([request(0)], 0.0)
    before = kept.devices(), kept.codes(), kept.changes()
    kept.close()
    for statement in schema.MIGRATIONS[store.SCHEMA - 1]:  # undone by hand
        for table, column in re.findall(r"ALTER TABLE (\w+) ADD COLUMN (\w+)", statement):
            places.sql(location, f"ALTER TABLE main.{table} DROP COLUMN {column}")
        for table in re.findall(r"CREATE TABLE (\w+)", statement):
            places.sql(location, f"DROP TABLE main.{table}")
    places.sql(location, f"UPDATE main.meta SET value = '{store.SCHEMA - 1}' WHERE name = 'schema'")
    kept = places.open(location)
    assert (kept.devices(), kept.codes(), kept.changes()) == before
    kept.add_codes([hashed(2)], 1, None, "me", [Names("charger 5")])
    kept.void_code(hashed(1), "me")
    kept.enrol([request(2, 2, 2)], 0.0)
    assert [device.names.label for device in kept.devices()] == ["", "charger 5"]
