"""All settings of the reproduction, each *stated* in the paper or *assumed* by us."""

from __future__ import annotations

from typing import Any, NamedTuple

from turnout.algorithm import Classical, IntegralController, Mechanism, PaperCoin


class _Setting(NamedTuple):
    """A value, and where it comes from."""

    value: Any
    source: str
    note: str


SETTINGS: dict[str, _Setting] = {
    "clients": _Setting(1200, "stated", "N = 1200"),
    "capacity": _Setting(600, "stated", "C = 600"),
    "costs": _Setting("four groups, a and b uniform in (0, 40)", "stated", "Eq. (11)"),
    "group sizes": _Setting(300, "assumed", "four groups; their sizes are not given"),
    "betas": _Setting((3.5, 2.5, 1.5, 1.0), "stated", "Fig. 1 (c) is 1 in the caption and 1.5 in the text: both"),
    "gain": _Setting(0.0075, "stated", "the caption of Fig. 5"),
    "initial signal": _Setting(0.35, "assumed", "the paper says only that it is positive"),
    "rounds": _Setting(10_000, "assumed", "not given; long enough for the classical run to be within 0.1 %"),
    "population seed": _Setting(0, "assumed", "not given"),
    "coin seed": _Setting(0, "assumed", "not given"),
    "start": _Setting("everyone takes part in round 0", "stated", "Algorithms 2 and 3"),
    "last rounds": _Setting(400, "stated", "histograms of Fig. 4"),
    "chosen rounds": _Setting(60, "stated", "Fig. 4 (a); we take the last 60"),
    "seeds": _Setting(100, "ours", "the paper shows one run; bands are over this number"),
    "checkpoint": _Setting(50, "ours", "rounds between two points of a curve"),
}

CLASSICAL = "classical"


def beta_name(beta: float) -> str:
    """What a run with this beta is called in files and legends."""
    return f"beta={beta:g}"


def mechanisms() -> dict[str, Mechanism]:
    """The five settings of the paper, by name."""
    found: dict[str, Mechanism] = {CLASSICAL: Classical()}
    return found | {beta_name(beta): PaperCoin(beta) for beta in SETTINGS["betas"].value}


def server() -> IntegralController:
    """The paper's server.

    Paper: Algorithm 1.
    """
    return IntegralController(SETTINGS["gain"].value, SETTINGS["initial signal"].value)
