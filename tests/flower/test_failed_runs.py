"""A run in which every training fails is no success: it ends with an error that names the likely cause."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod, message_size_mod
from flwr.serverapp.strategy import FedAvg

from flower.apps import add_one, column, fedavg, make_app, own_cost, run
from turnout.errors import TurnoutError
from turnout.flower import InProcessGrid, SelfSelection, self_selection_mod

RUN = {"rounds": 4, "nodes": 20, "capacity": 8}


def ours():
    return self_selection_mod(own_cost, durable=False, seed=7)


def app_with(*mods, train=add_one, name="default"):
    app = ClientApp()
    app.train(name, mods=list(mods))(train)
    return app


class Special(FedAvg):
    """Sends its models to another train function."""

    def configure_train(self, *arguments):
        for message in super().configure_train(*arguments):
            metadata = message.metadata
            yield Message(message.content, metadata.dst_node_id, "train.special", group_id=metadata.group_id)


def special():
    return Special(min_available_nodes=2, fraction_evaluate=0.0)


def without_weight(message, context):
    content = {"arrays": message.content["arrays"], "metrics": MetricRecord({"loss": 1.0})}
    return Message(RecordDict(content), reply_to=message)


def broken(message, context):
    raise RuntimeError("no such data set")


FAILING = {
    "another message type": (app_with(ours()), special(), {}, "'train.special', and the question went to 'train'"),
    "a type that no function has": (
        app_with(ours()),
        None,
        {"message_type": "train.special"},
        "nodes refused or failed to answer the question of type 'train.special' .*No train function registered",
    ),
    "the mod on another function": (app_with(ours(), name="special"), special(), {}, r"SelfSelection\(message_type="),
    "SecAgg+ first": (app_with(secaggplus_mod, ours()), None, {}, "secaggplus_mod works with .*: remove it"),
    "SecAgg+ after": (app_with(ours(), secaggplus_mod), None, {}, "none succeeded .*secaggplus_mod works with"),
    "clipping first": (app_with(fixedclipping_mod, ours()), None, {}, "belongs to a differential-privacy wrapper"),
    "clipping after": (app_with(ours(), fixedclipping_mod), None, {}, "none succeeded .*belongs to a differential"),
    "adaptive after": (app_with(ours(), adaptiveclipping_mod), None, {}, "none succeeded .*belongs to a differential"),
    "LocalDpMod first": (
        app_with(LocalDpMod(1.0, 1.0, 1.0, 1e-5), ours()),
        None,
        {},
        "make self_selection_mod the first one",
    ),
    "no mod": (app_with(), None, {}, r"register self_selection_mod\(...\) as the first mod of the train function"),
    "the mod twice": (app_with(ours(), ours()), None, {}, "none succeeded .*registered twice"),
    "no weight": (app_with(ours(), train=without_weight), None, {}, "none succeeded .*weighted_by_key"),
    "a mistake in train": (
        app_with(ours(), train=broken),
        None,
        {},
        "none succeeded .*no such data set.*see a client's log",
    ),
}


@pytest.mark.parametrize("name", FAILING)
def test_the_error_names_the_likely_cause(name):
    app, inner, options, said = FAILING[name]
    with pytest.raises(TurnoutError, match=said):
        run(app, inner=inner, **RUN | options)


@pytest.mark.parametrize(
    "name", ["SecAgg+ after", "clipping after", "the mod twice", "no weight", "a mistake in train"]
)
def test_also_in_one_phase(name):
    app, inner, options, said = FAILING[name]
    with pytest.raises(TurnoutError, match=said.removeprefix("none succeeded ")):
        run(app, inner=inner, phases=1, **RUN | options)


@pytest.mark.parametrize(
    "app",
    [app_with(ours(), LocalDpMod(1.0, 1.0, 1.0, 1e-5)), app_with(message_size_mod, ours()), app_with(ours())],
)
def test_what_goes_together_trains(app):
    assert sum(column(run(app, **RUN), "trained")) > 0


def test_both_name_the_same_function():
    found = run(app_with(ours(), name="special"), inner=special(), message_type="train.special", **RUN)
    assert sum(column(found, "trained")) > 0


def test_a_run_is_not_ended_by_failures_once_something_was_trained():
    def later(message, context):
        times = context.state.get("times") or MetricRecord({"times": 0})
        context.state["times"] = MetricRecord({"times": times["times"] + 1})
        if times["times"]:
            raise RuntimeError("out of memory")
        return add_one(message, context)

    result = run(make_app(later), rounds=12, nodes=20, capacity=10)
    assert len(result.train_metrics_clientapp) == 12
    assert column(result, "trained")[-1] < column(result, "participants")[-1]


def test_a_few_failures_do_not_end_a_run_early(told):
    """Fewer than twenty trainings say little: the run goes on to its end, and only then it is an error."""
    rounds = []

    class Counting(SelfSelection):
        def aggregate_train(self, server_round, replies):
            rounds.append(server_round)
            return super().aggregate_train(server_round, replies)

    with pytest.raises(TurnoutError, match=r"all \d+ trainings of \d rounds failed, and none succeeded"):
        Counting(fedavg(min_train_nodes=1), capacity=1.5).start(
            InProcessGrid(app_with(ours(), train=broken), 6), ArrayRecord([np.zeros(3)]), num_rounds=6
        )
    assert rounds == [1, 2, 3, 4, 5, 6]
    assert "trainings of this round failed" in told.text


def test_silence_is_no_failure():
    """Nodes that never return a model may be slow: the run ends without an error, as in Flower."""

    def interfere(node, message):
        return "reply-lost" if "arrays" in message.content else None

    result = run(grid=InProcessGrid(app_with(ours()), 20, interfere=interfere), rounds=4, capacity=8)
    assert sum(column(result, "trained")) == 0


class TestMetrics:
    def test_a_handful_unless_all_are_asked_for(self):
        few = run(rounds=2, metrics="few").train_metrics_clientapp[1]
        every = run(rounds=2, metrics="all").train_metrics_clientapp[1]
        ours_few, ours_all = ([name for name in found if name.startswith("turnout-")] for found in (few, every))
        assert sorted(ours_few) == [
            "turnout-epsilon-per-report-against-server",
            "turnout-epsilon-total-against-server",
            "turnout-participants",
            "turnout-signal",
            "turnout-trained",
        ]
        assert len(ours_all) == 21
        assert {name: every[name] for name in few} == dict(few)

    def test_few_is_the_default_and_a_misspelt_one_is_refused(self):
        assert SelfSelection(fedavg(), capacity=5).metrics == "few"
        with pytest.raises(ValueError, match="metrics must be 'few' or 'all', got 'al'"):
            SelfSelection(fedavg(), capacity=5, metrics="al")
