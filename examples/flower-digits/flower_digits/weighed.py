"""For the comparison alone: the weights of self-selection under Flower's random selection, which needs none."""

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from turnout.flower import ParticipationBook, StoredUpdates, arrays_of, with_arrays, with_weight


class WeighedFedAvg(FedAvg):
    """FedAvg with random selection, and with inverse-participation weights or stored updates."""

    weights = "inverse-participation"

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As FedAvg does; remember what was sent."""
        if server_round == 1:
            self._book, self._stored = ParticipationBook(self.fraction_train), StoredUpdates()
        self._model, self._nodes = arrays, list(grid.get_node_ids())
        self._book.saw(self._nodes)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Weigh the updates, then as FedAvg does."""
        good = {reply.metadata.src_node_id: reply for reply in replies if not reply.has_error()}
        good, key = dict(sorted(good.items())), self.weighted_by_key
        examples = {node: float(reply.content["metrics"][key]) for node, reply in good.items()}
        if self.weights == "stored-updates":
            updates = {node: arrays_of(reply) for node, reply in good.items()}
            for node, arrays in self._stored.correct(self._model, updates, examples, self._nodes).items():
                with_arrays(good[node], arrays)
        for node, weight in self._book.weights(examples).items():
            with_weight(good[node], key, weight)
        self._book.close_round(good)
        return super().aggregate_train(server_round, good.values())
