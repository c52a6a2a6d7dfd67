"""The comparison with what people use now: the page shows what was measured, and the peers are what they say."""

import importlib
from pathlib import Path

import numpy as np
import pytest

from turnout import optimum, paper_population

ROOT = Path(__file__).parents[2]
SMALL = paper_population(0, 120).problem(60)


@pytest.fixture
def benchmark(monkeypatch):
    """A module of the benchmarks by name."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


def test_the_page_shows_what_was_stored(benchmark):
    found = benchmark("comparison").load()
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    for shown in benchmark("bench_tables").comparison(found):
        table = "\n".join(benchmark("bench_snapshot").table(shown))
        assert table in page, f"docs/benchmarks.md must show\n\n{table}"


def found_again(comparison, names):
    """Our rows of the first population, run anew; the peers have their own random numbers, and take long."""
    stored = comparison.load()["selection"]
    rows = {row["contender"]: row for row in stored["rows"]}
    assert list(rows) == [*comparison.PEERS, *comparison.PRIVATE]
    for name in names:
        gap, spread = comparison.one(name, 0, stored["rounds"])
        assert gap == pytest.approx(rows[name]["gap_percent"][0], rel=1e-9)
        assert spread == pytest.approx(rows[name]["turnout_spread"][0], rel=1e-9)
        assert comparison.promised(name, stored["rounds"]) == rows[name]["promised"]


def test_what_was_stored_is_found_again(benchmark):
    comparison = benchmark("comparison")
    found_again(comparison, [name for name, mechanism in comparison.PRIVATE.items() if mechanism])


@pytest.mark.deployment  # it plans first
def test_what_was_planned_and_stored_is_found_again(benchmark):
    comparison = benchmark("comparison")
    found_again(comparison, [name for name, mechanism in comparison.PRIVATE.items() if not mechanism])


def test_every_peer_chooses_the_capacity_and_nobody_twice(benchmark):
    for make in benchmark("selection_peers").PEERS.values():
        peer, taken = make(SMALL, 3), np.zeros(120)
        for round in range(1, 61):
            clients = peer.select(round)
            assert len(set(clients.tolist())) == len(clients) == 60
            taken[clients] += 1
            peer.told(round, clients, taken / round)


def test_a_server_that_knows_every_cost_draws_each_client_with_its_optimum(benchmark):
    peer = benchmark("selection_peers").KnowsEveryCost(SMALL, 0)
    lengths = np.diff(peer.ends, prepend=0.0)
    np.testing.assert_allclose(lengths, optimum(SMALL).average[peer.order], rtol=1e-9)


def test_oort_lets_the_slow_in_when_its_utility_is_flat(benchmark):
    """From round 40 on, five per cent more of the clients every twenty rounds, and at last all of them."""
    peers = benchmark("selection_peers")
    peer = peers.Oort(SMALL, 0)
    peers.run(peer, 39)
    assert peer.threshold == 10.0
    peers.run(peer, 60)  # rounds 1 to 60 again: two windows of equal utility end at 40 and at 60
    assert peer.threshold == 20.0
    peer.threshold, slow = 50.0, peer.duration.argmax()
    peer._prefer()
    assert peer._penalty(np.array([slow]))[0] == (peer.preferred / peer.duration[slow]) ** 2
    assert peer._penalty(np.array([peer.duration.argmin()]))[0] == 1.0


def test_oort_is_as_good_as_what_it_is_told(benchmark):
    peers, best = benchmark("selection_peers"), optimum(SMALL).cost
    costs = {name: SMALL.cost(peers.run(make(SMALL, 0), 600)[0]) for name, make in peers.PEERS.items()}
    assert best <= costs[peers.OORT_TOLD_ALL] < costs[peers.OORT_CHEAP] < costs[peers.RANDOM] < costs[peers.BY_SIZE]


def test_accounts_are_found_again(benchmark):
    peers = benchmark("privacy_peers")
    stored = {row["library"]: row for row in benchmark("comparison").load()["privacy"]["rows"]}
    assert set(stored) == {peers.OURS, peers.GOOGLE, peers.OPENDP}
    for name, account in ((peers.OURS, peers.ours), (peers.GOOGLE, peers.google)):
        assert stored[name]["symmetric"] == pytest.approx(account(*peers.SYMMETRIC), rel=1e-9)
        assert stored[name]["asymmetric"] == pytest.approx(account(*peers.ASYMMETRIC), rel=1e-9)
    assert stored[peers.OURS]["symmetric"] <= min(row["symmetric"] for row in stored.values())


def test_a_library_that_is_not_here_gives_what_was_stored(benchmark, monkeypatch):
    peers = benchmark("privacy_peers")
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: name == "turnout")
    found = peers.measure(benchmark("comparison").load()["privacy"], turns=1)
    assert [row.get("stored", False) for row in found["rows"]] == [False, True, True]
    shown = benchmark("bench_tables").accounts(found)
    assert shown.rows[2][:2] == ["OpenDP 0.16.0 (stored)", "20.55"]
    assert len(peers.measure(None, turns=1)["rows"]) == 1
