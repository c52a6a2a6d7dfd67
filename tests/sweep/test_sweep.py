"""Sweeps: what a design expands to, that what is done is never redone, and that a kill changes nothing."""

import csv
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sweep.small_design import design
from turnout.algorithm import CappedCoin, Clamp, Memoized, PaperCoin, Public, TrackingClamp, widest_box
from turnout.errors import FileProblem, MissingExtra, TurnoutError
from turnout.files import InUse
from turnout.privacy import PUBLIC_HISTORY, account_of, total_epsilon
from turnout.settings import Table
from turnout.simulation import run_from_settings, spread
from turnout.sweep import run as sweep_module
from turnout.sweep.design import design_from_settings
from turnout.sweep.run import _STORE, read_design, results_so_far, sweep

ROOT = Path(__file__).parents[2]
# ------------------------------------------------------------------------------------------------ rows


def test_a_row_is_what_simulate_gives(tmp_path, paper_optimum):
    mechanisms = [{"kind": "paper-coin", "beta": 3.5}, {"kind": "tracking-clamp", "epsilon": 2.0}]
    file = {"rounds": 300, "capacity": 600, "controller": {"gain": 0.0075, "initial": 0.35}}
    wanted = design_from_settings(file | {"sweep": {"seeds": 2, "last": 100, "grid": {"mechanism": mechanisms}}})
    found = sweep(wanted, tmp_path, jobs=1)
    for row, run in zip(found.rows, wanted.runs, strict=True):
        trajectory = run_from_settings(Table(run.settings)).go()
        assert row["id"] == run.id
        assert row["seed"] == run.point["seed"]
        assert row["cost"] == trajectory.cost[-1]
        assert row["optimum_cost"] == paper_optimum.cost
        assert row["cost_gap_percent"] == pytest.approx(100 * (trajectory.cost[-1] / paper_optimum.cost - 1))
        assert row["turnout_mean"] == trajectory.last(100).mean()
        assert row["turnout_spread"] == trajectory.last(100).std()
        assert row["signal"] == trajectory.signal[-1]
        assert (row["clients"], row["rounds"], row["capacity"], row["turnout_rounds"]) == (1200, 300, 600, 100)
    coin, _, clamp, _ = found.rows
    assert coin["certified_epsilon_per_report"] == coin["total_epsilon_over_rounds"] == math.inf
    assert coin["certified_against"] is None
    assert clamp["certified_epsilon_per_report"] == 2.0
    assert clamp["certified_against"] == clamp["total_against"] == "an observer of every report"
    assert clamp["certified_assumptions"] == clamp["total_assumptions"] == PUBLIC_HISTORY
    assert coin["total_assumptions"] is None
    assert "forecast_cost_gap_percent" not in found.columns


def test_totals():
    def total(mechanism, rounds=100):
        found = account_of(mechanism, rounds, 1e-6)
        return found.epsilon, found.delta

    assert total(Clamp(1.0)) == (total_epsilon(*widest_box(1.0), 100, 1e-6).epsilon, 1e-6)
    assert total(Memoized(4.0, price=9.0)) == (4.0, 0.0)
    assert total(PaperCoin(3.5))[0] == math.inf
    low, high = CappedCoin(2.0, 0.9).box(Public(average=np.float64(0.5)))
    assert total(CappedCoin(2.0, 0.9))[0] == total_epsilon(low, high, 100, 1e-6).epsilon
    # Whatever the average, its box gives away no more than the symmetric one with the same epsilon.
    tracking = TrackingClamp(1.0)
    bound = total(tracking)[0]
    for average in (0.01, 0.2, 0.5, 0.9):
        assert total_epsilon(*map(float, tracking.box(Public(average=np.float64(average)))), 100, 1e-6).epsilon <= bound  # type: ignore[call-arg]


def test_forecasts_if_asked(tmp_path):
    file = {"rounds": 400, "capacity": 600, "controller": {"gain": 0.0075, "initial": 0.35}}
    coin = {"mechanism": {"kind": "paper-coin", "beta": 2.5}}
    found = sweep(design_from_settings(file | coin | {"sweep": {"forecast": True}}), tmp_path, jobs=1)
    (row,) = found.rows
    assert row["forecast_cost_gap_percent"] == pytest.approx(row["cost_gap_percent"], abs=3)
    prior = {"start": {"average": 0.5}}
    found = sweep(design_from_settings(file | coin | prior | {"sweep": {"forecast": True}}), tmp_path, jobs=1)
    (row,) = found.rows
    assert row["forecast_cost_gap_percent"] == pytest.approx(row["cost_gap_percent"], abs=3)
    fading = {"averaging": {"remember": 50}}  # which the forecast does not know
    found = sweep(design_from_settings(file | coin | fading | {"sweep": {"forecast": True}}), tmp_path, jobs=1)
    assert found.rows[0]["forecast_cost_gap_percent"] is None


def test_a_run_that_fails_is_a_row(tmp_path):
    """A capacity that the coin alone exceeds, one that no clients can meet, and good ones around them."""
    grid = {"capacity": [20, 1, 22, 500], "mechanism": [{"kind": "paper-coin", "beta": 1.0}, {"kind": "classical"}]}
    wanted = design({"grid": grid})
    found = sweep(wanted, tmp_path, jobs=1)
    assert [row["error"] is None for row in found.rows] == [True, False, True, False, True, True, True, False]
    assert "capacity must be above 7.4 and at most " in found.rows[1]["error"]
    assert found.rows[1]["cost"] is None
    assert found.rows[1]["mechanism.beta"] == 1.0
    assert len(found.failed) == 3
    before = (tmp_path / _STORE).read_bytes()
    assert sweep(wanted, tmp_path, jobs=1) == found  # settings that cannot be are not tried again
    assert (tmp_path / _STORE).read_bytes() == before


def test_what_the_machine_is_to_blame_for_is_tried_again(tmp_path):
    clients = tmp_path / "clients.csv"
    clients.write_text("x^2\n" + "3\n" * 40)
    wanted = design(population={"file": str(clients)})
    clients.rename(tmp_path / "elsewhere.csv")
    assert "FileProblem: " in sweep(wanted, tmp_path / "out", jobs=1).rows[0]["error"]
    (tmp_path / "elsewhere.csv").rename(clients)
    assert sweep(wanted, tmp_path / "out", jobs=1).rows[0]["error"] is None


# ------------------------------------------------------------------------------------------------ the table


def test_csv_and_parquet_are_equal(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    kinds = [
        {"kind": "paper-coin", "beta": [1, 3.5]},
        {"kind": "memoized", "epsilon": 4, "price": 9, "levels": [[0.2, 0.9]]},
    ]
    found = sweep(design({"seeds": 2, "grid": {"capacity": [1, 20], "mechanism": kinds}}), tmp_path, jobs=1)
    table, other = (
        pandas.read_csv(found.save(tmp_path / "t.csv")),
        pandas.read_parquet(found.save(tmp_path / "t.parquet")),
    )
    assert list(table.columns) == list(other.columns) == list(found.columns)
    assert len(table) == len(found.rows) == 12
    for name, kind in found.columns.items():
        if kind is str:
            assert table[name].fillna("").tolist() == other[name].fillna("").tolist()
        else:
            assert np.array_equal(table[name].to_numpy(float), other[name].to_numpy(float), equal_nan=True), name
    assert math.inf in table["total_epsilon_over_rounds"].tolist()
    assert found.to_pandas().shape == table.shape
    with open(tmp_path / "t.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["cost"]) for row in rows if row["cost"]] == [row["cost"] for row in found.good]
    assert rows[0]["mechanism.beta"] == "1.0"
    assert {row["mechanism.levels"] for row in rows} == {"", "[0.2, 0.9]"}


def test_bad_tables(tmp_path, monkeypatch):
    found = sweep(design(), tmp_path, jobs=1)
    with pytest.raises(ValueError, match=r"must be a file that ends in .csv or .parquet, got .*xlsx"):
        found.save(tmp_path / "t.xlsx")
    with pytest.raises(FileProblem, match="no folder"):
        found.save(tmp_path / "no" / "t.csv")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match="needs pyarrow"):
        found.save(tmp_path / "t.parquet")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match="needs pandas"):
        found.to_pandas()
    assert found.save(tmp_path / "t.csv").exists()


# ------------------------------------------------------------------------------------------------ going on


def test_what_is_done_is_never_redone(tmp_path, monkeypatch):
    measured = []

    def noted(task):
        measured.append(task[0].id)
        return measure(task)

    measure = sweep_module.measure  # type: ignore[attr-defined]
    monkeypatch.setattr(sweep_module, "measure", noted)
    small = design({"grid": {"capacity": [18, 20]}, "seeds": 2})
    sweep(small, tmp_path, jobs=1)
    assert measured == [run.id for run in small.runs]
    wide = design({"grid": {"capacity": [22, 20, 18]}, "seeds": 3})  # more, and in another order
    told = []
    found = sweep(wide, tmp_path, jobs=1, progress=lambda done, total: told.append((done, total)))
    assert sorted(measured) == sorted(run.id for run in wide.runs)
    assert [row["id"] for row in found.rows] == [run.id for run in wide.runs]
    assert told == [(done, 9) for done in range(4, 10)]
    monkeypatch.setattr(sweep_module, "measure", measure)
    assert found.rows == sweep(wide, tmp_path / "anew", jobs=1).rows
    assert results_so_far(small, tmp_path).rows == sweep(small, tmp_path / "small", jobs=1).rows


def test_one_at_a_time_in_a_folder(tmp_path):
    with sweep_module._store(tmp_path), pytest.raises(InUse, match="in use elsewhere"):
        sweep(design(), tmp_path, jobs=1)
    (tmp_path / "file").touch()
    with pytest.raises(FileProblem, match="cannot be written"):
        sweep(design(), tmp_path / "file", jobs=1)


KILLED = """
rounds = 6000
capacity = 600
[mechanism]
kind = "paper-coin"
[controller]
gain = 0.0075
initial = 0.35
[sweep]
seeds = 12
[sweep.grid]
mechanism.beta = [1.5, 2.5, 3.5]
capacity = [100, 500, 600]
"""


def lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.deployment
def test_killed_half_way_and_resumed_it_ends_with_the_same_table(tmp_path):
    """kill -9 of the process that leads two workers; a torn last line on top; then again, to the end."""
    (tmp_path / "design.toml").write_text(KILLED)
    code = (
        "import sys\n"
        "from turnout.sweep.run import read_design, sweep\n"
        "sweep(read_design('design.toml'), sys.argv[1], jobs=2).save(sys.argv[1] + '/table.csv')\n"
    )
    command = [sys.executable, "-c", code]
    store = tmp_path / "killed" / _STORE
    with subprocess.Popen([*command, "killed"], cwd=tmp_path, start_new_session=True) as process:
        deadline = time.monotonic() + 60
        while lines(store) < 30 and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    done = lines(store)
    assert 30 <= done < 108
    assert not (tmp_path / "killed" / "table.csv").exists()
    while alive(process.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(process.pid)  # the workers ended with it
    with store.open("ab") as file:
        file.write(b'{"number": 9999, "id": "to')  # as if the machine had gone down in the middle of a line
    subprocess.run([*command, "killed"], cwd=tmp_path, check=True)
    whole = sweep(read_design(tmp_path / "design.toml"), tmp_path / "whole", jobs=1)
    whole.save(tmp_path / "whole" / "table.csv")
    assert len(whole.rows) == 108
    table = (tmp_path / "killed" / "table.csv").read_bytes()
    assert table == (tmp_path / "whole" / "table.csv").read_bytes()
    ids = [json.loads(line)["id"] for line in store.read_text().splitlines()]
    assert len(ids) == len(set(ids)) == 108  # nothing was done twice


def alive(group):
    """Whether any process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


# ------------------------------------------------------------------------------------------------ workers


def test_workers():
    assert sorted(spread(abs, list(range(-20, 0)), jobs=2)) == list(range(1, 21))
    with pytest.raises(TurnoutError, match="a worker process died"):
        list(spread(os._exit, [3, 3, 3], jobs=2))
    some = spread(abs, list(range(-1000, 0)), jobs=2)
    assert next(some) > 0
    some.close()  # no worker is left behind, nor waited for
    with pytest.raises(ValueError, match="on must be one of cores, ray, got 'moon'"):
        spread(abs, [1], on="moon")
    with pytest.raises(ValueError, match="jobs must be 1 or more"):
        spread(abs, [1], jobs=0)


def test_ray_is_optional(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"needs ray, .*turnout\[cluster\]"):
        next(spread(abs, [1], on="ray"))
