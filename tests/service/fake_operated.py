"""Something that plays a coordinator with 1,200 devices, and a real server around its operator's view."""

import asyncio
import contextlib
import hashlib
import math
import random
import threading
import time
from dataclasses import replace

import uvicorn

from turnout.algorithm import Clamp
from turnout.privacy import PublicAccount
from turnout.service.coordinator.enrolment import Roll, check_codes
from turnout.service.coordinator.listing import code_list, device_list, one_code, site_list
from turnout.service.operator.app import operator_app
from turnout.service.operator.guard import hashed
from turnout.service.store.store import Change, Code, Device, Names

PASSWORD = "correct horse battery staple"
PASSWORD_HASH = hashed(PASSWORD)

BEGAN = 1_800_000_000.0
DEVICES = 1200
GONE = range(60, 480, 60)
SITES = ("depot north", "depot south", "hall 2")


def names_of(slot):
    """Every tenth device has no label, and those from 900 on no site."""
    return Names(f"charger {slot:04d}" if slot % 10 else "", SITES[slot % 3] if slot < 900 else "")


class FakeOperated:
    """A lively run, which may have an outage: few reports, frozen rounds.

    Args:
        rounds: that have closed.
        hard_limit: or None.
        waiting_for: devices still to enrol.
        outage: (first round, one past the last) with only 5 % of the devices.
        faults: by name.
    """

    def __init__(self, rounds=0, hard_limit=700.0, waiting_for=0, outage=(), faults=None, seed=1):
        self.hard_limit, self.waiting_for, self.outage = hard_limit, waiting_for, range(*outage) if outage else ()
        self.faults = {"late reports": 0, "full disk": 0} if faults is None else faults
        self.random = random.Random(seed)
        self.capacity, self.mode, self.signal, self.level = 600.0, "running", 0.35, 0.1
        self.left, self.changes, self.books = {}, [Change(BEGAN, "command line", "began", "run night-shift")], []
        self.version, self.opened, self.begun = 0, time.monotonic(), time.monotonic()
        self.roll = Roll()
        self.codes_made = {}
        self.roll.take(
            Device(slot, hashlib.sha256(b"%d" % slot).digest(), 1 + slot % 3, slot // 100, None, 0, names_of(slot))
            for slot in range(DEVICES)
        )
        for slot in GONE:
            self.roll.missed[slot] = 3 + slot
        for _ in range(rounds):
            self.close_round()

    # What happens to it

    def close_round(self):
        """Play one round."""
        number = len(self.books)
        is_out = number in self.outage
        heard = int(DEVICES * (0.05 if is_out else 0.985)) + self.random.randint(-8, 8)
        self.level += 0.18 * (self.capacity / DEVICES - self.level)
        wanted = max(0, round(self.random.gauss(self.level * heard, math.sqrt(max(1.0, 0.2 * heard)))))
        if self.outage and not is_out and number in range(self.outage.stop, self.outage.stop + 12):
            wanted = round(wanted * (1.32 - 0.025 * (number - self.outage.stop)))
        limit = math.inf if self.hard_limit is None else self.hard_limit
        closed = {"round": number, "signal": self.signal, "participants": int(min(wanted, limit)), "demand": wanted}
        closed |= {"capacity": self.capacity, "members": DEVICES - len(self.left), "heard": heard, "frozen": is_out}
        seconds = 15.0 if is_out else 10.0 + abs(self.random.gauss(0.2, 0.3))
        closed |= {"seconds": seconds, "closed_at": BEGAN + 10 * number}
        self.signal *= 0.985 if is_out else math.exp(0.05 * (self.capacity - wanted) / self.capacity)
        self.books.append(closed)
        self.opened = time.monotonic()
        self.tell()

    def tell(self):
        """Something changed."""
        self.version += 1

    def note(self, who, what, detail):
        self.changes.append(Change(BEGAN + 10 * len(self.books), who, what, detail))
        self.tell()

    # What the operator sees and moves

    def unready(self):
        return ""

    def snapshot(self):
        last = self.books[-1] if self.books else {"heard": 0, "frozen": False, "seconds": 0.0}
        members = DEVICES - len(self.left) if not self.waiting_for else DEVICES - self.waiting_for
        gone = members - 60 if last["frozen"] else len(self.roll.gone())
        late = 0 if self.waiting_for else 14
        public = PublicAccount(Clamp(0.01), 1e-6)
        account = {"text": public.sentence(1000), "epsilon_per_report": 0.01, "total_epsilon": 1.366, "delta": 1e-6}
        account |= {"reports": 1000, "against": public.against, "assumptions": list(public.assumptions)}
        return {
            "run": "night-shift", "round": len(self.books), "mode": self.mode, "capacity": self.capacity,
            "hard_limit": self.hard_limit, "most_signal": math.inf, "signal": self.signal, "offered": self.signal,
            "members": members, "heard": max(0, members - gone - late), "late": late, "gone": gone,
            "waiting_for": self.waiting_for, "frozen": last["frozen"],
            "open_seconds": time.monotonic() - self.opened, "round_seconds": 10.0, "deadline": 15.0,
            "leader": True, "version": "0.9", "uptime": time.monotonic() - self.begun, "account": account,
            "faults": dict(self.faults), "counters": {"reports": 1184 * len(self.books), "rounds": len(self.books)},
        }  # fmt: skip

    def recent(self, rounds):
        return self.books[-rounds:]

    async def changed(self, since):
        while self.version <= since:
            await asyncio.sleep(0.01)
        return self.version

    async def change(self, who, *, capacity=None, mode=None):
        if capacity is not None:
            if capacity > 1e6:
                raise ValueError("capacity must be at most 1000000, got more: give what the devices can reach")
            self.capacity, was = capacity, self.capacity
            self.note(who, "capacity", f"{was:g} -> {capacity:g}")
        if mode is not None:
            self.mode, was = mode, self.mode
            self.note(who, "mode", f"{was} -> {mode}")

    async def revoke(self, slot, who):
        if slot not in self.left:
            self.left[slot] = len(self.books)
            self.roll.take([replace(self.roll[slot], left=len(self.books))])
            self.note(who, "revoked", f"device {slot}")

    async def rename(self, slot, who, **names):
        self.roll.take([replace(self.roll[slot], names=replace(self.roll[slot].names, **names).checked())])
        self.note(who, "renamed", f"device {slot}")

    async def issue_codes(self, count, weight, hours, who, names):
        check_codes(count, weight, hours, [names] * count)
        self.note(who, "codes", f"{count} of weight {weight} for {hours:g} hours")
        made = [f"{self.random.getrandbits(80):020x}" for _ in range(count)]
        for code in made:
            secret = hashlib.sha256(code.encode()).digest()
            self.codes_made[secret] = Code(secret, weight, time.time() + 3600 * hours, names=names)
        return made

    async def codes(self, **asked):
        return code_list(self.codes_made.values(), time.time(), **asked)

    async def void_code(self, tag, who):
        code = one_code(list(self.codes_made.values()), tag)
        self.codes_made[code.code] = replace(code, voided_at=time.time())
        self.note(who, "voided", f"code {tag}")

    async def sites(self):
        found = site_list(self.roll)
        return {"found": len(found), "sites": found}

    async def log(self):
        return list(self.changes)

    async def devices(self, **asked):
        return {"round": len(self.books)} | device_list(self.roll, **asked)


class Served:
    """A server in a thread.

    Attributes:
        url: of its root.
        app: what it serves.
    """

    def __init__(self, operated, port=0, **options):
        self.show(operated, **options)
        config = uvicorn.Config(
            self._answer, port=port, log_config=None, access_log=False, ws="none", lifespan="off", interface="asgi3"
        )
        self.server = uvicorn.Server(config)
        self.loop = None
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive()
            time.sleep(0.005)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    async def _serve(self):
        self.loop = asyncio.get_running_loop()
        await self.server.serve()

    def show(self, operated, **options):
        """From now on it is the view of this one."""
        self.app = operator_app(operated, password_hash=PASSWORD_HASH, **options)

    async def _answer(self, scope, receive, send):
        await self.app(scope, receive, send)

    def do(self, call, *arguments):
        """Call something where the server runs."""
        done = threading.Event()
        self.loop.call_soon_threadsafe(lambda: (call(*arguments), done.set()))
        assert done.wait(5)

    def stop(self):
        """As `turnout serve` stops it."""
        if self.thread.is_alive():
            self.do(self.app.end_streams)
            self.server.should_exit = True
            self.thread.join(10)
            assert not self.thread.is_alive()


@contextlib.contextmanager
def served(operated, **options):
    """The operator's view of it on a port of this machine."""
    found = Served(operated, **options)
    try:
        yield found
    finally:
        found.stop()
