"""Inverse-participation weights: who comes rarely counts more when it comes, so that the model is not theirs alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from turnout.errors import invalid

PRIOR_ROUNDS = 2.0
"""The public start of each estimate: so many rounds at capacity / clients."""

FLOOR = 0.2
"""No estimate counts as less than this share of capacity / clients: a weight is at most five times the usual."""

INVERSE, STORED, PLAIN = "inverse-participation", "stored-updates", "plain"
KINDS = (INVERSE, STORED, PLAIN)
"""Stored updates are used with inverse-participation weights; see `turnout.flower.stored_updates`."""


class ParticipationBook:
    """What the server saw of each node: since when, and how often its update came.

    Args:
        share: capacity / clients, public.

    Example:
        >>> book = ParticipationBook(share=0.5)
        >>> book.saw([1, 2])
        >>> book.close_round([1])
        >>> book.estimate(1), book.estimate(2)
        (0.6666666666666666, 0.3333333333333333)
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._rounds = 0
        self._joined: dict[int, int] = {}
        self._came: dict[int, int] = {}

    def saw(self, nodes: Iterable[int]) -> None:
        """These nodes are connected: those not seen before join now."""
        for node in nodes:
            self._joined.setdefault(node, self._rounds)

    def close_round(self, came: Iterable[int]) -> None:
        """The round is over, and these nodes' updates came."""
        self._rounds += 1
        for node in came:
            self._came[node] = self._came.get(node, 0) + 1

    def estimate(self, node: int) -> float:
        """x̂ = (past participations + 2 C/N) / (rounds since it joined + 2), the current round excluded."""
        rounds = self._rounds - self._joined.get(node, self._rounds)
        return (self._came.get(node, 0) + PRIOR_ROUNDS * self._share) / (rounds + PRIOR_ROUNDS)

    def weights(self, examples: Mapping[int, float]) -> dict[int, float]:
        """w_i ∝ n_i / max(x̂_i, 0.2 C/N), for the nodes that came; they add up to what the n_i add up to.

        Args:
            examples: n_i, the strategy's own weight of each node.

        Example:
            >>> book = ParticipationBook(share=0.5)
            >>> book.saw([1, 2]); book.close_round([1])
            >>> book.weights({1: 30.0, 2: 30.0})
            {1: 20.0, 2: 40.0}
        """
        raw = {node: number / max(self.estimate(node), FLOOR * self._share) for node, number in examples.items()}
        scale = sum(examples.values()) / sum(raw.values()) if raw else 1.0
        return {node: weight * scale for node, weight in raw.items()}


def effective_share(weights: Iterable[float]) -> float:
    """How evenly the weights lie: (sum w)^2 / (n sum w^2), 1 if all are equal, 1/n if one has all.

    Example:
        >>> effective_share([1.0, 1.0]), effective_share([1.0, 0.0]), effective_share([])
        (1.0, 0.5, 0.0)
    """
    given = list(weights)
    largest = max(given, default=0.0)
    if largest <= 0.0:
        return 0.0
    scaled = [weight / largest for weight in given]
    return sum(scaled) ** 2 / (len(scaled) * sum(weight * weight for weight in scaled))


def check_kind(kind: str | None, is_weighted_average: bool, strategy: str) -> str:
    """Which weights to use: inverse participation for weighted averages, else plain, unless asked for.

    Raises:
        ValueError: unknown, or any but plain for a strategy that does not average by weight.

    Example:
        >>> check_kind(None, True, "FedAvg"), check_kind(None, False, "FedMedian")
        ('inverse-participation', 'plain')
    """
    if kind is None:
        return INVERSE if is_weighted_average else PLAIN
    if kind not in KINDS:
        allowed = "'inverse-participation', 'stored-updates', 'plain' or None"
        raise invalid("weights", allowed, repr(kind), "leave it out")
    if kind != PLAIN and not is_weighted_average:
        remedy = "use FedAvg or a strategy made of it, or weights='plain'"
        raise invalid("weights", f"'plain' for {strategy}, which is no weighted average", repr(kind), remedy)
    return kind
