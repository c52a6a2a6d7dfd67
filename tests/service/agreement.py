"""Whether the books of a coordinator, the devices' own histories and all that went over the wire say the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from turnout.algorithm import ClientState, SeededCoins, client_step
from turnout.service.coordinator.enrolment import hashed
from turnout.service.coordinator.exporting import export
from turnout.service.load_test.load_test import Fleet
from turnout.service.load_test.record import FleetRecord
from turnout.service.rounds import (
    MISSING,
    NO,
    REFUSED,
    YES,
    ClosedRound,
    Codes,
    Members,
    Position,
    close,
    first_position,
)
from turnout.service.rules import Rules, RulesVersions
from turnout.service.store.backup import open_store
from turnout.service.store.store import Device

Wire = Mapping[tuple[str, int], Sequence[bool]]
Offers = Mapping[int, set[float]]


@dataclass(frozen=True)
class Books:
    """All that a store holds, read once."""

    versions: RulesVersions
    devices: list[Device]
    rounds: list[ClosedRound]
    position: Position

    @property
    def rules(self) -> Rules:
        """Those that the run began with: prior, averaging and controller never change."""
        return self.versions[0].rules

    @classmethod
    def of(cls, location: str) -> Books:
        """Read a store, as any other process may."""
        store = open_store(str(location))
        try:
            position = store.position()
            versions = RulesVersions(store.rules())
            return cls(
                versions, store.devices(), [one for one in store.history() if one.round < position.round], position
            )
        finally:
            store.close()

    def codes(self, slots: Sequence[int]) -> Codes:
        """Of these slots, shape (rounds, slots)."""
        rows = [[closed.code(slot) for slot in slots] for closed in self.rounds]
        return np.array(rows, np.uint8).reshape(len(rows), len(slots))


def assert_sound(books: Books) -> None:
    """No round is missing, totals are those of the acknowledged bits, every signal follows from the rounds before."""
    assert [closed.round for closed in books.rounds] == list(range(books.position.round))
    weight = np.array([device.weight for device in books.devices])
    joined = np.array([device.joined for device in books.devices])
    position, chance = first_position(books.rules), np.random.default_rng(0)
    for closed in books.rounds:
        slots = len(closed.codes)
        assert closed.participants == weight[:slots][closed.codes == YES].sum()
        assert closed.heard == (closed.codes != MISSING).sum()
        rules = books.versions.at(closed.round).rules
        members = Members(weight[:slots], joined[:slots], np.ones(slots, np.bool_))
        said = np.where(closed.codes == REFUSED, YES, closed.codes).astype(np.uint8)
        again, following = close(rules, position, members, said, closed.capacity, chance)
        assert np.array_equal(again.codes, closed.codes), "these runs have no hard limit: who returned is not counted"
        for name in ("signal", "participants", "demand", "members", "heard", "frozen", "expected", "beyond_reach"):
            assert getattr(again, name) == getattr(closed, name), f"round {closed.round}: {name}"
        position = following
    assert position == books.position, "where the run stands follows from its books"


def assert_agreed(
    location: str, fleet: Fleet, wire: Wire, offers: Offers, *, costs, seed: int, joined_once: bool = True
) -> Books:
    """The books, a fleet's record and the wire; the fleet has been drained, so that all closed rounds are answered.

    Args:
        location: of the store.
        fleet: with its record.
        wire: by token and round, all bits that were sent.
        offers: by round, all signals that were offered.
        costs: of the fleet.
        seed: of its coins.
        joined_once: no enrolment came a second time: the books have every device's first round right.

    Raises:
        AssertionError: they differ.
    """
    books, record = Books.of(location), fleet.record
    assert_sound(books)
    assert not [fault for fault in record.faults if "409" in fault or "otherwise" in fault], "nothing is forgotten"
    slots = {device.token: device.slot for device in books.devices}
    codes = books.codes([slots[hashed(token)] for token in record.tokens])
    _assert_same_bits(books, codes, record)
    _assert_one_bit_a_round(record, wire)
    for round, signals in offers.items():
        assert signals == {[*_offered(books), books.position.offered][round]}, f"round {round}: offered"
    state, first = _assert_same_histories(books, codes, fleet, costs, seed)
    _assert_same_export(location, books, record, state, first, joined_once)
    return books


def _assert_same_bits(books: Books, codes: Codes, record: FleetRecord) -> None:
    offered = _offered(books)
    for closed, row in zip(books.rounds, codes, strict=True):
        seen = record.rounds.get(closed.round)
        if seen is None:
            assert not (row != MISSING).any(), f"round {closed.round}: reports of nobody"
            continue
        where = f"round {closed.round}"
        assert seen.signal == offered[closed.round], where
        assert not (seen.decided & ~seen.answered).any(), f"{where}: somebody was never answered"
        np.testing.assert_array_equal(row == YES, seen.acknowledged, f"{where}: acknowledged")
        np.testing.assert_array_equal(np.isin(row, (YES, NO)), seen.counted, f"{where}: counted")
        assert closed.participants == seen.acknowledged @ record.weights, where
    for round, seen in record.rounds.items():
        assert round < len(books.rounds) or not seen.answered.any(), f"round {round} is answered and not in the books"


def _offered(books: Books) -> list[float]:
    """What the devices were told: with a lag, the signal of the round before."""
    signals = [closed.signal for closed in books.rounds]
    lag = books.rules.controller.lag
    return [first_position(books.rules).offered, *signals[: -1 if signals else None]] if lag else signals


def _assert_one_bit_a_round(record: FleetRecord, wire: Wire) -> None:
    device_of = {token: device for device, token in enumerate(record.tokens)}
    for (token, round), bits in wire.items():
        assert len(set(bits)) == 1, f"round {round}: a device has sent two bits"
        assert bits[0] == record.rounds[round].bits[device_of[token]], f"round {round}: another bit than on file"


def _assert_same_histories(
    books: Books, codes: Codes, fleet: Fleet, costs, seed: int
) -> tuple[ClientState, np.ndarray]:
    """Every bit is what one toss of the device's coin gives after the history that the *books* have of it.

    Returns:
        These histories, and everyone's first round.
    """
    record, rules, coins = fleet.record, books.rules, SeededCoins(seed)
    everyone = np.arange(record.devices)
    start = np.full(record.devices, float(rules.prior.rounds))
    state, first = ClientState(rules.prior.average * start, start), np.full(record.devices, len(codes))
    for round, row in enumerate(codes):
        seen = record.rounds.get(round)
        if seen is not None:
            first[seen.decided & (first > round)] = round
            uniform = coins.uniform(everyone, round)
            mechanism = books.versions.at(round).rules.mechanism
            _, bits, *_ = client_step(costs, mechanism, state, seen.signal, uniform, averaging=rules.averaging)
            np.testing.assert_array_equal(bits[seen.decided], seen.bits[seen.decided], f"round {round}: tosses")
        later, begun = state.after((row == YES).astype(float), rules.averaging), first <= round
        state = ClientState(
            np.where(begun, later.participations, state.participations), np.where(begun, later.rounds, state.rounds)
        )
    own = fleet._devices.history.settled()
    np.testing.assert_array_equal(own.participations, state.participations, "the devices' own histories")
    np.testing.assert_array_equal(own.rounds, state.rounds, "the devices' own histories")
    return state, first


def _assert_same_export(
    location: str, books: Books, record: FleetRecord, state: ClientState, first: np.ndarray, joined_once: bool
) -> None:
    store = open_store(str(location))
    try:
        exported = export(store).state
    finally:
        store.close()
    slots = {device.token: device.slot for device in books.devices}
    mine = np.array([slots[hashed(token)] for token in record.tokens])
    joined = np.array([device.joined for device in books.devices])[mine]
    right = joined == first
    assert right.all() if joined_once else right.mean() > 0.8, (joined, first)
    np.testing.assert_array_equal(exported.participations[mine][right], state.participations[right], "as exported")
    np.testing.assert_array_equal(exported.rounds[mine][right], state.rounds[right], "as exported")
