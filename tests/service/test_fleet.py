"""A fleet against a coordinator's double that can be told to misbehave, over real sockets."""

import asyncio
import json
from collections import defaultdict

import numpy as np
import pytest

from service.coordinator_double import CODES, COSTS, DEVICES, SEED, Double, by_hand, play, signal_of
from service.served import self_signed
from turnout import Averaging, Classical, PaperCoin
from turnout.algorithm import Memoized, SystemCoins
from turnout.errors import TurnoutError
from turnout.service.http.certificate import tls_context
from turnout.service.load_test.connection import _read_head, allow_connections, request_head
from turnout.service.load_test.devices import Rehearsal
from turnout.service.load_test.load_test import Fleet
from turnout.service.network import Address, Unreachable
from turnout.service.protocol import ProtocolProblem


@pytest.mark.parametrize(
    ("mechanism", "averaging"),
    [
        (PaperCoin(3.5), Averaging()),
        (Classical(), Averaging(remember=5)),
        (PaperCoin(3.5), Averaging(by="probability")),
        (Memoized(4.0, price=10.0), Averaging()),
    ],
    ids=["bit", "remember", "probability", "memoized"],
)
def test_thirty_rounds_are_what_client_step_gives_by_hand(mechanism, averaging):
    def counts(device, round):
        return (device + round) % 5 > 0  # some reports are not acknowledged

    double = Double(mechanism, averaging.by, averaging.remember, counts=counts)
    record = play(double, 30)
    expected = by_hand(30, mechanism, averaging, counts)
    np.testing.assert_array_equal(record.bits, expected)
    every = by_hand(30, mechanism, averaging)  # the twin: every report counted
    assert np.array_equal(expected, every) == (averaging.by == "probability")  # no trace of a refusal in the state
    np.testing.assert_array_equal(record.signals, [signal_of(round) for round in range(30)])
    for round, device in np.ndindex(30, DEVICES):
        assert double.bits[round][device] == expected[round, device]
        assert record.acknowledged[round, device] == (expected[round, device] and counts(device, round))
    np.testing.assert_array_equal(record.participants, record.acknowledged.sum(axis=1))
    assert record.requests == 31 * DEVICES
    assert not record.faults
    assert double.connections == DEVICES


def test_without_a_seed_the_coins_are_the_systems(monkeypatch):
    asked = []
    monkeypatch.setattr(SystemCoins, "uniform", lambda self, who, *_: asked.append(len(who)) or np.zeros(len(who)))
    record = play(Double(), 3, seed=None)
    assert record.bits.all()  # 0 is below every probability of the paper's coin
    assert sum(asked) == 4 * DEVICES  # once at joining, and once in each round


def test_a_dropped_connection_sends_the_stored_bit_again(monkeypatch):
    monkeypatch.setattr("turnout.service.load_test.connection.FIRST_PAUSE", 0.05)
    dropped = [(3, 1), (3, 2), (7, 2), (11, 4)]
    double = Double(odd=lambda device, round, times: "drop" if (device, round) in dropped and times <= 2 else None)
    record = play(double, 6)
    np.testing.assert_array_equal(record.bits, by_hand(6))
    for place in dropped:
        assert len(double.arrivals[place]) == 3
        assert len(set(double.arrivals[place])) == 1  # verbatim
    assert record.reconnects == 2 * len(dropped)
    assert double.connections == DEVICES + record.reconnects


def test_pending_sends_the_same_again_and_says_nothing():
    pending = {"outcome": "pending", "counted": False, "lease": 0, "next": None}

    def odd(device, round, times):
        return (200, [], {"round": round} | pending) if round == 2 and times < 3 else None

    double = Double(odd=odd)
    record = play(double, 5)
    np.testing.assert_array_equal(record.bits, by_hand(5))
    assert record.acknowledged[2].any()
    assert all(len(double.arrivals[device, 2]) == 3 for device in range(DEVICES))
    assert all(len(set(double.arrivals[device, 2])) == 1 for device in range(DEVICES))


def test_a_report_that_comes_after_the_close_is_not_counted():
    late = {4, 9}

    class Hasty(Double):
        async def report(self, device, run, round, participates):
            if round == 2 and device in late:  # its message is delayed until the others have closed the round
                await asyncio.wait_for(self.others_closed(), 5)
            self.expected = DEVICES - len(late) if self.round == 2 else DEVICES
            return await super().report(device, run, round, participates)

        async def others_closed(self):
            async with self.closed:
                await self.closed.wait_for(lambda: self.round > 2)

    double = Hasty()
    record = play(double, 6)
    expected = by_hand(6, counts=lambda device, round: not (round == 2 and device in late))
    np.testing.assert_array_equal(record.bits, expected)
    assert not record.acknowledged[2, list(late)].any()
    assert record.rounds[2].answered.all()
    assert set(double.bits[2]) == set(range(DEVICES)) - late


def test_missed_rounds_count_as_not_participating():
    rehearsal = Rehearsal(cut=0.5, cut_first=2, cut_rounds=3)
    twin = Rehearsal(cut=0.5, cut_first=2, cut_rounds=3)
    twin.draw(DEVICES, SEED)
    gone = np.flatnonzero(twin.away(2)).tolist()
    assert len(gone) == DEVICES // 2

    class Patient(Double):
        async def report(self, device, run, round, participates):
            self.expected = DEVICES - len(gone) if 2 <= self.round < 5 else DEVICES
            return await super().report(device, run, round, participates)

    double = Patient()
    record = play(double, 9, rehearsal=rehearsal)
    expected = by_hand(9, away={(device, round) for device in gone for round in (2, 3, 4)})
    np.testing.assert_array_equal(record.bits, expected)
    assert not record.rounds[3].decided[gone].any()
    assert sorted(device for device, _ in double.asked) == gone
    assert {round for _, round in double.asked} == {5}  # back at once
    assert not np.array_equal(expected, by_hand(9))


def test_late_devices_report_what_they_had_decided():
    double = Double()
    record = play(double, 3, rehearsal=Rehearsal(late=0.25, late_seconds=0.2))
    np.testing.assert_array_equal(record.bits, by_hand(3))
    assert record.seconds > 0.1


def test_a_restored_coordinator_gets_what_is_on_file():
    restored = []

    class Restored(Double):
        async def report(self, device, run, round, participates):
            if round == 4 and not restored:  # from here on it knows rounds 0 and 1 only
                restored.append(dict(self.bits))
                self.round, self.bits = 2, defaultdict(dict)
            if round > self.round:
                return 409, [], {"error": "ahead", "message": "", "next": self.offer()}
            return await super().report(device, run, round, participates)

    double = Restored()
    record = play(double, 7)
    np.testing.assert_array_equal(record.bits, by_hand(7))
    assert [double.bits[round] for round in (2, 3)] == [restored[0][round] for round in (2, 3)]
    assert record.faults["409 ahead"] >= DEVICES
    assert set(record.faults) == {"409 ahead"}


def test_a_conflict_is_counted_as_not_participating_and_passed():
    def odd(device, round, times):
        if device == 6 and round == 2:
            double.bits[2][6] = False
            return 409, [], {"error": "conflict", "message": "", "next": double.offer()}
        return None

    double = Double(odd=odd)
    record = play(double, 5)
    assert record.faults["409 conflict"] >= 1
    assert len(set(double.arrivals[6, 2])) == 1  # never another bit
    expected = by_hand(5, counts=lambda device, round: (device, round) != (6, 2))
    np.testing.assert_array_equal(record.bits[:, :6], expected[:, :6])
    assert record.bits[4].tolist() == expected[4].tolist()


def test_enrolment_is_paced_and_waits_as_long_as_it_is_told(monkeypatch):
    monkeypatch.setattr("turnout.service.load_test.load_test.AT_ONCE", 5)
    monkeypatch.setattr("turnout.service.load_test.load_test.SLOWLY", 3)
    double = Double()
    slow = 429, ["retry-after: 1"], {"error": "rate", "message": ""}
    double.refuse = lambda code, times: slow if code == CODES[2] and times == 0 else None
    record = play(double, 2)
    assert double.most_at_once <= 5
    assert record.faults == {"asked to wait": 1}
    assert record.seconds > 1.0
    assert len({nonce for code, nonce in double.enrolments if code == CODES[2]}) == 1  # the same device comes again
    assert len({nonce for _, nonce in double.enrolments}) == DEVICES
    assert [code for code, _ in double.enrolments][:5] == CODES[:5]


def test_a_code_that_is_refused_leaves_the_others():
    double = Double()
    double.expected = DEVICES - 1
    double.refuse = lambda code, times: (403, [], {"error": "code", "message": ""}) if code == CODES[0] else None
    record = play(double, 3)
    assert record.enrolled == DEVICES - 1
    assert record.faults == {"refused": 1}
    np.testing.assert_array_equal(record.bits[:, 1:], by_hand(3)[:, 1:])


def test_nobody_may_enrol():
    double = Double()
    double.refuse = lambda code, times: (403, [], {"error": "code", "message": ""})
    with pytest.raises(TurnoutError, match="no device may enrol"):
        play(double)


def test_a_revoked_device_is_out():
    def odd(device, round, times):
        if (device, round) == (5, 2):
            double.expected = DEVICES - 1
            return 401, [], {"error": "token", "message": ""}
        return None

    double = Double(odd=odd)
    record = play(double, 4)
    assert record.faults == {"sent away": 1}
    assert 5 not in double.bits[3]


@pytest.mark.parametrize(
    "answer",
    [
        (200, [], {"round": 1, "outcome": "accepted"}),
        (200, [], {"round": 0, "outcome": "accepted", "counted": True, "lease": 0, "next": None}),
        (200, [], b"[NaN"),
        (500, [], {"error": "x"}),
        (503, ["retry-after: 0"], {"error": "x"}),
    ],
    ids=["part", "another round", "no JSON", "500", "503"],
)
def test_what_is_no_answer_is_a_fault_and_the_report_goes_out_again(answer, monkeypatch):
    monkeypatch.setattr("turnout.service.load_test.load_test.PAUSE", 0.02)
    double = Double(odd=lambda device, round, times: answer if (device, round, times) == (3, 1, 1) else None)
    record = play(double, 3)
    np.testing.assert_array_equal(record.bits, by_hand(3))
    assert sum(record.faults.values()) == 1
    assert len(double.arrivals[3, 1]) == 2


def test_a_silent_coordinator_is_given_up_after_a_while():
    class Silent(Double):
        async def report(self, device, run, round, participates):
            if (device, round) == (3, 1) and not self.arrivals[3, 1]:
                self.arrivals[3, 1].append(participates)
                await asyncio.sleep(5)
            return await super().report(device, run, round, participates)

    double = Silent()
    record = play(double, 3, patience=0.3)
    np.testing.assert_array_equal(record.bits, by_hand(3))
    assert record.faults["no answer"] >= 1
    assert len(set(double.arrivals[3, 1])) == 1


def test_it_goes_on_where_it_stopped():
    async def work():
        async with Double() as double:
            fleet = Fleet(double.url, COSTS, CODES, seed=SEED)
            await fleet.run(3)
            return await fleet.run(4), double

    record, double = asyncio.run(work())
    np.testing.assert_array_equal(record.bits, by_hand(7))
    assert len(record.spans) == 7
    assert double.connections == 2 * DEVICES
    assert len(double.enrolments) == DEVICES


def test_stop_leaves_what_there_is_and_old_rounds_may_be_forgotten():
    async def work():
        async with Double() as double:
            fleet = Fleet(
                double.url, COSTS, CODES, seed=SEED, keep=4, progress=lambda r: len(r.spans) >= 20 and fleet.stop()
            )
            return await asyncio.wait_for(fleet.run(), 20)

    record = asyncio.run(work())
    assert record.interrupted
    assert len(record.rounds) == 4
    assert len(record.spans) >= 20
    facts = json.loads(record.json())
    assert facts["rounds"] == len(record.spans)
    assert 0 <= facts["answers_p50_seconds"] <= facts["answers_p99_seconds"]


def test_no_coordinator_there():
    with pytest.raises(Unreachable, match="cannot be reached"):
        asyncio.run(Fleet("http://127.0.0.1:9", COSTS, CODES).run(1))


def test_over_tls_the_coordinator_must_be_known(tmp_path):
    certificate, key = self_signed(tmp_path)
    double = Double()
    double.tls = tls_context(certificate, key)
    record = play(double, 3, ca=certificate)
    np.testing.assert_array_equal(record.bits, by_hand(3))
    double = Double()
    double.tls = tls_context(certificate, key)
    with pytest.raises(Unreachable, match="give --ca FILE"):
        play(double)


def test_somebody_else_is_there():
    double = Double()
    double.refuse = lambda code, times: (201, [], {"hello": "world"})
    with pytest.raises(TurnoutError, match="no coordinator"):
        play(double)


def test_a_head_must_be_one():
    assert _read_head(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\ndate: today") == (200, 7, None)
    for wrong in (b"SSH-2.0", b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK\r\ncontent-length: 99999999"):
        with pytest.raises(ProtocolProblem):
            _read_head(wrong)


def test_arguments_are_checked(monkeypatch):
    with pytest.raises(ValueError, match="codes must be at least one for each of 24 devices, got 3"):
        Fleet("http://localhost", COSTS, CODES[:3])
    for url in ("localhost:80", "ftp://x", "http://", "http://x:y"):
        with pytest.raises(ValueError, match="URL must be"):
            Address.of(url)
    head = request_head(Address.of("http://[::1]:8440/fleet/"), "POST", "/v1/enrol")
    assert head.startswith(b"POST /fleet/v1/enrol HTTP/1.1\r\nHost: [::1]:8440\r\n")
    with pytest.raises(ValueError, match="leave some devices online"):
        Rehearsal(cut=1.0, cut_first=1, cut_rounds=1)
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 1024))
    monkeypatch.setattr("resource.setrlimit", lambda *_: None)
    with pytest.raises(ValueError, match="devices must be at most 960 in one process here, got 10000"):
        allow_connections(10_000)
    with pytest.raises(ValueError, match="keep"):
        Fleet("http://localhost", COSTS, CODES, keep=1)
