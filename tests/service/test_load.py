"""Ten thousand devices, one connection each, on the machine of the coordinator: books and speed."""

import importlib.util
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def service(monkeypatch):
    pytest.importorskip("uvloop")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("service_benchmark", BENCHMARKS / "service.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assert_sound(found, devices, rounds):
    """None lost, none counted twice, nothing dropped on the way."""
    assert found["books"] == {"rounds": rounds, "devices": devices, "differing": 0, "agree": True}
    ours = found["contenders"]["turnout serve"]
    assert ours["reconnects"] == 0
    assert set(ours["faults"]) <= {"asked to wait"}, "only enrolments are too fast"
    assert found["ended"] == 0


def test_the_benchmark_works_and_the_books_agree(service, tmp_path):
    found = service.measure(devices=60, rounds=6, turns=2, folder=tmp_path)
    assert_sound(found, 60, 6)
    assert all(len(one["turns"]) == 2 for one in found["contenders"].values())


def test_the_books_are_really_compared(service, tmp_path, monkeypatch):
    """The sabotaged twin: a record in which one device's acknowledged bit is another."""
    right = service.check_books

    def sabotaged(contender):
        seen = contender.fleet.record.rounds[2]
        seen.bits[7] = not seen.bits[7]
        return right(contender)

    monkeypatch.setattr(service, "check_books", sabotaged)
    found = service.measure(devices=12, rounds=4, turns=1, names=(service.OURS,), folder=tmp_path)
    assert not found["books"]["agree"]


@pytest.mark.deployment
def test_ten_thousand_devices_beside_a_bare_application(service, tmp_path):
    found = service.measure(devices=10_000, rounds=50, turns=2, folder=tmp_path)
    assert_sound(found, 10_000, 50)
    print(found)
    assert found["times bare ASGI"] >= 0.7
    assert found["times bare ASGI, calm collector"] >= 0.7
