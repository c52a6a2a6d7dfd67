"""The algorithm as a first draft writes it: one object a client."""

import math
import random


class Client:
    def __init__(self, group, a, b):
        self.group, self.a, self.b = group, a, b
        self.participations, self.rounds = 1, 1

    def slope(self, x):
        if self.group == 0:
            return 2 * self.a * x
        if self.group == 1:
            return 2 * self.a * x**3
        if self.group == 2:
            return 4 / 3 * self.a * x**3 + 6 * self.b * x**5
        return 2 * self.b * x

    def decide(self, signal, coin):
        x = self.participations / self.rounds
        participates = random.random() < min(1.0, signal * x / self.slope(x)) or random.random() < coin
        self.participations += participates
        self.rounds += 1
        return participates


def run(clients, rounds, beta, gain, initial, seed=0):
    """Returns the last signal."""
    random.seed(seed)
    crowd = [Client(4 * i // clients, random.uniform(0, 40), random.uniform(0, 40)) for i in range(clients)]
    coin = beta / 2 * math.exp(-beta)
    capacity, signal, turnout = clients / 2, initial, clients
    for _ in range(rounds):
        total = sum(client.decide(signal, coin) for client in crowd)
        signal = max(0.0, signal - gain * (turnout - capacity))
        turnout = total
    return signal
