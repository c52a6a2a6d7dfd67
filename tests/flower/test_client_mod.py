"""The client's side: what it keeps, what it refuses, and that nothing private leaves it."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from flower.apps import NODES, add_one, column, fedavg, make_app, run, start
from turnout import Classical, PaperCoin, PolynomialCosts
from turnout.algorithm import Clamp, Memoized
from turnout.client import DATUM, Ledger, Limit, limit_with
from turnout.errors import TurnoutError
from turnout.flower import InProcessGrid, SelfSelection, self_selection_mod
from turnout.flower.client_mod import Device, _owner_limit, cost_of, read_cost

FEW, ENOUGH = 4, 2.0


def homes(folder, nodes=FEW, **settings):
    """A state directory for each node, and the owner's settings."""
    made = []
    for node in range(nodes):
        home = folder / f"home{node}"
        home.mkdir(exist_ok=True)
        made.append({"turnout-state": str(home), "turnout-cost": 1.0 + node} | settings)
    return made


def durable_run(folder, rounds, train=add_one, settings=None, options=None, **selection):
    app = make_app(train, cost=None, durable=True, **(options or {}))
    grid = InProcessGrid(app, FEW, node_configs=homes(folder, **(settings or {})))
    strategy = SelfSelection(fedavg(min_train_nodes=1), capacity=ENOUGH, metrics="all", **selection)
    return start(strategy, grid, rounds)


def stored(folder, node=0):
    (path,) = (folder / f"home{node}").glob("flower-*/rounds.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def decided(folder, node=0):
    return [entry["round"] for entry in stored(folder, node) if entry["entry"] == "decided"]


def ask(grid, round=1, signal=1.0, mechanism=None, **changes):
    """One question to every node, as a server would ask it."""
    from turnout.flower.protocol import RECORD, Question, mechanism_text

    text = mechanism_text(mechanism or Clamp(1.0, 0.5))
    question = Question("ask", round, signal, text, 0.5, 10.0)
    record = ConfigRecord({"question": json.dumps(vars(question) | changes)})
    messages = [Message(RecordDict({RECORD: record}), node, "train") for node in grid.get_node_ids()]
    return list(grid.send_and_receive(messages))


class TestDurable:
    def test_a_restart_continues_the_history(self, tmp_path):
        durable_run(tmp_path, 3)
        before = (next((tmp_path / "home0").glob("flower-*")) / "rounds.jsonl").read_bytes()
        # Everything anew but the files: app, mod, grid, Context; the same run id, because the same seed.
        app = make_app(cost=None, durable=True)
        grid = InProcessGrid(app, FEW, node_configs=homes(tmp_path))
        replies = ask(grid, round=4)
        assert not any(reply.has_error() for reply in replies)
        after = (next((tmp_path / "home0").glob("flower-*")) / "rounds.jsonl").read_bytes()
        assert after.startswith(before)
        assert decided(tmp_path) == [1, 2, 3, 4]

    def test_the_same_round_is_never_tossed_twice(self, tmp_path):
        grid = InProcessGrid(make_app(cost=None, durable=True), FEW, node_configs=homes(tmp_path))
        bits = [
            {r.metadata.src_node_id: r.content["turnout"]["participates"] for r in ask(grid, 1, s)} for s in (0.0, 9.0)
        ]
        assert bits[0] == bits[1]
        assert decided(tmp_path) == [1]

    def test_a_failing_train_loses_nothing(self, tmp_path):
        def fail(message, context):
            raise RuntimeError("out of memory")

        with pytest.raises(TurnoutError, match=r"none succeeded .*out of memory"):
            durable_run(tmp_path, 4, train=fail)
        assert decided(tmp_path) == [1, 2, 3, 4]

    def test_the_owners_limit_is_a_hard_stop(self, tmp_path):
        result = durable_run(tmp_path, 6, settings={"turnout-limit-reports": 3})
        assert column(result, "stopped") == [0, 0, 0, FEW, FEW, FEW]
        assert column(result, "participants")[3:] == [0, 0, 0]
        ledger = [json.loads(line) for line in (tmp_path / "home1" / "ledger.jsonl").read_text().splitlines()]
        assert sum(entry["entry"] == "reserved" for entry in ledger) == 3

    def test_or_it_follows_public_data_if_the_app_says_so(self, tmp_path):
        result = durable_run(tmp_path, 6, settings={"turnout-limit-reports": 3}, options={"after_stop": "follow"})
        assert column(result, "stopped") == [0] * 6
        kinds = [entry["kind"] for entry in stored(tmp_path) if entry["entry"] == "decided"]
        assert kinds == ["tossed"] * 3 + ["followed"] * 3

    def test_a_higher_limit_needs_the_owners_consent(self, tmp_path):
        durable_run(tmp_path, 2, settings={"turnout-limit-reports": 2})
        with pytest.raises(TurnoutError, match="not in order"):
            durable_run(tmp_path, 2, settings={"turnout-limit-reports": 9})
        durable_run(tmp_path, 2, settings={"turnout-limit-reports": 9, "turnout-consent": True})

    def test_a_lost_answer_does_not_count_in_the_history(self, tmp_path):
        lost = {(0, "1")}

        def interfere(node, message):
            return "reply-lost" if (node, message.metadata.group_id) in lost else None

        app = make_app(cost=None, durable=True)
        grid = InProcessGrid(app, FEW, node_configs=homes(tmp_path), interfere=interfere)
        result = start(SelfSelection(fedavg(min_train_nodes=1), capacity=ENOUGH, metrics="all"), grid, 3)
        assert column(result, "unanswered") == [1, 0, 0]
        told = [(entry["round"], entry["counted"]) for entry in stored(tmp_path) if entry["entry"] == "acknowledged"]
        assert told == [(1, False)]

    def test_no_state_directory_is_a_clear_error(self):
        with pytest.raises(TurnoutError, match=r"no state directory: start it with --node-config 'turnout-state="):
            run(make_app(durable=True, cost=2.0), nodes=FEW, capacity=ENOUGH)

    def test_nor_is_one_made_up_from_a_misspelt_name(self, tmp_path):
        app = make_app(durable=True, cost=2.0)
        grid = InProcessGrid(app, 2, node_configs=[{"turnout-state": str(tmp_path / "nothing")}] * 2)
        with pytest.raises(TurnoutError, match="not there: create the folder first"):
            run(grid=grid, capacity=1, inner=fedavg(min_train_nodes=1))
        assert not (tmp_path / "nothing").exists()

    def test_seeds_and_studies_are_not_for_durable_clients(self):
        for options in ({"seed": 1}, {"allow_uncertified": True}, {"after_stop": "never"}):
            with pytest.raises(ValueError, match="must be"):
                self_selection_mod(1.0, **options)


class TestStudy:
    def test_a_failing_train_loses_nothing(self):
        def fail(message, context):
            if context.node_config["partition-id"] % 2:
                raise RuntimeError("out of memory")
            return add_one(message, context)

        failing, fine = run(make_app(fail), rounds=15, phases=2), run(rounds=15)
        assert column(failing, "participants") == column(fine, "participants")
        assert sum(column(failing, "failed-trainings")) > 0

    def test_also_in_one_phase_where_deciding_and_training_are_one_message(self):
        grid = InProcessGrid(make_app(lambda message, context: 1 / 0), 10)
        with pytest.raises(TurnoutError, match=r"none succeeded .*division by zero"):
            run(grid=grid, capacity=4, rounds=4, phases=1)
        history = [json.loads(grid.context(node).state["turnout"]["history"]) for node in range(10)]
        assert [kept["last"] for kept in history] == [4] * 10

    def test_the_budget_stops_it_too(self):
        result = run(make_app(limit=Limit(3, 1.0)), rounds=5)
        assert column(result, "stopped") == [0, 0, 0, NODES, NODES]

    def test_a_release_at_joining_is_made_once(self):
        mechanism = Memoized(epsilon=1.0, price=5.0)
        grid = InProcessGrid(make_app(seed=None, limit=Limit(100, 1.0)), 20)
        result = run(grid=grid, capacity=6, rounds=5, mechanism=mechanism)
        released = [json.loads(grid.context(node).state["turnout"]["history"])["released"] for node in range(20)]
        assert len({json.dumps(one) for one in released}) > 1  # chance of a false alarm below 3 * 0.6^20 = 1e-4
        assert set(column(result, "epsilon-total-against-server")) == {1.0}
        assert set(column(result, "epsilon-lifetime-against-server")) == {1.0}
        assert "turnout-epsilon-per-report-against-server" not in result.train_metrics_clientapp[1]


class TestConsent:
    @pytest.mark.parametrize("mechanism", [PaperCoin(3.5), Classical()])
    def test_no_certificate_no_answer(self, mechanism):
        with pytest.raises(TurnoutError, match="has no certificate, and its owner has not agreed"):
            run(mechanism=mechanism)

    def test_the_owner_may_agree(self, tmp_path):
        result = durable_run(tmp_path, 2, settings={"turnout-allow-uncertified": True}, mechanism=PaperCoin(3.5))
        assert column(result, "refused") == [0, 0]

    def test_a_larger_epsilon_than_allowed_is_refused(self):
        with pytest.raises(
            TurnoutError, match="epsilon 2 per report against the server, above what this client allows"
        ):
            run(mechanism=Clamp(2.0))

    def test_a_client_may_insist_on_a_mechanism(self):
        with pytest.raises(TurnoutError, match="insists on"):
            run(make_app(mechanism=Clamp(0.5, 0.3)), mechanism=Clamp(1.0, 0.3))
        run(make_app(mechanism=Clamp(1.0, 0.3)), rounds=1, mechanism=Clamp(1.0, 0.3))

    def test_some_may_refuse_and_the_rest_go_on(self):
        app = make_app(limit=Limit(1000, 0.5))
        settings = [{"turnout-limit-epsilon-per-report": 1.0} if node < 40 else {} for node in range(NODES)]
        result = run(grid=InProcessGrid(app, NODES, node_configs=settings), rounds=3)
        assert column(result, "refused") == [10, 10, 10]
        assert min(column(result, "participants")) > 0

    def test_a_server_that_does_not_ask_gets_no_training(self):
        trained = []

        def train(message, context):
            trained.append(context.node_id)
            return add_one(message, context)

        result = start(fedavg(), InProcessGrid(make_app(train), FEW), 2)
        assert not trained
        assert not result.arrays

    def test_a_server_that_sends_the_model_to_all_trains_participants_only(self):
        from turnout.flower import self_selection

        class Pushy(self_selection.SelfSelection):
            def _ask(self, server_round, grid):
                super()._ask(server_round, grid)
                self.honest = list(self._tally.participants)
                self._tally.participants = list(self._tally.asked)

        trained = []

        def train(message, context):
            trained.append(context.node_id)
            return add_one(message, context)

        strategy = Pushy(fedavg(), capacity=15)
        start(strategy, InProcessGrid(make_app(train), NODES), 1)
        assert sorted(trained) == sorted(strategy.honest)

    @pytest.mark.parametrize(
        "changes", [{"version": 2}, {"signal": "1"}, {"phase": "other"}, {"more": 1}, {"round": None}]
    )
    def test_a_question_in_another_form_is_refused(self, changes):
        replies = ask(InProcessGrid(make_app(), FEW), **changes)
        assert [reply.error.code for reply in replies] == [7302] * FEW

    def test_any_signal_gets_a_valid_answer(self):
        for signal in (float("nan"), float("inf"), -1.0, 0.0, 1e308):
            replies = ask(InProcessGrid(make_app(), FEW), signal=signal)
            assert all(isinstance(reply.content["turnout"]["participates"], bool) for reply in replies)


class TestEligible:
    def test_who_cannot_train_now_is_counted_and_spends_nothing(self):
        app = make_app(eligible=lambda device: device.context.node_config["partition-id"] >= 20)
        grid = InProcessGrid(app, NODES)
        result = run(grid=grid, rounds=3)
        assert column(result, "ineligible") == [20, 20, 20]
        assert "turnout" not in grid.context(3).state


class TestCosts:
    def test_from_node_config(self, tmp_path):
        device = lambda **settings: Device(InProcessGrid(make_app(), 1, node_configs=[settings]).context(0))  # noqa: E731
        at = np.array([0.5])
        assert cost_of(None, device(**{"turnout-cost": 3.0})).slope(at) == [3.0]
        (tmp_path / "cost.toml").write_text("coefficients = [1.0, 2.0]\npowers = [2, 4]\n")
        (tmp_path / "cost.json").write_text('{"coefficients": [3.0]}')
        assert cost_of(None, device(**{"turnout-cost-file": str(tmp_path / "cost.toml")})).slope(at) == [2.0]
        assert cost_of(None, device(**{"turnout-cost-file": str(tmp_path / "cost.json")})).slope(at) == [3.0]
        assert cost_of(None, device(**{"turnout-cost-function": "flower.costs_for_tests:battery"})).slope(at) == [7.0]
        with pytest.raises(ValueError, match="turnout-cost-function must be the name of something in"):
            cost_of(None, device(**{"turnout-cost-function": "flower.costs_for_tests:nothing"}))
        for settings in ({}, {"turnout-cost": 1.0, "turnout-cost-file": "a.toml"}):
            with pytest.raises(ValueError, match="node-config must be with one of"):
                cost_of(None, device(**settings))

    def test_bad_files_and_names(self, tmp_path):
        (tmp_path / "cost.toml").write_text("coefficient = [1.0]\n")
        with pytest.raises(ValueError, match="coefficients is missing"):
            read_cost(tmp_path / "cost.toml")
        with pytest.raises(TurnoutError, match="not a readable JSON file"):
            read_cost(tmp_path / "none.json")

    @pytest.mark.parametrize("bad", [-1.0, 0.0, float("nan"), PolynomialCosts([[1.0], [2.0]], powers=(2,)), "3", None])
    def test_a_cost_that_is_not_convex_is_refused_and_stays_private(self, bad):
        app = make_app(cost=lambda device: bad)
        with pytest.raises(TurnoutError, match=r"\(refused: its settings or its files are not in order") as error:
            run(app, nodes=FEW, capacity=ENOUGH)
        assert "convex" not in str(error.value)
        assert "slope" not in str(error.value)

    def test_a_concave_cost_of_ones_own_is_refused(self):
        class Concave:
            def __len__(self):
                return 1

            def __getitem__(self, clients):
                return self

            def value(self, average):
                return np.sqrt(average)

            def slope(self, average):
                return 1.0 / (1.0 + average)

        with pytest.raises(TurnoutError, match="not in order"):
            run(make_app(cost=Concave()), nodes=FEW, capacity=ENOUGH)

    @pytest.mark.parametrize("durable", [False, True])
    def test_it_may_be_measured(self, tmp_path, durable):
        seen = []

        def cost(device):
            seen.append(device.last_training_seconds)
            return 1.0 + (device.last_training_seconds or 0.0)

        app = make_app(cost=cost, durable=durable)
        grid = InProcessGrid(app, FEW, node_configs=homes(tmp_path) if durable else None)
        run(grid=grid, capacity=ENOUGH, rounds=4, inner=fedavg(min_train_nodes=1))
        assert seen[0] is None
        assert any(seconds is not None and seconds >= 0.0 for seconds in seen)


def test_nothing_private_is_in_any_message_or_log(tmp_path, caplog):
    """The cost is a number that appears nowhere else; everything that crosses the Grid is searched for it."""
    import logging

    secret = 3.14159265
    crossed = []

    class Tapped(InProcessGrid):
        def send_and_receive(self, messages, *, timeout=None):
            messages = list(messages)
            replies = super().send_and_receive(messages, timeout=timeout)
            crossed.extend(repr(vars(message)) for message in [*messages, *replies])
            return replies

    flower_log = logging.getLogger("flwr")
    flower_log.setLevel(logging.DEBUG)
    flower_log.addHandler(caplog.handler)
    try:
        app = make_app(cost=None, durable=True)
        grid = Tapped(app, FEW, node_configs=homes(tmp_path, **{"turnout-cost": secret}))
        result = start(SelfSelection(fedavg(min_train_nodes=1), capacity=ENOUGH, metrics="all"), grid, 5)
    finally:
        flower_log.removeHandler(caplog.handler)
    metrics = repr([dict(record) for record in result.train_metrics_clientapp.values()])
    for text in (*crossed, caplog.text, metrics):
        for word in ("3.14159", "6.28318", "intent", "probability", "coefficients", str(tmp_path)):
            assert word not in text
    assert len(crossed) > 20
    assert "3.14159" in repr(homes(tmp_path, **{"turnout-cost": secret}))  # the search would find it


def test_answers_hold_the_round_and_the_bit_and_nothing_else():
    for reply in ask(InProcessGrid(make_app(), FEW)):
        assert set(reply.content) == {"turnout"}
        assert set(reply.content["turnout"]) == {"round", "participates"}


def test_other_messages_pass():
    app = ClientApp(mods=[self_selection_mod(1.0)])

    @app.query()
    def query(message, context):
        return Message(RecordDict(), reply_to=message)

    grid = InProcessGrid(app, 1)
    (reply,) = grid.send_and_receive([Message(RecordDict(), node, "query") for node in grid.get_node_ids()])
    assert not reply.has_error()


def test_the_owner_goes_before_the_app():
    usual, nowhere = Limit(1000, 1.0), Path("no such ledger")
    assert limit_with(nowhere, _owner_limit({}), usual) == usual
    assert limit_with(nowhere, _owner_limit({"turnout-limit-epsilon-per-report": 0.1}), usual) == Limit(1000, 0.1)
    given = {"turnout-limit-releases": 2, "turnout-limit-epsilon-per-release": 6.0}
    assert limit_with(nowhere, _owner_limit(given), usual) == Limit(1000, 1.0, 2, 6.0)


def test_a_key_that_is_left_out_leaves_the_limit_as_it_was(tmp_path):
    for settings in ({"turnout-limit-epsilon-per-release": 6.0}, {}, {"turnout-limit-epsilon-per-release": 6.0}):
        result = durable_run(tmp_path, 1, settings=settings, mechanism=Memoized(6.0, price=5.0))
        assert column(result, "refused") == [0]


def released(home):
    lines = [json.loads(line) for line in (home / "ledger.jsonl").read_text().splitlines()]
    return [line for line in lines if line["entry"] == "released"]


def test_a_server_that_changes_the_price_in_every_round_gets_one_release(tmp_path):
    """And a cost that is measured anew in each round is neither refused nor released again."""
    costs = itertools.count(1)
    app = make_app(cost=lambda device: float(next(costs)), durable=True)
    settings = {"turnout-state": str(tmp_path), "turnout-limit-epsilon-per-release": 6.0}
    grid = InProcessGrid(app, 1, node_configs=[settings])
    for number in range(12):
        (reply,) = ask(grid, round=number + 1, mechanism=Memoized(6.0, price=5.0 + 1e-6 * number))
        assert not reply.has_error()
    assert [line["epsilon"] for line in released(tmp_path)] == [6.0]


def test_a_further_release_needs_the_owners_word_and_is_counted(tmp_path):
    home = {"turnout-state": str(tmp_path), "turnout-cost": 2.0, "turnout-limit-epsilon-per-release": 6.0}
    for releases, more in ((1, {}), (2, {"turnout-consent": True}), (2, {})):
        settings = home | {"turnout-limit-releases": releases} | more
        grid = InProcessGrid(make_app(cost=None, durable=True), 1, node_configs=[settings])
        for round in (1, 2):
            assert not ask(grid, round=round, mechanism=Memoized(6.0, price=5.0))[0].has_error()
        assert len(released(tmp_path)) == releases
    with Ledger.open(tmp_path / "ledger.jsonl", datum=DATUM) as ledger:
        assert ledger.account(1e-6).epsilon == pytest.approx(12.0)


def test_an_owner_who_once_allowed_what_has_no_certificate_has_not_given_up_the_limit(tmp_path):
    durable_run(tmp_path, 2, settings={"turnout-allow-uncertified": True}, mechanism=PaperCoin(3.5))
    with pytest.raises(TurnoutError, match="epsilon 30 per report"):
        durable_run(tmp_path, 2, mechanism=Clamp(30.0))


def test_a_device_needs_neither_theory_nor_simulation():
    code = (
        "import sys; from turnout.flower import self_selection_mod; self_selection_mod(1.0); "
        "bad = [m for m in sys.modules if m.startswith(('turnout.theory', 'turnout.simulation', 'scipy', 'numba'))]; "
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
