"""Who sees what of a run, and what must hold for an account against this observer.

An account is a number *against an observer, under assumptions*. What can be checked is checked here, and an account
that would be false is refused with the reason. What turnout cannot enforce is an assumption, which is always printed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from turnout.algorithm import Averaging, Mechanism
from turnout.errors import check_kind, invalid, nearest
from turnout.problem import Costs, PolynomialCosts

if TYPE_CHECKING:
    from turnout.algorithm import SumNoise

EVERY_REPORT, SUM, NOISY_SUM = "every-report", "sum", "noisy-sum"
OBSERVERS = (EVERY_REPORT, SUM)
"""What an observer of a run without noise sees: each client's reports (as every server in turnout does), or each
round's total alone (as every device can compute from the signals). With noise on the sum: NOISY_SUM."""

ABSENT, LAST = "absent", "last"
"""How a client that does not report is counted: as not participating, or as in its last report."""

TRUSTED_AGGREGATOR = "an aggregator that you trust hides single reports (nothing in turnout does)"
NOISE_ADDED = "an aggregator that you trust adds the noise and shows nothing else (nothing in turnout does)"
OTHER_HONEST = "the other aggregator is honest, adds its noise and shows nothing else (nothing in turnout runs two)"
NOISE_ONCE = "each round's noise is drawn once, and its sum is opened once"
NOTHING_ELSE = "nothing else that is seen (settings, who is a member) depends on a client's input"
OTHERS_REPORT = "the honest others report in every round"
RELEASED_ONCE = "the cost is released once, by this mechanism, across all runs and servers"
RELEASED_FOR_EACH = "the cost is released at most once for each of these mechanisms, across all runs and servers"
PUBLIC_HISTORY = "the client's whole history is public"
PUBLIC_DESIGN = "it was designed from public costs, not from the costs that it protects"
OWN_CHANNEL = "what this mechanism releases keeps the epsilon that it states"
OWN_PROBABILITY = "this mechanism's own probability stays inside its box"
OWN_BOXES = "its box is no wider between the 2,003 averages that were checked"
OWN_BOX = "this mechanism's own box follows neither the signal nor the average"
ONE_LEDGER = "the cost is not released outside this ledger"
UNWITNESSED = "every report is in this ledger or in the device's rounds"
FIXED_NUMBER = "the number of reports did not depend on their content"
FIXED_ROUNDS = "the number of rounds did not depend on what was opened"
OWN_BIT = "each client's report depends on no other client's input, as it does in turnout's own mechanisms and costs"
UNKNOWN_SEED = "nobody knows this simulation's seed, and no other run has it"
LOST_ROUNDS = "no device has made reports in rounds that a restore lost and that this coordinator has not learned of"
LOST_RULES = "no version of the rules was lost in that restore"
SAME_MECHANISM = "the run keeps this mechanism (another may use all that the device's limits allow)"
NOT_ADAPTIVE = "the choice of mechanisms did not depend on this client's reports"


def of_costs(costs: Costs) -> tuple[str, ...]:
    """What must hold of the costs for an account of sums with noise: of one's own, one client's may follow another's.

    Example:
        >>> from turnout.problem import PolynomialCosts
        >>> of_costs(PolynomialCosts([[1.0], [2.0]], powers=(2,)))
        ()
    """
    from turnout.problem import DrawnCosts  # no device has drawn ones

    return () if type(costs) in (PolynomialCosts, DrawnCosts) else (OWN_BIT,)


@dataclass(frozen=True, eq=False)
class Observer:
    """Who sees what, and in which kind of run.

    Args:
        sees: "every-report", "sum" (each round's total alone), or "noisy-sum" (each round's total with noise).
        honest: for "sum", how many other clients certainly follow the protocol and report in every round; a number
            that the observer cannot lower. An observer who is a client is not one of them: of N clients, N - 2.
        weights: shape (clients,); None: all are 1. In a sum, a client is hidden among those of its own weight; in a
            sum with noise, the noise must hide the heaviest client.
        averaging: how histories move.
        missing: how a client that does not report is counted: "absent" or "last".
        assuming: further assumptions, each a clause; `turnout plan` adds how its settings were made.
        noise: for "noisy-sum", the noise.

    Example:
        >>> print(Observer(), "or", Observer("sum", honest=1198))
        an observer of every report or an observer of the sum alone, with 1,198 honest others
        >>> from turnout.algorithm import SumNoise
        >>> print(Observer("noisy-sum", noise=SumNoise(422.0)))
        an observer of the sums with noise (sigma 422)
    """

    sees: str = EVERY_REPORT
    honest: int | None = None
    weights: npt.ArrayLike | None = field(default=None, repr=False)
    averaging: Averaging = Averaging()  # noqa: RUF009 (frozen)
    missing: str = ABSENT
    assuming: tuple[str, ...] = ()
    noise: SumNoise | None = None

    def __post_init__(self) -> None:
        if self.sees not in (*OBSERVERS, NOISY_SUM):
            known = (*OBSERVERS, NOISY_SUM)
            remedy = "use every-report; sum only where a trusted aggregator shows the server totals alone"
            remedy = nearest(str(self.sees), known, remedy)
            raise invalid("observer", " or ".join(map(repr, known)), repr(self.sees), remedy)
        if self.missing not in (ABSENT, LAST):
            raise invalid("missing", f"{ABSENT!r} or {LAST!r}", repr(self.missing), "choose how silence is counted")
        if self.sees != SUM and self.honest is not None:
            remedy = "leave it out: nobody hides a client whose every report is seen, and noise hides it from anybody"
            raise invalid("honest", "given for an observer of the sum alone", self.honest, remedy)
        if self.sees == SUM and (self.honest is None or self.honest < 0 or self.honest != int(self.honest)):
            remedy = "give a number that the observer cannot lower"
            raise invalid("honest", "a whole number of at least 0", self.honest, remedy)
        if self.weights is not None and not np.all(np.isfinite(self.weights) & (np.asarray(self.weights) > 0)):
            raise invalid("weights", "finite and above 0", self.weights, "give the weight of each client")
        if self.weights is not None and self.honest is not None and self.honest >= np.size(self.weights):
            allowed = f"below {np.size(self.weights):,}, the number of clients"
            raise invalid("honest", allowed, self.honest, "count the others alone")
        self._check_noise()

    def _check_noise(self) -> None:
        """Refuse noise that is missing, or that hides nothing, and weights that it does not fit."""
        if (self.sees == NOISY_SUM) != (self.noise is not None):
            allowed = f"given for an observer that sees {NOISY_SUM!r}, and for no other"
            raise invalid("noise", allowed, f"{self.noise}, sees {self.sees!r}", "write noise=SumNoise(sigma=400)")
        if self.noise is not None:
            from turnout.algorithm import SumNoise  # a device has no noise on sums

            check_kind("noise", self.noise, SumNoise, "a turnout.SumNoise", "write noise=SumNoise(sigma=400)")
            if self.weights is not None and np.any(np.asarray(self.weights) % 1.0):
                raise invalid("weights", "whole numbers, as the noise is", self.weights, "count in smaller units")

    @property
    def heaviest(self) -> int:
        """The largest weight."""
        return 1 if self.weights is None else int(np.max(self.weights))

    @property
    def of_every_report(self) -> Observer:
        """One who sees more: every report, in the same kind of run."""
        return replace(self, sees=EVERY_REPORT, honest=None, noise=None)

    def __str__(self) -> str:
        if self.sees == EVERY_REPORT:
            return "an observer of every report"
        if self.sees == SUM:
            return f"an observer of the sum alone, with {self.honest:,} honest others"
        assert self.noise is not None
        if self.noise.aggregators == 1:
            return f"an observer of the sums with noise ({self.noise.words})"
        return f"either of two aggregators that each add noise to the sums ({self.noise.words})"

    def check(self, mechanism: Mechanism) -> None:
        """Refuse what would make an account of this mechanism false.

        Raises:
            ValueError: the reason, and the remedy.
        """
        if mechanism.releases_once:
            return  # an observer sees nothing but the release
        if self.sees == NOISY_SUM:
            return  # the noise hides any bit of one client, wherever it comes from
        if mechanism.needs_public_average and (self.sees == SUM or self.averaging.by == "probability"):
            raise invalid(
                f"{mechanism.kind} where averages are not public",
                "left alone: its box follows the average, so that the box itself would give it away",
                f"{self}, averaging by {self.averaging.by!r}",
                "use averaging by 'bit' against an observer of every report, or the clamp mechanism",
            )
        if self.sees == EVERY_REPORT:
            return
        if self.averaging.by != "probability":
            raise invalid(
                "averaging for an account against an observer of the sum alone",
                "by 'probability'",
                repr(self.averaging.by),
                "a history that moves by the bit carries hidden bits into later sums: set averaging by = 'probability'",
            )
        if self.missing == LAST:
            raise invalid(
                "missing for an account against an observer of the sum alone",
                repr(ABSENT),
                repr(LAST),
                "a silent client's last bit is repeated in later sums, and hides nobody: count it as absent",
            )

    def assumptions(self, mechanism: Mechanism) -> tuple[str, ...]:
        """What must hold for an account, and turnout cannot enforce."""
        if self.noise is not None:
            who = NOISE_ADDED if self.noise.aggregators == 1 else OTHER_HONEST
            designed = (PUBLIC_DESIGN,) if getattr(mechanism, "designed", False) else ()
            return tuple(dict.fromkeys([who, NOISE_ONCE, NOTHING_ELSE, *designed, *self.assuming]))
        found = [RELEASED_ONCE] if mechanism.releases_once else []
        if mechanism.needs_public_average:
            found.append(PUBLIC_HISTORY)
        if self.sees == SUM and not mechanism.releases_once:
            found += [TRUSTED_AGGREGATOR, OTHERS_REPORT]
        if getattr(mechanism, "designed", False):
            found.append(PUBLIC_DESIGN)
        return tuple(dict.fromkeys([*found, *self.assuming]))
