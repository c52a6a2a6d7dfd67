"""The benchmark runs, its C kernel is exact, and what it writes can be read. Nothing here asserts a time."""

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from turnout import Classical, IntegralController, PaperCoin, paper_population, simulate

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def contenders(monkeypatch):
    if not any(map(shutil.which, ("gcc", "cc", "clang"))):
        pytest.skip("there is no C compiler: apt-get install gcc")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("contenders")


@pytest.mark.parametrize("clients", [4, 1_200, 20_004])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("rounds", [1, 2, 31])
def test_the_c_kernel_gives_the_trajectory_of_the_engines(contenders, clients, threads, rounds):
    for mechanism in (PaperCoin(3.5), Classical()):
        setup = contenders.ready(clients, rounds, mechanism)
        contenders.c_kernel.advance(setup, 1 + rounds, threads)
        server = IntegralController(contenders.GAIN / clients, contenders.INITIAL)
        problem = paper_population(0, clients).problem(clients / 2)
        right = simulate(problem, mechanism, server, 1 + rounds, seed=0, engine="numpy")
        np.testing.assert_array_equal(setup.log.participants, right.participants)
        np.testing.assert_array_equal(setup.log.signal[:-1], right.signal)
        np.testing.assert_array_equal(setup.clients.state.participations, right.state.participations)
        assert setup.clients.state.rounds == right.state.rounds


def test_a_digest_notices_one_bit(contenders):
    """The sabotaged twin of the comparison that the benchmark makes in each run."""
    _, right = contenders.by_hand(1, 1_200, 4)
    assert contenders.ours("numpy", 1, 1_200, 4)[1] == right
    assert contenders.ours("numpy", 1, 1_200, 4, PaperCoin(2.5))[1] != right
    setup = contenders.ready(1_200, 4)
    before = contenders.digest(setup)
    setup.clients.state.participations[7] = np.nextafter(1.0, 2.0)
    assert contenders.digest(setup) != before


@pytest.mark.deployment  # it starts Ray and Flower too
def test_a_quick_look(tmp_path):
    command = [sys.executable, str(BENCHMARKS / "bench.py"), "--quick", "--snapshot"]
    folders = ["--output", str(tmp_path / "out"), "--docs", str(tmp_path / "docs")]
    done = subprocess.run([*command, *folders], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out" / "benchmarks.json").read_text())
    exact = {name for name in (row["contender"] for row in found["rates"]) if name.startswith(("turnout", "C kernel"))}
    assert set(found["identical"]["20000"]) == exact
    assert all(row["client_rounds_per_second"] > 0 for row in found["rates"])
    assert "<h2>Against the practical limit</h2>" in (tmp_path / "out" / "benchmarks.html").read_text()
    page = (tmp_path / "docs" / "benchmarks.md").read_text()
    assert all(name in page for name in exact)
    assert (tmp_path / "docs" / "images" / "benchmarks.png").stat().st_size > 10_000


def test_tables_take_whatever_the_gpu_benchmark_wrote(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    tables = importlib.import_module("bench_tables")
    found = {
        "device": "H",
        "rate": 3.1e11,
        "exact": {"coin": True},
        "runs": [{"clients": 10**9}, {"clients": 4, "s": 0.5}],
    }
    facts, runs = tables.gpu(found)
    assert ["rate", "3.10e11"] in facts.rows
    assert ["exact: coin", "yes"] in facts.rows
    assert runs.rows == [["1,000,000,000", "–"], ["4", "0.5"]]
    assert tables.gpu({"left out": "not measured"})[0].caption == "Left out: not measured."
