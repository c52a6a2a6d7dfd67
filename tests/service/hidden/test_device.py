"""A device of a hidden run: what it keeps, charges, and makes of its history."""

import numpy as np
import pytest

from service.hidden.scene import Memory, Pair, a_round, open_device, usual
from turnout.algorithm import IntegralController, SumNoise
from turnout.client import Stopped
from turnout.problem import Problem, paper_population
from turnout.service.hidden import device as module
from turnout.service.hidden.messages import DeviceReport, read


def scene(folder, clients=8, weights=None, **options):
    problem = Problem(paper_population(seed=0).problem(600).costs[np.arange(clients)], clients // 2, weights)
    units = np.broadcast_to(problem.unit_weights, clients).tolist()
    pair = Pair(folder, units, **{"least": 2, "capacity": clients // 2} | options)
    return pair, problem


def opened(folder, pair, problem, slots, **options):
    return [open_device(folder / str(slot), problem, pair.rules, slot, 3, **options) for slot in slots]


def test_histories_move_by_what_was_reported_counted_and_gone_for(tmp_path):
    pair, problem = scene(tmp_path, rules=usual(4, controller=IntegralController(0.2, 20.0)), capacity=3)
    coins = np.random.default_rng(0)
    devices = opened(tmp_path, pair, problem, range(8), coin=lambda: float(coins.random()))
    acted, gone = np.zeros(8), []
    for round in range(30):
        thinned = devices[0].record.thinning
        acts = a_round(pair, devices)
        record = pair.leader.record
        assert sum(acts) == (record.opened if record.go else 0) <= 4
        assert record.go == (record.opened <= 4)
        acted += acts
        gone.append((record.go, thinned < 1.0))
        assert [device.status()["average"] for device in devices] == pytest.approx((5 + acted) / (11 + round))
    assert {go for go, _ in gone} == {True, False}
    assert {thinned for _, thinned in gone} == {True, False}
    for device in devices:
        device.close()


def test_each_report_is_charged_before_it_is_made_and_the_owner_has_the_last_word(tmp_path):
    pair, problem = scene(tmp_path, 4, weights=[1, 2, 2, 1], noise=SumNoise(4.0, 2, 2.0, aggregators=2))
    devices = opened(tmp_path, pair, problem, range(4), most=2.4)
    for _ in range(3):
        a_round(pair, devices)
    assert [device.charged for device in devices[:3]] == [0.5625, 2.25, 2.25]
    with pytest.raises(Stopped, match=r"2\.5 would be charged, and 2\.4 is allowed"):
        devices[1].report()
    assert devices[3].report() is not None
    for device in devices:
        device.close()


@pytest.mark.parametrize("lost", ["all", "the last two"])
def test_charges_are_not_lost_with_the_file_of_reports(tmp_path, lost):
    pair, problem = scene(tmp_path, 4, noise=SumNoise(2.0, aggregators=2))
    devices = opened(tmp_path, pair, problem, range(4), most=1.0)
    for _ in range(3):
        a_round(pair, devices)
    file = tmp_path / "0" / "reports.jsonl"
    devices[0].close()
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:2]) if lost != "all" else b"")
    if lost == "all":
        file.unlink()
    devices[:1] = opened(tmp_path, pair, problem, [0], most=1.0)
    assert devices[0].charged == 0.75
    assert devices[0].report() is None
    devices[0].take(*[side.records(devices[0].record.round) for side in pair.sides], (True, True))
    assert devices[0].report() is not None
    assert devices[0].charged == 1.0
    devices[0].close()
    devices[:1] = opened(tmp_path, pair, problem, [0], most=1.0)
    assert devices[0].charged == 1.0
    for device in devices:
        device.close()


def test_with_bounded_noise_a_device_leaves_after_the_rounds_of_the_rules(tmp_path):
    noise = SumNoise(2.0, aggregators=2, bound=6)
    pair, problem = scene(tmp_path, 4, noise=noise, rounds=2, delta=0.5)
    devices = opened(tmp_path, pair, problem, range(4))
    for _ in range(2):
        a_round(pair, devices)
    with pytest.raises(Stopped, match="the rules have 2 rounds"):
        devices[0].report()
    for device in devices:
        device.close()


def test_the_heavy_one_stops_at_once(tmp_path):
    pair, problem = scene(tmp_path, 4, weights=[1, 2, 2, 3], noise=SumNoise(4.0, 2, 2.0, aggregators=2))
    (device,) = opened(tmp_path, pair, problem, [3], most=2.0)
    with pytest.raises(Stopped):
        device.report()
    assert device.status()["last_round"] == -1
    device.close()


class Full(Memory):
    """A disk that fails when a report is to be kept."""

    def write(self, descriptor, data):
        if b'"entry": "report"' in data:
            raise OSError(28, "no space")
        super().write(descriptor, data)


def test_a_round_whose_report_could_not_be_kept_is_lost(tmp_path, monkeypatch):
    pair, problem = scene(tmp_path, 4)
    devices = opened(tmp_path, pair, problem, range(4))
    devices[0]._journal._disk = Full()
    with pytest.raises(Exception, match="no space"):
        devices[0].report()
    devices[0].close()
    devices[:1] = opened(tmp_path, pair, problem, [0])
    assert devices[0].report() is None
    sent = [device.report() for device in devices[1:]]
    for slot, both in enumerate(sent, 1):
        for side, body in zip(pair.sides, both, strict=True):
            assert side.report([(slot, body)]) == [""]
    assert pair.close().count == 3
    bodies = pair.leader.records(-1)
    assert not devices[0].take(bodies, bodies, (True, True))
    assert devices[0].status()["acknowledged"] is False
    assert devices[0].report() is not None
    for device in devices:
        device.close()


def test_a_long_file_is_written_again_without_its_past(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LINES", 6)
    pair, problem = scene(tmp_path, 4, noise=SumNoise(2.0, aggregators=2))
    devices = opened(tmp_path, pair, problem, range(4))
    for round in range(9):
        a_round(pair, devices)
        sent, charged, acts = devices[0].report(), devices[0].charged, devices[0].acts
        assert charged == (round + 2) / 4
        devices[0].close()
        devices[:1] = opened(tmp_path, pair, problem, [0])
        assert (devices[0].report(), devices[0].charged, devices[0].acts) == (sent, charged, acts)
        assert devices[0].record == pair.leader.record
        assert len((tmp_path / "0" / "reports.jsonl").read_text().splitlines()) <= 6
    for device in devices:
        device.close()


def test_shares_are_not_shown(tmp_path):
    pair, problem = scene(tmp_path, 4)
    (device,) = opened(tmp_path, pair, problem, [0])
    sent = device.report()
    for body in sent:
        report = read(body, DeviceReport)
        assert report.share.hex() not in repr(report)
        assert repr(report.share) not in repr(report)
    assert repr(device) == "HiddenDevice(run 'boilers', record of round -1)"
    device.close()
