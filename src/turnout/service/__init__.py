"""The networked service: a coordinator and the agents of its devices.

Exported here is what both sides share: messages, rules, rounds, addresses and logs. `agent` is a device, `coordinator`
runs the rounds, `store` keeps them, `http` listens, `operator` is the operator's side, `load_test` plays many devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout._lazy import lazy
from turnout.service.budgets import (
    DECLINED,
    LEAVING,
    LITTLE_LEFT,
    SPENT,
    USUAL_REPORTS,
    budget_of,
    is_little,
    lasting,
    span,
)
from turnout.service.network import Address, Unreachable, allow_files, run_in_loop, what_to_correct
from turnout.service.protocol import (
    ENROL,
    LARGEST_BODY,
    LARGEST_REPLY,
    LEAVE,
    PREFIX,
    REPORT,
    ROUND,
    Answer,
    Offer,
    ProtocolProblem,
    Report,
    Welcome,
    check_run_name,
    fields,
    read_json,
    tag_of,
)

if TYPE_CHECKING:
    from turnout.service.logs import Log, SparingLog, start_logging
    from turnout.service.rounds import (
        MISSING,
        NO,
        REFUSED,
        YES,
        ClosedRound,
        Codes,
        Members,
        Position,
        close,
        first_position,
        pack_codes,
        unpack_codes,
        unpack_presence,
    )
    from turnout.service.rules import Rules, Safety, Timing, rules_from_settings

__all__ = [
    "DECLINED",
    "ENROL",
    "LARGEST_BODY",
    "LARGEST_REPLY",
    "LEAVE",
    "LEAVING",
    "LITTLE_LEFT",
    "MISSING",
    "NO",
    "PREFIX",
    "REFUSED",
    "REPORT",
    "ROUND",
    "SPENT",
    "USUAL_REPORTS",
    "YES",
    "Address",
    "Answer",
    "ClosedRound",
    "Codes",
    "Log",
    "Members",
    "Offer",
    "Position",
    "ProtocolProblem",
    "Report",
    "Rules",
    "Safety",
    "SparingLog",
    "Timing",
    "Unreachable",
    "Welcome",
    "allow_files",
    "budget_of",
    "check_run_name",
    "close",
    "fields",
    "first_position",
    "is_little",
    "lasting",
    "pack_codes",
    "read_json",
    "rules_from_settings",
    "run_in_loop",
    "span",
    "start_logging",
    "tag_of",
    "unpack_codes",
    "unpack_presence",
    "what_to_correct",
]

# Loaded on first use: a device needs none of these.
__getattr__, _ = lazy(
    __name__,
    {
        "logs": (
            "Log",
            "SparingLog",
            "start_logging",
        ),
        "rounds": (
            "MISSING",
            "NO",
            "REFUSED",
            "YES",
            "ClosedRound",
            "Codes",
            "Members",
            "Position",
            "close",
            "first_position",
            "pack_codes",
            "unpack_codes",
            "unpack_presence",
        ),
        "rules": (
            "Rules",
            "Safety",
            "Timing",
            "rules_from_settings",
        ),
    },
)


def __dir__() -> list[str]:
    return __all__
