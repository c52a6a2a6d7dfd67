"""The server."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Learn the line."""
    num_rounds = context.run_config["num-server-rounds"]
    strategy = FedAvg(fraction_train=context.run_config["fraction-train"], min_available_nodes=20)
    result = strategy.start(grid=grid, initial_arrays=ArrayRecord([np.zeros(2)]), num_rounds=num_rounds)
    print("the line:", result.arrays.to_numpy_ndarrays()[0])
