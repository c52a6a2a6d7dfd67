"""Files that survive a crash: whole files replaced at once, and a journal that is flushed before it is relied on.

Tests put their faults in at one place, `Disk`.
"""

from turnout.files.atomic import check_new, check_writable, whole_file
from turnout.files.journal import LOCK_SECONDS, Disk, Head, InUse, Journal, entries_of

__all__ = [
    "LOCK_SECONDS",
    "Disk",
    "Head",
    "InUse",
    "Journal",
    "check_new",
    "check_writable",
    "entries_of",
    "whole_file",
]


def __dir__() -> list[str]:
    return __all__
