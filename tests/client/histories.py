"""Random lives of one private cost: joins, prices, limits, mechanisms, restores and crashes, and what they gave away.

The truth is kept beside the product: every report that left a client, every level that a client ever acted on. What the
product shows is compared with the exact composition of that. Three ways in: the durable client, the agent, and the
state of a Flower client.
"""

import math
import os
import random
import shutil
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from client.faults import Crash, CrashingDisk
from service.fake_coordinator import DirectWire, FakeCoordinator
from turnout.algorithm import Clamp, Memoized, PaperCoin, Prior
from turnout.client import store
from turnout.client.durable import DATUM, DurableClient, Seams, Stopped, StoreRolledBack, Terms, account_for_all
from turnout.client.ledger import BudgetSpent, Ledger, LedgerRolledBack
from turnout.client.limit import Limit
from turnout.client.owner import Owner
from turnout.client.store import RoundLost, RoundPassed
from turnout.errors import FileProblem
from turnout.files import Disk
from turnout.flower import Question, client_state, mechanism_text
from turnout.problem import PolynomialCosts
from turnout.service.agent import Agent, AgentProblem, AgentSeams, Declined, Revoked, ledger_facts

DELTA = 1e-6
EPSILONS = (0.25, 0.5, 1.0)
RELEASED = 2.0
PARTS = ("ledger", "witness", "rounds")
WAYS = ("durable", "agent", "flower")
RAISED = Limit(1000, 1.0, epsilon_per_release=RELEASED)


class Unsynced(Disk):
    """Power cuts are tested elsewhere."""

    def sync(self, descriptor):
        pass


class Falsehood(AssertionError):
    """The product has shown or kept a promise that is false."""


class Life:
    """One private cost, its files, and the truth about it."""

    def __init__(self, seed, home):
        self.chance, self.home = random.Random(seed), Path(home)
        self.ledger, self.witness = self.home / "ledger.jsonl", self.home / "elsewhere" / "witness"
        self.device = self.home / "device"
        self.device.mkdir()
        self.limit, self.consents, self.cost = RAISED, 1, 3.0
        self.reports = {}  # (run, round): epsilon
        self.bits = {}  # (run, round): bit
        self.levels = {}  # what was ever acted on: epsilon
        self.tosses, self.drawn = {}, {}
        self.at_risk = self.chance.sample(PARTS, 2)
        self.intact = True  # no file was ever lost or restored: then nothing may be refused
        self.copies, self.rounds = [], {}
        self.told = []
        self.take_copy(self.newest)

    def live(self, steps):
        for _ in range(steps):
            act = self.chance.choices(
                (self.join, self.copy, self.restore, self.lose, self.change_limit, self.change_cost),
                (8, 3, 2, 1, 1, 2),
            )[0]
            self.told.append(act.__name__)
            act()
            self.look()

    # What happens

    def join(self):
        run = f"run-{self.chance.randrange(3)}"
        mechanism = self.chance.choices(
            (
                Clamp(self.chance.choice(EPSILONS)),
                Memoized(RELEASED, self.chance.choice((8.0, 8.000001, 12.0))),
                Memoized(self.chance.choice((RELEASED / 2, 3 * RELEASED)), 8.0),
                Clamp(30.0),
                PaperCoin(3.5),
            ),
            (8, 5, 2, 1, 1),
        )[0]
        way = getattr(self, self.chance.choice(WAYS))
        accepts = self.accepts = self.chance.random() < 0.1
        crashes = self.chance.random() < 0.25
        disk = CrashingDisk(self.chance.randrange(1, 40)) if crashes else Unsynced()
        for spend_missing in (False, True):
            try:
                with suppress(Crash, BudgetSpent, Declined, ValueError):
                    way(run, mechanism, accepts, disk, spend_missing)
                self.take_copy(self.newest)
                return
            except (LedgerRolledBack, StoreRolledBack) as refused:
                if self.intact:
                    raise Falsehood(f"refused, though its files are in order: {refused}: {self.told}") from refused
                if spend_missing or self.chance.random() < 0.4:  # the owner finds the newest files after all
                    self.put_back(self.newest, PARTS)
                    return

    def durable(self, run, mechanism, accepts, disk, spend_missing):
        with ExitStack() as stack:
            ledger = stack.enter_context(self.open(accepts, spend_missing, disk))
            account_for_all(ledger, self.device)
            (self.device / run).mkdir(exist_ok=True)
            client = stack.enter_context(
                DurableClient(
                    self.device / run,
                    self.costs,
                    mechanism,
                    ledger=ledger,
                    terms=Terms(run, Prior(0.5)),
                    after_stop=self.chance.choice(("leave", "follow")),
                    seams=Seams(disk=disk),
                )
            )
            for round in self.next_rounds(run):
                with suppress(RoundLost, RoundPassed, Stopped):
                    self.report(run, round, client.decide(round, self.signal(run, round)))

    def agent(self, run, mechanism, accepts, disk, spend_missing):
        rounds = self.next_rounds(run)
        coordinator = FakeCoordinator(
            run=run, signal=lambda round: self.signal(run, round), mechanism=_plain(mechanism), code=run
        )
        coordinator.open = rounds[0]
        seams = AgentSeams(disk=disk, sleep=lambda seconds: _close(coordinator))
        options = {"wire": DirectWire(coordinator), "code": run, "seams": seams}
        owner = self.owner(accepts, spend_missing)
        agent = Agent("http://coordinator.example", self.device, self.cost, owner=owner, **options)
        try:
            agent.join()
            for _ in rounds:
                with suppress(AgentProblem, Revoked):  # revoked: it had left, with its budget spent
                    agent.step()
                for round, (bit, _) in coordinator.books.items():
                    self.report(run, round, bit)
            if agent.at_most(DELTA).epsilon < agent.account(DELTA).epsilon:
                raise Falsehood("at most less than already spent")
        finally:
            agent.close()

    def flower(self, run, mechanism, accepts, disk, spend_missing):
        client_state._COMPARED.clear()  # a process of its own
        if spend_missing:  # a Flower client has no such word: its owner opens the ledger with it once
            with self.open(accepts, True, Unsynced()) as ledger:
                account_for_all(ledger, self.device)
        state = client_state.StateDirectory(self.device)
        for round in self.next_rounds(run):
            question = Question("ask", round, self.signal(run, round), mechanism_text(mechanism), 0.5, 10.0)
            with suppress(RoundLost, RoundPassed, Stopped):
                bit = state.decide(question, run, self.costs, mechanism, self.owner(accepts))
                self.report(run, round, bit)

    def owner(self, accepts, spend_missing=False):
        return Owner(self.limit, True, accepts, spend_missing, ledger=self.ledger, witness=self.witness)

    def copy(self):
        folder = self.home / "copies" / str(len(self.copies))
        self.take_copy(folder)
        self.copies.append(folder)

    def restore(self):
        """Some of the files as they were."""
        if self.copies:
            self.intact = False
            for part in self.some_parts():  # each as old as it happens to be
                self.put_back(self.chance.choice(self.copies), [part])

    def some_parts(self):
        """One part of the three is never lost in a life: where all are, nothing could notice."""
        return self.chance.sample(self.at_risk, self.chance.choice((1, 1, 2)))

    def lose(self):
        self.intact = False
        for part in self.some_parts():
            if part == "rounds":
                shutil.rmtree(self.device)
                self.device.mkdir()
            else:
                getattr(self, part).unlink(missing_ok=True)

    def change_limit(self):
        """Lower, or higher with consent; sometimes a further release."""
        releases = self.limit.releases + (self.chance.random() < 0.3)
        self.consents = max(self.consents, releases)
        epsilon = self.chance.choice((0.5, 1.0))
        self.limit = Limit(self.chance.choice((6, 1000)), epsilon, releases, RELEASED)

    def change_cost(self):
        self.cost = self.chance.choice((0.5, 3.0, 20.0))

    # What is true, and what is shown

    def report(self, run, round, bit):
        """A bit that has left the client: what it was tossed from, at that time, is what was given away."""
        if self.bits.get((run, round), bit) != bit:
            raise Falsehood(f"another bit for round {round} of {run}: {self.told}")
        if (run, round) not in self.tosses:
            return  # it followed public data, after the stop
        mechanism, level = self.tosses[run, round]
        if level is None:
            self.bits[run, round] = bit  # of what is public or released, another bit tells nothing
            self.reports[run, round] = epsilon_of(mechanism)
            return
        self.levels.setdefault(level, self.drawn[level])
        if len(self.levels) > self.consents:
            raise Falsehood(f"released {len(self.levels)} times, agreed to {self.consents}: {self.told}")

    def watch(self, patch):
        """Note every toss and every draw of a level as it is made, whoever makes it."""
        toss, draw = DurableClient._toss, DurableClient._draw_release

        def noted(client, round, signal, state):
            level = None if client._memory is None else str(client._memory.coefficients[0].tolist())
            self.tosses[client._terms.run, round] = (client._mechanism, level)
            epsilon = epsilon_of(client._mechanism)
            allowed = math.inf if math.isinf(epsilon) and self.accepts else self.limit.epsilon_per_report
            if level is None and epsilon > allowed:
                raise Falsehood(f"a report of {epsilon} where its owner allows {allowed}: {self.told}")
            return toss(client, round, signal, state)

        def drawn(client, settings, costs):
            found = draw(client, settings, costs)
            if client._mechanism.epsilon > RELEASED:
                raise Falsehood(f"a release of {client._mechanism.epsilon} where its owner allows {RELEASED}")
            self.drawn[str(found["coefficients"])] = client._mechanism.epsilon
            return found

        patch.setattr(store, "LINES", 9)  # so that files are tidied, too
        patch.setattr(store, "KEPT", 3)
        patch.setattr(DurableClient, "_toss", noted)
        patch.setattr(DurableClient, "_draw_release", drawn)

    def look(self):
        """What an owner is shown, against the exact composition of what was given away."""
        try:
            with self.open(False, False, Unsynced()) as ledger:
                account_for_all(ledger, self.device)
                shown, words = ledger.account(DELTA), repr(ledger)
                pure = ledger.account(0.0).epsilon
                epsilon_per_report = ledger.limit.epsilon_per_report
        except (LedgerRolledBack, FileProblem, ValueError) as refused:
            if self.intact:
                raise Falsehood(f"refused, though its files are in order: {refused}: {self.told}") from refused
            return  # refused: nothing is shown
        if epsilon_per_report > 1.0:
            raise Falsehood(f"a limit of {epsilon_per_report} that nobody has set: {self.told}")
        if ledger_facts(self.ledger)["account"] != repr(shown) or repr(shown) not in words:
            raise Falsehood(f"two totals for one ledger: {self.told}")
        reports, releases = list(self.reports.values()), list(self.levels.values())
        if pure < (math.fsum(reports) + math.fsum(releases)) * (1.0 - 1e-12):
            raise Falsehood(f"shown {pure} pure, given away {sorted(reports)} and {releases}: {self.told}")
        left = shown.epsilon - math.fsum(releases)
        if math.isfinite(shown.epsilon) and exact_delta(reports, left) > DELTA * (1.0 + 1e-6):
            raise Falsehood(f"shown {shown} for {sorted(reports)} and {releases}: {self.told}")

    # Files

    @property
    def costs(self):
        return PolynomialCosts([[self.cost]], powers=(2,))

    @property
    def newest(self):
        return self.home / "newest"

    def open(self, accepts, spend_missing, disk):
        options = {"witness": self.witness, "spend_missing": spend_missing, "disk": disk}
        return Ledger.open(
            self.ledger, datum=DATUM, limit=self.limit, consent=True, accept_uncertified=accepts, **options
        )

    def next_rounds(self, run):
        """Two or three more, sometimes from a round that was asked for before."""
        first = self.rounds.get(run, 0) - (self.chance.random() < 0.3) * self.chance.randrange(3)
        rounds = range(max(0, first), max(0, first) + self.chance.randrange(2, 4))
        self.rounds[run] = max(self.rounds.get(run, 0), rounds.stop)
        return rounds

    def signal(self, run, round):
        return (0.5, 2.0, 40.0)[(round + len(run)) % 3]

    def take_copy(self, folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for part in ("ledger", "witness"):
            if getattr(self, part).exists():
                shutil.copy(getattr(self, part), folder / part)
        shutil.copytree(self.device, folder / "rounds")

    def put_back(self, folder, parts):
        for part in parts:
            if part == "rounds":
                shutil.rmtree(self.device)
                shutil.copytree(folder / "rounds", self.device)
            elif not (folder / part).exists():
                getattr(self, part).unlink(missing_ok=True)
            else:
                getattr(self, part).parent.mkdir(exist_ok=True)
                shutil.copy(folder / part, getattr(self, part))


def exact_delta(epsilons, total):
    """The least delta at a total epsilon of randomized responses with these epsilons, exactly, by enumeration."""
    losses = {0.0: 1.0}
    for epsilon in epsilons:
        right, after = 1.0 / (1.0 + math.exp(-epsilon)), {}
        for loss, mass in losses.items():
            for step, chance in ((epsilon, right), (-epsilon, 1.0 - right)):
                key = round(loss + step, 9)
                after[key] = after.get(key, 0.0) + mass * chance
        losses = after
    return math.fsum(mass * max(0.0, -math.expm1(total - loss)) for loss, mass in losses.items() if loss > total)


def epsilon_of(mechanism):
    return math.inf if isinstance(mechanism, PaperCoin) else mechanism.epsilon


def _plain(mechanism):
    found = mechanism.settings()
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def _close(coordinator):
    """A round that the device has lost, or has had before, closes without it."""
    coordinator.open += 1


def lives(seeds, steps=9):
    """Live them all; raises `Falsehood` at the first that shows or keeps a false promise."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    shown = 0
    for seed in seeds:
        with tempfile.TemporaryDirectory(dir=place) as home:
            life = Life(seed, home)
            with pytest.MonkeyPatch.context() as patch:
                life.watch(patch)
                life.live(steps)
            shown += len(life.reports) + len(life.levels)
    return shown
