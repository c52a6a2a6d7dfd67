"""A run with noise: what the server saw apart from what happened, its file, its continuation, its replay, its sweeps.

That every engine gives the same, and that two parts are one run, is tested in conformance/test_noise.py.
"""

import dataclasses
import io
import pickle

import numpy as np
import pandas
import pytest

from turnout import (
    Clamp,
    Classical,
    FallingGainController,
    IntegralController,
    PaperCoin,
    Prior,
    Problem,
    Schedule,
    SelfTuningController,
    SumNoise,
    Trajectory,
    paper_population,
    simulate,
)
from turnout.algorithm import Heard, noise_from_settings
from turnout.attack import reports_of
from turnout.privacy import NOISY_SUM, UNKNOWN_SEED, Observer, account_of
from turnout.settings import Table
from turnout.simulation import ServerRecord, continuation, privacy_in_words, run_from_settings
from turnout.simulation.loop import _Piece, _scaled, _with_known_changes
from turnout.simulation.schedule import ABSENT, Span
from turnout.simulation.server_log import ServerLog
from turnout.sweep import design_from_settings, sweep

CLIENTS, ROUNDS = 200, 60
PROBLEM = paper_population(0, CLIENTS).problem(100)
SERVER = FallingGainController(0.02, 10.0)
NOISES = (SumNoise(20.0), SumNoise(20.0, 10, 5.0, aggregators=2, every=3))


def run(noise=NOISES[0], rounds=ROUNDS, *, mechanism=None, controller=SERVER, problem=PROBLEM, **more):
    given = {"start": Prior(0.5, 10), "engine": "numpy"} | more
    return simulate(problem, mechanism or Classical(), controller, rounds, noise=noise, **given)


# What the server saw, apart from what happened


def another_truth(monkeypatch, right):
    """Other clients, another mechanism and other coins, and noise of which the very same sums are opened."""
    close_round = ServerLog.close_round

    def close(log, total):
        if not np.isnan(right.seen[log.round]):
            log.noise[log.round] = right.seen[log.round] - total
        close_round(log, total)

    with monkeypatch.context() as changed:
        changed.setattr(ServerLog, "close_round", close)
        noise = noise_from_settings(Table(right.provenance["noise"], "noise"))
        problem = paper_population(5, CLIENTS).problem(100)
        return run(noise, mechanism=PaperCoin(3.5), problem=problem, seed=8, start=Prior(0.9, 3))


def exported(record, folder):
    """Everything that leaves a server's record: its file, its table, and itself."""
    record.save(folder / "server.csv")
    table = record.to_pandas()
    assert table.attrs == {}
    return (folder / "server.csv").read_bytes(), table.to_csv().encode(), pickle.dumps(record), repr(record).encode()


@pytest.mark.parametrize("noise", NOISES, ids=["every round", "every third"])
def test_two_truths_with_the_same_opened_sums_give_the_same_bytes(noise, tmp_path, monkeypatch):
    """The sabotaged twin exports what happened in place of what the server saw."""
    one = run(noise)
    other = another_truth(monkeypatch, one)
    np.testing.assert_array_equal(one.seen, other.seen)
    assert not np.array_equal(one.participants, other.participants)
    assert not np.array_equal(one.cost, other.cost)
    assert exported(one.server, tmp_path) == exported(other.server, tmp_path)
    sabotaged = [
        exported(dataclasses.replace(found.server, seen=found.participants.astype(float)), tmp_path)
        for found in (one, other)
    ]
    assert all(mine != theirs for mine, theirs in zip(*sabotaged, strict=True) if b"ServerRecord(" not in mine)
    assert not one.to_pandas().equals(other.to_pandas())  # what happened is in the run's own table alone


def test_a_record_has_these_fields_alone():
    """Another one must be thought about: it leaves the server."""
    assert [field.name for field in dataclasses.fields(ServerRecord)] == ["signal", "seen", "capacity", "noise"]
    assert list(run().server.to_pandas().columns) == ["signal", "seen", "capacity"]


@pytest.mark.parametrize("noise", NOISES)
def test_the_csv_file_holds_the_opened_sums(noise, tmp_path):
    found = run(noise)
    found.server.save(tmp_path / "server.csv")
    table = pandas.read_csv(tmp_path / "server.csv")
    assert list(table.columns) == ["round", "signal", "seen", "capacity"]
    np.testing.assert_array_equal(table["seen"], found.seen)
    np.testing.assert_array_equal(table["signal"], found.signal)
    np.testing.assert_array_equal(found.server.opened, np.flatnonzero(table["seen"].notna()))


def test_without_noise_the_server_saw_the_turnout(tmp_path):
    found = run(None)
    assert (found.seen, found.server.noise, found.seen_in_words()) == (None, None, None)
    np.testing.assert_array_equal(found.server.seen, found.participants)
    assert repr(found.server) == f"ServerRecord({ROUNDS} rounds, exact sums)"
    assert "server saw" not in found._repr_html_()
    assert {"noise", "heaviest"}.isdisjoint(found.provenance)
    found.save(tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz") as file:
        assert "seen" not in file.files


@pytest.mark.parametrize("noise", NOISES)
def test_a_file_holds_both_and_gives_the_same_record(noise, tmp_path):
    found = run(noise)
    found.save(tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz") as file:
        np.testing.assert_array_equal(file["seen"], found.seen)
        np.testing.assert_array_equal(file["participants"], found.participants)
    again = Trajectory.load(tmp_path / "run.npz")
    assert again.provenance == found.provenance
    again.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "run.npz").read_bytes()
    files = [io.StringIO(pandas.DataFrame(one.server.to_pandas()).to_csv()).read() for one in (found, again)]
    assert files[0] == files[1]


def test_words_say_what_was_seen():
    found = run()
    tail = found.seen[-400:]
    assert found.seen_in_words() == f"{tail.mean():,.1f} ± {tail.std():,.1f} in {ROUNDS} opened sums, with noise"
    assert found.seen_in_words() in found._repr_html_()
    rare = run(SumNoise(20.0, every=50))
    assert rare.seen_in_words().endswith("in 1 opened sum, with noise")
    assert rare.seen_in_words(10) == "no sum in the last 10 rounds"


def test_the_gap_at_its_own_turnout_leaves_out_what_noise_did_to_the_turnout():
    few, many = (run(controller=FallingGainController(1e-4, price, 1), rounds=2_000) for price in (6.0, 14.0))
    assert few.gap < -0.1 < 0.1 < many.gap  # the signal hardly moves
    assert 0.0 < few.gap_at_own_turnout < 0.03
    assert 0.0 < many.gap_at_own_turnout < 0.03
    assert dataclasses.replace(few, cost=None).gap_at_own_turnout is None


# A run that goes on


def test_another_noise_is_refused(tmp_path):
    first = run()
    assert run(NOISES[0], 5, start=first).provenance["noise"] == {"sigma": 20.0}
    assert run(None, 5, start=first).provenance["noise"] == {"sigma": 20.0}
    first.save(tmp_path / "run.npz")
    for before in (first, Trajectory.load(tmp_path / "run.npz")):
        for other in (SumNoise(21.0), SumNoise(20.0, aggregators=2), SumNoise(20.0, every=2)):
            with pytest.raises(ValueError, match=r"noise must be as in the run to continue, SumNoise\(sigma=20.0"):
                run(other, 5, start=before)
    with pytest.raises(ValueError, match="noise must be none, since the run to continue had none, got SumNoise"):
        run(NOISES[0], 5, start=run(None))


def test_other_coins_have_other_noise_and_the_total_counts_all_rounds():
    first = run()
    more = run(None, 40, start=first, seed=5)
    added = more.seen - more.participants
    np.testing.assert_array_equal(added[:ROUNDS], NOISES[0].seeded(0, 0, ROUNDS))
    np.testing.assert_array_equal(added[ROUNDS:], NOISES[0].seeded(5, ROUNDS, ROUNDS + 40))
    total = account_of(Classical(), ROUNDS + 40, 1e-6, Observer(NOISY_SUM, noise=NOISES[0]))
    assert privacy_in_words(more.provenance).startswith(str(total).partition(",")[0])
    assert "over 100 opened sums" in str(total)


def weighted(heaviest):
    return Problem(PROBLEM.costs, 100.0 * heaviest, np.repeat([1, 2 * heaviest - 1], CLIENTS // 2))


def test_the_heaviest_client_of_all_parts_counts(tmp_path):
    """A continued run may have other weights: the total was then that of the last part's heaviest client alone."""
    server = IntegralController(1e-5, 1.0)
    heavy, light = weighted(20), weighted(2)
    one = run(problem=heavy, controller=server)
    told = privacy_in_words(one.provenance)
    assert "weight 39" in told
    one.save(tmp_path / "run.npz")
    for before in (one, Trajectory.load(tmp_path / "run.npz")):
        both = run(None, 1, problem=light, controller=server, start=before)
        assert both.provenance["heaviest"] == 39
        assert "weight 39" in privacy_in_words(both.provenance)
        assert float(privacy_in_words(both.provenance).split()[2]) >= float(told.split()[2])
    assert (
        run(None, 1, problem=heavy, controller=server, start=run(problem=light, controller=server)).provenance[
            "heaviest"
        ]
        == 39
    )


def test_a_mechanism_may_change_and_the_noise_still_counts():
    both = run(None, 20, start=run(mechanism=PaperCoin(3.5)), mechanism=Clamp(1.0))
    assert both.provenance["earlier"][0]["noise"] == {"sigma": 20.0}
    assert "against an observer of the sums with noise (sigma 20)" in privacy_in_words(both.provenance)
    assert "over 80 opened sums" in privacy_in_words(both.provenance)


# Made again, and many


@pytest.mark.parametrize("controller", [SERVER, IntegralController(0.01, 10.0), SelfTuningController(10.0)])
@pytest.mark.parametrize("start", [Prior(0.5, 10), None])
def test_its_reports_are_made_again(controller, start, tmp_path):
    found = run(NOISES[1], controller=controller, start=start, schedule=Schedule(capacity={30: 80}))
    np.testing.assert_array_equal(reports_of(found).bits.sum(axis=1), found.participants)
    found.save(tmp_path / "run.npz")
    loaded = Trajectory.load(tmp_path / "run.npz")
    np.testing.assert_array_equal(reports_of(loaded).bits.sum(axis=1), found.participants)
    assert continuation(loaded, 5).noise == NOISES[1]


SETTINGS = {
    "rounds": ROUNDS,
    "capacity": 100,
    "engine": "numpy",
    "population": {"kind": "paper", "clients": CLIENTS},
    "mechanism": {"kind": "classical"},
    "controller": {"kind": "falling-gain", "floor": 0.02, "initial": 10.0},
    "start": {"average": 0.5},
    "noise": {"sigma": 20.0},
}


def test_a_sweep_varies_the_noise(tmp_path):
    varied = {"seeds": 2, "forecast": True, "grid": {"noise": {"sigma": [20.0, 200.0], "aggregators": [1, 2]}}}
    found = sweep(design_from_settings(SETTINGS | {"sweep": varied}), tmp_path, jobs=1)
    assert not [row["error"] for row in found.rows if row["error"]]
    assert [(row["noise.sigma"], row["noise.aggregators"], row["seed"]) for row in found.rows][:3] == [
        (20.0, 1, 0),
        (20.0, 1, 1),
        (20.0, 2, 0),
    ]
    for row in found.rows:
        noise = SumNoise(row["noise.sigma"], aggregators=row["noise.aggregators"])
        assert row["turnout_mean"] == run(noise, seed=row["seed"]).last(400).mean()
        total = account_of(Classical(), ROUNDS, 1e-6, Observer(NOISY_SUM, noise=noise))
        assert (row["total_epsilon_over_rounds"], row["total_against"]) == (total.epsilon, total.against)
        assert UNKNOWN_SEED in row["total_assumptions"]  # every cell of a sweep has the same seeds
        assert row["certified_epsilon_per_report"] is None or row["certified_epsilon_per_report"] == float("inf")
    assert sweep(design_from_settings(SETTINGS | {"sweep": varied}), tmp_path, jobs=1).rows == found.rows


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"noise": {"sigmaa": 20.0}}, "noise.sigma is missing: noise.sigmaa is not a known setting: did you mean"),
        ({"noise": {"sigma": 20.0, "agregators": 2}}, "noise.agregators is not a known setting .*'aggregators'"),
        ({"noise": {"sigma": 20.0, "early": 5}}, "noise.early and early_sigma must be given together"),
        ({"noise": {"sigma": 20.0, "every": 0}}, "noise.every must be a whole number from 1"),
        ({"noise": {"sigma": 0.5}}, r"noise.sigma must be from 1 to 2\^40"),
        ({"noise": {"sigma": "much"}}, "noise.sigma must be a number"),
        ({"nose": {"sigma": 20.0}}, "nose is not a known setting .*did you mean 'noise'"),
        ({"observer": "sum"}, "observer must be of the sums with the noise of the run"),
        ({"noise": {"sigma": 20.0}, "observer": "noisy-sum", "honest": 5}, "honest must be given for an observer of"),
    ],
)
def test_bad_settings(changes, says):
    with pytest.raises(ValueError, match=says):
        run_from_settings(Table(SETTINGS | changes))


def test_settings_make_the_run():
    for more in ({}, {"observer": "noisy-sum"}, {"observer": "every-report"}):
        made = run_from_settings(Table(SETTINGS | more))
        assert (made.noise, made.observer.sees) == (SumNoise(20.0), NOISY_SUM)
        np.testing.assert_array_equal(made.go().seen, run().seen)
    without = {name: value for name, value in SETTINGS.items() if name != "noise"}
    with pytest.raises(ValueError, match="noise is missing for observer = 'noisy-sum': write"):
        run_from_settings(Table(without | {"observer": NOISY_SUM}))
    with pytest.raises(ValueError, match=r"noise must be a turnout.SumNoise, got 20: write noise=SumNoise"):
        run(20)


# A change that the server knows of


def pieces(*spans, scale=1.0):
    """(first, stop, capacity, members of four) as pieces."""
    for first, stop, capacity, members in spans:
        status = None if members == 4 else np.repeat([ABSENT, 1], [4 - members, members]).astype(np.uint8)
        yield _Piece(Span(first, stop, status, np.empty(0, np.int64), capacity), Heard(scale=scale))


def scales(found):
    return [(piece.span.first, piece.span.stop, piece.heard.scale) for piece in found]


FOUR = paper_population(0, 4).problem(2)


def test_the_signal_is_scaled_in_the_round_before_a_change():
    known = _with_known_changes(pieces((0, 5, 2.0, 4), (5, 6, 2.0, 2), (6, 9, 1.0, 2), (9, 12, 2.0, 4)), FOUR, 11)
    assert scales(known) == [(0, 4, 1.0), (4, 5, 2.0), (5, 6, 0.5), (6, 9, 1.0), (9, 11, 1.0)]
    beyond = _with_known_changes(pieces((0, 5, 2.0, 4), (5, 6, 1.0, 4)), FOUR, 5)
    assert scales(beyond) == [(0, 4, 1.0), (4, 5, 0.5)]


def test_a_scale_for_who_is_away_is_kept():
    (piece,) = pieces((3, 8, 2.0, 4), scale=3.0)
    assert scales(_scaled(piece, 2.0)) == [(3, 7, 1.0), (7, 8, 6.0)]
    assert scales(_scaled(piece, 1.0)) == [(3, 8, 3.0)]


@pytest.mark.parametrize("controller", [SERVER, IntegralController(0.01, 10.0, 0)])
def test_half_of_the_clients_leave_and_the_next_rounds_are_as_before(controller):
    """Without the scale, half as many participate in the round of the change."""
    change = {"schedule": Schedule(leave={40: slice(0, CLIENTS, 2)}), "problem": Problem(PROBLEM.costs, 60.0)}
    found = run(SumNoise(5.0), controller=controller, **change)
    assert found.signal[40] / found.signal[39] > 1.7
    assert abs(found.participants[40:45].mean() / found.participants[30:40].mean() - 1.0) < 0.3
    exact = run(None, controller=controller, **change)
    assert exact.participants[40] < 0.75 * exact.participants[30:40].mean()
