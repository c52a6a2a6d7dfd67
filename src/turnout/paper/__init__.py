"""The paper reproduced: its figures, its numbers and a page that compares them with ours.

`reproduce` makes them all.
"""

from turnout.paper.reproduce import FIGURES, reproduce
from turnout.paper.settings import SETTINGS, mechanisms, server
from turnout.paper.style import panels

__all__ = ["FIGURES", "SETTINGS", "mechanisms", "panels", "reproduce", "server"]


def __dir__() -> list[str]:
    return __all__
