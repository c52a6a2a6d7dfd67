"""The operator's side: the page, its interface, the metrics, and the password that guards them.

It never sees a device's cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout._lazy import lazy

if TYPE_CHECKING:
    from turnout.service.operator.app import operator_app
    from turnout.service.operator.guard import LOOPBACK, matches, new_password_file, password_hash, read_password
    from turnout.service.operator.metrics import SPENT_DAYS, told_sites, troubles

__all__ = [
    "LOOPBACK",
    "SPENT_DAYS",
    "matches",
    "new_password_file",
    "operator_app",
    "password_hash",
    "read_password",
    "told_sites",
    "troubles",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "app": ("operator_app",),
        "guard": ("LOOPBACK", "matches", "new_password_file", "password_hash", "read_password"),
        "metrics": ("SPENT_DAYS", "told_sites", "troubles"),
    },
)
