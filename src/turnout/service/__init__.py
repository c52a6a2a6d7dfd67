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
    HEAVIEST,
    LARGEST_BODY,
    LARGEST_REPLY,
    LEAVE,
    PREFIX,
    REPORT,
    ROUND,
    RULES,
    Answer,
    Offer,
    Proposal,
    ProtocolProblem,
    Report,
    Welcome,
    boot_clock,
    check_run_name,
    fields,
    read_json,
    rules_name,
    tag_of,
)

if TYPE_CHECKING:
    from turnout.service.logs import Log, SparingLog, json_line, start_logging
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
        position_after,
        reachable,
        unpack_codes,
        unpack_presence,
    )
    from turnout.service.rules import (
        CHANGEABLE,
        Rules,
        RulesVersion,
        RulesVersions,
        Safety,
        Timing,
        changed_settings,
        differences,
        in_words,
        rules_from_settings,
        settings_over,
    )
    from turnout.service.summary import KEPT_ROUNDS, Histories, Summary, summed_up

__all__ = [
    "CHANGEABLE",
    "DECLINED",
    "ENROL",
    "HEAVIEST",
    "KEPT_ROUNDS",
    "LARGEST_BODY",
    "LARGEST_REPLY",
    "LEAVE",
    "LEAVING",
    "MISSING",
    "NO",
    "PREFIX",
    "REFUSED",
    "REPORT",
    "ROUND",
    "RULES",
    "SPENT",
    "USUAL_REPORTS",
    "YES",
    "Address",
    "Answer",
    "ClosedRound",
    "Codes",
    "Histories",
    "Log",
    "Members",
    "Offer",
    "Position",
    "Proposal",
    "ProtocolProblem",
    "Report",
    "Rules",
    "RulesVersion",
    "RulesVersions",
    "Safety",
    "SparingLog",
    "Summary",
    "Timing",
    "Unreachable",
    "Welcome",
    "allow_files",
    "boot_clock",
    "budget_of",
    "changed_settings",
    "check_run_name",
    "close",
    "differences",
    "fields",
    "first_position",
    "in_words",
    "is_little",
    "json_line",
    "lasting",
    "pack_codes",
    "position_after",
    "reachable",
    "read_json",
    "rules_from_settings",
    "rules_name",
    "run_in_loop",
    "settings_over",
    "span",
    "start_logging",
    "summed_up",
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
            "json_line",
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
            "position_after",
            "reachable",
            "unpack_codes",
            "unpack_presence",
        ),
        "rules": (
            "CHANGEABLE",
            "Rules",
            "RulesVersion",
            "RulesVersions",
            "Safety",
            "Timing",
            "changed_settings",
            "differences",
            "in_words",
            "rules_from_settings",
            "settings_over",
        ),
        "summary": (
            "KEPT_ROUNDS",
            "Histories",
            "Summary",
            "summed_up",
        ),
    },
)


def __dir__() -> list[str]:
    return __all__
