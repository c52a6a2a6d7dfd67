"""The in-process Grid against Flower's own rules, and against its Ray engine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from flower.apps import add_one, column, fedavg, make_app, run, start
from turnout.flower import InProcessGrid, SelfSelection, run_in_process

ENGINES = Path(__file__).with_name("both_engines.py")


def echo_app(act=lambda message, context: None):
    app = ClientApp()

    @app.train()
    def train(message, context):
        act(message, context)
        return Message(
            RecordDict({"me": ConfigRecord({"node": context.node_config["partition-id"]})}), reply_to=message
        )

    return app


def send(grid, nodes=None, **records):
    nodes = grid.get_node_ids() if nodes is None else nodes
    content = RecordDict(records)
    return list(grid.send_and_receive([Message(content, node, "train") for node in nodes]))


def test_replies_come_in_an_order_that_the_seed_alone_decides():
    orders = []
    for seed in (1, 1, 2):
        grid = InProcessGrid(echo_app(), 8, seed=seed)
        orders.append([reply.content["me"]["node"] for reply in send(grid)])
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert orders[0] != sorted(orders[0])
    assert sorted(orders[0]) == list(range(8))


def test_the_order_of_sending_does_not_matter():
    grids = [InProcessGrid(echo_app(), 8, seed=1) for _ in range(2)]
    forwards, backwards = send(grids[0]), send(grids[1], reversed(list(grids[1].get_node_ids())))
    assert [r.content["me"]["node"] for r in forwards] == [r.content["me"]["node"] for r in backwards]


def test_a_node_may_change_its_message_and_nobody_else_sees_it():
    def spoil(message, context):
        assert message.content["config"]["list"] == [1, 2]
        message.content["config"]["list"].append(3)
        del message.content["config"]

    grid = InProcessGrid(echo_app(spoil), 3)
    assert not any(reply.has_error() for reply in send(grid, config=ConfigRecord({"list": [1, 2]})))


def test_state_lasts_and_is_rolled_back_if_the_app_raises():
    def count(message, context):
        seen = context.state.setdefault("seen", ConfigRecord({"times": 0}))
        seen["times"] += 1
        if "fail" in message.content:
            raise RuntimeError("no")

    grid = InProcessGrid(echo_app(count), 1)
    send(grid)
    (failed,) = send(grid, fail=ConfigRecord())
    assert failed.error.code == 2
    send(grid)
    assert grid.context(0).state["seen"]["times"] == 2


def test_nodes_come_and_go_and_break():
    grid = InProcessGrid(echo_app(), 3)
    everyone = list(grid.get_node_ids())
    grid.disconnect(1)
    assert len(list(grid.get_node_ids())) == 2
    replies = send(grid, everyone)
    assert sorted(reply.has_error() for reply in replies) == [False, False, True]
    (error,) = (reply for reply in replies if reply.has_error())
    assert error.error.code == 5
    assert error.metadata.src_node_id != everyone[1]
    grid.connect(1)
    assert len(list(grid.get_node_ids())) == 3


def test_a_lost_reply_is_not_an_undelivered_message():
    done = []
    for trouble, times in (("timeout", 0), ("reply-lost", 2)):
        done.clear()
        grid = InProcessGrid(echo_app(lambda m, c: done.append(1)), 2, interfere=lambda node, message, t=trouble: t)
        assert send(grid) == []
        assert len(done) == times


def test_messages_may_be_pushed_and_pulled():
    grid = InProcessGrid(echo_app(), 2)
    names = list(grid.push_messages([Message(RecordDict(), node, "train") for node in grid.get_node_ids()]))
    assert len(list(grid.pull_messages(names))) == 2
    assert list(grid.pull_messages(names)) == []


def test_node_configs_and_run_config_reach_the_app():
    seen = []
    app = echo_app(lambda message, context: seen.append((dict(context.node_config), dict(context.run_config))))
    send(InProcessGrid(app, 2, node_configs=[{"a": 1}, {"a": 2}], run_config={"lr": 0.1}))
    assert [node["a"] for node, _ in seen] == [1, 2]
    assert all(node["num-partitions"] == 2 and config == {"lr": 0.1} for node, config in seen)
    with pytest.raises(ValueError, match="num_nodes must be"):
        InProcessGrid(app, 2, node_configs=[{}])


def test_a_whole_app_runs():
    server = ServerApp()

    @server.main()
    def main(grid, context):
        result = start(SelfSelection(fedavg(), capacity=5), grid, context.run_config["rounds"])
        context.state["turnout"] = MetricRecord({"all": column(result, "participants")})

    context = run_in_process(server, make_app(), 12, run_config={"rounds": 3})
    assert context.state["turnout"]["all"] == column(run(make_app(), nodes=12, capacity=5, rounds=3), "participants")


def test_the_update_is_what_the_app_made():
    result = run(make_app(add_one), rounds=3)
    assert result.arrays["0"].numpy().tolist() == pytest.approx([3.0] * 3)


@pytest.mark.deployment
def test_flowers_own_engine_gives_the_same_turnout_and_signal(tmp_path):
    """50 nodes, capacity 15, the same seed; Ray in a process of its own."""
    environment = os.environ | {
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "FLWR_HOME": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, str(ENGINES), "60"], capture_output=True, text=True, timeout=280, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    both = json.loads(done.stdout.splitlines()[-1])
    assert len(both["ray"]["turnout"]) == 60
    assert both["ray"]["turnout"] == both["in-process"]["turnout"]
    assert both["ray"]["signal"] == both["in-process"]["signal"]
    assert abs(sum(both["ray"]["turnout"][30:]) / 30 - 15) <= 1.0
