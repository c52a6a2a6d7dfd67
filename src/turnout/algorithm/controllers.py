"""The controllers by name."""

from __future__ import annotations

from turnout.algorithm.self_tuning import SelfTuningController
from turnout.algorithm.server import Controller, IntegralController
from turnout.errors import invalid
from turnout.settings import Table


def controller_from_settings(table: Table) -> Controller:
    """A controller from its table: `kind`, and its parameters by name.

    Example:
        >>> controller_from_settings(Table({"kind": "integral", "gain": 0.0075, "initial": 0.35}))
        IntegralController(gain=0.0075, initial=0.35, lag=1)
        >>> controller_from_settings(Table({"kind": "self-tuning"}))
        SelfTuningController(initial=1.0)
    """
    kind = table.text("kind", "integral")
    controller: Controller
    if kind == "integral":
        controller = IntegralController(table.number("gain"), table.number("initial"), table.whole("lag", 1))
    elif kind == "self-tuning":
        controller = SelfTuningController(table.number("initial", 1.0))
    else:
        raise invalid(table.path("kind"), "'integral' or 'self-tuning'", f"{kind!r}", "use one of these names")
    table.finish()
    return controller
