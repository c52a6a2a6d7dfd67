"""The agent of a device: a base install is enough, and nothing private leaves it.

It joins, decides with the durable client, works under a lease, and says what it did.
"""

from turnout.service.agent.agent import ASKED, BUDGET, Agent, AgentSeams
from turnout.service.agent.agreement import Agreement, Declined, agree
from turnout.service.agent.connection import Halted, HttpWire, RefusedByCoordinator, Revoked
from turnout.service.agent.membership import Membership, ledger_facts, ledger_of, make_folder, read_status
from turnout.service.agent.rounds import USUAL_LIMIT, AgentProblem, RoundDone
from turnout.service.agent.work import CalledWork, CommandWork

__all__ = [
    "ASKED",
    "BUDGET",
    "USUAL_LIMIT",
    "Agent",
    "AgentProblem",
    "AgentSeams",
    "Agreement",
    "CalledWork",
    "CommandWork",
    "Declined",
    "Halted",
    "HttpWire",
    "Membership",
    "RefusedByCoordinator",
    "Revoked",
    "RoundDone",
    "agree",
    "ledger_facts",
    "ledger_of",
    "make_folder",
    "read_status",
]


def __dir__() -> list[str]:
    return __all__
