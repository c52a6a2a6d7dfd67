"""The server: FedAvg, wrapped in self-selection (or, for comparison, Flower's own random selection)."""

import random
from collections.abc import Mapping
from typing import Any

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Result, Strategy

from flower_digits.task import accuracy, digits, first_model
from flower_digits.weighed import WeighedFedAvg
from turnout.algorithm import Clamp, Classical, PaperCoin
from turnout.errors import invalid
from turnout.flower import SelfSelection

app = ServerApp()

BETA, EPSILON_PER_REPORT = 3.5, 1.0
SELECTIONS = ("random", "classical", "coin", "clamp")


def make_strategy(config: Mapping[str, Any]) -> Strategy:
    """The strategy that the settings ask for."""
    selection, share = config["selection"], config["capacity"] / config["clients"]
    usual = {"min_available_nodes": config["clients"], "fraction_evaluate": 0.0}
    if selection not in SELECTIONS:
        raise invalid("selection", " or ".join(SELECTIONS), repr(selection), "correct the run config")
    if selection == "random":
        random.seed(f"flower-digits-{config['seed']}")  # which is what Flower draws the nodes with
        kind = FedAvg if config["weights"] == "plain" else WeighedFedAvg
        strategy = kind(fraction_train=share, **usual)
        strategy.weights = config["weights"]
        return strategy
    mechanism = {
        "classical": Classical(),
        "coin": PaperCoin(BETA),
        "clamp": Clamp(EPSILON_PER_REPORT, center=share),
    }[selection]
    return SelfSelection(FedAvg(**usual), capacity=config["capacity"], mechanism=mechanism, weights=config["weights"])


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Learn, and leave the history of the run in the context."""
    config = context.run_config
    data = digits(config["seed"], config["clients"])

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        everything, costly = accuracy(arrays.to_numpy_ndarrays(), data)
        return MetricRecord({"accuracy": everything, "costly-accuracy": costly})

    result = make_strategy(config).start(
        grid, ArrayRecord(first_model(config["seed"])), num_rounds=config["num-server-rounds"], evaluate_fn=evaluate
    )
    context.state["history"] = history(result)


def history(result: Result) -> MetricRecord:
    """Both accuracies after each round, and the last round's account (of self-selection)."""
    rounds = [result.evaluate_metrics_serverapp[number] for number in sorted(result.evaluate_metrics_serverapp)[1:]]
    told = {key: [float(record[key]) for record in rounds] for key in ("accuracy", "costly-accuracy")}
    last = result.train_metrics_clientapp[max(result.train_metrics_clientapp)]
    account = {key: float(value) for key, value in last.items() if key.startswith("turnout-epsilon-")}
    return MetricRecord(told | account)
