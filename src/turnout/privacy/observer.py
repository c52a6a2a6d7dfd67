"""Who sees what of a run, and what must hold for an account against this observer.

An account is a number *against an observer, under assumptions*. What can be checked is checked here, and an account
that would be false is refused with the reason. What turnout cannot enforce is an assumption, which is always printed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from turnout.algorithm import Averaging, Mechanism
from turnout.errors import invalid

EVERY_REPORT, SUM = "every-report", "sum"
OBSERVERS = (EVERY_REPORT, SUM)
"""What an observer sees: each client's reports (as every server in turnout does), or each round's total alone (as
every device can compute from the signals)."""

ABSENT, LAST = "absent", "last"
"""How a client that does not report is counted: as not participating, or as in its last report."""

TRUSTED_AGGREGATOR = "an aggregator that you trust hides single reports (nothing in turnout does)"
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
LOST_ROUNDS = "no device has made reports in rounds that a restore lost and that this coordinator has not learned of"
LOST_RULES = "no version of the rules was lost in that restore"
SAME_MECHANISM = "the run keeps this mechanism (another may use all that the device's limits allow)"
NOT_ADAPTIVE = "the choice of mechanisms did not depend on this client's reports"


@dataclass(frozen=True, eq=False)
class Observer:
    """Who sees what, and in which kind of run.

    Args:
        sees: "every-report", or "sum" (each round's total alone).
        honest: for "sum", how many other clients certainly follow the protocol and report in every round; a number
            that the observer cannot lower. An observer who is a client is not one of them: of N clients, N - 2.
        weights: for "sum", shape (clients,); None: all are equal. A client is hidden among those of its own weight.
        averaging: how histories move.
        missing: how a client that does not report is counted: "absent" or "last".
        assuming: further assumptions, each a clause; `turnout plan` adds how its settings were made.

    Example:
        >>> print(Observer(), "or", Observer("sum", honest=1198))
        an observer of every report or an observer of the sum alone, with 1,198 honest others
    """

    sees: str = EVERY_REPORT
    honest: int | None = None
    weights: npt.ArrayLike | None = field(default=None, repr=False)
    averaging: Averaging = Averaging()  # noqa: RUF009 (frozen)
    missing: str = ABSENT
    assuming: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.sees not in OBSERVERS:
            remedy = "use every-report; sum only where a trusted aggregator shows the server totals alone"
            raise invalid("observer", " or ".join(map(repr, OBSERVERS)), repr(self.sees), remedy)
        if self.missing not in (ABSENT, LAST):
            raise invalid("missing", f"{ABSENT!r} or {LAST!r}", repr(self.missing), "choose how silence is counted")
        if self.sees == EVERY_REPORT and self.honest is not None:
            remedy = "leave it out: nobody hides a client whose every report is seen"
            raise invalid("honest", "given for an observer of the sum alone", self.honest, remedy)
        if self.sees == SUM and (self.honest is None or self.honest < 0 or self.honest != int(self.honest)):
            remedy = "give a number that the observer cannot lower"
            raise invalid("honest", "a whole number of at least 0", self.honest, remedy)
        if self.weights is not None and not np.all(np.isfinite(self.weights) & (np.asarray(self.weights) > 0)):
            raise invalid("weights", "finite and above 0", self.weights, "give the weight of each client")
        if self.weights is not None and self.honest is not None and self.honest >= np.size(self.weights):
            allowed = f"below {np.size(self.weights):,}, the number of clients"
            raise invalid("honest", allowed, self.honest, "count the others alone")

    def __str__(self) -> str:
        if self.sees == EVERY_REPORT:
            return "an observer of every report"
        return f"an observer of the sum alone, with {self.honest:,} honest others"

    def check(self, mechanism: Mechanism) -> None:
        """Refuse what would make an account of this mechanism false.

        Raises:
            ValueError: the reason, and the remedy.
        """
        if mechanism.releases_once:
            return  # an observer sees nothing but the release
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
        found = [RELEASED_ONCE] if mechanism.releases_once else []
        if mechanism.needs_public_average:
            found.append(PUBLIC_HISTORY)
        if self.sees == SUM and not mechanism.releases_once:
            found += [TRUSTED_AGGREGATOR, OTHERS_REPORT]
        if getattr(mechanism, "designed", False):
            found.append(PUBLIC_DESIGN)
        return tuple(dict.fromkeys([*found, *self.assuming]))
