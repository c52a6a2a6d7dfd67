"""Two-party Prio: a device splits its bit between two aggregators, which add up bits that neither of them sees.

It is Prio3Count of draft-irtf-cfrg-vdaf-20, byte for byte. What it promises is in docs/proofs/prio.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout._lazy import lazy
from turnout.prio.device import Report, report_context, split
from turnout.prio.draft import DRAFT, MODULUS, turboshake128

if TYPE_CHECKING:
    from turnout.prio.aggregator import Prepared, Role, added, opened, prepare, verified, weighted_sum

__all__ = [
    "DRAFT",
    "MODULUS",
    "Prepared",
    "Report",
    "Role",
    "added",
    "opened",
    "prepare",
    "report_context",
    "split",
    "turboshake128",
    "verified",
    "weighted_sum",
]

# Loaded on first use: a device needs none of these, nor NumPy.
__getattr__, _ = lazy(
    __name__,
    {"aggregator": ("Prepared", "Role", "added", "opened", "prepare", "verified", "weighted_sum")},
)


def __dir__() -> list[str]:
    return __all__
