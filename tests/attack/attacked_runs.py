"""What attacks are tried on, and how far their guesses are off."""

import functools

import numpy as np

from turnout import Prior
from turnout import simulate as simulate_with_any
from turnout.attack.attack import attack_errors, infer
from turnout.attack.cost_family import CostFamily

START = Prior(0.5, 20)

simulate = functools.partial(simulate_with_any, engine="numpy")  # compiles nothing


def errors(reports, mechanism, costs, **options):
    """Of the attack on reports, by somebody who knows the family of the costs; one for each checkpoint."""
    found = infer(reports, CostFamily.around(costs), mechanism, **options)
    return [attack_errors(estimates, costs) for estimates in found]


def quantiles(values, weight, shares):
    """Of a belief given by candidates and their weights."""
    order = np.argsort(values.ravel())
    mass = weight.ravel()[order]
    return np.interp(shares, (np.cumsum(mass) - 0.5 * mass) / mass.sum(), values.ravel()[order])
