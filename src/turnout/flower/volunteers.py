"""The Grid as the inner strategy sees it: the volunteers, and nobody else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from turnout.errors import TurnoutError

PATIENCE = 8
"""Looks at the node list in one `configure_train`; a strategy that looks more often is waiting for others to come."""


class StillWaiting(TurnoutError):
    """The strategy waits for more nodes than have volunteered: the round is skipped.

    Example:
        >>> issubclass(StillWaiting, TurnoutError)
        True
    """


class VolunteersGrid(Grid):
    """A Grid that shows some of the nodes and passes everything else on.

    Args:
        grid: the real one.
        nodes: those to show.
    """

    def __init__(self, grid: Grid, nodes: Iterable[int]) -> None:
        self._grid, self._nodes, self._looks = grid, list(nodes), 0

    def get_node_ids(self) -> Iterable[int]:
        """The volunteers.

        Raises:
            StillWaiting: the strategy has looked too often: it would wait for ever.
        """
        self._looks += 1
        if self._looks > PATIENCE:
            raise StillWaiting(f"the strategy waits for more than the {len(self._nodes)} nodes that have volunteered")
        return list(self._nodes)

    def get_nodes(self) -> Iterable[Any]:
        """The volunteers, with what the Grid knows about them."""
        wanted = set(self._nodes)
        return [node for node in self._grid.get_nodes() if node.node_id in wanted]

    def set_run(self, run: Any) -> None:
        """Passed on."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """The real Grid's."""
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Passed on."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Passed on."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Passed on."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Passed on."""
        return self._grid.send_and_receive(messages, timeout=timeout)


@contextmanager
def all_available(strategy: Strategy) -> Iterator[None]:
    """Within it the strategy waits for nobody: `min_available_nodes` counts nodes, and it is shown volunteers only."""
    usual = getattr(strategy, "min_available_nodes", None)
    if usual is None:
        yield
        return
    strategy.min_available_nodes = 0  # type: ignore[attr-defined]
    try:
        yield
    finally:
        strategy.min_available_nodes = usual  # type: ignore[attr-defined]
