"""A mechanism turns intent into a probability inside a public box. It never tosses.

To add one: a frozen dataclass with three short methods, in a file of its own under
`mechanisms/`, and a line in `mechanisms/__init__.py`. `response` and `limits` are static and use
only + - * / and the functions of arithmetic.py, because every engine compiles these very functions.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from turnout.algorithm.arithmetic import inside
from turnout.errors import check_kind
from turnout.problem import Array, Clients, Costs


class Public(NamedTuple):
    """What an observer knows about a client before its report.

    Attributes:
        average: past participation, shape (clients,); None where only totals are seen.
        signal: the broadcast number.
    """

    average: Array | np.float64 | None = None
    signal: float | None = None


class Mechanism:
    """How intent becomes the probability of taking part.

    A subclass gives `parameters`, `response` and `limits`; parameters may differ by client.

    Example:
        >>> from turnout.algorithm.mechanisms.clamp import Clamp
        >>> Clamp(epsilon=1.0).probability(np.array([0.0, 0.5, 1.0]), Public()).round(3)
        array([0.269, 0.5  , 0.731])
    """

    kind: ClassVar[str]
    """The name in settings files and on the command line."""

    needs_public_average: ClassVar[bool] = False
    """Whether the box follows the average, so that the promise holds only where that is public."""

    needs_population: ClassVar[bool] = False
    """Whether clients can only join together, in a simulation, so that no real client can use it by itself."""

    releases_once: ClassVar[bool] = False
    """Whether it has an `enrol` of its own: a release at joining, on which alone the client acts from then on."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.releases_once = cls.enrol is not Mechanism.enrol
        if "kind" not in vars(cls) and hasattr(cls, "kind"):  # a name says what a mechanism does: this may do otherwise
            cls.kind = f"{cls.kind}, as {cls.__name__}"

    def parameters(self) -> tuple[Any, ...]:
        """The numbers (or arrays of shape (clients,)) that `response` and `limits` take."""
        return ()

    @staticmethod
    def response(intent: Any, average: Any, parameters: Any) -> Any:
        """The probability wanted for an intent in [0, 1], before the box."""
        raise NotImplementedError

    @staticmethod
    def limits(average: Any, parameters: Any) -> tuple[Any, Any]:
        """(low, high) of the probability, from public data and constants alone."""
        raise NotImplementedError

    def box(self, public: Public) -> tuple[Any, Any]:
        """(low, high) of the probability, given what is public."""
        low, high = self.limits(public.average, self.parameters())
        return low, high

    def probability(self, intent: npt.ArrayLike, public: Public, memory: Any = None) -> Array:
        """The probability of taking part, always inside the box; a NaN intent gives low."""
        wish = inside(0.0, np.asarray(intent, dtype=np.float64), 1.0)
        low, high = self.box(public)
        return inside(low, self.response(wish, public.average, self.parameters()), high)  # type: ignore[no-any-return]

    def enrol(self, costs: Costs, uniform: Array, weights: Any = 1, share: float | None = None) -> Costs | None:
        """A release made once at joining: the public surrogate to act on from then, or None."""
        return None

    def settings(self) -> dict[str, Any]:
        """Everything that makes this mechanism again, as `mechanism_from_settings` takes it."""
        return {"kind": self.kind} | {field.name: getattr(self, field.name) for field in self._fields()}

    def __getitem__(self, clients: Clients) -> Self:
        """The mechanism of some of the clients: parameters that differ by client are cut out."""
        if isinstance(clients, (int, np.integer)):
            clients = [clients]
        changes = {
            field.name: getattr(self, field.name)[clients]
            for field in self._fields()
            if np.ndim(getattr(self, field.name)) > 0
        }
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def _fields(self) -> tuple[dataclasses.Field[Any], ...]:
        return dataclasses.fields(self)  # type: ignore[arg-type]


def check_mechanism(mechanism: object) -> None:
    """Refuse what is no mechanism, at the entrances: a name, a class, or arguments in another order.

    Example:
        >>> check_mechanism("clamp")
        Traceback (most recent call last):
        ...
        ValueError: mechanism must be a turnout Mechanism, got 'clamp': give one such as Classical() or Clamp(1.0)
    """
    remedy = "give one such as Classical() or Clamp(1.0)"
    check_kind("mechanism", mechanism, Mechanism, "a turnout Mechanism", remedy)
