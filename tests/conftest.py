"""Shared by all tests."""

import os
import signal
import tempfile

import pytest

from turnout import IntegralController, Problem, optimum, paper_population
from turnout.service.store import SqliteStore

# Ray's workers are polite by default (nice 15): beside other tests, what they compile takes them minutes.
os.environ.setdefault("RAY_worker_niceness", "0")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as under nohup: what is started here must hear Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deployments take minutes by design: half an hour each, unless they say how long."""
    for item in items:
        if item.get_closest_marker("deployment") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(1_800))


@pytest.fixture(autouse=True, scope="session")
def witnesses_elsewhere():
    """Ledgers of tests leave no witness in the home of whoever runs them."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNOUT_WITNESSES", os.path.join(folder, "witnesses"))
        yield


@pytest.fixture(scope="session")
def paper_problem() -> Problem:
    """1200 clients, capacity 600, seed 0."""
    return paper_population(seed=0).problem(capacity=600)


@pytest.fixture(scope="session")
def paper_optimum(paper_problem):
    return optimum(paper_problem)


@pytest.fixture(scope="session")
def paper_server() -> IntegralController:
    return IntegralController(gain=0.0075, initial=0.35)


@pytest.fixture(autouse=True)
def stores_are_closed(monkeypatch):
    """Whatever a test opened is closed at its end: Python 3.13 complains of every one that is not."""
    opened, begin = [], SqliteStore.__init__

    def noted(self, *arguments, **options):
        begin(self, *arguments, **options)
        opened.append(self)

    monkeypatch.setattr(SqliteStore, "__init__", noted)
    yield
    for store in opened:
        store.close()
