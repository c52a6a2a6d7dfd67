"""Where a client's private cost comes from: its owner's settings, a file, or a measurement. It stays on the client."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import Context

from turnout.errors import FileProblem, invalid
from turnout.problem.costs import Costs, PolynomialCosts, check_costs
from turnout.settings import Table, read_toml

NUMBER, FILE, FUNCTION = "turnout-cost", "turnout-cost-file", "turnout-cost-function"
"""The keys of node-config, of which one must be there."""


@dataclass(frozen=True)
class Device:
    """What a cost of your own may look at; it never leaves the client.

    Attributes:
        context: Flower's, with `node_config` and `run_config`.
        last_training_seconds: how long the last training here took, also a failed one; None before the first.

    Example:
        >>> def cost(device):                            # slower training, higher cost
        ...     return 1.0 + (device.last_training_seconds or 0.0)
        >>> cost(Device(context=None, last_training_seconds=4.0))
        5.0
    """

    context: Context
    last_training_seconds: float | None = None


Cost = float | Costs
"""A number a stands for the cost a x^2."""

CostSource = Cost | Callable[[Device], Cost] | None


def cost_of(source: CostSource, device: Device) -> Costs:
    """The cost of this client now: given, called for, or as its node-config says.

    Args:
        source: a number, a cost, a function of the device, or None for the owner's settings.
        device: this one.

    Raises:
        ValueError: none or several are given, or it is not convex. The text may hold the cost: keep it local.
        FileProblem: the file cannot be read.

    Example:
        >>> len(cost_of(3.0, Device(context=None)))
        1
    """
    found: Any = _from_settings(device.context.node_config) if source is None else source
    if callable(found) and not isinstance(found, Costs):
        found = found(device)
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        return quadratic(float(found))
    if not isinstance(found, Costs):
        remedy = "return a, for a x^2, or a cost such as PolynomialCosts([[a, b]], powers=(2, 4))"
        raise invalid("cost", "a number or a Costs", type(found).__name__, remedy)
    if len(found) != 1:
        raise invalid("cost", "of one client", f"{len(found)} clients", "give costs[i], a population of one")
    if not isinstance(found, PolynomialCosts):  # which checks itself
        check_costs(found)
    return found


@lru_cache(maxsize=1024)
def quadratic(a: float) -> PolynomialCosts:
    """The cost a x^2 of one client.

    Example:
        >>> quadratic(3.0).slope([0.5])
        array([3.])
    """
    return PolynomialCosts([[a]], powers=(2,))


def _from_settings(settings: Mapping[str, Any]) -> Any:
    given = [key for key in (NUMBER, FILE, FUNCTION) if key in settings]
    if len(given) != 1:
        remedy = 'give one, such as --node-config "turnout-cost=3.0"'
        raise invalid("node-config", f"with one of {NUMBER}, {FILE}, {FUNCTION}", ", ".join(given) or "none", remedy)
    value = settings[given[0]]
    if given[0] == FILE:
        return read_cost(str(value))
    return import_cost(str(value)) if given[0] == FUNCTION else value


def read_cost(path: str | Path) -> PolynomialCosts:
    """A cost from a TOML or JSON file with `coefficients` and, unless all are squares, `powers`.

    Raises:
        FileProblem: it cannot be read.
        ValueError: it holds something else.
    """
    if str(path).endswith(".json"):
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise FileProblem(f"{path}: not a readable JSON file ({error}): correct it") from error
    else:
        values = read_toml(path)
    table = Table(values if isinstance(values, dict) else {}, str(path))
    coefficients, powers = table.sequence("coefficients"), table.sequence("powers", [2])
    table.finish()
    return PolynomialCosts([coefficients], powers=tuple(powers))


def import_cost(path: str) -> Any:
    """The function or cost at "package.module:name".

    Raises:
        ValueError: there is none.

    Example:
        >>> import_cost("math:tau") > 6.28
        True
    """
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        remedy = f"check the name, and that the module is installed on this client ({error})"
        raise invalid(FUNCTION, "package.module:function", repr(path), remedy) from error
