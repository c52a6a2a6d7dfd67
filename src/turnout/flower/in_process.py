"""Flower in one process, without Ray: the same ServerApp, strategy and ClientApp, seeded, and many times faster."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from turnout.errors import invalid
from turnout.flower.protocol import UNAVAILABLE, app_raised

SERVER = 1
"""The server's node id, as Flower has it."""

Interference = Callable[[int, Message], str | None]
"""From a node's index and the message to it: None, "timeout", "reply-lost" or "unavailable"."""


class InProcessGrid(Grid):
    """A Grid whose nodes live in this process and answer at once.

    As in Flower, every node has a Context of its own, whose state lasts from message to message and is rolled back if
    the app raises; messages are copied on the way; replies arrive in another order than the messages, and node ids
    say nothing about partition-ids. All of that depends on the seed alone.

    Args:
        client_app: what the nodes run.
        num_nodes: how many.
        node_configs: one for each node, added to its partition-id and num-partitions.
        run_config: the app's settings.
        seed: of node ids and the order of replies.
        interfere: breaks things, for tests: called for each message, it may let it time out (never delivered),
            lose the reply (delivered, and the node has acted), or make the node unavailable (an error that,
            as in Flower, carries another node's id).

    Example:
        >>> from flwr.clientapp import ClientApp
        >>> app = ClientApp()
        >>> @app.train()
        ... def train(message, context):
        ...     return Message(RecordDict(), reply_to=message)
        >>> grid = InProcessGrid(app, num_nodes=3)
        >>> messages = [Message(RecordDict(), node, "train") for node in grid.get_node_ids()]
        >>> len(grid.send_and_receive(messages))
        3
    """

    def __init__(
        self,
        client_app: ClientApp,
        num_nodes: int,
        *,
        node_configs: Sequence[Mapping[str, Any]] | None = None,
        run_config: Mapping[str, Any] | None = None,
        seed: int = 0,
        interfere: Interference | None = None,
    ) -> None:
        if num_nodes < 1 or (node_configs is not None and len(node_configs) != num_nodes):
            given = f"{num_nodes} nodes, {len(node_configs or ())} configs"
            raise invalid("num_nodes", "1 or more, with one config each or none", given, "give as many as nodes")
        self._app, self._interfere = client_app, interfere
        self._random = random.Random(f"turnout-in-process-{seed}")
        self._run = Run.create_empty(run_id=self._random.getrandbits(62))
        ids = self._random.sample(range(2, 2**62), num_nodes)
        self._index = {node: index for index, node in enumerate(ids)}
        self._contexts = [
            Context(
                run_id=self._run.run_id,
                node_id=node,
                node_config={"partition-id": index, "num-partitions": num_nodes}
                | dict(node_configs[index] if node_configs else {}),
                state=RecordDict(),
                run_config=dict(run_config or {}),
            )
            for node, index in self._index.items()
        ]
        self._connected = set(range(num_nodes))
        self._replies: dict[str, tuple[int, Message]] = {}
        self._pushed = 0
        # Message() asks the process who is speaking.
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, self._run.run_id, SERVER

    def disconnect(self, *nodes: int) -> None:
        """These nodes (by index) are gone, until they connect again."""
        self._connected.difference_update(nodes)

    def connect(self, *nodes: int) -> None:
        """These nodes (by index) are back, with their old Context."""
        self._connected.update(nodes)

    def context(self, node: int) -> Context:
        """A node's Context, by its index: for tests."""
        return self._contexts[node]

    def set_run(self, run: Run) -> None:
        """Name another run."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run; its id depends on the seed."""
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """A message; Flower prefers the constructor."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """The ids of the connected nodes."""
        return [node for node, index in self._index.items() if index in self._connected]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Deliver the messages, at once."""
        names = []
        for message in messages:
            self._pushed += 1
            names.append(name := f"message-{self._pushed}")
            message.metadata.__dict__["_message_id"] = name  # as Flower's own Grids do
            reply = self._deliver(message)
            if reply is not None:
                self._replies[name] = (message.metadata.dst_node_id, reply)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies to these messages that are there, in any order."""
        found = [self._replies.pop(name) for name in message_ids if name in self._replies]
        found.sort(key=lambda item: item[0])  # strategies send in an order that the seed does not know
        self._random.shuffle(found)
        return [reply for _, reply in found]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Deliver, and return the replies. What is lost is lost: nobody waits for the timeout."""
        return self.pull_messages(self.push_messages(messages))

    def _deliver(self, message: Message) -> Message | None:
        index = self._index.get(message.metadata.dst_node_id)
        trouble = self._interfere(index, message) if self._interfere and index is not None else None
        if index is None or index not in self._connected or trouble == "unavailable":
            reply = Message(Error(UNAVAILABLE, "Node is unavailable"), reply_to=message)
            reply.metadata.__dict__["_src_node_id"] = self._another(message.metadata.dst_node_id)
            return reply
        if trouble == "timeout":
            return None
        reply = self._execute(_arrived(message), self._contexts[index])
        return None if trouble == "reply-lost" else reply

    def _another(self, node: int) -> int:
        ids = list(self._index)
        return ids[(self._index.get(node, 0) + 1) % len(ids)]

    def _execute(self, message: Message, context: Context) -> Message:
        before = _copied(context.state)
        try:
            reply = self._app(message, context)
        except Exception as error:
            context.state = before
            return app_raised(message, error)
        return _arrived(reply)


def _arrived(message: Message) -> Message:
    """A message as it arrives: the records are the receiver's own, the arrays in them, which are bytes, are shared."""
    made = Message.__new__(Message)
    made.__dict__.update(message.__dict__)
    if message.has_content():
        made.__dict__["_content"] = _copied(message.content)
    return made


def _copied(records: RecordDict) -> RecordDict:
    """The same records, each one new: a change in one copy is not seen in the other.

    Example:
        >>> from flwr.app import ConfigRecord
        >>> first = RecordDict({"a": ConfigRecord({"b": 1})})
        >>> second = _copied(first)
        >>> second["a"]["b"] = 2
        >>> first["a"]["b"]
        1
    """
    made = records.copy()
    for name, record in records.items():
        fresh = record.copy()
        for key, value in record.items():
            if isinstance(value, list):
                fresh[key] = list(value)  # type: ignore[assignment]
        made[name] = fresh
    return made


def run_in_process(
    server_app: ServerApp,
    client_app: ClientApp,
    num_nodes: int,
    *,
    run_config: Mapping[str, Any] | None = None,
    **options: Any,
) -> Context:
    """Run a whole app in this process, as `flwr run` does with Ray; returns the server's Context.

    Args:
        server_app: the app's.
        client_app: the app's.
        num_nodes: how many nodes.
        run_config: the app's settings, for both.
        options: of `InProcessGrid`.
    """
    grid = InProcessGrid(client_app, num_nodes, run_config=run_config, **options)
    context = Context(
        run_id=grid.run.run_id, node_id=0, node_config={}, state=RecordDict(), run_config=dict(run_config or {})
    )
    server_app(grid, context)
    return context
