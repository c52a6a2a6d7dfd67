"""The networked service: a coordinator and the agents of its devices.

Exported here is what both sides share: messages, rules, rounds, addresses and logs. `agent` is a device, `coordinator`
runs the rounds, `store` keeps them, `http` listens, `operator` is the operator's side, `load_test` plays many devices.
"""

from turnout.service.logs import Log, SparingLog, start_logging
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
from turnout.service.rounds import (
    LOOKS_BACK,
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
    thinning,
    unpack_codes,
)
from turnout.service.rules import (
    Rules,
    RulesVersion,
    RulesVersions,
    Safety,
    Timing,
    changed_settings,
    differences,
    rules_from_settings,
    settings_over,
)

__all__ = [
    "ENROL",
    "LARGEST_BODY",
    "LARGEST_REPLY",
    "LEAVE",
    "LOOKS_BACK",
    "MISSING",
    "NO",
    "PREFIX",
    "REFUSED",
    "REPORT",
    "ROUND",
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
    "RulesVersion",
    "RulesVersions",
    "Safety",
    "SparingLog",
    "Timing",
    "Unreachable",
    "Welcome",
    "allow_files",
    "changed_settings",
    "check_run_name",
    "close",
    "differences",
    "fields",
    "first_position",
    "pack_codes",
    "read_json",
    "rules_from_settings",
    "run_in_loop",
    "settings_over",
    "start_logging",
    "tag_of",
    "thinning",
    "unpack_codes",
    "what_to_correct",
]


def __dir__() -> list[str]:
    return __all__
