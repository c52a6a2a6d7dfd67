"""A small sweep, and the points of a design."""

from turnout.sweep.design import design_from_settings

SMALL = {
    "rounds": 20,
    "capacity": 20,
    "engine": "numpy",
    "population": {"kind": "paper", "clients": 40},
    "controller": {"gain": 0.1, "initial": 0.35},
    "mechanism": {"kind": "classical"},
}


def design(sweep=None, **changes):
    return design_from_settings(SMALL | changes | {"sweep": sweep or {}})


def points(found):
    return [run.point for run in found.runs]
