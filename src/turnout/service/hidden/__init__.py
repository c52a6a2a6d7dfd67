"""Hidden runs: two aggregators that add up reports which neither of them can read, as state machines over books.

`Leader` and `Helper` are the aggregators, `HiddenDevice` is a device. Messages are bytes: no sockets, no clock.
"""

from turnout.service.hidden.books import Books
from turnout.service.hidden.device import HiddenDevice
from turnout.service.hidden.messages import PeerProblem
from turnout.service.hidden.records import Record, first_record
from turnout.service.hidden.rules import HiddenRules
from turnout.service.hidden.sides import Helper, Leader, settled
from turnout.service.hidden.witness import RoundWitness

__all__ = [
    "Books",
    "Helper",
    "HiddenDevice",
    "HiddenRules",
    "Leader",
    "PeerProblem",
    "Record",
    "RoundWitness",
    "first_record",
    "settled",
]


def __dir__() -> list[str]:
    return __all__
