"""Stored updates: what the absent sent last stands in for them."""

import numpy as np
import pytest
from flwr.app import ArrayRecord
from flwr.serverapp import strategy as flower

from flower.apps import fedavg, make_app, partition, run, start, update
from turnout.algorithm import PaperCoin
from turnout.flower import InProcessGrid, SelfSelection
from turnout.flower.replies import StoredUpdates


def model(*numbers, count=3):
    return ArrayRecord([np.array(numbers), np.array([count])])


def floats(record):
    return record.to_numpy_ndarrays()[0]


class TestCorrection:
    def test_a_first_update_stays_as_it_is(self):
        corrected = StoredUpdates().correct(model(1.0, 2.0), {5: model(2.0, 4.0)}, {5: 10.0}, [5, 6])
        assert floats(corrected[5]).tolist() == [2.0, 4.0]

    def test_it_is_the_update_less_the_nodes_last_plus_the_mean_of_all_last(self):
        stored = StoredUpdates()
        stored.correct(model(0.0, 0.0), {1: model(4.0, 0.0), 2: model(0.0, 8.0)}, {1: 30.0, 2: 10.0}, [1, 2, 3])
        # Node 3 never participated: it counts as 0, with the usual weight 20. So the mean is (30·4, 10·8) / 60.
        corrected = stored.correct(model(1.0, 1.0), {1: model(2.0, 2.0)}, {1: 30.0}, [1, 2, 3])
        np.testing.assert_allclose(floats(corrected[1]), [2.0 - 4.0 + 2.0, 2.0 - 0.0 + 8.0 / 6.0])

    def test_those_who_left_count_no_more(self):
        stored = StoredUpdates()
        stored.correct(model(0.0, 0.0), {1: model(4.0, 0.0)}, {1: 10.0}, [1, 2])
        corrected = stored.correct(model(0.0, 0.0), {2: model(1.0, 1.0)}, {2: 10.0}, [2])
        assert floats(corrected[2]).tolist() == [1.0, 1.0]

    def test_whole_numbers_and_the_type_of_floats_stay(self):
        stored = StoredUpdates()
        sent = ArrayRecord([np.zeros(2, np.float32), np.array([3])])
        back = ArrayRecord([np.ones(2, np.float32), np.array([4])])
        stored.correct(sent, {1: back}, {1: 1.0}, [1, 2])
        values, count = stored.correct(sent, {2: back}, {2: 1.0}, [1, 2])[2].to_numpy_ndarrays()
        assert values.dtype == np.float32
        assert values.tolist() == [1.5, 1.5]
        assert count.tolist() == [4]

    def test_another_model_forgets_what_was_stored(self):
        stored = StoredUpdates()
        stored.correct(model(0.0, 0.0), {1: model(4.0, 0.0)}, {1: 10.0}, [1, 2])
        longer = stored.correct(model(0.0, 0.0, 0.0), {1: model(1.0, 1.0, 1.0)}, {1: 10.0}, [1, 2])
        assert floats(longer[1]).tolist() == [1.0, 1.0, 1.0]

    def test_the_clients_own_records_are_left_alone(self):
        stored, own = StoredUpdates(), model(1.0, 1.0)
        stored.correct(model(0.0, 0.0), {1: model(4.0, 0.0)}, {1: 10.0}, [1, 2])
        stored.correct(model(0.0, 0.0), {2: own}, {2: 10.0}, [1, 2])
        assert floats(own).tolist() == [1.0, 1.0]


def pull(message, context):
    """Each client pulls the model half-way to a point of its own; the mean of the points is 0.5 (49 / 50 in all)."""
    (array,) = message.content["arrays"].to_numpy_ndarrays()
    return update(message, [array + 0.5 * (partition(context) / 50 - array)])


def end(weights):
    """The last ten models of a run in which the expensive clients come rarely."""
    seen = []

    def look(server_round, arrays):
        seen.append(float(arrays.to_numpy_ndarrays()[0][0]))

    app = make_app(pull, cost=lambda device: 0.1 + partition(device.context), allow_uncertified=True)
    strategy = SelfSelection(fedavg(), capacity=15, mechanism=PaperCoin(3.5), weights=weights)
    start(strategy, InProcessGrid(app, 50), 60, evaluate_fn=look)
    return np.array(seen[-10:])


class TestInARun:
    def test_the_absent_are_heard(self):
        wanted = np.mean(np.arange(50) / 50)
        plain, weighed, stored = (end(kind) for kind in ("plain", "inverse-participation", "stored-updates"))
        errors = [np.sqrt(np.mean((found - wanted) ** 2)) for found in (plain, weighed, stored)]
        assert errors[2] < 0.5 * errors[1] < 0.5 * errors[0]
        assert stored.std() < 0.5 * weighed.std()

    def test_turnout_does_not_depend_on_it(self):
        plain, stored = (run(rounds=5, weights=kind).train_metrics_clientapp for kind in ("plain", "stored-updates"))
        for key in ("turnout-participants", "turnout-signal"):
            assert [plain[k][key] for k in plain] == [stored[k][key] for k in stored]

    def test_a_run_begins_anew(self):
        strategy = SelfSelection(fedavg(), capacity=15, weights="stored-updates")
        first, second = (start(strategy, InProcessGrid(make_app(pull), 50), 5).arrays for _ in range(2))
        assert np.array_equal(first.to_numpy_ndarrays()[0], second.to_numpy_ndarrays()[0])

    def test_only_for_weighted_averages(self):
        SelfSelection(flower.FedAdam(), capacity=3, weights="stored-updates")
        with pytest.raises(ValueError, match="no weighted average"):
            SelfSelection(flower.FedMedian(), capacity=3, weights="stored-updates")
