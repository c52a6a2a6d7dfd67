"""Errors, and the form of their messages.

Every message names the thing, what is allowed, what was given, and the remedy.

    ValueError            an argument is out of range
    TurnoutError          something failed at run time
    ├── FileProblem       a file is missing, truncated, of another kind, or cannot be written
    ├── MissingExtra      an optional library is not installed
    ├── BudgetSpent, LedgerRolledBack, InUse          a client's ledger (turnout.client.ledger, .journal)
    ├── RoundLost, RoundPassed, Conflict, Stopped, StoreRolledBack    a durable client (turnout.client)
    ├── NotReplayable     a saved run cannot be made again (turnout.attack.reports)
    ├── ReporterProblem   a reporter under audit fails (turnout.audit.reporters)
    ├── Impossible        a goal that nothing can reach (turnout.plan)
    ├── ShardLost, ClusterTrouble                     a cluster (turnout.simulation.engines.ray.cluster)
    ├── StoreProblem, NotBegun, OutOfStep, StaleRound    a coordinator's store (turnout.service.store.store)
    ├── ProtocolProblem, Unreachable                  a device and its coordinator (turnout.service)
    ├── PeerProblem       the aggregators of a hidden run (turnout.service.hidden)
    ├── Revoked, RefusedByCoordinator, Declined, AgentProblem, NoCost, CommandFailed    an agent (turnout.service.agent)
    └── Refused, StillWaiting                         a Flower client or server (turnout.flower)
    Interrupted, AuditInterrupted     Ctrl-C (a KeyboardInterrupt that carries what was done so far)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any


class TurnoutError(Exception):
    """The root of all run-time failures of this package.

    Example:
        >>> issubclass(FileProblem, TurnoutError)
        True
    """


class FileProblem(TurnoutError):
    """A file is missing, truncated, of another kind, or cannot be written.

    Example:
        >>> str(FileProblem("run.npz: no such file"))
        'run.npz: no such file'
    """


class MissingExtra(TurnoutError, ImportError):
    """An optional library is needed and not installed; the message names the extra to install.

    Args:
        feature: what the user asked for, e.g. `engine="numba"`.
        library: the module that could not be imported.
        extra: the extra of this package that installs it.

    Example:
        >>> str(MissingExtra("engine='numba'", library="numba", extra="lab"))
        "engine='numba' needs numba, which is not installed: pip install 'turnout[lab]'"
    """

    def __init__(self, feature: str, *, library: str, extra: str) -> None:
        super().__init__(f"{feature} needs {library}, which is not installed: pip install 'turnout[{extra}]'")


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a simulation. The finished rounds are not lost: see `trajectory`.

    Attributes:
        trajectory: the `Trajectory` of the rounds that were finished.
    """

    def __init__(self, trajectory: Any) -> None:
        super().__init__(f"interrupted after {trajectory.rounds} rounds")
        self.trajectory = trajectory


def invalid(name: str, allowed: str, got: object, remedy: str) -> ValueError:
    """An argument error in the usual form: name, allowed range, what was given, remedy.

    Example:
        >>> str(invalid("gain", "above 0", -1, "give a small positive number, such as 0.0075"))
        'gain must be above 0, got -1: give a small positive number, such as 0.0075'
    """
    return ValueError(f"{name} must be {allowed}, got {got}: {remedy}")


def nearest(word: str, known: Iterable[str], otherwise: str) -> str:
    """The remedy for a name that is not known: the nearest one that is, or else another remedy.

    Example:
        >>> nearest("clmap", ["clamp", "classical"], "use one of these")
        "did you mean 'clamp'?"
    """
    import difflib  # only where something is wrong

    near = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


def check_number(name: str, value: Any, allowed: str, fits: Callable[[float], bool], remedy: str) -> None:
    """Refuse anything but one finite number in its range; a text, a list and True are refused.

    Example:
        >>> check_number("cap", 0.5, "above 0 and below 1", lambda cap: 0 < cap < 1, "try 0.8")
        >>> check_number("cap", "0.5", "above 0 and below 1", lambda cap: 0 < cap < 1, "try 0.8")
        Traceback (most recent call last):
        ...
        ValueError: cap must be one number above 0 and below 1, got '0.5': try 0.8
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        raise invalid(name, f"one number {allowed}", _said(value), remedy)
    if not (math.isfinite(value) and fits(float(value))):
        raise invalid(name, allowed, value, remedy)


def check_kind(name: str, value: object, kind: type | tuple[type, ...], allowed: str, remedy: str) -> None:
    """Refuse an object of another kind than the one asked for.

    Example:
        >>> check_kind("keep", {"every": 5}, int, "a turnout.Keep", "write keep=Keep(every=5)")
        Traceback (most recent call last):
        ...
        ValueError: keep must be a turnout.Keep, got dict: write keep=Keep(every=5)
    """
    if isinstance(value, type) or not isinstance(value, kind):  # a class has all methods of its objects
        raise invalid(name, allowed, _said(value), remedy)


def _said(value: object) -> str:
    """What was given: a text, a number or None as it is written, anything else by its class."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return repr(value) if isinstance(value, (str, int, float, type(None))) else type(value).__name__
