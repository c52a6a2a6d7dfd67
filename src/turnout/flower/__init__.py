"""Flower apps whose clients choose for themselves: one wrapper on the server, one mod on the client.

    strategy = SelfSelection(FedAvg(), capacity=15)                    # server_app.py
    @app.train(mods=[self_selection_mod()])                            # client_app.py

The names are loaded on first use: a device imports the client's side alone, with neither theory nor simulation.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from turnout.errors import MissingExtra

if TYPE_CHECKING:
    from turnout.client.ledger import Limit
    from turnout.flower.client_mod import Device, self_selection_mod
    from turnout.flower.in_process import InProcessGrid, run_in_process
    from turnout.flower.self_selection import AtLeast, SelfSelection, at_least

_HOME = {
    "AtLeast": "capacity",
    "Device": "cost_sources",
    "InProcessGrid": "in_process",
    "Limit": "client_mod",
    "SelfSelection": "self_selection",
    "at_least": "capacity",
    "run_in_process": "in_process",
    "self_selection_mod": "client_mod",
}

__all__ = [
    "AtLeast",
    "Device",
    "InProcessGrid",
    "Limit",
    "SelfSelection",
    "at_least",
    "run_in_process",
    "self_selection_mod",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'turnout.flower' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"turnout.flower.{_HOME[name]}"), name)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.split(".")[0] != "flwr":
            raise
        raise MissingExtra(f"turnout.flower.{name}", library="flwr", extra="flower") from None


def __dir__() -> list[str]:
    return __all__
