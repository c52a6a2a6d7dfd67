"""The operator's side: the page, its interface, the metrics, and the password that guards them.

It never sees a device's cost.
"""

from turnout.service.operator.app import operator_app
from turnout.service.operator.guard import LOOPBACK, matches, new_password_file, password_hash, read_password
from turnout.service.operator.metrics import troubles

__all__ = ["LOOPBACK", "matches", "new_password_file", "operator_app", "password_hash", "read_password", "troubles"]


def __dir__() -> list[str]:
    return __all__
