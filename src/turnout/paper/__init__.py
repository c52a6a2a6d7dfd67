"""The paper reproduced: its figures, its numbers and a page that compares them with ours.

`reproduce` makes them all.
"""

from turnout.paper.figures import FIGURES, panels
from turnout.paper.reproduction import reproduce
from turnout.paper.settings import SETTINGS, mechanisms, server

__all__ = ["FIGURES", "SETTINGS", "mechanisms", "panels", "reproduce", "server"]


def __dir__() -> list[str]:
    return __all__
