"""The client: adds one to the model."""

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from turnout.flower import self_selection_mod

app = ClientApp()


@app.train(mods=[self_selection_mod()])
def train(message, context):
    arrays = [array + 1.0 for array in message.content["arrays"].to_numpy_ndarrays()]
    metrics = MetricRecord({"num-examples": 10})
    return Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}), reply_to=message)
