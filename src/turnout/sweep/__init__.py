"""Many runs from one table of settings: designs, the results table, and runs spread over cores or a cluster.

`sweep` resumes where an earlier one stopped.
"""

from turnout.sweep.design import Asks, Design, SweepRun, design_from_settings
from turnout.sweep.run import read_design, results_so_far, sweep
from turnout.sweep.table import SUFFIXES, Results, check_suffix, measure

__all__ = [
    "SUFFIXES",
    "Asks",
    "Design",
    "Results",
    "SweepRun",
    "check_suffix",
    "design_from_settings",
    "measure",
    "read_design",
    "results_so_far",
    "sweep",
]


def __dir__() -> list[str]:
    return __all__
