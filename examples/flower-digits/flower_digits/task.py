"""The task: label-skewed digits, a small network in NumPy, and what taking part costs each client.

Client i holds mostly the digit i % 10. Those who hold a 7, an 8 or a 9 are *the costly group*: taking part costs them
more than anyone else. So whoever saves costs leaves out the very clients that know these digits.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from sklearn.datasets import load_digits

from turnout.problem import PolynomialCosts, paper_population

CLASSES = 10
COSTLY = (7, 8, 9)
"""The digits of the costly group."""

TEST = 500
"""Images that no client has."""

SKEW = 0.8
"""Of each digit's images, the share that goes to the clients of that digit; the rest is spread over all."""

HIDDEN = 32
"""Units of the hidden layer."""

Model = list[np.ndarray]
"""Weights (64, 32) and biases (32,) of the hidden layer, weights (32, 10) and biases (10,) of the output."""


@dataclass(frozen=True)
class Digits:
    """The images, between 0 and 1, shape (images, 64), and their labels; `parts` lists each client's images."""

    images: np.ndarray
    labels: np.ndarray
    parts: list[np.ndarray]
    test_images: np.ndarray
    test_labels: np.ndarray

    def part(self, client: int) -> tuple[np.ndarray, np.ndarray]:
        """One client's images and labels."""
        return self.images[self.parts[client]], self.labels[self.parts[client]]


@lru_cache(maxsize=4)
def digits(seed: int, clients: int) -> Digits:
    """The data, split by a seed into a test set and the clients' parts."""
    images, labels = load_digits(return_X_y=True)
    generator = np.random.default_rng([seed, 1])
    order = generator.permutation(len(labels))
    images, labels = images[order] / 16.0, labels[order]
    test_images, images, test_labels, labels = images[:TEST], images[TEST:], labels[:TEST], labels[TEST:]
    owner = np.empty(len(labels), dtype=np.int64)
    for digit in range(CLASSES):
        found, holders = np.flatnonzero(labels == digit), np.flatnonzero(np.arange(clients) % CLASSES == digit)
        skewed = round(SKEW * len(found))
        owner[found[:skewed]] = holders[np.arange(skewed) % len(holders)]
        owner[found[skewed:]] = generator.integers(clients, size=len(found) - skewed)
    parts = [np.flatnonzero(owner == client) for client in range(clients)]
    return Digits(images, labels, parts, test_images, test_labels)


@lru_cache(maxsize=8)
def population(family: str, seed: int, clients: int, share: float) -> PolynomialCosts:
    """What taking part costs: the most expensive functions go to the costly group, by their slope at `share`.

    Args:
        family: "paper", four kinds of polynomials as in the paper's Eq. (11), or "quadratic", a x^2; in both the
            coefficients are uniform in (0, 40).
        seed: of the draw.
        clients: a multiple of 4.
        share: capacity / clients.
    """
    generator = np.random.default_rng([seed, 2])
    if family == "paper":
        drawn = paper_population(seed, clients).costs
    else:
        drawn = PolynomialCosts(generator.uniform(0.0, 40.0, (clients, 1)), (2,))
    cheapest_first = np.argsort(drawn.slope(np.full(clients, share)))
    costly_last = np.argsort(np.isin(np.arange(clients) % CLASSES, COSTLY) + generator.uniform(0.0, 0.9, clients))
    coefficients = np.empty_like(drawn.coefficients)
    coefficients[costly_last] = drawn.coefficients[cheapest_first]
    return PolynomialCosts(coefficients, drawn.powers)


def first_model(seed: int) -> Model:
    """The network before training."""
    generator = np.random.default_rng([seed, 3])
    hidden = generator.normal(0.0, 1.0 / 8.0, (64, HIDDEN))
    output = generator.normal(0.0, HIDDEN**-0.5, (HIDDEN, CLASSES))
    return [hidden, np.zeros(HIDDEN), output, np.zeros(CLASSES)]


def train(model: Model, images: np.ndarray, labels: np.ndarray, steps: int, rate: float) -> tuple[Model, float]:
    """Some steps of gradient descent on all the client's images; the new model, and the mean loss on the way."""
    model = [array.copy() for array in model]
    wanted, loss = np.eye(CLASSES)[labels], 0.0
    for _ in range(steps):
        hidden, scores = _forward(model, images)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        loss -= float(np.mean(np.log(np.maximum(shares[np.arange(len(labels)), labels], 1e-12)))) / steps
        error = (shares - wanted) / len(labels)
        back = (error @ model[2].T) * (hidden > 0.0)
        for array, slope in zip(
            model, (images.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)), strict=True
        ):
            array -= rate * slope
    return model, loss


def accuracy(model: Model, data: Digits) -> tuple[float, float]:
    """The share of test images that it gets right: of all, and of the costly group's digits."""
    right = _forward(model, data.test_images)[1].argmax(axis=1) == data.test_labels
    return float(right.mean()), float(right[np.isin(data.test_labels, COSTLY)].mean())


def _forward(model: Model, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hidden = np.maximum(images @ model[0] + model[1], 0.0)
    return hidden, hidden @ model[2] + model[3]
