"""The client: it decides by a private cost whether to train, and trains on its own few digits."""

from functools import lru_cache

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod

from flower_digits.task import digits, population, train
from turnout.flower import Device, self_selection_mod
from turnout.problem import Costs

app = ClientApp()


@lru_cache(maxsize=4096)
def cost_of(family: str, seed: int, clients: int, capacity: float, client: int) -> Costs:
    """The cost of one client."""
    return population(family, seed, clients, capacity / clients)[client]


def own_cost(device: Device) -> Costs:
    """This client's own; the server never sees it."""
    config = device.context.run_config
    settings = (config["costs"], config["seed"], config["clients"], config["capacity"])
    return cost_of(*settings, device.context.node_config["partition-id"])


@lru_cache(maxsize=16)
def choosing(seed: int) -> Mod:
    """Self-selection for a study: repeatable, in memory, and with mechanisms that have no certificate too.

    A real client says `self_selection_mod()`, and its owner says the rest in node-config.
    """
    return self_selection_mod(own_cost, durable=False, seed=seed, allow_uncertified=True)


def unless_random(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """For the comparison: where Flower selects at random, nobody is asked."""
    if context.run_config["selection"] == "random":
        return call_next(message, context)
    return choosing(int(context.run_config["seed"]))(message, context, call_next)


@app.train(mods=[unless_random])
def fit(message: Message, context: Context) -> Message:
    """Train the received model on this client's digits."""
    config = context.run_config
    images, labels = digits(config["seed"], config["clients"]).part(context.node_config["partition-id"])
    model = message.content["arrays"].to_numpy_ndarrays()
    model, loss = train(model, images, labels, config["local-steps"], config["learning-rate"])
    metrics = MetricRecord({"num-examples": len(labels), "train-loss": loss})
    return Message(RecordDict({"arrays": ArrayRecord(model), "metrics": metrics}), reply_to=message)
