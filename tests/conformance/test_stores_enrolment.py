"""Devices enrol with codes and leave, in every store."""

import pytest

from conformance.places import close, hashed, request
from turnout.service.store.store import (
    Device,
    StoreProblem,
)


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
