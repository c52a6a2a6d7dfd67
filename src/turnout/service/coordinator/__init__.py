"""The coordinator: it opens and closes rounds, enrols devices, and shows where the run stands.

`serve` starts all of it from a store; the names are loaded on first use, since they need the server extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout._lazy import lazy

if TYPE_CHECKING:
    from turnout.service.coordinator.coordinator import Coordinator
    from turnout.service.coordinator.enrolment import Roll, hashed, issue_codes, why_left
    from turnout.service.coordinator.exporting import (
        DEVICE_COLUMNS,
        ROUND_COLUMNS,
        device_rows,
        export,
        round_rows,
        trim,
        why_kept,
    )
    from turnout.service.coordinator.listing import code_list, device_list, one_code, one_device, roll_of, site_list
    from turnout.service.coordinator.server import Place, begin_or_continue, serve
    from turnout.service.coordinator.sizing import fitting_fleet

__all__ = [
    "DEVICE_COLUMNS",
    "ROUND_COLUMNS",
    "Coordinator",
    "Place",
    "Roll",
    "begin_or_continue",
    "code_list",
    "device_list",
    "device_rows",
    "export",
    "fitting_fleet",
    "hashed",
    "issue_codes",
    "one_code",
    "one_device",
    "roll_of",
    "round_rows",
    "serve",
    "site_list",
    "trim",
    "why_kept",
    "why_left",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "coordinator": ("Coordinator",),
        "exporting": ("DEVICE_COLUMNS", "ROUND_COLUMNS", "device_rows", "export", "round_rows", "trim", "why_kept"),
        "sizing": ("fitting_fleet",),
        "server": ("Place", "begin_or_continue", "serve"),
        "listing": ("code_list", "device_list", "one_code", "one_device", "roll_of", "site_list"),
        "enrolment": ("Roll", "hashed", "issue_codes", "why_left"),
    },
    library="starlette",
    extra="server",
)
