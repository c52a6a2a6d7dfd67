"""What devices ask of the coordinator: to enrol, to report, and what became of a report."""

from __future__ import annotations

from turnout.service import Codes, Proposal, Welcome
from turnout.service.coordinator.closed_rounds import Answered, Replays
from turnout.service.coordinator.enrolment import EnrolmentQueue, hashed
from turnout.service.coordinator.open_round import Entry
from turnout.service.coordinator.store_sync import StoreSync
from turnout.service.store import Store


class DeviceRequests:
    """The devices' side of a coordinator, without HTTP.

    Args:
        sync: the run, as this process knows it.

    Attributes:
        enrolments: devices that wait to be enrolled.
        replays: which devices have reported rounds that a restore has lost.
    """

    def __init__(self, sync: StoreSync) -> None:
        self._sync = sync
        self.enrolments, self.replays = EnrolmentQueue(sync.enrol), Replays()

    async def slot_of(self, token: str) -> int | None:
        """The member with this token."""
        digest, slots = hashed(token), self._sync.roll.slots
        if digest not in slots:
            await self._sync.up_to_date()  # it may have enrolled elsewhere a moment ago
        return slots.get(digest)

    def has_left(self, token: str) -> bool:
        """Whether a token that no member has was one's: its device may not know yet that it has left."""
        return hashed(token) in self._sync.roll.left

    async def enrol(self, code: str, nonce: str) -> Welcome | None:
        """A new device, if its code is good: its token, and all that is public."""
        found = await self.enrolments.enrol(code, nonce)
        if found is None:
            return None
        token, device, offer = found
        rules = self._sync.versions.at(offer.round).rules
        return Welcome(
            run=self._sync.run.name,
            token=token,
            weight=device.weight,
            prior_average=rules.prior.average,
            prior_rounds=rules.prior.rounds,
            remember=rules.averaging.remember,
            by=rules.averaging.by,
            mechanism=rules.mechanism.settings(),
            offer=offer,
            round_seconds=rules.timing.round,
        )

    def proposal(self) -> Proposal:
        """The version of the rules that is in force, and the open round."""
        sync = self._sync
        return Proposal(sync.run.name, sync.rules.mechanism.settings(), sync.open.offered, sync.rules.timing.round)

    def must_update(self, slot: int, named: str) -> bool:
        """Whether a report of the open round was decided under another mechanism, by a device unaware of versions.

        Such a device names none, and goes on with the mechanism that it joined under. One that does know may send a
        stored bit again: that counts, whatever it was decided under.
        """
        sync = self._sync
        if named or len(sync.versions) == 1:
            return False
        return not sync.versions.same_mechanism(sync.roll[slot].joined, sync.open.number)

    def report(self, slot: int, participates: bool) -> Entry:
        """Enter a bit for the open round."""
        open, events = self._sync.open, self._sync.events
        entry = open.put(slot, participates)
        if entry is Entry.ACCEPTED:
            events.counters["reports"] += 1
            if open.due <= 0:
                events.wake()
        return entry

    async def answered(self, round: int) -> Answered | None:
        """A closed round to answer from; None if it is not closed."""
        found = self._sync.closed.answered(round)
        if found is None and 0 <= round < self._sync.open.number:
            codes = await self._sync.call(_codes_of, self._sync.store, round)
            found = None if codes is None else Answered(codes.tobytes(), None)
        return found


def _codes_of(store: Store, round: int) -> Codes | None:
    """What a closed round has of the devices; of one that was trimmed, what its summary has."""
    closed = store.closed(round)
    if closed is not None:
        return closed.codes
    summary = store.summary()
    return summary.of_round(round) if round < summary.first_kept else None
