"""The coordinator: it opens and closes rounds, enrols devices, and shows where the run stands.

`serve` starts all of it from a store; the names are loaded on first use, since they need the server extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout._lazy import lazy

if TYPE_CHECKING:
    from turnout.service.coordinator.coordinator import Coordinator
    from turnout.service.coordinator.enrolment import Roll, hashed, issue_codes
    from turnout.service.coordinator.exporting import (
        DEVICE_COLUMNS,
        ROUND_COLUMNS,
        device_rows,
        export,
        round_rows,
        trim,
    )
    from turnout.service.coordinator.server import Place, begin_or_continue, serve

__all__ = [
    "DEVICE_COLUMNS",
    "ROUND_COLUMNS",
    "Coordinator",
    "Place",
    "Roll",
    "begin_or_continue",
    "device_rows",
    "export",
    "hashed",
    "issue_codes",
    "round_rows",
    "serve",
    "trim",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "coordinator": ("Coordinator",),
        "exporting": ("DEVICE_COLUMNS", "ROUND_COLUMNS", "device_rows", "export", "round_rows", "trim"),
        "server": ("Place", "begin_or_continue", "serve"),
        "enrolment": ("Roll", "hashed", "issue_codes"),
    },
    library="starlette",
    extra="server",
)
