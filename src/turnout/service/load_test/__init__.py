"""Many devices in one process, against a coordinator: for load tests and rehearsals.

Each decides with the same durable client as a real agent.
"""

from turnout.service.load_test.connection import allow_connections
from turnout.service.load_test.devices import Rehearsal
from turnout.service.load_test.load_test import Fleet
from turnout.service.load_test.record import FleetRecord, SeenRound

__all__ = ["Fleet", "FleetRecord", "Rehearsal", "SeenRound", "allow_connections"]


def __dir__() -> list[str]:
    return __all__
