"""The server: writes each round's metrics to a file as soon as they are there."""

import json
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from turnout.flower import SelfSelection

app = ServerApp()


class Noted(SelfSelection):
    results = ""

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        with Path(self.results).open("a") as file:
            file.write(json.dumps({"round": server_round} | dict(metrics)) + "\n")
        return arrays, metrics


@app.main()
def main(grid, context):
    inner = FedAvg(min_available_nodes=4, min_train_nodes=1, fraction_evaluate=0.0)
    strategy = Noted(inner, capacity=2, ask_timeout=20, metrics="all")
    strategy.results = context.run_config["results"]
    result = strategy.start(
        grid, ArrayRecord([np.zeros(3)]), num_rounds=context.run_config["num-server-rounds"], timeout=40
    )
    with Path(strategy.results).open("a") as file:
        file.write(json.dumps({"finished": len(result.train_metrics_clientapp)}) + "\n")
