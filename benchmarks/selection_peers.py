"""What servers do today when they need C of N clients: the peers that turnout is compared with.

Each peer is `select(round) -> clients` and `told(round, clients, averages)`, what the server hears afterwards. All of
them choose exactly C clients a round. None is turnout's code: only the problem and its exact optimum are shared.
"""

import functools
from dataclasses import dataclass, field

import numpy as np

from turnout import Problem, optimum


@dataclass
class Random:
    """A server that knows that its clients exist, and chooses C of them evenly."""

    problem: Problem
    seed: int

    def __post_init__(self):
        self.random = np.random.default_rng(self.seed)
        self.clients, self.capacity = len(self.problem), int(self.problem.capacity)

    def select(self, round):
        return self.random.choice(self.clients, self.capacity, replace=False, shuffle=False)

    def told(self, round, clients, averages):
        """Nothing is reported."""


class ByDataSize(Random):
    """Sampling without replacement, in proportion to how much data a client has; costs are not asked for.

    Sizes are log-normal (sigma 1), independent of the costs: skewed, as data are in federated learning.
    """

    def __post_init__(self):
        super().__post_init__()
        sizes = self.random.lognormal(0.0, 1.0, self.clients)
        self.share = sizes / sizes.sum()

    def select(self, round):
        return self.random.choice(self.clients, self.capacity, replace=False, p=self.share)


class KnowsEveryCost(Random):
    """The exact optimum, kept exactly in every round: client i is drawn with chance x_i*, and C are drawn.

    Systematic sampling: the averages laid end to end have length C; one comb of C teeth at distance 1 is dropped on it.
    """

    def __post_init__(self):
        super().__post_init__()
        self.order = self.random.permutation(self.clients)
        average = optimum(self.problem).average[self.order]
        self.ends = np.cumsum(average) * (self.capacity / average.sum())

    def select(self, round):
        comb = self.random.random() + np.arange(self.capacity)
        return self.order[np.minimum(np.searchsorted(self.ends, comb, side="right"), self.clients - 1)]


@dataclass(frozen=True)
class OortDefaults:
    """The parameters of Oort's artifact (github.com/SymbioticLab/Oort, training/argParser.py), by its own names.

    Nobody drops out here, so its overcommitment (1.1) has nothing to make up for. Its blacklist is off, as in the
    artifact: with half of all clients needed, everyone would be on it after some twenty rounds.
    """

    exploration_factor: float = 0.9
    exploration_decay: float = 0.95
    exploration_min: float = 0.2
    sample_window: float = 5.0
    round_threshold: float = 10.0
    round_penalty: float = 2.0
    pacer_step: int = 20
    pacer_delta: float = 5.0
    clip_bound: float = 0.98
    cut_off_util: float = 0.7


SHORTEST = 1e-4
"""Oort's own guard: no duration, utility or range is smaller. (Marginal costs are 0 where a client never took part.)"""


@dataclass
class Oort(Random):
    """Oort's training selector (Lai et al., OSDI 2021): utility, exploration, a pacer, and a penalty for the slow.

    What it is told here is the marginal cost f_i'(x_i) of each participant, after the round:

    - `utility="even"`: it is the *duration*, and every client is equally useful. This is what Oort's own words give:
      the costly are its stragglers.
    - `utility="cheapness"`: besides, the *utility* is how far it lies below the largest one known. More than Oort asks
      for, and in its favour.
    - `hears="everyone"`: all clients, not the participants alone, tell their marginal cost in every round. More still.

    Oort is made to reach an accuracy in little time, not to minimise this cost.
    """

    utility: str = "even"
    hears: str = "participants"
    how: OortDefaults = field(default_factory=OortDefaults)

    def __post_init__(self):
        super().__post_init__()
        self.duration = self.problem.costs.slope(np.full(self.clients, self.capacity / self.clients))  # at registering
        self.reward = self._useful(self.duration)
        self.last, self.explored = np.zeros(self.clients), np.zeros(self.clients, bool)
        self.exploration, self.threshold = self.how.exploration_factor, self.how.round_threshold
        self.exploited, self.history = np.array([], int), []

    def _useful(self, slopes):
        if self.utility == "even":
            return np.ones_like(slopes)
        return np.maximum(self.duration.max() - slopes, SHORTEST)

    def told(self, round, clients, averages):
        heard = clients if self.hears == "participants" else slice(None)
        self.duration[heard] = np.maximum(self.problem.costs.slope(averages)[heard], SHORTEST)
        self.reward[heard] = self._useful(self.duration[heard])
        self.last[clients], self.explored[clients] = round, True

    def select(self, round):
        if round == 1:  # as in the artifact: the first participants are drawn evenly
            return super().select(round)
        self._pace(round)
        self._prefer()
        known = np.flatnonzero(self.explored)
        self.exploration = max(self.exploration * self.how.exploration_decay, self.how.exploration_min)
        if known.size == self.clients:
            self.exploration = 0.0
        wanted = min(int(self.capacity * (1.0 - self.exploration)), known.size)
        self.exploited = self._exploit(known, self._scores(known, round), wanted)
        chosen = np.concatenate([self.exploited, self._explore(self.capacity - wanted)])
        missing = self.capacity - chosen.size
        if missing == 0:
            return chosen
        rest = np.setdiff1d(np.arange(self.clients), chosen)
        return np.concatenate([chosen, self.random.choice(rest, missing, replace=False)])

    def _pace(self, round):
        """Allows longer rounds whenever the utility of those exploited has become flat."""
        self.history.append(self.reward[self.exploited].mean() if self.exploited.size else 0.0)
        step = self.how.pacer_step
        if round >= 2 * step and round % step == 0:
            before, now = sum(self.history[-2 * step : -step]), sum(self.history[-step:])
            if abs(now - before) <= 0.1 * before:
                self.threshold = min(100.0, self.threshold + self.how.pacer_delta)
            elif abs(now - before) >= 5.0 * before:
                self.threshold = max(self.how.pacer_delta, self.threshold - self.how.pacer_delta)

    def _prefer(self):
        """The duration that a round may have: a percentile of all."""
        place = min(int(self.clients * self.threshold / 100.0), self.clients - 1)
        self.preferred = np.sort(self.duration)[place] if self.threshold < 100.0 else np.inf

    def _penalty(self, clients):
        slow = self.duration[clients]
        return np.where(slow > self.preferred, (self.preferred / slow) ** self.how.round_penalty, 1.0)

    def _scores(self, known, round):
        """Utility between 0 and 1, clipped; more for those not seen for long; times the penalty of the slow."""
        rewards = np.sort(self.reward)
        clip = rewards[min(int(self.clients * self.how.clip_bound), self.clients - 1)]
        least = 0.999 * rewards[0]
        utility = (np.minimum(self.reward[known], clip) - least) / max(rewards[-1] - least, SHORTEST)
        return (utility + np.sqrt(0.1 * np.log(round) / self.last[known])) * self._penalty(known)

    def _exploit(self, known, scores, wanted):
        """Sampled by score, among those within a share of the score that just makes it."""
        order = np.argsort(-scores)
        known, scores = known[order], scores[order]
        within = scores >= self.how.cut_off_util * scores[min(wanted, known.size - 1)]
        return self.random.choice(known[within], wanted, replace=False, p=scores[within] / scores[within].sum())

    def _explore(self, wanted):
        """Sampled by first reward among the best of those never seen."""
        new = np.flatnonzero(~self.explored)
        wanted = min(wanted, new.size)
        first = self.reward[new] * self._penalty(new)
        best = np.argsort(-first)[: int(self.how.sample_window * wanted)]
        if wanted == 0:
            return new[:0]
        return self.random.choice(new[best], wanted, replace=False, p=first[best] / first[best].sum())


RANDOM, BY_SIZE, OMNISCIENT = "Random selection", "Sampling by data size", "A server that knows every cost"
OORT, OORT_CHEAP = "Oort, costs as its durations", "Oort, cheapness as its utility"
OORT_TOLD_ALL = "Oort, the same, every cost known in every round"
PEERS = {
    RANDOM: Random,
    BY_SIZE: ByDataSize,
    OORT: Oort,
    OORT_CHEAP: functools.partial(Oort, utility="cheapness"),
    OORT_TOLD_ALL: functools.partial(Oort, utility="cheapness", hears="everyone"),
    OMNISCIENT: KnowsEveryCost,
}


def run(peer, rounds):
    """(averages, participants a round) after so many rounds, shapes (clients,) and (rounds,)."""
    taken, participants = np.zeros(peer.clients), np.zeros(rounds, int)
    for round in range(1, rounds + 1):
        clients = peer.select(round)
        taken[clients] += 1.0  # once each: no client is named twice
        participants[round - 1] = clients.size
        peer.told(round, clients, taken / round)
    return taken / rounds, participants
