"""The rules of a hidden run, the same for both aggregators and all devices, and their one form in bytes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

from turnout.algorithm import Averaging, SumNoise, noise_from_settings
from turnout.errors import check_number, invalid
from turnout.prio import report_context
from turnout.privacy import LAST, least_bound
from turnout.service import Rules, check_run_name, rules_from_settings
from turnout.settings import Table


def canonical(value: Any) -> bytes:
    """The one form in bytes of what JSON holds.

    Example:
        >>> canonical({"b": 1.0, "a": [True, None]})
        b'{"a":[true,null],"b":1.0}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest_of(value: Any) -> str:
    """SHA-256 of the canonical form, in hexadecimal."""
    return hashlib.sha256(canonical(value)).hexdigest()


@dataclass(frozen=True)
class HiddenRules:
    """What holds in every round of a hidden run; both aggregators and all devices have the same.

    Args:
        run: its name.
        rules: the usual ones. Silence counts as absent, and histories move by the bit.
        capacity: the turnout that is needed, in units of weight.
        noise: that *each* aggregator adds (`aggregators=2`); None: none, for tests. A hard limit needs a bound of it.
        least: the reports without which nothing is opened; the rules' quorum holds besides.
        rounds, delta: with bounded noise, how many rounds there are at most, and the slack of a device's total over all
            of them: the bound costs a tenth of it at most.
        heaviest: with bounded noise, the largest weight that a device may have.
        keys: what the leader and the helper have committed to, the digests of their parts of the verify key.

    Example:
        >>> from turnout.algorithm import Classical, IntegralController
        >>> from turnout.service import Safety
        >>> usual = Rules(Classical(), IntegralController(0.01, 1.0), Safety("absent", hard_limit=70))
        >>> noise = SumNoise(3.0, aggregators=2, bound=20)
        >>> rules = HiddenRules("boilers", usual, 45, noise, least=20, rounds=1000, delta=1e-6)
        >>> rules.margin, HiddenRules.from_settings(rules.settings()).digest == rules.digest
        (40, True)
    """

    run: str
    rules: Rules
    capacity: float
    noise: SumNoise | None = None
    least: int = 1
    keys: tuple[str, str] = ("", "")
    rounds: int | None = None
    delta: float | None = None
    heaviest: int = 1

    def __post_init__(self) -> None:
        check_run_name(self.run)
        if self.rules.safety.missing == LAST:
            remedy = "a hidden run knows nobody's last report"
            raise invalid("safety.missing", "absent", "last", remedy)
        if self.rules.averaging.by != Averaging().by:
            raise invalid("averaging.by", "bit", self.rules.averaging.by, "the noise hides bits: use the bit")
        check_number("capacity", self.capacity, "above 0", lambda given: given > 0.0, "give what is needed")
        if self.noise is not None and (self.noise.aggregators, self.noise.every) != (2, 1):
            told = f"aggregators {self.noise.aggregators}, every {self.noise.every}"
            raise invalid("noise", "of two aggregators, in every round", told, "use SumNoise(…, aggregators=2)")
        if not isinstance(self.least, int) or self.least < 1:
            raise invalid("least", "a whole number from 1 up", repr(self.least), "fewer reports hide less")
        if self.is_bounded:
            self._check_bound()
        limit = self.rules.safety.hard_limit
        if limit is not None and self.noise is not None and self.noise.bound is None:
            raise invalid("noise.bound", "given", "None", "a hard limit needs noise that is never beyond a bound")
        if limit is not None and self.margin >= limit:
            raise invalid("hard limit", f"above the margin of {self.margin}", limit, "use less noise, or a higher one")

    def _check_bound(self) -> None:
        """What lies at the bound gives a bit away for certain: it must be rare."""
        assert self.noise is not None  # it is bounded
        if self.rounds is None or self.delta is None:
            raise invalid("rounds and delta", "given", "none", "bounded noise hides for so many rounds, up to a delta")
        least, bound = least_bound(self.noise, self.rounds, self.delta, self.heaviest), self.noise.bound
        if bound is None or bound < least:
            told = f"{least} or more over {self.rounds} rounds, at delta {self.delta:g} and weight {self.heaviest}"
            raise invalid("noise.bound", told, bound, "sigma_for(…, bounded=True) finds one for a budget")

    @property
    def is_bounded(self) -> bool:
        """Whether the noise has a bound."""
        return self.noise is not None and self.noise.bound is not None

    @property
    def margin(self) -> int:
        """What the true sum can be above the opened one."""
        return 0 if self.noise is None else self.noise.aggregators * (self.noise.bound or 0)

    def sigma(self, round: int) -> float:
        """Of the noise of one aggregator in a round."""
        return 0.0 if self.noise is None else float(self.noise.sigmas(round, round + 1)[0])

    def context(self, round: int, weight: int) -> bytes:
        """What a report of a device with this weight is for."""
        if self.is_bounded and weight > self.heaviest:
            raise invalid("weight", f"at most {self.heaviest}, the heaviest in the rules", weight, "begin another run")
        return report_context(self.run, round, bytes.fromhex(self.digest), self.sigma(round), weight)

    def settings(self) -> dict[str, Any]:
        """Everything that makes these rules again, as JSON holds it, the same for 70 and 70.0."""
        numbers = {"capacity": float(self.capacity), "delta": None if self.delta is None else float(self.delta)}
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        noise = None if self.noise is None else self.noise.settings()
        return found | {"rules": self.rules.settings(), "noise": noise, "keys": list(self.keys)} | numbers

    @classmethod
    def from_settings(cls, values: dict[str, Any]) -> Self:
        """The rules that `settings` were taken of."""
        noise = values["noise"]
        return cls(
            **values
            | {
                "rules": rules_from_settings(Table(values["rules"])),
                "noise": None if noise is None else noise_from_settings(Table(noise)),
                "keys": tuple(values["keys"]),
            }
        )

    @cached_property
    def digest(self) -> str:
        """What devices agree to."""
        return digest_of(HiddenRules.from_settings(self.settings()).settings())  # settings may have whole numbers
