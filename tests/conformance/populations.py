"""The cases that every engine must run alike: each option of a simulation, alone and together."""

from dataclasses import dataclass

import numpy as np

from turnout import (
    Averaging,
    Classical,
    FallingGainController,
    IntegralController,
    PaperCoin,
    PolynomialCosts,
    Prior,
    Problem,
    Schedule,
    SelfTuningController,
    SumNoise,
    paper_population,
)
from turnout.algorithm import (
    CappedCoin,
    Clamp,
    LearnedMemoized,
    Memoized,
    RandomizedResponse,
    TrackingClamp,
)
from turnout.algorithm.arithmetic import at_least
from turnout.algorithm.mechanism import Mechanism


@dataclass(frozen=True)
class Fixed(Mechanism):
    """A probability given by client, whatever the intent: what a tie is made of."""

    chance: np.ndarray
    kind = "fixed"

    def parameters(self):
        return (np.asarray(self.chance),)

    @staticmethod
    def response(intent, average, parameters):
        (chance,) = parameters
        return chance + 0.0 * intent

    @staticmethod
    def limits(average, parameters):
        return 0.0, 1.0


@dataclass(frozen=True)
class AverageBox(Mechanism):
    """A box that follows the public average, with two parameters: what later mechanisms need."""

    width: float
    floor: np.ndarray
    kind = "average-box"

    def parameters(self):
        return (self.width, self.floor)

    @staticmethod
    def response(intent, average, parameters):
        return intent

    @staticmethod
    def limits(average, parameters):
        width, floor = parameters
        return at_least(average * (1.0 - width), floor), at_least(average + (1.0 - average) * width, floor)


class OwnCosts:
    """Costs a x^2 / (2 - x): a family of one's own, of plain arithmetic."""

    def __init__(self, scale):
        self.scale = np.atleast_1d(scale)

    def __len__(self):
        return len(self.scale)

    def __getitem__(self, some):
        return OwnCosts(self.scale[some])

    def value(self, average):
        return self.scale * average * average / (2.0 - average)

    def slope(self, average):
        return self.scale * average * (4.0 - average) / ((2.0 - average) * (2.0 - average))


def mechanisms(clients):
    """Every mechanism, its parameters shared and by client."""
    return {
        "classical": Classical(),
        "paper-coin": PaperCoin(3.5),
        "paper-coin by client": PaperCoin(np.linspace(1.0, 4.0, clients)),
        "average-box": AverageBox(0.5, np.full(clients, 0.01)),
        "capped-coin": CappedCoin(1.0, 0.8),
        "randomized-response": RandomizedResponse(1.5),
        "clamp": Clamp(1.0, 0.4),
        "tracking-clamp": TrackingClamp(0.7),
        "memoized": Memoized(5.0, 9.0),
        # with a channel given: learning one takes a second of linear programmes, and engines see no difference
        "learned-memoized": LearnedMemoized(5.0, 9.0, (0.2, 0.5, 0.9), (0.02, 0.03, 0.02)),
    }


def problems(clients):
    """Families of costs, with and without weights."""
    generator = np.random.default_rng(5)
    paper = paper_population(1, clients)
    linear = PolynomialCosts(generator.uniform(0.5, 20, (clients, 2)), (1, 2))
    odd = PolynomialCosts(generator.uniform(0.5, 20, (clients, 3)), (3, 4, 9))
    return {
        "paper": paper.problem(clients / 2),
        "weighted": Problem(paper.costs, 3.0 * clients, generator.integers(1, 12, clients)),
        "linear term": Problem(linear, clients / 2),
        "odd powers": Problem(odd, clients / 2),
        "one term": Problem(PolynomialCosts(generator.uniform(1, 20, (clients, 1)), (2,)), clients / 2),
    }


def options(clients):
    """Options of `simulate`, alone and together."""
    movement = Schedule(
        join={40: slice(0, clients // 8), 41: [clients - 1]},
        leave={90: slice(clients // 4, clients // 2)},
        away=[(20, 60, slice(clients // 2, clients // 2 + clients // 8))],
        capacity={70: clients / 3},
    )
    return {
        "plain": {},
        "prior": {"start": Prior(0.4, 7.5)},
        "remember": {"averaging": Averaging(remember=30)},
        "by probability": {"averaging": Averaging(by="probability")},
        "probability itself": {"averaging": Averaging(remember=1, by="probability")},
        "movement": {"schedule": movement},
        "away": {"schedule": Schedule(away=[(5, 9, [0, 3]), (30, 31, slice(0, clients))])},
        "all": {"schedule": movement, "averaging": Averaging(50, "probability"), "start": Prior(0.6, 3)},
    }


def noisy(clients):
    """Runs with noise on the sum, by name: (problem, mechanism, controller, options of `simulate`)."""
    paper, weighted = problems(clients)["paper"], problems(clients)["weighted"]
    sigma, by_probability = clients / 20, {"averaging": Averaging(30, "probability")}
    constant, early = {"noise": SumNoise(sigma)}, {"noise": SumNoise(sigma, 20, sigma / 6)}
    both, heavy = {"noise": SumNoise(sigma, 20, sigma / 6, aggregators=2)}, {"noise": SumNoise(6 * sigma)}
    third = {"noise": SumNoise(sigma, 20, sigma / 6, every=3)}
    bounded = {"noise": SumNoise(sigma, 20, sigma / 6, aggregators=2, bound=clients // 18)}  # many are drawn again
    prior, falling = {"start": Prior(0.5, 10)}, FallingGainController(0.01, 30.0, 20)
    capacity = {60: clients / 3, 80: clients / 5}
    half = {"schedule": Schedule(leave={60: slice(0, clients // 2)}, capacity=capacity)}
    moves = options(clients)["movement"]

    def integral(problem, lag=1):
        weight = problem.most / clients
        return IntegralController(3.0 * problem.capacity / problem.most / clients / weight**2, 8.0, lag)

    return {
        "integral": (paper, PaperCoin(3.5), integral(paper), constant),
        "integral, early": (paper, PaperCoin(3.5), integral(paper), early | prior),
        "integral, lag 0": (paper, Classical(), integral(paper, 0), early),
        "integral, every third": (paper, Classical(), integral(paper), third),
        "integral, two aggregators, by probability": (paper, Clamp(1.0), integral(paper), both | by_probability),
        "integral, weights": (weighted, PaperCoin(3.5), integral(weighted), heavy),
        "integral, half leave": (paper, Classical(), integral(paper), constant | half),
        "integral, movement": (paper, PaperCoin(3.5), integral(paper), early | moves),
        "integral, very large sigma": (paper, Classical(), integral(paper), {"noise": SumNoise(2.0**15 + 1)}),
        "self-tuning": (paper, PaperCoin(3.5), SelfTuningController(), early),
        "self-tuning, weights": (weighted, Classical(), SelfTuningController(), heavy | by_probability),
        "falling-gain, early": (paper, Classical(), falling, early | prior),
        "falling-gain, every third, two aggregators": (
            paper,
            PaperCoin(3.5),
            falling,
            {"noise": SumNoise(sigma, aggregators=2, every=3)} | by_probability,
        ),
        "falling-gain, weights, half leave": (
            weighted,
            Classical(),
            falling,
            heavy | {"schedule": Schedule(leave={60: slice(0, clients // 2)}, capacity={60: 2 * clients})},
        ),
        "falling-gain, half leave": (paper, Classical(), falling, early | half | prior),
        "falling-gain, movement": (paper, PaperCoin(3.5), falling, early | moves | by_probability),
        "integral, bounded, two aggregators": (paper, Classical(), integral(paper), bounded | prior),
    }
