"""Small Flower apps for the tests: the model counts trainings, what it learns does not matter."""

import json

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from turnout.flower import InProcessGrid, SelfSelection, self_selection_mod

NODES, CAPACITY, ROUNDS = 50, 15, 60
COSTS = np.random.default_rng(0).uniform(1.0, 10.0, NODES).tolist()


def own_cost(device):
    return COSTS[device.context.node_config["partition-id"]]


def partition(context):
    return context.node_config["partition-id"]


def update(message, arrays, **metrics):
    content = {
        "arrays": ArrayRecord(arrays),
        "metrics": MetricRecord({"num-examples": 10, "train_loss": 1.0} | metrics),
    }
    return Message(RecordDict(content), reply_to=message)


def add_one(message, context):
    """A training: one is added to the model."""
    return update(message, [array + 1.0 for array in message.content["arrays"].to_numpy_ndarrays()])


def add_a_tree(message, context):
    """What boosted trees look like to FedXgbBagging."""
    counts = {"num_trees": "1", "num_parallel_tree": "1"}
    model = {"gbtree_model_param": counts, "iteration_indptr": [0, 1], "trees": [{"id": 0}], "tree_info": [0]}
    text = json.dumps({"learner": {"gradient_booster": {"model": model}}})
    return update(message, [np.frombuffer(text.encode(), dtype=np.uint8)])


def make_app(train=add_one, *, outermost=(), cost=own_cost, durable=False, seed=7, **options):
    app = ClientApp()
    mod = self_selection_mod(cost, durable=durable, seed=None if durable else seed, **options)
    app.train(mods=[*outermost, mod])(train)

    @app.evaluate()
    def evaluate(message, context):
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 10, "loss": 1.0})}), reply_to=message)

    return app


def fedavg(**options):
    return FedAvg(**{"min_available_nodes": 2, "fraction_evaluate": 0.0} | options)


def start(strategy, grid, rounds=ROUNDS, arrays=None, **options):
    return strategy.start(grid, ArrayRecord([np.zeros(3)]) if arrays is None else arrays, num_rounds=rounds, **options)


def column(result, name):
    return [metrics[f"turnout-{name}"] for metrics in result.train_metrics_clientapp.values()]


def run(app=None, *, inner=None, nodes=NODES, rounds=ROUNDS, capacity=CAPACITY, grid=None, **options):
    grid = grid or InProcessGrid(app or make_app(), nodes)
    options = {"metrics": "all"} | options
    return start(SelfSelection(inner or fedavg(), capacity=capacity, **options), grid, rounds)
