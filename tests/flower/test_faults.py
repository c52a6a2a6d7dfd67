"""Bad settings, broken nodes and lying clients: a clear error or a counted fault, never a hang or a spoilt model."""

import time

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg

from flower.apps import CAPACITY, NODES, add_one, column, fedavg, make_app, run, start, update
from turnout import PaperCoin
from turnout.algorithm import Clamp, LearnedMemoized
from turnout.errors import TurnoutError
from turnout.flower import InProcessGrid, SelfSelection, at_least

SMALL = {"nodes": 20, "capacity": 8, "rounds": 3}


DP_WRAPPERS = [
    lambda inner: flower.DifferentialPrivacyServerSideFixedClipping(inner, 1.0, 1.0, 5),
    lambda inner: flower.DifferentialPrivacyClientSideFixedClipping(inner, 1.0, 1.0, 5),
    lambda inner: flower.DifferentialPrivacyServerSideAdaptiveClipping(inner, 1.0, 100),
    lambda inner: flower.DifferentialPrivacyClientSideAdaptiveClipping(inner, 1.0, 100),
]


class Passing(flower.Strategy):
    """A wrapper that passes everything on."""

    def __init__(self, strategy):
        self.strategy = strategy

    def configure_train(self, *arguments):
        return self.strategy.configure_train(*arguments)

    def aggregate_train(self, *arguments):
        return self.strategy.aggregate_train(*arguments)

    def configure_evaluate(self, *arguments):
        return self.strategy.configure_evaluate(*arguments)

    def aggregate_evaluate(self, *arguments):
        return self.strategy.aggregate_evaluate(*arguments)

    def summary(self):
        self.strategy.summary()


@pytest.fixture(autouse=True)
def no_grace(monkeypatch):
    monkeypatch.setattr("turnout.flower.self_selection.GRACE", 0.0)
    monkeypatch.setattr("turnout.flower.self_selection.PAUSE", 0.01)


class TestSettings:
    def test_an_infeasible_capacity(self):
        with pytest.raises(ValueError, match=r"capacity must be above 9\.2 and at most 50\.0 \(the turnouts"):
            run(make_app(allow_uncertified=True), capacity=5, mechanism=PaperCoin(1.0))
        with pytest.raises(ValueError, match=r"at most 36\.6 \(.*\), got 40\.0: lower capacity, or .* a wider box"):
            run(capacity=40, mechanism=Clamp(1.0))
        with pytest.raises(ValueError, match=r"capacity must be below 50 \(connected nodes\), got 60"):
            run(capacity=60)

    @pytest.mark.parametrize("fraction", [0.5, 0.0])
    def test_fraction_train_below_one(self, fraction):
        with pytest.raises(ValueError, match=rf"fraction_train must be 1.0, got {fraction}: the clients choose"):
            SelfSelection(FedAvg(fraction_train=fraction), capacity=5)

    @pytest.mark.parametrize("wrapper", DP_WRAPPERS)
    def test_dp_wrappers_need_a_fixed_cohort(self, wrapper):
        with pytest.raises(ValueError, match="its noise is set for a fixed number of clients"):
            SelfSelection(wrapper(FedAvg()), capacity=5)
        with pytest.raises(ValueError, match="its noise is set for a fixed number of clients"):
            SelfSelection(Passing(wrapper(FedAvg())), capacity=5)

    @pytest.mark.parametrize("between", [lambda inner: inner, lambda inner: Passing(inner)])
    @pytest.mark.parametrize("wrapper", DP_WRAPPERS)
    def test_nor_may_they_be_around_it(self, wrapper, between):
        outer = wrapper(between(SelfSelection(fedavg(), capacity=CAPACITY)))
        with pytest.raises(ValueError, match=r"got DifferentialPrivacy\w+ around it: its noise .*LocalDpMod"):
            start(outer, InProcessGrid(make_app(), NODES), 2)

    def test_a_wrapper_of_another_kind_may(self):
        result = start(Passing(SelfSelection(fedavg(), capacity=CAPACITY)), InProcessGrid(make_app(), NODES), 2)
        assert column(result, "participants") == column(run(rounds=2), "participants")

    def test_other_strategies_that_do_not_go(self):
        with pytest.raises(ValueError, match="it trains one node per round in turn"):
            SelfSelection(flower.FedXgbCyclic(), capacity=5)
        with pytest.raises(ValueError, match="wrapped once"):
            SelfSelection(SelfSelection(FedAvg(), capacity=5), capacity=5)
        with pytest.raises(ValueError, match="a message-API strategy, got object"):
            SelfSelection(object(), capacity=5)

    @pytest.mark.parametrize(
        "options",
        [
            {"capacity": 0},
            {"capacity": float("nan")},
            {"capacity": "6"},
            {"capacity": True},
            {"capacity": 5, "delta": 2},
            {"capacity": 5, "delta": "1e-6"},
            {"capacity": 5, "prior_rounds": -1},
            {"capacity": 5, "prior_rounds": "10"},
            {"capacity": 5, "ask_timeout": "60"},
            {"capacity": 5, "mechanism": "clamp"},
            {"capacity": 5, "phases": 3},
            {"capacity": 5, "ask_timeout": 0},
            {"capacity": 5, "startup_timeout": -1},
            {"capacity": 5, "mechanism": PaperCoin(np.array([1.0, 2.0]))},
            {"capacity": 5, "mechanism": LearnedMemoized(4.0, 1.0)},
        ],
    )
    def test_numbers_out_of_range(self, options):
        with pytest.raises(ValueError, match="must be"):
            SelfSelection(FedAvg(), **options)

    @pytest.mark.parametrize(("capacity", "needed"), [(0.3, 2), (1, 2), (at_least(4), 5), (4.9, 5)])
    def test_a_capacity_below_what_the_strategy_needs(self, capacity, needed):
        with pytest.raises(
            ValueError, match=rf"capacity must be at least {needed} \(the strategy's min_train_nodes\)"
        ) as no:
            SelfSelection(FedAvg(min_train_nodes=needed), capacity=capacity)
        assert "capacity is a number of clients, not a share" in str(no.value)
        SelfSelection(FedAvg(min_train_nodes=1), capacity=1)

    def test_no_mod_on_the_client(self):
        app = ClientApp()
        app.train()(add_one)
        with pytest.raises(TurnoutError, match="register self_selection_mod"):
            run(app)

    def test_too_few_nodes_at_the_start_is_an_error_in_time(self):
        strategy = SelfSelection(fedavg(min_available_nodes=5), capacity=2, startup_timeout=0.05)
        with pytest.raises(TurnoutError, match="4 nodes after 0 s, and the strategy wants min_available_nodes=5"):
            start(strategy, InProcessGrid(make_app(), 4))

    def test_it_waits_for_nodes_that_are_still_starting(self):
        class Slow(InProcessGrid):
            def get_node_ids(self):
                nodes = super().get_node_ids()
                self.connect(len(nodes))
                return nodes

        grid = Slow(make_app(), NODES)
        grid.disconnect(*range(3, NODES))
        result = run(grid=grid, inner=fedavg(min_available_nodes=30), rounds=2)
        assert column(result, "asked")[0] >= 30


class TestNodes:
    def test_come_and_go(self):
        class Changing(InProcessGrid):
            rounds = 0

            def send_and_receive(self, messages, *, timeout=None):
                self.rounds += 1
                self.disconnect(*range(10)) if self.rounds % 4 < 2 else self.connect(*range(10))
                return super().send_and_receive(messages, timeout=timeout)

        result = run(grid=Changing(make_app(), NODES), rounds=12)
        assert set(column(result, "asked")) == {40, 50}
        assert sum(column(result, "failed")) + sum(column(result, "failed-trainings")) > 0
        assert np.all(np.isfinite(result.arrays["0"].numpy()))

    def test_time_out(self):
        def interfere(node, message):
            return "timeout" if node < 10 else None

        result = run(grid=InProcessGrid(make_app(), NODES, interfere=interfere), rounds=4)
        assert column(result, "unanswered") == [10] * 4
        assert column(result, "failed") == [0] * 4

    def test_are_unavailable_and_their_errors_carry_another_nodes_id(self):
        def interfere(node, message):
            return "unavailable" if node % 5 == 0 else None

        result = run(grid=InProcessGrid(make_app(), NODES, interfere=interfere), rounds=4)
        assert column(result, "failed") == [10] * 4
        heard = np.add(column(result, "participants"), column(result, "abstained"))
        assert heard.tolist() == [40] * 4
        assert column(result, "faults") == [0] * 4

    def test_participate_and_are_gone(self):
        def interfere(node, message):
            return "timeout" if node % 2 and "arrays" in message.content else None

        result = run(grid=InProcessGrid(make_app(), NODES, interfere=interfere), rounds=6)
        lost = np.add(column(result, "trained"), column(result, "failed-trainings"))
        assert lost.tolist() == column(result, "participants")
        assert sum(column(result, "failed-trainings")) > 0

    def test_all_time_out_and_the_signal_stays(self):
        grid = InProcessGrid(make_app(), NODES, interfere=lambda node, message: "timeout")
        result = run(grid=grid, rounds=3)
        assert column(result, "skipped") == [1, 1, 1]
        assert len(set(column(result, "signal"))) == 1

    def test_nobody_participates(self):
        from turnout import Classical, IntegralController

        nobody = IntegralController(gain=1e-12, initial=0.0)
        for phases in (1, 2):
            result = run(
                make_app(allow_uncertified=True), rounds=3, mechanism=Classical(), controller=nobody, phases=phases
            )
            assert column(result, "participants") == [0, 0, 0]
            assert column(result, "skipped") == [1, 1, 1]
            assert not result.arrays

    def test_one_participant_where_two_are_needed_skips_the_round(self):
        begun = time.monotonic()
        for phases in (1, 2):
            inner = fedavg(min_train_nodes=20)
            result = run(inner=inner, rounds=8, phases=phases, capacity=20)
            few = [number < 20 for number in column(result, "participants")]
            assert any(few)
            assert [bool(skipped) for skipped in column(result, "skipped")] == few
        assert time.monotonic() - begun < 30

    def test_a_strategy_that_waits_for_more_is_not_waited_for(self, monkeypatch):
        class Waits(FedAvg):
            def configure_train(self, server_round, arrays, config, grid):
                while len(list(grid.get_node_ids())) < NODES:
                    pass
                return super().configure_train(server_round, arrays, config, grid)

        result = run(inner=Waits(fraction_evaluate=0.0), rounds=2)
        assert column(result, "skipped") == [1, 1]


def lie(change, every=5):
    """A mod outside ours: some clients' replies are changed on the way out."""

    def mod(message, context, call_next):
        asked = "arrays" not in message.content
        reply = call_next(message, context)
        if context.node_config["partition-id"] % every or reply.has_error():
            return reply
        return change(message, reply, asked)

    return mod


def answers(**changes):
    def change(message, reply, asked):
        if not asked:
            return reply
        record = dict(reply.content["turnout"]) | changes
        return Message(RecordDict({"turnout": ConfigRecord(record)}), reply_to=message)

    return change


def extra_record(message, reply, asked):
    if asked:
        reply.content["extra"] = ConfigRecord({"cost": 1.0})
    return reply


def empty(message, reply, asked):
    return Message(RecordDict(), reply_to=message) if asked else reply


def metrics_for_an_answer(message, reply, asked):
    return Message(RecordDict({"turnout": MetricRecord({"round": 1})}), reply_to=message) if asked else reply


GARBAGE = {
    "a number for a bit": answers(participates=1),
    "a text": answers(participates="yes"),
    "a list": answers(participates=[True]),
    "another round": answers(round=99),
    "a round that is no number": answers(round="1"),
    "one key more": answers(cost=3.0),
    "a record more": extra_record,
    "nothing": empty,
    "another kind of record": metrics_for_an_answer,
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_for_an_answer_is_a_counted_fault(what):
    result = run(make_app(outermost=[lie(GARBAGE[what])]), **SMALL)
    assert column(result, "faults") == [4, 4, 4]
    heard = np.add(column(result, "participants"), column(result, "abstained"))
    assert heard.tolist() == [16, 16, 16]
    np.testing.assert_allclose(result.arrays["0"].numpy(), 3.0 - sum(column(result, "skipped")))


def replaced(**parts):
    def change(message, reply, asked):
        if asked:
            return reply
        content = {"arrays": reply.content["arrays"], "metrics": reply.content["metrics"]} | {
            name: make() for name, make in parts.items()
        }
        return Message(
            RecordDict({name: record for name, record in content.items() if record is not None}), reply_to=message
        )

    return change


def arrays(*values):
    return lambda: ArrayRecord([np.asarray(value, dtype=np.float64) for value in values])


def metrics(**values):
    return lambda: MetricRecord({"num-examples": 10, "train_loss": 1.0} | values)


def without_weight():
    return MetricRecord({"train_loss": 1.0})


def unreadable():
    return ArrayRecord({"0": Array("float64", (3,), "numpy.ndarray", b"no array at all")})


SPOILT = {
    "NaN in an array": replaced(arrays=arrays([np.nan, 1.0, 1.0])),
    "infinite": replaced(arrays=arrays([np.inf, 1.0, 1.0])),
    "another shape": replaced(arrays=arrays([1.0, 1.0])),
    "one that broadcasts": replaced(arrays=arrays([[1.0, 1.0, 1.0]])),
    "one array more": replaced(arrays=arrays([1.0, 1.0, 1.0], [1.0])),
    "no array": replaced(arrays=lambda: ArrayRecord([])),
    "no ArrayRecord": replaced(arrays=lambda: None),
    "two ArrayRecords": replaced(more=arrays([1.0, 1.0, 1.0])),
    "two MetricRecords": replaced(more=metrics()),
    "bytes that are no array": replaced(arrays=unreadable),
    "no weight": replaced(metrics=without_weight),
    "a NaN weight": replaced(metrics=metrics(**{"num-examples": float("nan")})),
    "an infinite weight": replaced(metrics=metrics(**{"num-examples": float("inf")})),
    "a huge weight": replaced(metrics=metrics(**{"num-examples": 1e300})),
    "a negative weight": replaced(metrics=metrics(**{"num-examples": -10})),
    "a list for a weight": replaced(metrics=metrics(**{"num-examples": [1, 2]})),
    "a metric more": replaced(metrics=metrics(surprise=1.0)),
    "a NaN metric": replaced(metrics=metrics(train_loss=float("nan"))),
}


@pytest.mark.parametrize("what", SPOILT)
@pytest.mark.parametrize("phases", [1, 2])
def test_a_spoilt_update_is_left_out(what, phases):
    result = run(make_app(outermost=[lie(SPOILT[what])]), phases=phases, **SMALL)
    assert sum(column(result, "faulty-updates")) > 0
    used = np.subtract(1, column(result, "skipped")).sum()
    np.testing.assert_allclose(result.arrays["0"].numpy(), float(used))


@pytest.mark.deployment
@pytest.mark.parametrize("name", ["FedAdam", "FedMedian", "FedTrimmedAvg", "Krum", "Bulyan", "QFedAvg"])
def test_no_strategy_is_spoilt(name):
    needed = {"client_learning_rate": 0.1} if name == "QFedAvg" else {}
    inner = getattr(flower, name)(fraction_evaluate=0.0, **needed)
    result = run(make_app(outermost=[lie(SPOILT["NaN in an array"], every=2)]), inner=inner, rounds=3)
    assert sum(column(result, "faulty-updates")) > 0
    assert np.all(np.isfinite(result.arrays["0"].numpy()))


def test_all_updates_spoilt_is_no_success():
    def nan(message, context):
        return update(message, [np.full(3, np.nan)])

    for phases in (1, 2):
        with pytest.raises(TurnoutError, match=r"none succeeded .* is not finite"):
            run(make_app(nan), rounds=3, phases=phases)


def test_a_reply_in_another_nodes_name_is_a_fault():
    class Forged(InProcessGrid):
        def send_and_receive(self, messages, *, timeout=None):
            replies = list(super().send_and_receive(messages, timeout=timeout))
            for reply in replies[1:4]:
                reply.metadata.__dict__["_src_node_id"] = replies[0].metadata.src_node_id
            return replies

    result = run(grid=Forged(make_app(), NODES), rounds=3)
    assert min(column(result, "faults")) >= 3


def test_an_error_with_a_code_of_ours_from_a_stranger_changes_nobodys_bit():
    def change(message, reply, asked):
        return Message(Error(7301, "abstained"), reply_to=message) if asked else reply

    result = run(make_app(outermost=[lie(change)]), rounds=3)
    heard = np.add(column(result, "participants"), column(result, "abstained"))
    assert heard.tolist() == [NODES] * 3  # to abstain by an error is an answer, too


def test_a_custom_strategy_of_another_form_is_served():
    class Sums(flower.Strategy):
        """Not made of FedAvg: counts the participants in a record of its own."""

        def configure_train(self, server_round, arrays, config, grid):
            content = RecordDict({"model": arrays})
            return [Message(content, node, "train") for node in grid.get_node_ids()]

        def aggregate_train(self, server_round, replies):
            total = sum(reply.content["model"]["0"].numpy() for reply in replies)
            return ArrayRecord([np.asarray(total)]), None

        def configure_evaluate(self, server_round, arrays, config, grid):
            return []

        def aggregate_evaluate(self, server_round, replies):
            return None

        def summary(self):
            pass

    def train(message, context):
        return Message(RecordDict({"model": ArrayRecord([np.ones(1)])}), reply_to=message)

    result = run(make_app(train), inner=Sums(), rounds=2)
    assert result.arrays["0"].numpy() == column(result, "participants")[-1]


def test_the_capacity_is_met_although_some_nodes_are_always_silent():
    def interfere(node, message):
        return "timeout" if node < 10 else None

    result = run(grid=InProcessGrid(make_app(), NODES, interfere=interfere), rounds=60)
    assert abs(np.mean(column(result, "participants")[30:]) - CAPACITY) <= 1.0
