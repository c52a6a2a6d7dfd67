"""What somebody wants: how much privacy, how close to the optimum, against whom."""

from __future__ import annotations

import math
from dataclasses import dataclass

from turnout.algorithm.client import Averaging
from turnout.errors import invalid
from turnout.problem.problem import Problem, check_problem

ADVERSARIES = ("server", "sum")
"""server: sees every report. sum: sees only the total of each round, as every device does."""


@dataclass(frozen=True, eq=False)
class Wish:
    """What is wanted of a deployment; a budget, a gap, or both. `turnout.plan.plan.plan` grants it.

    Args:
        problem: the clients (or a guess of them) and the capacity.
        rounds: how many rounds it will run; the account covers one report a round.
        budget: the most total epsilon, over all rounds; None: as little as the gap allows.
        gap: the most cost above the optimum, as a share of it, below 1 (0.01 is one percent); None: as little as the
            budget allows.
        delta: the slack of the total (see `Account`), above 0.
        adversary: "server" (sees every report) or "sum" (sees only each round's total).
        honest: for "sum", how many others certainly follow the protocol; all others, unless given.
        guessed: whether the costs are only a guess: then nothing may rest on their price.

    Example:
        >>> from turnout import paper_population
        >>> Wish(paper_population().problem(600), rounds=1000, budget=6.0).adversary
        'server'
    """

    problem: Problem
    rounds: int
    budget: float | None = None
    gap: float | None = None
    delta: float = 1e-6
    adversary: str = "server"
    honest: int | None = None
    guessed: bool = False

    def __post_init__(self) -> None:
        check_problem(self.problem)
        if self.rounds < 10:
            raise invalid("rounds", "10 or more", self.rounds, "plan for as many as the deployment will last")
        if self.budget is None and self.gap is None:
            raise ValueError("budget or gap is missing: give a total epsilon, an acceptable cost gap, or both")
        if self.budget is not None and not (math.isfinite(self.budget) and self.budget > 0.0):
            raise invalid("budget", "a total epsilon above 0", self.budget, "values from 2 to 10 are usual")
        if self.gap is not None and not 0.0 < self.gap < 1.0:
            told = f"{self.gap:g} ({100 * self.gap:g} %)"
            raise invalid("gap", "a share above 0 and below 1", told, "0.01 is one percent: try 0.1")
        if not 0.0 < self.delta < 1.0:
            raise invalid("delta", "above 0 and below 1", self.delta, "try 1e-6")
        if self.adversary not in ADVERSARIES:
            raise invalid("adversary", "'server' or 'sum'", repr(self.adversary), "who is to learn nothing?")
        others = len(self.problem) - 1
        if self.honest is not None and (self.adversary != "sum" or not 0 <= self.honest <= others):
            allowed = f"from 0 to {others}, and only against 'sum'"
            raise invalid("honest", allowed, self.honest, "give a number that the server cannot lower")

    def __repr__(self) -> str:
        wanted = [] if self.budget is None else [f"total epsilon at most {self.budget:g}"]
        wanted += [] if self.gap is None else [f"cost at most {100 * self.gap:g} % above the optimum"]
        return f"Wish({self.problem}, {self.rounds} rounds: {', '.join(wanted)}, against {self.adversary!r})"

    @property
    def honest_others(self) -> int | None:
        """How many honest others hide a client in the sum; None where every report is seen."""
        if self.adversary == "server":
            return None
        return len(self.problem) - 1 if self.honest is None else self.honest

    @property
    def averaging(self) -> Averaging:
        """How averages move: a sum-only account needs states that remember no hidden bit."""
        return Averaging(by="bit" if self.adversary == "server" else "probability")

    @property
    def share(self) -> float:
        """The average that meets the capacity."""
        return self.problem.capacity / self.problem.most
