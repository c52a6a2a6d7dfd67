"""The wrapper: turnout, phases, weights, and what it leaves as it was."""

import gc
import json

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg
from scipy.stats import binom

from flower.apps import (
    CAPACITY,
    COSTS,
    NODES,
    ROUNDS,
    add_a_tree,
    add_one,
    column,
    fedavg,
    make_app,
    run,
    start,
    update,
)
from statistical.binomial import FALSE_ALARM
from turnout import Averaging, Classical, IntegralController, PaperCoin
from turnout.algorithm import Clamp, TrackingClamp
from turnout.client import History
from turnout.flower import InProcessGrid, SelfSelection, at_least
from turnout.flower.replies import ParticipationBook

WRAPPED = {
    "FedAvg": {},
    "FedProx": {"proximal_mu": 0.1},
    "FedAvgM": {"server_momentum": 0.5},
    "FedAdam": {},
    "FedYogi": {},
    "FedAdagrad": {},
    "FedMedian": {},
    "FedTrimmedAvg": {},
    "Krum": {"num_malicious_nodes": 1},
    "MultiKrum": {"num_malicious_nodes": 1, "num_nodes_to_select": 3},
    "Bulyan": {"num_malicious_nodes": 1},
    "QFedAvg": {"client_learning_rate": 0.1},
    "FedXgbBagging": {},
}
REFUSED = {
    "DifferentialPrivacyClientSideAdaptiveClipping",
    "DifferentialPrivacyClientSideFixedClipping",
    "DifferentialPrivacyServerSideAdaptiveClipping",
    "DifferentialPrivacyServerSideFixedClipping",
    "FedXgbCyclic",
}


def test_every_strategy_that_flower_ships_is_wrapped_or_refused():
    assert set(WRAPPED) | REFUSED | {"Strategy", "Result"} == set(flower.__all__)


@pytest.fixture(autouse=True)
def fast_collections():
    """Some strategies collect garbage for each update; what was there before the test need not be looked at."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def plain_turnout():
    return column(run(), "participants")


@pytest.mark.parametrize("name", WRAPPED)
def test_the_second_half_is_within_one_client_of_the_capacity(name, plain_turnout):
    trees = name == "FedXgbBagging"
    inner = getattr(flower, name)(min_available_nodes=NODES, fraction_evaluate=0.0, **WRAPPED[name])
    strategy = SelfSelection(inner, capacity=CAPACITY, metrics="all")
    grid = InProcessGrid(make_app(add_a_tree if trees else add_one), NODES)
    first = ArrayRecord([np.zeros(0, dtype=np.uint8)]) if trees else ArrayRecord([np.zeros(3)])
    result = start(strategy, grid, arrays=first)
    turnout = column(result, "participants")
    assert len(turnout) == ROUNDS
    assert abs(np.mean(turnout[ROUNDS // 2 :]) - CAPACITY) <= 1.0
    assert turnout == plain_turnout  # what is learned does not change who comes
    assert sum(column(result, "faults")) == sum(column(result, "faulty-updates")) == 0
    assert all(np.all(np.isfinite(array.numpy())) for array in result.arrays.values())
    assert inner.min_available_nodes == NODES


def test_one_phase_gives_the_same_as_two():
    one, two = (run(phases=phases, rounds=20) for phases in (1, 2))
    for name in ("participants", "abstained", "signal", "trained", "effective-share"):
        assert column(one, name) == column(two, name), name
    assert one.arrays["0"].numpy().tolist() == two.arrays["0"].numpy().tolist()


def test_the_same_seed_gives_the_same_run_to_the_bit():
    def drift(message, context):
        step = 0.1 + 0.001 * context.node_config["partition-id"]
        return update(message, [array * 0.9 + step for array in message.content["arrays"].to_numpy_ndarrays()])

    one, two = (run(make_app(drift), rounds=12) for _ in range(2))
    assert one.arrays["0"].data == two.arrays["0"].data
    other = run(make_app(drift, seed=8), rounds=12)
    assert column(other, "participants") != column(one, "participants")


def everyone(**options):
    """Settings under which every node comes in every round."""
    sure = IntegralController(gain=1e-9, initial=1e9)
    return {"mechanism": Classical(), "controller": sure, "capacity": NODES} | options


def test_if_all_come_the_wrapped_strategy_does_what_the_unwrapped_one_does():
    def examples(message, context):
        number = 1 + context.node_config["partition-id"]
        return update(message, [array + number for array in message.content["arrays"].to_numpy_ndarrays()])

    wrapped = run(make_app(examples, allow_uncertified=True), rounds=3, **everyone(weights="plain"))
    bare = InProcessGrid(bare_app(examples), NODES)
    unwrapped = start(fedavg(), bare, 3)
    np.testing.assert_allclose(wrapped.arrays["0"].numpy(), unwrapped.arrays["0"].numpy(), rtol=1e-12)
    for ours, theirs in zip(
        wrapped.train_metrics_clientapp.values(), unwrapped.train_metrics_clientapp.values(), strict=True
    ):
        assert {key: value for key, value in ours.items() if not key.startswith("turnout-")} == pytest.approx(theirs)


def bare_app(train):
    from flwr.clientapp import ClientApp

    app = ClientApp()
    app.train()(train)
    return app


def test_evaluation_is_not_gated():
    result = run(inner=fedavg(fraction_evaluate=1.0), rounds=2)
    assert [metrics["loss"] for metrics in result.evaluate_metrics_clientapp.values()] == pytest.approx([1.0, 1.0])


class TestWeights:
    def seen(self, **options):
        """Each round's weights, as the strategy sees them, by node."""
        weights = []

        def train(message, context):
            return update(
                message, message.content["arrays"].to_numpy_ndarrays(), who=context.node_config["partition-id"]
            )

        def look(records, key):
            metrics = [next(iter(record.metric_records.values())) for record in records]
            weights.append({int(record["who"]): record[key] for record in metrics})
            return flower.fedavg.aggregate_metricrecords(records, key)

        run(make_app(train), inner=fedavg(train_metrics_aggr_fn=look), rounds=8, **options)
        return weights

    def test_they_are_the_inverse_of_past_participation(self):
        weights = self.seen()
        share, participations = CAPACITY / NODES, dict.fromkeys(range(NODES), 0)
        for rounds, seen in enumerate(weights):
            estimates = {who: (participations[who] + 2 * share) / (rounds + 2) for who in seen}
            raw = {who: 10 / max(estimates[who], 0.2 * share) for who in seen}
            expected = {who: value * 10 * len(seen) / sum(raw.values()) for who, value in raw.items()}
            assert seen == pytest.approx(expected)
            for who in seen:
                participations[who] += 1
        assert len({round(weight, 6) for weight in weights[-1].values()}) > 1

    def test_plain_ones_are_left_alone(self):
        assert all(set(seen.values()) == {10} for seen in self.seen(weights="plain"))

    def test_their_spread_is_told(self):
        spread = column(run(rounds=8), "effective-share")
        assert spread[0] == pytest.approx(1.0)
        assert 0.0 < spread[-1] < 1.0

    def test_only_weighted_averages_have_them(self):
        assert SelfSelection(flower.FedMedian(), capacity=3).weights == "plain"
        with pytest.raises(ValueError, match="'plain' for FedMedian, which is no weighted average"):
            SelfSelection(flower.FedMedian(), capacity=3, weights="inverse-participation")
        with pytest.raises(ValueError, match="weights must be"):
            SelfSelection(FedAvg(), capacity=3, weights="other")

    def test_a_node_that_joins_late_is_not_taken_for_one_that_never_comes(self):
        book = ParticipationBook(share=0.5)
        book.saw([1])
        for _ in range(20):
            book.close_round([])
        book.saw([1, 2])
        assert book.estimate(2) == 0.5
        assert book.estimate(1) < 0.05
        assert book.weights({1: 1.0, 2: 1.0})[1] == pytest.approx(2 * 5 / 6)  # five times the usual, no more


class TestAtLeast:
    ROUNDS, SETTLED = 120, 20

    def short_rounds(self, capacity):
        turnout = column(run(rounds=self.ROUNDS, capacity=capacity), "participants")[self.SETTLED :]
        return sum(number < CAPACITY for number in turnout), len(turnout)

    def test_enough_come_in_that_share_of_the_rounds(self):
        short, rounds = self.short_rounds(at_least(CAPACITY, confidence=0.9))
        assert short <= binom.isf(FALSE_ALARM, rounds, 0.1)

    def test_its_twin_without_over_selection_fails(self):
        short, rounds = self.short_rounds(CAPACITY)
        assert short > binom.isf(FALSE_ALARM, rounds, 0.1)

    def test_the_capacity_is_the_exact_binomial_one_stretched(self):
        aim = at_least(15, confidence=0.95).capacity(50)
        exact = 15 + (aim - 15) / 1.07
        assert binom.cdf(14, 50, exact / 50) == pytest.approx(0.05, abs=1e-6)

    def test_nonsense_is_refused(self, monkeypatch):
        monkeypatch.setattr("turnout.flower.self_selection.GRACE", 0.0)
        for bad in ({"number": 0}, {"number": 2.5}, {"number": 5, "confidence": 1.0}):
            with pytest.raises(ValueError, match="at_least"):
                at_least(**bad)
        with pytest.raises(ValueError, match=r"at_least number must be below 50 \(clients\), got 50"):
            run(capacity=at_least(50))


def test_the_account_grows_round_by_round_and_names_its_terms():
    result = run(rounds=5)
    assert set(column(result, "epsilon-per-report-against-server")) == {1.0}
    total = column(result, "epsilon-total-against-server")
    assert 0.999 < total[0] <= 1.0  # delta takes off a little
    assert total == sorted(total)
    assert column(result, "epsilon-total-reports") == [1, 2, 3, 4, 5]
    assert set(column(result, "epsilon-total-delta")) == {1e-6}


def test_without_a_certificate_the_account_says_so():
    app = make_app(allow_uncertified=True)
    result = run(app, rounds=2, mechanism=PaperCoin(3.5))
    assert column(result, "epsilon-total-against-server") == [np.inf, np.inf]


@pytest.mark.parametrize("observer", ["sum", "server"])
def test_a_flower_server_sees_every_answer(observer):
    with pytest.raises(
        ValueError, match=f"observer must be 'every-report', got '{observer}': a Flower server sees every"
    ):
        SelfSelection(fedavg(), capacity=CAPACITY, observer=observer)


def test_the_log_is_in_flowers_style(told):
    run(rounds=2)
    text = told.text
    assert "Self-selection settings:" in text
    assert "of 50 nodes participate (capacity 15, signal 1)" in text
    assert "epsilon 1.000 per report; total epsilon" in text
    assert "at delta 1e-06 over 2 reports, against an observer of every report, if the number of reports" in text


def test_a_box_that_follows_the_average_can_reach_what_it_cannot_at_a_half(told):
    result = run(rounds=3, capacity=10, mechanism=TrackingClamp(1.0))  # at a half, 13 come whatever the signal
    assert column(result, "asked") == [NODES] * 3
    assert "at any signal" not in told.text


def test_nodes_that_cannot_meet_the_capacity_are_told_of(told):
    grid = InProcessGrid(make_app(), NODES)
    strategy = SelfSelection(fedavg(), capacity=CAPACITY, mechanism=Clamp(1.0, CAPACITY / NODES))
    start(strategy, grid, 1)
    assert "at any signal" not in told.text
    grid.disconnect(*range(20, NODES))
    strategy.configure_train(2, ArrayRecord([np.zeros(3)]), ConfigRecord(), grid)
    assert "20 nodes cannot meet capacity 15 at any signal" in told.text


def test_the_callers_config_is_not_written_to_and_the_strategys_own_changes_last():
    class Fading(FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            config["rate"] = config["rate"] / 2
            return super().configure_train(server_round, arrays, config, grid)

    rates = []

    def train(message, context):
        rates.append(message.content["config"]["rate"])
        return add_one(message, context)

    config = ConfigRecord({"rate": 1.0})
    strategy = SelfSelection(Fading(fraction_evaluate=0.0), capacity=CAPACITY)
    start(strategy, InProcessGrid(make_app(train), NODES), 3, train_config=config)
    assert dict(config) == {"rate": 1.0}
    assert sorted(set(rates)) == [0.125, 0.25, 0.5]


def test_the_app_sees_the_strategys_message_and_nothing_of_ours():
    seen = []

    def train(message, context):
        seen.append(set(message.content))
        return add_one(message, context)

    run(make_app(train), rounds=2)
    assert seen
    assert all(records == {"arrays", "config"} for records in seen)


def test_starting_again_begins_anew():
    strategy = SelfSelection(fedavg(), capacity=CAPACITY)
    one, two = (start(strategy, InProcessGrid(make_app(), NODES), 5) for _ in range(2))
    assert column(one, "signal") == column(two, "signal")


def test_a_lagging_controller_decides_by_an_older_signal():
    controller = IntegralController(gain=0.05, initial=1.0)
    signals = column(run(rounds=4, controller=controller), "signal")
    assert signals[0] == signals[1] == 1.0
    assert signals[2] != 1.0


def test_costly_clients_participate_less():
    grid = InProcessGrid(make_app(), NODES)
    run(grid=grid)
    kept = [json.loads(grid.context(node).state["turnout"]["history"])["history"] for node in range(NODES)]
    participations = [History.read(body, Averaging()).settled().participations[0] for body in kept]
    assert np.corrcoef(COSTS, participations)[0, 1] < -0.5
