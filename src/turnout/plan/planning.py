"""`plan`: from a wish to a mechanism with its parameters, its server, and what to expect of it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any

from turnout.algorithm import MECHANISMS, Mechanism, Prior
from turnout.display import card, off
from turnout.errors import TurnoutError
from turnout.plan.offers import LARGEST, Maker, Offer, Outlook, largest_within, makers, outlook, smallest_within
from turnout.plan.wish import Wish
from turnout.privacy import EVERY_REPORT, PUBLIC_DESIGN, Account, shown


class Impossible(TurnoutError):
    """No mechanism can grant the wish; the message names the nearest possible one."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What to run, and what to expect.

    Attributes:
        wish: what it answers.
        mechanism: the one to use.
        start: the public prior that clients begin with.
        account: what it gives away over all rounds, against whom, and under which assumptions.
        outlook: the expected gap with its band, the turnout's spread, and the server.
        others: what the other mechanisms offered, best first, each with what speaks against it.

    Example:
        >>> from turnout import paper_population
        >>> found = plan(Wish(paper_population().problem(600), rounds=500, budget=3.0, observer="sum"))
        >>> sorted(found.settings())
        ['assuming', 'averaging', 'capacity', 'controller', 'honest', 'mechanism', 'observer', 'rounds', 'start']
    """

    wish: Wish
    mechanism: Mechanism
    start: Prior
    account: Account
    outlook: Outlook
    others: tuple[Offer, ...]

    def __repr__(self) -> str:
        return f"Plan({self.mechanism}: {self.account}; {off(self.outlook.gap)})"

    def _repr_html_(self) -> str:
        low, high = self.outlook.band
        return card(
            "Plan",
            {
                "mechanism": repr(self.mechanism),
                "privacy": repr(self.account),
                "cost": f"{off(self.outlook.gap)} (95 of 100 runs: {100 * low:.2f} to {100 * high:.2f} %)",
                "turnout": f"{self.wish.problem.capacity:g} ± {self.outlook.forecast.spread:.1f}",
                "controller": repr(self.outlook.controller),
                "start": repr(self.start),
            },
        )

    def settings(self) -> dict[str, Any]:
        """All but the population, as `turnout simulate` takes it from a TOML file."""
        controller, seen_by = self.outlook.controller, self.wish.seen_by
        told: dict[str, Any] = {"assuming": [PUBLIC_DESIGN]} if PUBLIC_DESIGN in self.account.assumptions else {}
        averaging = {}
        if seen_by.sees != EVERY_REPORT:
            told |= {"observer": seen_by.sees, "honest": seen_by.honest}
            averaging = {"averaging": {"by": seen_by.averaging.by}}
        return {
            "rounds": self.wish.rounds,
            "capacity": self.wish.problem.capacity,
            **told,
            "mechanism": self.mechanism.settings(),
            "controller": {"kind": "integral", "gain": controller.gain, "initial": controller.initial},
            "start": {"average": self.start.average, "rounds": self.start.rounds},
            **averaging,
        }


def plan(wish: Wish) -> Plan:
    """Choose the mechanism that grants a wish: the smallest gap within a budget, or the smallest total within a gap.

    Raises:
        Impossible: no mechanism can; the message names the nearest wish that can be granted.

    Example:
        >>> from turnout import paper_population
        >>> found = plan(Wish(paper_population().problem(600), rounds=500, budget=3.0, observer="sum"))
        >>> found.mechanism.kind, found.account.epsilon <= 3.0
        ('clamp', True)
    """
    maker, chosen, others = _choose(wish)
    aim = wish.gap
    for _ in range(4):  # offers are compared in the long run; a short run is further off, so that it must aim closer
        made, start, account = chosen.mechanism, chosen.start, chosen.account
        assert made is not None and start is not None and account is not None  # noqa: PT018
        found = outlook(wish.problem, made, wish.rounds, wish.averaging, start)
        if wish.gap is None or aim is None or found.gap <= wish.gap * 1.01:
            return Plan(wish, made, start, account, found, (*others, *_without_promise()))
        aim -= 1.05 * (found.gap - wish.gap)
        chosen = _answer(maker, replace(wish, gap=aim, budget=None)) if aim > 0.0 else Offer(maker.name, None)
        if chosen.mechanism is None or (wish.budget is not None and chosen.total_epsilon > wish.budget):
            break
    raise Impossible(_nearest(wish))


def _choose(wish: Wish) -> tuple[Maker, Offer, tuple[Offer, ...]]:
    """(who makes the best offer, that offer, the others with what speaks against them)."""
    offers = [(maker, _answer(maker, wish)) for maker in makers(wish)]
    good = [pair for pair in offers if pair[1].mechanism is not None and _grants(pair[1], wish)]
    if not good:
        raise Impossible(_nearest(wish))
    rank = (lambda pair: pair[1].gap) if wish.budget is not None else (lambda pair: pair[1].total_epsilon)
    maker, chosen = min(good, key=rank)
    others = sorted((offer for _, offer in offers if offer is not chosen), key=lambda o: (o.gap, o.total_epsilon))
    return maker, chosen, tuple(_against(offer, chosen, wish) for offer in others)


def _answer(maker: Maker, wish: Wish) -> Offer:
    """The best that one kind can do."""
    if maker.against_it:
        return Offer(maker.name, None, against_it=maker.against_it)
    if wish.budget is not None:
        epsilon = largest_within(maker, wish.budget)
        if epsilon is None:
            told = f"even its smallest epsilon gives away more than {shown(wish.budget)} in {wish.rounds:,} rounds"
            return Offer(maker.name, None, against_it=told)
        if not maker.is_feasible(epsilon):
            told = f"within the budget (epsilon {epsilon:.3g} per report) its coin alone misses the capacity"
            return Offer(maker.name, None, against_it=told)
        return maker.offer(epsilon)
    assert wish.gap is not None  # a wish has one of the two
    least = smallest_within(maker, wish.gap)
    if least is None:
        return Offer(maker.name, None, against_it=f"cannot come within {100 * wish.gap:.3g} % of the optimum")
    return maker.offer(least)


def _grants(offer: Offer, wish: Wish) -> bool:
    within = wish.gap is None or offer.gap <= wish.gap * (1.0 + 1e-6)
    return within and (wish.budget is None or offer.total_epsilon <= wish.budget * (1.0 + 1e-9))


def _against(offer: Offer, chosen: Offer, wish: Wish) -> Offer:
    """The same offer, with what speaks against it."""
    if offer.against_it:
        return offer
    when, than = _horizon(offer, wish), _horizon(chosen, wish)
    against = f"{_measure(chosen, wish)}{'' if than == when else f' {than}'}"
    of = "above the optimum" if wish.budget is not None else "for that gap"
    total = "" if wish.budget is not None else "total epsilon "
    told = f"{total}{_measure(offer, wish)} {of} {when}, against {against}"
    return Offer(offer.name, offer.mechanism, offer.account, offer.gap, offer.start, told)


def _measure(offer: Offer, wish: Wish) -> str:
    """What offers are compared by: the gap within a budget, or else the total epsilon."""
    return f"{100 * offer.gap:.3g} %" if wish.budget is not None else shown(offer.total_epsilon)


def _horizon(offer: Offer, wish: Wish) -> str:
    """When an offer has the gap that it is compared by."""
    assert offer.mechanism is not None  # it has a gap
    return f"after {wish.rounds:,} rounds" if offer.mechanism.needs_public_average else "in the long run"


def _without_promise() -> tuple[Offer, ...]:
    found = [made for made in MECHANISMS.values() if made.unbounded]
    return tuple(Offer(made.kind, None, against_it=f"promises nothing: {made.unbounded}") for made in found)


def _nearest(wish: Wish) -> str:
    """What is impossible, and the nearest plans that are not: the budget with a wider gap, the gap with more budget."""
    asked = "any gap" if wish.gap is None else f"a gap of {100 * wish.gap:.3g} %"
    within = "" if wish.budget is None else f" within total epsilon {shown(wish.budget)}"
    hints = []
    if wish.budget is not None and wish.gap is not None:
        with contextlib.suppress(Impossible):
            least = plan(replace(wish, gap=None)).outlook.gap
            hints.append(f"with that budget the smallest gap is {100 * least:.3g} %")
        with contextlib.suppress(Impossible):
            cheapest = plan(replace(wish, budget=None))
            hints.append(f"that gap needs total epsilon {shown(cheapest.account.epsilon)} ({cheapest.mechanism.kind})")
    elif wish.gap is not None:
        hints = _closest(wish)
    told = "; ".join(hints) or "no mechanism can bring the capacity"
    return f"{asked}{within} is impossible in {wish.rounds:,} rounds against {wish.seen_by}: {told}"


def _closest(wish: Wish) -> list[str]:
    """How close the least private offer comes, whatever the budget."""
    able = [maker for maker in makers(wish) if not maker.against_it and maker.is_feasible(LARGEST)]
    offers = [maker.offer(LARGEST) for maker in able]
    found = []
    for offer in offers:
        assert offer.mechanism is not None and offer.start is not None  # noqa: PT018
        reached = outlook(wish.problem, offer.mechanism, wish.rounds, wish.averaging, offer.start).gap
        found.append((reached, offer.name))
    if not found:
        return []
    gap, name = min(found)
    is_for_lack_of_rounds = min(offer.gap for offer in offers) < (wish.gap or 0.0)
    remedy = "plan for more rounds, or accept that gap" if is_for_lack_of_rounds else "accept that gap"
    return [f"the smallest gap planned for is {100 * gap:.3g} % ({name}): {remedy}"]
