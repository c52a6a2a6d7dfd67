"""Where a client's private cost comes from: its owner's settings, a file, or a measurement. It stays on the client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Context

from turnout.client.cost_files import Cost, cost_from, load
from turnout.client.cost_files import read_cost as read_cost
from turnout.errors import invalid
from turnout.problem.costs import Costs

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

    context: Context = field(repr=False)  # may hold the cost
    last_training_seconds: float | None = field(default=None, repr=False)


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
    return cost_from(found)


def _from_settings(settings: Mapping[str, Any]) -> Any:
    given = [key for key in (NUMBER, FILE, FUNCTION) if key in settings]
    if len(given) != 1:
        remedy = 'give one, such as --node-config "turnout-cost=3.0"'
        raise invalid("node-config", f"with one of {NUMBER}, {FILE}, {FUNCTION}", ", ".join(given) or "none", remedy)
    value = settings[given[0]]
    if given[0] == FILE:
        return read_cost(str(value))
    return load(str(value), FUNCTION) if given[0] == FUNCTION else value
