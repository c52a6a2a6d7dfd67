"""Flower apps whose clients choose for themselves: one wrapper on the server, one mod on the client.

    strategy = SelfSelection(FedAvg(), capacity=15)                    # server_app.py
    @app.train(mods=[self_selection_mod()])                            # client_app.py

The names are loaded on first use: a device imports the client's side alone, with neither theory nor simulation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout._lazy import lazy

if TYPE_CHECKING:
    from turnout.client import Limit
    from turnout.flower.client_mod import Device, self_selection_mod
    from turnout.flower.client_state import StateDirectory
    from turnout.flower.in_process import InProcessGrid, run_in_process
    from turnout.flower.protocol import Question, mechanism_text
    from turnout.flower.replies import ParticipationBook, StoredUpdates, arrays_of, with_arrays, with_weight
    from turnout.flower.self_selection import AtLeast, SelfSelection, at_least

__all__ = [
    "AtLeast",
    "Device",
    "InProcessGrid",
    "Limit",
    "ParticipationBook",
    "Question",
    "SelfSelection",
    "StateDirectory",
    "StoredUpdates",
    "arrays_of",
    "at_least",
    "mechanism_text",
    "run_in_process",
    "self_selection_mod",
    "with_arrays",
    "with_weight",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "self_selection": ("AtLeast", "SelfSelection", "at_least"),
        "client_mod": ("Device", "Limit", "self_selection_mod"),
        "in_process": ("InProcessGrid", "run_in_process"),
        "replies": ("ParticipationBook", "StoredUpdates", "arrays_of", "with_arrays", "with_weight"),
        "protocol": ("Question", "mechanism_text"),
        "client_state": ("StateDirectory",),
    },
    library="flwr",
    extra="flower",
)
