"""A client's private cost from its owner's file or Python function. It stays on the client."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from turnout.errors import FileProblem, invalid
from turnout.problem import Costs, PolynomialCosts, check_costs
from turnout.settings import Table, read_toml

Cost = float | Costs
"""A number a stands for the cost a x^2."""


def cost_from(found: Any) -> Costs:
    """The cost of one client from what its owner gave or a function returned.

    Args:
        found: a number a, for a x^2, or a cost of one client.

    Raises:
        ValueError: neither, or it is not convex. The text may hold the cost: keep it local.

    Example:
        >>> len(cost_from(3.0))
        1
    """
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        return _quadratic(float(found))
    if not isinstance(found, Costs):
        remedy = "return a, for a x^2, or a cost such as PolynomialCosts([[a, b]], powers=(2, 4))"
        raise invalid("cost", "a number or a Costs", type(found).__name__, remedy)
    if len(found) != 1:
        raise invalid("cost", "of one client", f"{len(found)} clients", "give costs[i], a population of one")
    if not isinstance(found, PolynomialCosts):  # which checks itself
        check_costs(found)
    return found


def _quadratic(a: float) -> PolynomialCosts:
    """The cost a x^2 of one client.

    Example:
        >>> _quadratic(3.0).slope([0.5])
        array([3.])
    """
    return PolynomialCosts([[a]], powers=(2,))


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


def load(place: str, setting: str) -> Any:
    """What `package.module:name` names, such as a cost function; modules of the current folder are found.

    Args:
        place: where it is.
        setting: what the user calls it, for messages.

    Raises:
        ValueError: there is no such module, or nothing of that name in it.

    Example:
        >>> load("math:sqrt", "--cost-function")(4.0)
        2.0
    """
    module, colon, name = place.partition(":")
    if not colon or not module or not name:
        raise invalid(setting, "of the form package.module:function", repr(place), "write mine:function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:
        why = f"{module} cannot be imported ({type(error).__name__}: {error})"
        remedy = "run in the module's folder, or install it"
        raise invalid(setting, "in a module that can be imported", why, remedy) from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise invalid(setting, f"the name of something in {module}", repr(name), "correct the name")
        found = getattr(found, part)
    return found
