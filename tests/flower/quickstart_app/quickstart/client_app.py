"""The client."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from quickstart.task import load_data
from quickstart.task import test as test_fn
from quickstart.task import train as train_fn

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model on this client's data."""
    weights = msg.content["arrays"].to_numpy_ndarrays()[0]
    data = load_data(context.node_config["partition-id"])
    weights, loss = train_fn(weights, data, context.run_config["local-epochs"], context.run_config["lr"])
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(data[1])})
    return Message(RecordDict({"arrays": ArrayRecord([weights]), "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Evaluate the model on this client's data."""
    data = load_data(context.node_config["partition-id"])
    loss = test_fn(msg.content["arrays"].to_numpy_ndarrays()[0], data)
    metrics = MetricRecord({"eval_loss": loss, "num-examples": len(data[1])})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)
