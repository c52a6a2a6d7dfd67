"""The members: the roll of all devices, the one-time codes, and enrolments, which share transactions."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict

import numpy as np

from turnout.algorithm import FORGIVEN
from turnout.errors import invalid
from turnout.service import HEAVIEST, LEAVING, MISSING, Codes, Log, Members, Offer, tag_of
from turnout.service.store import Change, Device, Enrolment, Names, Store, StoreProblem

GONE_AFTER = FORGIVEN + 1
"""Rounds without a report after which a device is gone: no round waits for it; it is still a member, and returns by
reporting."""

HERE, GONE, LEFT = STATES = "here", "gone", "left"
"""What a device can be: waited for, a member that is not waited for, or no member any more."""


def hashed(secret: str) -> bytes:
    """What is kept of a token, a code or a nonce: they are long and random, so that a plain SHA-256 is enough."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


class Roll:
    """All devices that ever enrolled, by slot.

    Attributes:
        slots: from a token's hash to the slot, of members alone.
        left: the hashes of the tokens of devices that are members no more.
        revision: every change up to this one has been taken; whoever knows that sets it.
        missed: rounds in a row without a report, by slot.
        few_left: the reports that are left to a device, by slot, of those that say so because they are few. Only this
            process knows them, and after a restart again with their next reports.
    """

    def __init__(self) -> None:
        self.slots: dict[bytes, int] = {}
        self.left: set[bytes] = set()
        self.revision = -1
        self.missed: list[int] = []
        self.few_left: dict[int, int] = {}
        self._told: dict[int, int] = {}
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
            else:
                self.left.add(device.token)
                self.few_left.pop(device.slot, None)
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

    def note_left(self, slot: int, left: int | None) -> bool:
        """What a device says about the reports that are left to it; None: enough. Returns whether to warn of it: at
        the first time, and when a tenth of that is left."""
        if left is None:
            if self.few_left.pop(slot, None) is not None:
                self._told.pop(slot, None)
            return False
        self.few_left[slot] = left
        if slot in self._told and left > self._told[slot] // 10:
            return False
        self._told[slot] = left if slot not in self._told else -1
        return True

    def gone(self) -> set[int]:
        """The slots of members that are not waited for."""
        return {slot for slot in self.slots.values() if self.missed[slot] >= GONE_AFTER}

    def by_site(self, slots: Iterable[int]) -> dict[str, int]:
        """How many of these devices each site has, the most first."""
        return dict(Counter(self._devices[slot].names.site or "no site" for slot in slots).most_common())


def why_left(changes: Iterable[Change]) -> dict[int, str]:
    """Why devices are no members any more, in words, by slot, from lines of the audit log.

    Example:
        >>> why_left([Change(0.0, "device", "left", "device 3: its budget of reports is spent")])
        {3: 'its budget of reports is spent'}
    """
    found: dict[int, str] = {}
    usual = {"left": "it gave no reason", "revoked": "revoked"}
    for change in changes:
        if change.what in usual and (said := re.match(r"device (\d+)", change.detail)):
            told = (words for words in LEAVING.values() if change.detail.startswith(f"{said[0]}: {words}"))
            found[int(said[1])] = next(told, usual[change.what])
    return found


log = Log("coordinator")

_Waiting = tuple[Enrolment, "asyncio.Future[tuple[Device, Offer] | None]"]


class EnrolmentQueue:
    """Enrols devices in batches: all that arrive while the last ones are written share one transaction.

    Args:
        enrol: enrols many at once, None for a code that is not good; and the round that was open then.
    """

    def __init__(self, enrol: Callable[[Sequence[Enrolment]], Awaitable[tuple[list[Device | None], Offer]]]) -> None:
        self._enrol = enrol
        self._waiting: list[_Waiting] = []
        self._arrived, self._closed = asyncio.Event(), False

    async def enrol(self, code: str, nonce: str) -> tuple[str, Device, Offer] | None:
        """A device with its new token and the round at which it joins; None if the code is not good.

        Raises:
            StoreProblem: the store failed, or the coordinator is stopping.
        """
        if self._closed:
            raise _closing()
        token = _token_of(code, nonce)
        answer: asyncio.Future[tuple[Device, Offer] | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((Enrolment(hashed(code), hashed(nonce), hashed(token)), answer))
        self._arrived.set()
        enrolled = await answer
        return None if enrolled is None else (token, *enrolled)

    async def work(self) -> None:
        """Enrol whoever waits, until cancelled; those that still wait then get an error."""
        batch: list[_Waiting] = []
        try:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                batch, self._waiting = self._waiting, []
                await self._serve(batch)
        finally:
            self._closed = True
            _answer_all([*batch, *self._waiting], _closing())

    async def _serve(self, batch: list[_Waiting]) -> None:
        try:
            found, offer = await self._enrol([enrolment for enrolment, _ in batch])
        except StoreProblem as problem:
            _answer_all(batch, problem)
            return
        for device, (_, answer) in zip(found, batch, strict=True):
            if device is not None:
                names = {name: said for name, said in asdict(device.names).items() if said and name != "note"}
                log.info("device enrolled", device=device.slot, tag=tag_of(device.token), **names, round=device.joined)
            if not answer.done():
                answer.set_result(None if device is None else (device, offer))


def _answer_all(batch: Iterable[_Waiting], problem: StoreProblem) -> None:
    for _, answer in batch:
        if not answer.done():
            answer.set_exception(problem)


def _closing() -> StoreProblem:
    return StoreProblem("the coordinator is stopping: try again")


def _token_of(code: str, nonce: str) -> str:
    """The token for this code and the device's own secret: a second request gets the same.

    A network may deliver an enrolment a second time, long after the first was answered; a new token would then
    shut the device out. Nobody else has the nonce, and the coordinator keeps nothing but hashes.

    Example:
        >>> _token_of("code", "n" * 20) == _token_of("code", "n" * 20) != _token_of("code", "m" * 20)
        True
    """
    return base64.urlsafe_b64encode(hashed(json.dumps(["turnout token", code, nonce]))).decode().rstrip("=")


CODE_LETTERS = 24
"""Each one of 31, so 118 bits: nobody guesses one, however fast the coordinator answers."""


def _new_codes(count: int) -> list[str]:
    """One-time codes, easy to read out: groups of four.

    Example:
        >>> len(_new_codes(2)[0])
        29
    """
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"  # without those that look alike
    letters = ("".join(secrets.choice(alphabet) for _ in range(CODE_LETTERS)) for _ in range(count))
    return ["-".join(code[first : first + 4] for first in range(0, CODE_LETTERS, 4)) for code in letters]


def issue_codes(
    store: Store, count: int, weight: int, hours: float, who: str, names: Sequence[Names] = ()
) -> list[str]:
    """Make new one-time codes, good for so many hours, and enter them in the store, which keeps their hashes alone.

    Args:
        store: of the run.
        count: how many.
        weight: of each device.
        hours: until they expire.
        who: for the audit log.
        names: of each device, or of none.

    Raises:
        ValueError: something is out of range, or a label is given to two codes.
        StoreProblem: the store failed.
    """
    check_codes(count, weight, hours, names)
    codes = _new_codes(count)
    store.add_codes([hashed(code) for code in codes], weight, time.time() + 3600.0 * hours, who, names)
    return codes


def check_codes(count: int, weight: int, hours: float, names: Sequence[Names] = ()) -> None:
    """Refuse what is out of range, on the page and on the command line alike.

    Raises:
        ValueError: count, weight, hours or a name are out of range, or a label is given to two codes.
    """
    labels = Counter(name.checked().label.casefold() for name in names)
    label, times = max(labels.items(), key=lambda item: bool(item[0]) * item[1], default=("", 0))
    if label and times > 1:
        remedy = "make one code, or many from a table with `turnout operate codes --from FILE`"
        raise invalid("label", "of one code alone", f"{label!r} for {times}", remedy)
    if not 1 <= count <= 100_000:
        raise invalid("count", "from 1 to 100,000", count, "make several lots")
    if not 1 <= weight <= HEAVIEST:
        allowed = f"a whole number from 1 to {HEAVIEST:,}"
        raise invalid("weight", allowed, weight, "give the weight of the device, such as its watts")
    if not 0.0 < hours < 1e6:
        raise invalid("hours", "above 0 and below a million", hours, "give how long the codes are valid, such as 24")
