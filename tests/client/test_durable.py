"""The durable client: at most one toss a round, a stored bit for ever, and never a report without its reservation."""

import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from client.faults import Boxed, CountingCoins
from client.opened import make, open_ledger
from turnout import Averaging, Classical, IntegralController, PaperCoin, Prior, SeededCoins, paper_population, simulate
from turnout.algorithm import Clamp, ClientState, Memoized, OneRelease
from turnout.client import history, store
from turnout.client.durable import Stopped
from turnout.client.history import missed
from turnout.client.ledger import BudgetSpent, LedgerRolledBack
from turnout.client.limit import Limit
from turnout.client.store import Conflict, RoundPassed
from turnout.errors import FileProblem
from turnout.files import InUse
from turnout.problem import PolynomialCosts

HOSTILE = (math.nan, math.inf, -math.inf, -1.0, 0.0, -0.0, 1e308, 5e-324, 10**300)


@pytest.fixture
def ledger(tmp_path):
    with open_ledger(tmp_path) as ledger:
        yield ledger


def test_a_decided_round_is_returned_verbatim_whatever_the_signal_also_after_a_restart(tmp_path, ledger):
    with make(tmp_path, ledger) as client:
        bits = [client.decide(round, 2.0) for round in range(30)]
        assert {True, False} == set(bits)
        assert [client.decide(round, 1e9) for round in range(30)] == bits
    coins = CountingCoins()
    with make(tmp_path, ledger, coins=coins) as client:
        assert [client.decide(round, math.nan) for round in range(30)] == bits
    assert coins.tossed == []
    assert ledger.spent == 30
    assert (tmp_path / "rounds.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("averaging", [Averaging(), Averaging(remember=7), Averaging(by="probability")], ids=str)
@pytest.mark.parametrize("mechanism", [Classical(), PaperCoin(3.5), Boxed()], ids=str)
def test_restarted_clients_decide_exactly_as_a_simulation(tmp_path, mechanism, averaging):
    problem = paper_population(seed=0).problem(capacity=600)
    server = IntegralController(0.0075, 0.35)
    run = simulate(problem, mechanism, server, rounds=40, seed=3, start=Prior(0.5), averaging=averaging, engine="numpy")
    options = {"coins": SeededCoins(3), "prior": Prior(0.5), "averaging": averaging}
    for client in (0, 5, 1199):
        home = tmp_path / str(client)
        home.mkdir()
        options |= {"costs": problem.costs[client], "client_id": client}
        with open_ledger(home) as ledger:
            for round in range(40):
                with make(home, ledger, mechanism, **options) as agent:
                    agent.decide(round, run.signal[max(0, round - server.lag)])
            with make(home, ledger, mechanism, **options) as agent:
                assert agent._store.before(40).average[0] == run.average[client]


def test_missed_rounds_count_as_not_participating(tmp_path, ledger):
    with make(tmp_path, ledger, joined=2) as client:
        bits = [client.decide(5, 1.0), client.decide(6, 1.0), client.decide(10, 1.0)]
    expected = (0.5 * 10 + sum(bits)) / (10 + 9)
    with make(tmp_path, ledger) as client:
        assert client.status()["average"] == pytest.approx(expected, rel=1e-15)
        assert ledger.spent == 3
        with pytest.raises(RoundPassed, match="round must be above 10"):
            client.decide(7, 1.0)


@pytest.mark.parametrize("averaging", [Averaging(), Averaging(remember=50), Averaging(remember=10_050)], ids=str)
def test_a_server_that_jumps_ahead_does_not_keep_the_client_busy(tmp_path, ledger, averaging, monkeypatch):
    state = ClientState(np.array([5.0]), 10.0)
    exact = missed(state, 300, averaging)
    monkeypatch.setattr(history, "_STEPS", 20)
    formula = missed(state, 300, averaging)
    assert formula.participations == pytest.approx(exact.participations, rel=1e-12)
    assert formula.rounds == exact.rounds
    with make(tmp_path, ledger, averaging=averaging) as client:
        client.decide(0, 1.0)
        client.decide(2**53 - 1, 1.0)


def test_the_history_moves_by_what_the_server_counted(tmp_path, ledger):
    with make(tmp_path, ledger, coins=SeededCoins(1)) as client:
        bits = []
        for round in range(20):
            bits.append(client.decide(round, 3.0))
            client.acknowledge(round, round % 3 != 0)
            client.acknowledge(round, round % 3 != 0)  # again: nothing happens
        counted = sum(bit for round, bit in enumerate(bits) if round % 3)
        assert any(bits[::3])
        assert client.status()["average"] == pytest.approx((5 + counted) / 30, rel=1e-15)
        with pytest.raises(Conflict, match="round 3 was acknowledged as counted=False"):
            client.acknowledge(3, True)
        with pytest.raises(RoundPassed, match="got 77"):
            client.acknowledge(77, True)
        average = client.status()["average"]
    with make(tmp_path, ledger) as client:
        assert client.status()["average"] == average
        assert [client.decide(round, 1.0) for round in range(20)] == bits  # the bit itself stays


def test_a_late_refusal_corrects_the_history(tmp_path, ledger):
    options = {"averaging": Averaging(remember=5), "coins": SeededCoins(1)}
    with make(tmp_path, ledger, **options) as client:
        bits = [client.decide(round, 50.0) for round in range(10)]
        for round in range(10):
            client.acknowledge(round, False)
        assert any(bits)
        expected = missed(ClientState(np.array([5.0]), 10.0), 10, options["averaging"])
        assert client.status()["average"] == expected.average[0]


def test_a_long_life_is_tidied_and_forgets_nothing_that_matters(tmp_path, ledger, monkeypatch):
    monkeypatch.setattr(store, "LINES", 50)
    monkeypatch.setattr(store, "KEPT", 10)
    with make(tmp_path, ledger, coins=SeededCoins(1)) as client:
        bits = [client.decide(round, 2.0) for round in range(300)]
        average = client.status()["average"]
    assert average == pytest.approx((5 + sum(bits)) / 310, rel=1e-12)
    assert len((tmp_path / "rounds.jsonl").read_text().splitlines()) <= 60
    with make(tmp_path, ledger) as client:
        assert client.status()["average"] == average
        assert [client.decide(round, 2.0) for round in range(295, 300)] == bits[295:]
        with pytest.raises(RoundPassed):
            client.decide(3, 2.0)


@pytest.mark.parametrize("mechanism", [Classical(), PaperCoin(1.0), Boxed()], ids=str)
@pytest.mark.parametrize("by", ["bit", "probability"])
def test_hostile_signals_give_valid_reports(tmp_path, ledger, mechanism, by):
    options = {"averaging": Averaging(by=by)}
    with make(tmp_path, ledger, mechanism, **options) as client:
        bits = [client.decide(round, signal) for round, signal in enumerate(HOSTILE)]
        assert all(isinstance(bit, bool) for bit in bits)
        assert 0 < client._store.before(99).average[0] <= 1
        for signal in ("much", None, 10**400):
            with pytest.raises(ValueError, match="signal must be a number"):
                client.decide(50, signal)
        for round in (-1, 1.5, True, 2**53):
            with pytest.raises(ValueError, match="round must be a whole number"):
                client.decide(round, 1.0)
    with make(tmp_path, ledger, mechanism, **options) as client:
        assert [client.decide(round, 1.0) for round in range(len(HOSTILE))] == bits
    assert ledger.spent == len(HOSTILE)
    for line in (tmp_path / "rounds.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)  # strict JSON


# After the stop


def test_a_budget_of_n_yields_n_tosses_and_then_it_leaves(tmp_path):
    coins = CountingCoins(1)
    with open_ledger(tmp_path, reports=7) as ledger, make(tmp_path, ledger, coins=coins) as client:
        for round in range(7):
            client.decide(round, 1.0)
        for round in range(7, 12):
            with pytest.raises(Stopped, match="all 7 reports"):
                client.decide(round, 1.0)
        assert coins.tossed == list(range(7))
        assert client.status()["stopped_at"] == 7
        assert client.status()["reports_remaining"] == 0
        client.decide(3, 1.0)


def test_after_the_stop_it_follows_public_numbers_alone(tmp_path):
    """Clients of very different costs and the same reports act alike for ever."""
    sequences = []
    for cost in (0.01, 1000.0):
        home = tmp_path / str(cost)
        home.mkdir()
        costs, coins = PolynomialCosts([[cost]], powers=(2,)), SeededCoins(4)
        with open_ledger(home, reports=1) as ledger:
            options = {"costs": costs, "coins": coins, "after_stop": "follow", "joined": 0}
            with make(home, ledger, Constant(), **options) as client:
                client.decide(0, 5.0)
                frozen = client.status()["average"]
                client.decide(1, 5.0)
            with make(home, ledger, Constant(), **options) as client:
                sequences.append([client.decide(round, 10.0) for round in range(2, 400)])
                assert client._store.stop.average == frozen
                assert ledger.spent == 1
                low = [client.decide(400 + i, signal) for i, signal in enumerate((math.nan, -3.0, -math.inf, 0.0))]
                assert not any(low)
                assert client.decide(500, math.inf)
    assert sequences[0] == sequences[1]
    assert np.mean(sequences[0]) == pytest.approx(2 * frozen, abs=0.13)  # a Bernoulli mean of 398, 5 deviations


class Constant(Boxed):
    @staticmethod
    def limits(average, parameters):
        return 0.25, 0.25


def test_following_in_the_sum_only_view_uses_a_public_constant(tmp_path):
    for name, constant, expected in (("prior", None, 0.5), ("given", 0.125, 0.125)):
        home = tmp_path / name
        home.mkdir()
        options = {"averaging": Averaging(by="probability"), "after_stop": "follow", "follow_at": constant}
        with open_ledger(home, reports=5) as ledger, make(home, ledger, **options) as client:
            for round in range(8):
                client.decide(round, 1.0)
            assert client._store.stop.average == expected
            assert client._store.find(7).moved == expected
            assert client.status()["average"] is None


@pytest.mark.parametrize(("signals", "frozen"), [((2.0, math.nan), 2.0), ((math.inf, -1.0), None)])
def test_a_hostile_signal_at_the_stop_freezes_the_last_usable_one(tmp_path, signals, frozen):
    with open_ledger(tmp_path, reports=1) as ledger, make(tmp_path, ledger, after_stop="follow") as client:
        for round, signal in enumerate(signals):
            client.decide(round, signal)
        assert client._store.stop.signal == frozen
        client.decide(2, 1.0)


def test_a_limit_raised_with_consent_ends_the_stop(tmp_path):
    with open_ledger(tmp_path, reports=1) as ledger, make(tmp_path, ledger) as client:
        client.decide(0, 1.0)
        with pytest.raises(Stopped):
            client.decide(1, 1.0)
        ledger.change_limit(Limit(2, 8.0), consent=True)
        client.decide(2, 1.0)
        assert client.status()["stopped_at"] is None
        with pytest.raises(Stopped):
            client.decide(3, 1.0)
        assert client._store.stop.round == 3


# Releases at joining


@dataclass(frozen=True)
class Releasing(OneRelease):
    epsilon: float = 6.0
    price: float = 1.0
    kind = "releasing"

    def enrol(self, costs, uniform, weights=1):
        return PolynomialCosts([[self.price * costs.slope([1.0])[0] + 9.0 * float(uniform[0])]], powers=(2,))


def test_a_cost_is_released_once_across_runs_prices_costs_and_folders(tmp_path):
    surrogates = []
    with open_ledger(tmp_path, reports=1) as ledger:
        for number, run in enumerate(("a", "b", "a", "c", "d")):
            home = tmp_path / run
            home.mkdir(exist_ok=True)
            mechanism = Releasing(price=1.0 + 1e-6 * number)
            costs = PolynomialCosts([[3.0 + number]], powers=(2,))  # measured anew: no other cost
            with make(home, ledger, mechanism, run=run, coins=None, costs=costs) as client:
                surrogates.append(client._memory.coefficients.item())
                for round in range(20 * number, 20 * number + 20):
                    client.decide(round, 1.0)
        assert len(set(surrogates)) == 1
        assert (ledger.spent, ledger.releases) == (0, 1)
        assert repr(ledger.account(1e-6)).startswith("total epsilon 6.000 at delta 0 over all reports from 1 release")


def test_a_second_release_needs_consent_and_is_added(tmp_path):
    with open_ledger(tmp_path, limit=Limit(1, 8.0, epsilon_per_release=6.0)) as ledger:
        with make(tmp_path, ledger, Releasing(), coins=None) as client:
            first = client._memory.coefficients.item()
        with pytest.raises(ValueError, match="limit releases must be at most 1"):
            ledger.change_limit(Limit(1, 8.0, releases=2, epsilon_per_release=6.0))
        ledger.change_limit(Limit(1, 8.0, releases=2, epsilon_per_release=6.0), consent=True)
        for _ in range(3):  # agreed to once more, so released once more
            with make(tmp_path, ledger, Releasing(), coins=None) as client:
                second = client._memory.coefficients.item()
        assert first != second
        assert ledger.account(1e-6).epsilon == pytest.approx(12.0)
    with open_ledger(tmp_path, limit=Limit(1, 8.0, 2, 6.0)) as ledger, make(tmp_path, ledger, Releasing(price=2.0)):
        assert ledger.releases == 2


def test_a_release_beyond_the_limit_is_refused_and_not_made(tmp_path):
    with open_ledger(tmp_path, limit=Limit(1000, 8.0, epsilon_per_release=5.0), accept_uncertified=False) as ledger:
        with pytest.raises(BudgetSpent, match=r"at most 5\.0, .* got 6\.0: .*--epsilon-per-release 6\.0"):
            make(tmp_path, ledger, Releasing())
        assert ledger.releases == 0
        with pytest.raises(BudgetSpent, match="got inf"):  # it releases something, and nobody says how much that is
            make(tmp_path, ledger, ReleasesAnything())
        assert ledger.releases == 0


class ReleasesAnything(Boxed):
    def enrol(self, costs, uniform, weights=1):
        return costs


def test_a_release_follows_the_weight_of_a_run(tmp_path):
    intents = []
    with open_ledger(tmp_path) as ledger:
        for run, weight in (("a", 1), ("b", 4), ("c", 1)):
            (tmp_path / run).mkdir()
            with make(tmp_path / run, ledger, Memoized(2.0, price=8.0), run=run, coins=None, weight=weight) as client:
                intents.append(weight * 0.3 / client._memory.slope(np.array([0.3])).item())
        assert ledger.releases == 1
    assert intents == pytest.approx([intents[0]] * 3)


def test_a_changed_cost_touches_no_file_and_is_acted_on_at_once(tmp_path, ledger):
    with make(tmp_path, ledger, Classical(), coins=AlwaysHalf()) as client:
        assert not client.decide(0, 1.0)
        before = os.stat(tmp_path / "rounds.jsonl").st_mtime_ns, ledger.spent
        client.act_on(PolynomialCosts([[0.1]], powers=(2,)))
        assert (os.stat(tmp_path / "rounds.jsonl").st_mtime_ns, ledger.spent) == before
        assert client.decide(1, 1.0)
        with pytest.raises(ValueError, match="of one client, got 2"):
            client.act_on(PolynomialCosts([[1.0], [2.0]], powers=(2,)))


class AlwaysHalf:
    def uniform(self, clients, round, purpose=0):
        return np.full(len(clients), 0.5)


# Copies


def restored(folder, copy_of, signal, cost=3.0, round=7):
    """The bit of a copy of all files, ledger and witness included."""
    shutil.rmtree(folder)
    shutil.copytree(copy_of, folder)
    with (
        open_ledger(folder) as ledger,
        make(folder, ledger, Clamp(1.0), coins=None, costs=PolynomialCosts([[cost]], powers=(2,))) as client,
    ):
        return client.decide(round, signal)


def test_a_restored_copy_of_all_files_repeats_its_bit_for_the_same_signal(tmp_path):
    """40 copies gave 40 fresh tosses of one round; now they give the same bit, and another coin for another signal."""
    home, kept = tmp_path / "home", tmp_path / "kept"
    home.mkdir()
    with open_ledger(home) as ledger, make(home, ledger, Clamp(1.0), coins=None) as client:
        for round in range(7):
            client.decide(round, 2.0)
    shutil.copytree(home, kept)
    assert len({restored(home, kept, 3.0) for _ in range(40)}) == 1
    many = [restored(home, kept, 3.0 + 1e-9 * number) for number in range(40)]  # the same probability
    assert 0 < sum(many) < 40  # chance of a false alarm below 2 * 0.75^40 = 2e-5


def test_a_restored_copy_of_all_files_releases_the_same_again_whatever_the_run(tmp_path):
    home, kept, levels = tmp_path / "home", tmp_path / "kept", set()
    home.mkdir()
    open_ledger(home).close()
    shutil.copytree(home, kept)
    for number in range(20):
        shutil.rmtree(home)
        shutil.copytree(kept, home)
        with open_ledger(home) as ledger, make(home, ledger, Memoized(1.0, 8.0), run=f"{number}", coins=None) as client:
            levels.add(client._memory.coefficients.tobytes())
    assert len(levels) == 1


@pytest.mark.parametrize(
    "change", [{"mechanism": Clamp(0.5)}, {"weight": 3}, {"averaging": Averaging(by="probability")}]
)
def test_a_coin_serves_one_probability(tmp_path, change):
    """A restored copy that is asked with another mechanism or weight tosses another coin: one coin compared with two
    probabilities tells which is the greater. With one coin the pair ("yes" of the narrow box, "no" of the wide) would
    never come; with two it has a chance of some 0.1, and 200 trials without one of 0.9^200 = 7e-10."""
    home, kept, seen = tmp_path / "home", tmp_path / "kept", set()
    home.mkdir()
    open_ledger(home).close()
    shutil.copytree(home, kept)
    for round in range(200):
        bits = []
        for options in ({}, change):
            shutil.rmtree(home)
            shutil.copytree(kept, home)
            options = {"coins": None, "mechanism": Clamp(1.0), "costs": PolynomialCosts([[4.0]], (2,))} | options
            with open_ledger(home) as ledger, make(home, ledger, options.pop("mechanism"), **options) as client:
                bits.append(client.decide(round, 2.0))
        seen.add(tuple(bits))
    assert {(True, False), (False, True)} <= seen


def test_a_long_life_after_the_budget_is_not_taken_for_a_lost_ledger(tmp_path, monkeypatch):
    """Followed rounds have no reservation; tidied, the file has none but these."""
    monkeypatch.setattr(store, "LINES", 40)
    monkeypatch.setattr(store, "KEPT", 10)
    with open_ledger(tmp_path, reports=5) as ledger, make(tmp_path, ledger, after_stop="follow") as client:
        for round in range(90):
            client.decide(round, 1.0)
    with open_ledger(tmp_path, reports=5) as ledger, make(tmp_path, ledger, after_stop="follow") as client:
        client.decide(90, 1.0)
        assert ledger.spent == 5


def test_all_releases_of_a_run_are_on_its_file(tmp_path):
    limit = {"limit": Limit(5, 8.0, 2, 6.0)}
    with open_ledger(tmp_path, **limit) as ledger:
        for price in (1.0, 2.0):
            with make(tmp_path, ledger, Releasing(price=price), coins=None) as client:
                client.decide(int(price), 1.0)
        assert ledger.account(0.0).epsilon == pytest.approx(12.0)
    (tmp_path / "ledger.jsonl").unlink()
    (tmp_path / "ledger.jsonl.witness").unlink()
    with open_ledger(tmp_path, spend_missing=True, **limit) as ledger, make(tmp_path, ledger, Releasing(), coins=None):
        assert (ledger.releases, ledger.account(0.0).epsilon) == (2, pytest.approx(12.0))


def test_who_shares_a_ledger_sees_what_the_others_have_spent(tmp_path):
    with open_ledger(tmp_path, accept_uncertified=False) as one, open_ledger(tmp_path) as two:
        for round in range(20):
            one.reserve("run", round, 1.0)
        assert two.account(0.0).epsilon == pytest.approx(20.0)
        one.change_limit(Limit(30, 0.5))
        with pytest.raises(ValueError, match="limit epsilon per report must be at most"):
            two.change_limit(Limit(30, 1.0))  # it was lowered meanwhile


def test_rounds_up_to_the_witness_are_not_tossed_for_again(tmp_path):
    """The folder is restored, the witness is elsewhere: refused; with consent, charged, and no round is repeated."""
    home, witness = tmp_path / "home", tmp_path / "elsewhere" / "witness"
    home.mkdir()
    with open_ledger(home, witness=witness) as ledger, make(home, ledger, coins=None) as client:
        for round in range(3):
            client.decide(round, 2.0)
        shutil.copytree(home, tmp_path / "kept")
        for round in range(3, 9):
            client.decide(round, 2.0)
    shutil.rmtree(home)
    shutil.copytree(tmp_path / "kept", home)
    with pytest.raises(LedgerRolledBack):
        open_ledger(home, witness=witness)
    with open_ledger(home, witness=witness, spend_missing=True) as ledger, make(home, ledger, coins=None) as client:
        assert ledger.spent == 9
        for round in range(3, 9):
            with pytest.raises(RoundPassed, match="must be above 8, up to which this client may have reported"):
                client.decide(round, 5.0)
        client.decide(9, 5.0)
        assert (ledger.spent, ledger.account(0.0).epsilon) == (10, pytest.approx(10 * math.log(3.0)))
    with open_ledger(home, witness=None) as ledger, make(home, ledger, coins=None) as client:  # its place is on file
        client.decide(10, 5.0)


def test_two_folders_share_one_ledger(tmp_path):
    """Two processes' worth of objects: one cost, one ledger, two runs at the same time."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with (
        open_ledger(tmp_path, reports=10) as first,
        open_ledger(tmp_path, reports=10) as second,
        make(tmp_path / "one", first, run="one") as one,
        make(tmp_path / "two", second, run="two") as two,
    ):
        for round in range(5):
            one.decide(round, 1.0)
            two.decide(round, 1.0)
        for client in (one, two):
            with pytest.raises(Stopped):
                client.decide(5, 1.0)


def test_one_process_one_run_one_folder(tmp_path, ledger):
    with make(tmp_path, ledger), pytest.raises(InUse, match="in use elsewhere"):
        make(tmp_path, ledger)
    with pytest.raises(ValueError, match=r"run must be 'run', as .* began, got 'other'"):
        make(tmp_path, ledger, run="other")
    with pytest.raises(ValueError, match="prior must be"):
        make(tmp_path, ledger, prior=Prior(0.25))


def test_bad_arguments(tmp_path, ledger):
    with pytest.raises(FileProblem, match="create it first"):
        make(tmp_path / "missing", ledger)
    for options, message in (
        ({"costs": PolynomialCosts([[1.0], [2.0]], powers=(2,))}, "costs must be of one client, got 2"),
        ({"after_stop": "stay"}, "after_stop must be"),
        ({"follow_at": 1.5}, "follow_at must be"),
        ({"weight": 0}, "weight must be"),
    ):
        with pytest.raises(ValueError, match=message):
            make(tmp_path, ledger, **options)
    ledger.change_limit(Limit(5, 1.0))
    with pytest.raises(ValueError, match=r"epsilon_per_report must be at most the ledger's 1\.0, got 1\.09"):
        make(tmp_path, ledger)  # it makes the certificate itself: nobody tells it one
    ledger.accepts_uncertified = False
    with pytest.raises(ValueError, match=r"epsilon_per_report must be at most the ledger's 1\.0, got inf"):
        make(tmp_path, ledger, PaperCoin(3.5))


def test_a_device_needs_neither_simulation_nor_theory_nor_compiled_libraries():
    heavy = "('turnout.simulation', 'turnout.theory', 'numba', 'scipy', 'dp_accounting')"
    code = f"import sys, turnout.client.durable; sys.exit(any(name in sys.modules for name in {heavy}))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_private_is_logged_or_in_the_status(tmp_path, ledger, capfd, caplog):
    costs = PolynomialCosts([[3.14159]], powers=(2,))
    with caplog.at_level(0), make(tmp_path, ledger, costs=costs) as client:
        client.decide(0, 1.0)
        told = str(client.status())
    assert "3.14159" not in told
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
