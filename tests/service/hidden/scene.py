"""Two aggregators and some devices in one process, for the tests of hidden runs."""

from pathlib import Path

import numpy as np

from turnout.algorithm import Classical, IntegralController, Prior, SeededCoins, SumNoise
from turnout.client import Ledger, Limit, Seams
from turnout.files import Disk
from turnout.prio import split
from turnout.service import Rules, Safety
from turnout.service.hidden import Books, Helper, HiddenDevice, HiddenRules, Leader, RoundWitness, settled
from turnout.service.hidden.messages import DeviceReport

RUN = "boilers"


class Memory(Disk):
    """A disk without waiting: these tests stop programs, not machines."""

    def sync(self, descriptor):
        pass

    def put(self, path, data):
        path.write_bytes(data)


def seeded_noise(noise, seed):
    """The draws of both aggregators whose sum is what a simulation adds."""
    if noise is None:
        return lambda round, sigma: 0, lambda round, sigma: 0
    first = SumNoise(noise.sigma, noise.early, noise.early_sigma, bound=noise.bound)

    def leader(round, sigma):
        return int(first.seeded(seed, round, round + 1)[0])

    def helper(round, sigma):
        return int(noise.seeded(seed, round, round + 1)[0]) - leader(round, sigma)

    return leader, helper


def usual(hard_limit=None, mechanism=None, controller=None, quorum=0.5):
    controller = controller or IntegralController(0.01, 1.0)
    return Rules(mechanism or Classical(), controller, Safety("absent", hard_limit, quorum), prior=Prior(0.5))


def no_noise(round, sigma):
    return 0


class Pair:
    """Leader and helper with books of their own.

    Args:
        folder: for their witnesses, and their books if they are `on_disk`.
        weights: of the members, by slot.
        draws: of both.
        options: of `HiddenRules`.
    """

    def __init__(self, folder, weights, draws=(no_noise, no_noise), on_disk=False, **options):
        self.folder, self.draws = Path(folder), draws
        self.places = [self.folder / f"{role}.sqlite" if on_disk else ":memory:" for role in ("leader", "helper")]
        self.books = [Books(place) for place in self.places]
        options = {"run": RUN, "rules": usual(), "capacity": 2} | options
        self.rules = HiddenRules(**options, keys=tuple(books.key for books in self.books))
        self.leader, self.helper = self.open()
        for books in self.books:
            books.enrol((slot, weight, 0) for slot, weight in enumerate(weights))

    def open(self):
        made = []
        for kind, books, draw in zip((Leader, Helper), self.books, self.draws, strict=True):
            witness = RoundWitness(self.folder / f"{kind.role}.witness", new=True, disk=Memory())
            made.append(kind(self.rules, books, witness, draw))
        return made

    @property
    def sides(self):
        return self.leader, self.helper

    def close(self):
        self.leader.close()
        return settled(self.leader, self.helper)

    def bits(self, bits, round=None, **options):
        """Reports with these bits by slot, to both; None: no report."""
        for slot, bit in enumerate(bits):
            if bit is not None:
                for side, body in zip(self.sides, self.report(slot, bit, round, **options), strict=True):
                    side.report([(slot, body)])

    def report(self, slot, bit, round=None, weight=None, made=None):
        round = self.leader.round if round is None else round
        if made is None:
            weight = int(self.books[0].members(round).weight[slot]) if weight is None else weight
            made = split(bit, self.rules.context(round, weight))
        return [DeviceReport(RUN, round, made.nonce, share).body() for share in (made.leader, made.helper)]


def open_device(folder, problem, rules, client, seed, **options):
    folder.mkdir(exist_ok=True)
    options = {"joined": 0, "weight": int(np.broadcast_to(problem.unit_weights, len(problem))[client])} | options
    ledger = Ledger.open(
        folder / "ledger.jsonl",
        datum="cost",
        limit=Limit(1000, 8.0),
        accept_uncertified=True,
        witness=folder / "witness",
        disk=Memory(),
    )
    seams = Seams(SeededCoins(seed), client, Memory())
    return HiddenDevice(folder, problem.costs[client], rules, ledger=ledger, seams=seams, **options)


def a_round(pair, devices):
    """All devices report, the round closes, and all go on; who acts."""
    for slot, device in enumerate(devices):
        sent = device.report()
        assert [side.report([(slot, body)]) for side, body in zip(pair.sides, sent, strict=True)] == [[""], [""]]
    pair.close()
    return [went_on(pair, slot, device) for slot, device in enumerate(devices)]


def went_on(pair, slot, device):
    after = device.record.round
    counted = tuple(side.is_counted(slot, after + 1) for side in pair.sides)
    return device.take(pair.leader.records(after), pair.helper.records(after), counted)
