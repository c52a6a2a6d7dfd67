"""`plan`: from a goal to a mechanism with its parameters, its server and its forecast."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, fields, replace
from typing import Any

from turnout.algorithm import MECHANISMS, Mechanism, Prior
from turnout.display import card, off
from turnout.errors import TurnoutError, check_kind, nearest
from turnout.plan.goal import Goal
from turnout.plan.noisy import HardLimit, NoiseMaker, all_makers, hard_limit, not_sensible
from turnout.plan.offers import LARGEST, Maker, Offer, Outlook, largest_within, smallest_within
from turnout.privacy import NOISY_SUM, PUBLIC_DESIGN, SUM, Account, shown
from turnout.problem import Problem

_NO_FORECAST = "no forecast: too much noise for this crowd"


class Impossible(TurnoutError):
    """No mechanism can reach the goal; the message names the nearest possible goal."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What to run, and its forecast.

    Attributes:
        goal: what was asked for.
        mechanism: the one to use.
        start: the public prior that clients begin with.
        account: what it gives away over all rounds, against whom, and under which assumptions.
        outlook: the expected gap with its 95 % interval, the turnout's spread, and the server.
        others: the alternatives, best first, each with the reason why it was rejected.

    Example:
        >>> from turnout import paper_population
        >>> found = plan(Goal(paper_population().problem(600), rounds=500, budget=3.0, observer="sum"))
        >>> sorted(found.settings())
        ['assuming', 'averaging', 'capacity', 'controller', 'honest', 'mechanism', 'observer', 'rounds', 'start']
    """

    goal: Goal
    mechanism: Mechanism
    start: Prior
    account: Account
    outlook: Outlook
    others: tuple[Offer, ...]

    def __repr__(self) -> str:
        return f"Plan({self.mechanism}: {self.account}; {_NO_FORECAST if self.warning else off(self.outlook.gap)})"

    def _repr_html_(self) -> str:
        low, high = self.outlook.band
        cost = f"{off(self.outlook.gap)} (95 % interval: {100 * low:.2f} to {100 * high:.2f} %)"
        return card(
            "Plan",
            {
                "mechanism": repr(self.mechanism),
                "privacy": repr(self.account),
                "cost": _NO_FORECAST if self.warning else cost,
                "turnout": f"{self.goal.problem.capacity:g} ± {self.outlook.forecast.spread:.1f}",
                "controller": repr(self.outlook.controller),
                "start": repr(self.start),
            },
        )

    @property
    def warning(self) -> str:
        """Why the noise is too much for this crowd: then the gap does not hold. Empty if it is not too much."""
        return not_sensible(self.outlook, len(self.goal.problem), self.goal.problem.capacity)

    @property
    def limit(self) -> HardLimit | None:
        """What the goal's hard limit takes; None without one, or where the plan needs no noise on the sums."""
        return hard_limit(self.goal, self.outlook)

    def settings(self) -> dict[str, Any]:
        """All but the population, as `turnout simulate` takes it from a TOML file."""
        controller, seen_by = self.outlook.controller, self.goal.seen_by
        told: dict[str, Any] = {"assuming": [PUBLIC_DESIGN]} if PUBLIC_DESIGN in self.account.assumptions else {}
        averaging = {}
        if seen_by.sees == SUM:
            told |= {"observer": seen_by.sees, "honest": seen_by.honest}
            averaging = {"averaging": {"by": seen_by.averaging.by}}
        return {
            "rounds": self.goal.rounds,
            "capacity": self.goal.problem.capacity,
            **told,
            "mechanism": self.mechanism.settings(),
            "controller": {name: value for name, value in controller.settings().items() if name != "lag"},
            "start": {"average": self.start.average, "rounds": self.start.rounds},
            **averaging,
            **({} if self.outlook.noise is None else {"noise": self.outlook.noise.settings()}),
        }


def plan(goal: Goal | Problem, **wanted: Any) -> Plan:
    """Choose the mechanism that reaches a goal: the smallest gap within a budget, or the smallest total within a gap.

    Args:
        goal: a goal; or its problem, with what else it is made of: `rounds`, `budget`, `gap`, …, as `Goal` takes them.
        wanted: those, by name.

    Raises:
        Impossible: no mechanism can; the message names the nearest possible goal.
        ValueError: it is no goal, or a setting of it is out of range.

    Example:
        >>> from turnout import paper_population
        >>> found = plan(Goal(paper_population().problem(600), rounds=500, budget=3.0, observer="sum"))
        >>> found.mechanism.kind, found.account.epsilon <= 3.0
        ('clamp', True)
        >>> plan(paper_population().problem(600), rounds=500, budget=3.0, observer="sum").mechanism == found.mechanism
        True
    """
    goal = _goal(goal, wanted)
    maker, chosen, others = _choose(goal)
    aim = goal.gap
    for _ in range(4):  # offers are compared in the long run; a short run has a larger gap: aim for a smaller one
        made, start, account = chosen.mechanism, chosen.start, chosen.account
        assert made is not None and start is not None and account is not None  # noqa: PT018
        found = maker.outlook(chosen.epsilon)
        if goal.gap is None or aim is None or found.gap <= goal.gap * 1.01:
            return Plan(goal, made, start, account, found, (*others, *_without_promise(made.kind)))
        aim -= 1.05 * (found.gap - goal.gap)
        chosen = _answer(maker, replace(goal, gap=aim, budget=None)) if aim > 0.0 else Offer(maker.name, None)
        if chosen.mechanism is None or (goal.budget is not None and chosen.total_epsilon > goal.budget):
            break
    raise Impossible(_nearest(goal))


def _goal(given: Any, wanted: dict[str, Any]) -> Goal:
    """A goal as it is, or made of its problem and its settings."""
    known = [field.name for field in fields(Goal)]
    for name in wanted:
        if name not in known:
            told = f"{name} is not a known setting of a goal (known: {', '.join(known)})"
            raise ValueError(f"{told}: {nearest(name, known, 'leave it out')}")
    if isinstance(given, Goal):
        return replace(given, **wanted)
    if isinstance(given, Problem) and "rounds" not in wanted:
        raise ValueError("rounds is missing: give the number of rounds that the deployment will last")
    check_kind(
        "goal", given, Problem, "a turnout.Goal, or a turnout.Problem", "write plan(problem, rounds=…, budget=…)"
    )
    return Goal(given, **wanted)


def _choose(goal: Goal) -> tuple[Maker, Offer, tuple[Offer, ...]]:
    """(the maker of the best offer, that offer, the others with the reason why each was rejected)."""
    offers = [(maker, _answer(maker, goal)) for maker in all_makers(goal)]
    if goal.budget is not None and goal.observer == NOISY_SUM:
        offers = _after_the_rounds(offers)
    good = [pair for pair in offers if pair[1].mechanism is not None and _reaches(pair[1], goal)]
    if not good:
        raise Impossible(_nearest(goal))
    rank = (lambda pair: pair[1].gap) if goal.budget is not None else (lambda pair: pair[1].total_epsilon)
    maker, chosen = min(good, key=rank)
    others = sorted((offer for _, offer in offers if offer is not chosen), key=lambda o: (o.gap, o.total_epsilon))
    holds = not maker.not_sensible(chosen.epsilon)
    return maker, chosen, tuple(_against(offer, chosen, goal, holds) for offer in others)


def _after_the_rounds(offers: list[tuple[Maker, Offer]]) -> list[tuple[Maker, Offer]]:
    """The same, where an offer that seems better than noise on the sums has its gap after the planned rounds.

    That of noise is for these rounds; in the long run the others' are smaller than after them.
    """
    by_noise = min((offer.gap for maker, offer in offers if isinstance(maker, NoiseMaker)), default=math.inf)
    return [
        (maker, replace(offer, gap=maker.outlook(offer.epsilon).gap, in_time=True) if offer.gap < by_noise else offer)
        for maker, offer in offers
    ]


def _answer(maker: Maker, goal: Goal) -> Offer:
    """The best offer of one mechanism."""
    if maker.against_it:
        return Offer(maker.name, None, against_it=maker.against_it)
    if goal.budget is not None:
        epsilon = largest_within(maker, goal.budget)
        if epsilon is None:
            told = f"even its smallest epsilon gives away more than {shown(goal.budget)} in {goal.rounds:,} rounds"
            return Offer(maker.name, None, against_it=told)
        unfit = maker.unfit(epsilon)
        if unfit:
            told = f"within the budget (epsilon {epsilon:.3g} per {maker.per}) {unfit}"
            return Offer(maker.name, None, against_it=told)
        return maker.offer(epsilon)
    assert goal.gap is not None  # a goal has one of the two
    least = smallest_within(maker, goal.gap)
    if least is None:
        told = maker.unfit(LARGEST) or f"cannot get within {100 * goal.gap:.3g} % of the optimum"
        return Offer(maker.name, None, against_it=told)
    return maker.offer(least)


def _reaches(offer: Offer, goal: Goal) -> bool:
    within = goal.gap is None or offer.gap <= goal.gap * (1.0 + 1e-6)
    return within and (goal.budget is None or offer.total_epsilon <= goal.budget * (1.0 + 1e-9))


def _against(offer: Offer, chosen: Offer, goal: Goal, holds: bool) -> Offer:
    """The same offer, with the reason why it was rejected; without the chosen one's number where it does not hold."""
    if offer.against_it:
        return offer
    when, than = _horizon(offer, goal), _horizon(chosen, goal)
    against = f", against {_measure(chosen, goal)}{'' if than == when else f' {than}'}" if holds else ""
    of = "above the optimum" if goal.budget is not None else "for that gap"
    total = "" if goal.budget is not None else "total epsilon "
    told = f"{total}{_measure(offer, goal)} {of} {when}{against}"
    return replace(offer, against_it=told)


def _measure(offer: Offer, goal: Goal) -> str:
    """What offers are compared by: the gap within a budget, or else the total epsilon."""
    return f"{100 * offer.gap:.3g} %" if goal.budget is not None else shown(offer.total_epsilon)


def _horizon(offer: Offer, goal: Goal) -> str:
    """When an offer has the gap that it is compared by."""
    assert offer.mechanism is not None  # it has a gap
    is_in_time = offer.in_time or offer.mechanism.needs_public_average
    return f"after {goal.rounds:,} rounds" if is_in_time else "in the long run"


def _without_promise(chosen: str) -> tuple[Offer, ...]:
    """Those that promise nothing by themselves; plain coins are chosen where noise on the sums hides them."""
    found = [made for made in MECHANISMS.values() if made.unbounded and made.kind != chosen]
    return tuple(Offer(made.kind, None, against_it=f"promises nothing: {made.unbounded}") for made in found)


def _nearest(goal: Goal) -> str:
    """What is impossible, and the nearest possible goals: this budget with a larger gap, this gap with more budget."""
    asked = "any gap" if goal.gap is None else f"a gap of {100 * goal.gap:.3g} %"
    within = "" if goal.budget is None else f" within total epsilon {shown(goal.budget)}"
    hints = []
    if goal.budget is not None and goal.gap is not None:
        with contextlib.suppress(Impossible):
            least = plan(replace(goal, gap=None)).outlook.gap
            longer = ", and smaller after more rounds" if goal.observer == NOISY_SUM else ""
            hints.append(f"with that budget the smallest gap is {100 * least:.3g} %{longer}")
        with contextlib.suppress(Impossible):
            cheapest = plan(replace(goal, budget=None))
            hints.append(f"that gap needs total epsilon {shown(cheapest.account.epsilon)} ({cheapest.mechanism.kind})")
    elif goal.gap is not None:
        hints = _closest(goal)
    told = "; ".join(hints) or "no mechanism can meet the capacity"
    return f"{asked}{within} is impossible in {goal.rounds:,} rounds against {goal.against}: {told}"


def _closest(goal: Goal) -> list[str]:
    """The smallest gap of all offers, whatever the budget."""
    able = [maker for maker in all_makers(goal) if not maker.against_it and not maker.unfit(LARGEST)]
    offers = [maker.offer(LARGEST) for maker in able]
    found = [(maker.outlook(LARGEST).gap, maker.name) for maker in able]
    if not found:
        return []
    gap, name = min(found)
    is_for_lack_of_rounds = min(offer.gap for offer in offers) < (goal.gap or 0.0)
    remedy = "plan for more rounds, or accept that gap" if is_for_lack_of_rounds else "accept that gap"
    return [f"the smallest gap planned for is {100 * gap:.3g} % ({name}): {remedy}"]
