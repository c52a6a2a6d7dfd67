"""The algorithm as a researcher writes it: arrays, np.select over the four groups, NumPy's generator."""

import numpy as np


def run(clients, rounds, beta, gain, initial, seed=0):
    """Returns the last signal."""
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(0, 40, clients), rng.uniform(0, 40, clients)
    group = 4 * np.arange(clients) // clients
    coin = beta / 2 * np.exp(-beta)
    capacity, signal = clients / 2, initial
    participations = np.ones(clients)
    turnout = clients
    for k in range(1, rounds + 1):
        x = participations / k
        slope = np.select(
            [group == 0, group == 1, group == 2, group == 3],
            [2 * a * x, 2 * a * x**3, 4 / 3 * a * x**3 + 6 * b * x**5, 2 * b * x],
        )
        intent = np.minimum(1.0, signal * x / slope)
        participates = (rng.random(clients) < intent) | (rng.random(clients) < coin)
        participations += participates
        signal = max(0.0, signal - gain * (turnout - capacity))
        turnout = participates.sum()
    return signal
