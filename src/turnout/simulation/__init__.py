"""Simulated runs: `simulate` for one, `replicate` for many seeds.

Engines from NumPy to GPU and Ray give the same bits; a `Trajectory` holds what was recorded.
"""

from turnout.simulation.clients import SimulatedClients
from turnout.simulation.engines.choose import ENGINES, choose_engine
from turnout.simulation.engines.engine import AtHome, Engine, JaxOptions, RayOptions, advance_by_passes
from turnout.simulation.engines.numpy import NumpyEngine
from turnout.simulation.loop import Progress, run_rounds
from turnout.simulation.recording import Keep
from turnout.simulation.run import replicate, simulate
from turnout.simulation.run_settings import Run, continuation, run_from_settings
from turnout.simulation.schedule import ABSENT, AWAY, PRESENT, Schedule, schedule_from_settings
from turnout.simulation.setup import Setup, set_up
from turnout.simulation.trajectory import UNKNOWN, ServerRecord, Trajectory, mechanisms_in_words, privacy_in_words
from turnout.simulation.workers import spread

__all__ = [
    "ABSENT",
    "AWAY",
    "ENGINES",
    "PRESENT",
    "UNKNOWN",
    "AtHome",
    "Engine",
    "JaxOptions",
    "Keep",
    "NumpyEngine",
    "Progress",
    "RayOptions",
    "Run",
    "Schedule",
    "ServerRecord",
    "Setup",
    "SimulatedClients",
    "Trajectory",
    "advance_by_passes",
    "choose_engine",
    "continuation",
    "mechanisms_in_words",
    "privacy_in_words",
    "replicate",
    "run_from_settings",
    "run_rounds",
    "schedule_from_settings",
    "set_up",
    "simulate",
    "spread",
]


def __dir__() -> list[str]:
    return __all__
