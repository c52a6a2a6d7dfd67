"""How long a client and round takes with an empty client: the in-process Grid against Flower's Ray engine.

    python benchmarks/flower_grid.py [--nodes 50] [--rounds 20]

The same ServerApp, strategy, ClientApp and seed in both; prints one line of JSON. The turnouts must agree.
"""

import argparse
import json
import logging
import os
import time

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from turnout.flower import SelfSelection, run_in_process, self_selection_mod


def make_client(nodes, seed=7):
    """An empty client: it returns the model unchanged. Its cost depends on its partition."""
    costs = np.random.default_rng(0).uniform(1.0, 10.0, nodes).tolist()
    app = ClientApp()

    def cost(device):
        return costs[device.context.node_config["partition-id"]]

    @app.train(mods=[self_selection_mod(cost, durable=False, seed=seed)])
    def train(message, context):
        content = {"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(content), reply_to=message)

    return app


def make_server(nodes, rounds, capacity, found):
    """Runs the strategy and notes how long it took, once the nodes are there."""
    app = ServerApp()

    @app.main()
    def main(grid, context):
        while len(list(grid.get_node_ids())) < nodes:
            time.sleep(0.1)
        inner = FedAvg(min_available_nodes=nodes, fraction_evaluate=0.0)
        strategy = SelfSelection(inner, capacity=capacity, ask_timeout=240.0)  # Ray may take long to start
        begun = time.perf_counter()
        result = strategy.start(grid, ArrayRecord([np.zeros(10)]), num_rounds=rounds)
        found["seconds"] = time.perf_counter() - begun
        metrics = result.train_metrics_clientapp.values()
        found["turnout"] = [record["turnout-participants"] for record in metrics]
        found["signal"] = [record["turnout-signal"] for record in metrics]

    return app


def measure(engine, nodes, rounds, capacity):
    """One run; seconds, turnout and signal."""
    found = {}
    server, client = make_server(nodes, rounds, capacity, found), make_client(nodes)
    if engine == "in-process":
        run_in_process(server, client, nodes)
    else:
        from flwr.simulation import run_simulation  # Flower prefers `flwr run`, which needs a SuperLink

        cores = os.cpu_count() or 1
        here = {"address": "local", "num_cpus": cores, "include_dashboard": False, "log_to_driver": False}
        resources = {"num_cpus": 1, "num_gpus": 0.0}
        run_simulation(server, client, nodes, backend_config={"init_args": here, "client_resources": resources})
    return found


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--nodes", type=int, default=50)
    options.add_argument("--rounds", type=int, default=20)
    given = options.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    both = {name: measure(name, given.nodes, given.rounds, 0.3 * given.nodes) for name in ("in-process", "ray")}
    each = {name: 1000 * found["seconds"] / given.nodes / given.rounds for name, found in both.items()}
    same = all(both["ray"][name] == both["in-process"][name] for name in ("turnout", "signal"))
    print(
        json.dumps(
            {
                "nodes": given.nodes,
                "rounds": given.rounds,
                "milliseconds_per_client_and_round": each,
                "times_faster": each["ray"] / each["in-process"],
                "same_turnout_and_signal": same,
            }
        )
    )
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
