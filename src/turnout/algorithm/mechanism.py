"""A mechanism turns intent into a probability inside a public box. It tosses no coin.

To add one: a frozen dataclass in a file of its own, and a line that names it (docs/add-a-mechanism.md). Certificates,
accounts, plans, audits, settings and words follow from its methods and from what is inherited here. `response` and
`limits` are static and use only + - * / and the functions of arithmetic.py, because every engine compiles these
functions.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from turnout.algorithm.arithmetic import inside
from turnout.errors import check_kind
from turnout.problem import Array, Clients, Costs
from turnout.settings import Table

if TYPE_CHECKING:
    from turnout.problem import Problem


class Public(NamedTuple):
    """What an observer knows about a client before its report.

    Attributes:
        average: past participation, shape (clients,); None where only totals are seen.
        signal: the broadcast number.
    """

    average: Array | np.float64 | None = None
    signal: float | None = None


class Planned(Protocol):
    """What `Mechanism.recipes` knows of a plan (`turnout.plan.Goal`)."""

    @property
    def problem(self) -> Problem:
        """The clients and the capacity."""
        ...

    @property
    def guessed(self) -> bool:
        """Whether the costs are only a guess."""
        ...

    @property
    def share(self) -> float:
        """The average that meets the capacity."""
        ...

    def channel(self, epsilon: float) -> tuple[Any, float]:
        """(the best `Memoized` for these costs, its expected gap)."""
        ...


class Recipe(NamedTuple):
    """One way to make a mechanism for an epsilon, for `turnout.plan`.

    Attributes:
        make: from an epsilon, per report or (where it releases once) in total. A larger one costs less.
        name: the mechanism's kind, and what distinguishes this recipe from others.
        start: average and rounds of the public prior to begin with; None: the default.
        gap: its expected gap at an epsilon, where that is known without a forecast.
        against_it: why it is shown, but never chosen; empty if it may be chosen.
    """

    make: Callable[[float], Mechanism]
    name: str
    start: tuple[float, float] | None = None
    gap: Callable[[float], float] | None = None
    against_it: str = ""


class Mechanism:
    """How intent becomes the probability of participating.

    A subclass gives `parameters`, `response` and `limits`; parameters may differ by client. A field named `epsilon` is
    what it promises, per report, or in total where it releases once. A certificate repeats it only if the box keeps it.

    Example:
        >>> from turnout.algorithm import Clamp
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

    unbounded: ClassVar[str] = ""
    """Why no report of it is bounded, in words, where none is."""

    unsaid: ClassVar[tuple[str, ...]] = ()
    """Settings that are not shown to people."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.releases_once = cls.enrol is not Mechanism.enrol
        if "kind" not in vars(cls) and hasattr(cls, "kind"):  # a subclass may do something else
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
        """The probability of participating, always inside the box; a NaN intent gives low."""
        wanted = inside(0.0, np.asarray(intent, dtype=np.float64), 1.0)
        low, high = self.box(public)
        return inside(low, self.response(wanted, public.average, self.parameters()), high)  # type: ignore[no-any-return]

    @property
    def release_epsilon(self) -> float:
        """Total epsilon of what `enrol` releases; infinite, unless it is a `OneRelease`."""
        return math.inf

    def enrol(self, costs: Costs, uniform: Array, weights: Any = 1, share: float | None = None) -> Costs | None:
        """A release made once at joining: the public surrogate to act on from then, or None."""
        return None

    def settings(self) -> dict[str, Any]:
        """Everything that makes this mechanism again, as `mechanism_from_settings` takes it."""
        return {"kind": self.kind} | {field.name: getattr(self, field.name) for field in self._fields()}

    @classmethod
    def needed(cls) -> list[str]:
        """The settings that differ from their defaults."""
        if not dataclasses.is_dataclass(cls):
            return []
        return [field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING]

    @classmethod
    def from_settings(cls, table: Table) -> Self:
        """The mechanism of a table: its parameters by name, each a number, or a list where it takes one."""
        values = {}
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            usual = {} if field.default is dataclasses.MISSING else {"default": field.default}
            kinds: Any = bool if field.type in (bool, "bool") else (int, float, list, tuple, np.ndarray)
            what = "true or false" if kinds is bool else "a number (or a list, where it takes one)"
            value = table.take(field.name, kinds, what, **usual)
            values[field.name] = np.array(value, dtype=np.float64) if isinstance(value, list) else value
        table.finish()
        return cls(**values)

    def in_words(self) -> str:
        """Its settings for people: its name and its numbers, and what an epsilon is for."""
        return self.describe(self.settings())

    @classmethod
    def describe(cls, settings: Mapping[str, Any]) -> str:
        """Settings of such a mechanism for people."""
        told = [str(settings["kind"])]
        for name, value in settings.items():
            if name != "kind" and name not in cls.unsaid and np.size(value):
                told.append(_setting(name, value, cls.releases_once))
        return ", ".join(told)

    @classmethod
    def recipes(cls, given: Planned) -> Iterable[Recipe]:
        """The recipes for a plan. By default one, for a mechanism that needs an epsilon and nothing else."""
        return [Recipe(cls, cls.kind)] if cls.needed() == ["epsilon"] else []

    def released_words(self, costs: Costs) -> Mapping[str, npt.NDArray[np.int64]]:
        """Of the 2^53 words of the coin, how many release each thing, exactly, by client; empty: that is not known.

        Where it is known, an audit counts them instead of making trials.
        """
        return {}

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


def widest(mechanism: Mechanism) -> tuple[Any, Any]:
    """(least, most) probability of a client at any signal; a box that follows the average moves with it.

    Example:
        >>> from turnout.algorithm import Clamp
        >>> [round(chance, 3) for chance in widest(Clamp(epsilon=1.0))]
        [0.269, 0.731]
    """
    averages = (1e-9, 0.5, 1.0 - 1e-9) if mechanism.needs_public_average else (0.5,)
    boxes = [mechanism.box(Public(average=np.float64(average))) for average in averages]
    lows, highs = zip(*boxes, strict=True)
    return reduce(np.minimum, lows), reduce(np.maximum, highs)


def _setting(name: str, value: Any, once: bool) -> str:
    """One setting for people; of a list, how long it is."""
    if np.ndim(value):
        return f"{len(value)} {name}" if name.endswith("s") else f"{name} of {len(value)} clients"
    said = value if isinstance(value, str) else f"{value:.4g}"
    if name == "epsilon" and float(said) < value:  # never shown smaller than it is
        said = repr(float(value))
    if name == "epsilon":
        return f"total epsilon {said}" if once else f"epsilon {said} per report"
    return f"{name} {said}"


def check_mechanism(mechanism: object) -> None:
    """Refuse anything but a mechanism: a name, a class, or arguments in another order.

    Example:
        >>> check_mechanism("clamp")
        Traceback (most recent call last):
        ...
        ValueError: mechanism must be a turnout Mechanism, got 'clamp': give one such as Classical() or Clamp(1.0)
    """
    remedy = "give one such as Classical() or Clamp(1.0)"
    check_kind("mechanism", mechanism, Mechanism, "a turnout Mechanism", remedy)
