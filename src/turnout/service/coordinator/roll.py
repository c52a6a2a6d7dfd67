"""The roll of devices, as a coordinator has it in memory: who has which token, and who is here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from turnout.service.rounds import MISSING, Codes, Members
from turnout.service.stores.store import Device

GONE_AFTER = 3
"""Rounds without a report after which a device is not waited for; it is still a member, and comes back by reporting."""

HERE, GONE, LEFT = STATES = "here", "gone", "left"
"""What a device can be: waited for, a member that is not waited for, or no member any more."""


def hashed(secret: str) -> bytes:
    """What is kept of a token, a code or a nonce: they are long and random, so that a plain SHA-256 is enough."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


class Roll:
    """All devices that ever enrolled, by slot.

    Attributes:
        slots: from a token's hash to the slot, of members alone.
        revision: every change up to this one has been taken; whoever knows that sets it.
        missed: rounds in a row without a report, by slot.
    """

    def __init__(self) -> None:
        self.slots: dict[bytes, int] = {}
        self.revision = -1
        self.missed: list[int] = []
        self._devices: list[Device] = []
        self._members: Members | None = None

    def __len__(self) -> int:
        return len(self._devices)

    def __getitem__(self, slot: int) -> Device:
        return self._devices[slot]

    def take(self, devices: Iterable[Device]) -> None:
        """Enter new and changed devices, by ascending slot."""
        for device in devices:
            if device.slot == len(self._devices):
                self._devices.append(device)
                self.missed.append(0)
            else:
                self.slots.pop(self._devices[device.slot].token, None)
                self._devices[device.slot] = device
            if device.left is None:
                self.slots[device.token] = device.slot
            self._members = None

    def members(self) -> Members:
        """The members by slot, as a round is closed with."""
        if self._members is None:
            self._members = Members(
                np.array([device.weight for device in self._devices], dtype=np.int64),
                np.array([device.joined for device in self._devices], dtype=np.int64),
                np.array([device.left is None for device in self._devices], dtype=np.bool_),
            )
        return self._members

    def is_awaited(self, slot: int) -> bool:
        """Whether a round waits for it: a member that has reported lately."""
        return self._devices[slot].left is None and self.missed[slot] < GONE_AFTER

    def state(self, slot: int) -> str:
        """One of `STATES`."""
        if self.is_awaited(slot):
            return HERE
        return GONE if self._devices[slot].left is None else LEFT

    def note(self, codes: Codes) -> None:
        """Who was heard in a round that has closed."""
        heard = (codes != MISSING).tolist()
        heard += [True] * (len(self.missed) - len(heard))  # joined since: nothing missed yet
        self.missed = [0 if here else count + 1 for here, count in zip(heard, self.missed, strict=True)]

    def gone(self) -> int:
        """Members that are not waited for."""
        return sum(
            device.left is None and missed >= GONE_AFTER
            for device, missed in zip(self._devices, self.missed, strict=True)
        )
