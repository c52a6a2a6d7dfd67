"""The ledger: counts before the toss; several processes take turns, and together never exceed the limit."""

import contextlib
import json
import math
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from client.ledgers import again, begin, spend
from turnout.client.ledger import BudgetSpent, Ledger, Reservation
from turnout.client.limit import Limit
from turnout.errors import FileProblem
from turnout.files import InUse


def test_a_budget_of_n_yields_n_across_runs_servers_and_restarts(tmp_path):
    count = 0
    with begin(tmp_path, reports=7):
        pass
    for run in ("a", "b", "c"):
        with again(tmp_path) as ledger:
            for round in range(3):
                try:
                    ledger.reserve(run, round, 1.0)
                    count += 1
                except BudgetSpent:
                    assert count == 7
    assert count == 7
    with again(tmp_path) as ledger:
        assert (ledger.spent, ledger.remaining) == (7, 0)
        with pytest.raises(BudgetSpent, match="all 7 reports that the client allows about 'cost' are spent"):
            ledger.reserve("d", 0, 1.0)
        assert ledger.reserved("c") == [0]


def test_the_same_round_counts_once(tmp_path):
    with begin(tmp_path, reports=1) as ledger:
        first = ledger.reserve("run", 4, 0.5)
        second = ledger.reserve("run", 4, 0.25)
        with pytest.raises(ValueError, match=r"epsilon_per_report must be at most 0\.5, as reserved before"):
            ledger.reserve("run", 4, 0.75)
    with again(tmp_path) as ledger:
        third = ledger.reserve("run", 4, 0.5)
        assert ledger.spent == 1
    assert (first.new, second.new, third.new) == (True, False, False)
    assert first.epsilon_per_report == second.epsilon_per_report == third.epsilon_per_report == 0.5


def test_a_report_with_a_larger_certificate_is_refused_and_not_counted(tmp_path):
    with begin(tmp_path) as ledger:
        for epsilon in (1.0 + 1e-15, math.inf):
            with pytest.raises(BudgetSpent, match=r"of at most 1\.0, got"):
                ledger.reserve("run", 0, epsilon)
        assert ledger.spent == 0
        ledger.reserve("run", 0, 1.0)
    with again(tmp_path, accept_uncertified=True) as ledger:
        ledger.reserve("run", 1, math.inf)
        with pytest.raises(BudgetSpent, match=r"of at most 1\.0, got 30"):
            ledger.reserve("run", 2, 30.0)  # what has a certificate keeps the limit even so
    with again(tmp_path) as ledger:
        assert ledger.limit == Limit(10, 1.0)
        assert (ledger.spent, ledger.account(1e-6).epsilon) == (2, math.inf)
        for epsilon in (1.1, 30.0, math.inf):  # the consent has ended with the ledger that it was given for
            with pytest.raises(BudgetSpent, match=r"of at most 1\.0, got"):
                ledger.reserve("run", 2, epsilon)


def test_limits_are_the_clients_lower_freely_higher_with_recorded_consent(tmp_path):
    with begin(tmp_path, reports=10) as ledger:
        spend(ledger, range(4))
    with begin(tmp_path, reports=3) as ledger:
        assert ledger.remaining == 0
        with pytest.raises(BudgetSpent):
            ledger.reserve("run", 9, 0.5)
    for limit in (Limit(4, 1.0), Limit(3, 1.5), Limit(1, 1.5)):
        with pytest.raises(ValueError, match=r"limit .* must be at most [13], as .*consent=True"):
            begin(tmp_path, limit.reports, limit.epsilon_per_report)
    with begin(tmp_path, reports=5, consent=True) as ledger:
        spend(ledger, [4])
        assert ledger.remaining == 0
    entries = [json.loads(line) for line in (tmp_path / "cost.jsonl").read_text().splitlines()]
    assert [entry["consent"] for entry in entries if entry["entry"] == "limit"] == [False, True]


def test_plain_readable_private_files(tmp_path):
    with begin(tmp_path, accept_uncertified=True) as ledger:
        ledger.reserve("run", np.int64(3), math.inf)
    for name in ("cost.jsonl", "cost.jsonl.witness"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    lines = (tmp_path / "cost.jsonl").read_text().splitlines()
    opened, reserved = (json.loads(line, parse_constant=pytest.fail) for line in lines)
    assert (opened["entry"], opened["datum"], opened["limit"]["reports"]) == ("opened", "cost", 10)
    assert (reserved["run"], reserved["round"], reserved["epsilon_per_report"]) == ("run", 3, "inf")
    assert reserved["previous"] == opened["hash"]
    os.chmod(tmp_path / "cost.jsonl", 0o644)
    with again(tmp_path):
        assert (tmp_path / "cost.jsonl").stat().st_mode & 0o777 == 0o600


def test_several_processes_share_a_ledger_and_never_exceed_it(tmp_path):
    code = (
        "import sys; from turnout.client.ledger import *\n"
        "ledger, granted = Ledger.open(sys.argv[1], datum='cost'), 0\n"
        "for round in range(60):\n"
        "    try: granted += ledger.reserve(sys.argv[2], round, 1.0).new\n"
        "    except BudgetSpent: pass\n"
        "print(granted)"
    )
    with begin(tmp_path, reports=100) as ledger:
        command = [sys.executable, "-c", code, str(tmp_path / "cost.jsonl")]
        others = [subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) for name in ("a", "b", "c")]
        mine = 0
        for round in range(60):
            with contextlib.suppress(BudgetSpent):
                mine += ledger.reserve("mine", round, 1.0).new
        granted = [mine, *(int(other.communicate(timeout=60)[0]) for other in others)]
        assert sum(granted) == 100
        with pytest.raises(BudgetSpent):
            ledger.reserve("mine", 99, 1.0)
        assert ledger.spent == 100
    with again(tmp_path) as ledger:
        assert [len(ledger.reserved(run)) for run in ("mine", "a", "b", "c")] == granted


def test_a_process_that_keeps_a_ledger_is_waited_for_and_then_named(tmp_path, monkeypatch):
    monkeypatch.setattr("turnout.client.ledger.LOCK_SECONDS", 0.05)
    with begin(tmp_path) as ledger, ledger.turn(), pytest.raises(InUse, match="in use elsewhere"):
        again(tmp_path)


def test_what_another_process_left_torn_is_dropped(tmp_path):
    with begin(tmp_path) as one, again(tmp_path) as two:
        spend(one, [0])
        with open(tmp_path / "cost.jsonl", "ab") as file:
            file.write(b'{"number": 2, "ent')
        assert two.reserve("run", 0, 0.5).new is False
        assert two.reserve("run", 1, 0.5).new
        assert one.reserve("run", 1, 0.5).new is False
        assert (one.spent, two.spent) == (2, 2)
        with open(tmp_path / "cost.jsonl", "ab") as file:
            file.write(b"{}\n{}\n")
        with pytest.raises(FileProblem, match="changed or replaced while in use"):
            spend(one, [2])


def test_a_forked_child_may_not_use_its_parents_ledger(tmp_path, monkeypatch):
    with begin(tmp_path) as ledger:
        monkeypatch.setattr(os, "getpid", lambda: 1)
        with pytest.raises(InUse, match="belongs to the process that opened it"):
            spend(ledger, [0])


def test_threads_share_a_ledger_and_never_exceed_it(tmp_path):
    with begin(tmp_path, reports=20) as ledger:
        granted, refused = [], []

        def work(name):
            for round in range(10):
                try:
                    granted.append(ledger.reserve(name, round, 1.0))
                except BudgetSpent:
                    refused.append(round)

        threads = [threading.Thread(target=work, args=(str(i),)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(granted), len(refused), ledger.spent) == (20, 20, 20)


def test_bad_arguments(tmp_path):
    for reports in (-1, 1.5, True, "many"):
        with pytest.raises(ValueError, match="limit reports must be a whole number"):
            Limit(reports, 1.0)
    for epsilon in (-1.0, math.nan, "1", True):
        with pytest.raises(ValueError, match="limit epsilon_per_report must be 0 or more"):
            Limit(1, epsilon)
    for name in ("epsilon_per_report", "epsilon_per_release"):
        with pytest.raises(ValueError, match=f"limit {name} must be finite, got inf: .*accept_uncertified"):
            Limit(**{"reports": 1, "epsilon_per_report": 1.0} | {name: math.inf})
    with pytest.raises(ValueError, match="limit releases must be a whole number"):
        Limit(1, 1.0, releases=-1)
    with pytest.raises(ValueError, match="datum must be a name"):
        Ledger.open(tmp_path / "a", datum="", limit=Limit(1, 1.0))
    with begin(tmp_path) as ledger:
        for arguments in (
            ("", 0, 1.0),
            (3, 0, 1.0),
            ("r", -1, 1.0),
            ("r", 0.5, 1.0),
            ("r", True, 1.0),
            ("r", 0, math.nan),
        ):
            with pytest.raises(ValueError, match="must be"):
                ledger.reserve(*arguments)
        assert ledger.spent == 0
    with pytest.raises(ValueError, match=r"datum must be 'cost', as the ledger .* began, got 'other'"):
        Ledger.open(tmp_path / "cost.jsonl", datum="other")


def test_a_limit_may_allow_nothing_and_its_epsilon_is_a_float(tmp_path):
    assert Limit(0, 0).reports == 0
    assert isinstance(Limit(1, 2).epsilon_per_report, float)
    with begin(tmp_path, reports=1, epsilon_per_report=0.0) as ledger:
        assert ledger.reserve("run", 0, 0.0) == Reservation("run", 0, 0.0, new=True)
        with pytest.raises(BudgetSpent):
            ledger.reserve("run", 1, 0.0)
    with begin(tmp_path, reports=0, epsilon_per_report=0.0) as ledger:
        assert ledger.remaining == 0


def test_either_part_of_a_limit_is_lowered_freely_and_neither_raised_without_consent(tmp_path):
    with begin(tmp_path, reports=5, epsilon_per_report=1.0) as ledger:
        for lower in (Limit(5, 0.5), Limit(4, 0.5), Limit(4, 0.5)):
            ledger.change_limit(lower)
            assert ledger.limit == lower
        for higher in (Limit(5, 0.5), Limit(4, 0.6), Limit(9, 0.1), Limit(1, 9.0)):
            with pytest.raises(ValueError, match=r"limit (reports|epsilon per report) must be at most (4|0\.5), as"):
                ledger.change_limit(higher)
            assert ledger.limit == Limit(4, 0.5)
        ledger.change_limit(Limit(4, 0.6), consent=True)
    with again(tmp_path) as ledger:
        assert ledger.limit == Limit(4, 0.6)


def test_the_rounds_of_a_run_that_are_reserved(tmp_path):
    with begin(tmp_path) as ledger:
        spend(ledger, [4, 0, 2])
        spend(ledger, [7], run="other")
        assert ledger.reserved("run") == [0, 2, 4]
        assert ledger.reserved("run", after=0) == [2, 4]
        assert ledger.reserved("run", after=2) == [4]
        assert ledger.reserved("unknown") == []


def test_rounds_are_counted_as_far_as_a_float_can(tmp_path):
    with begin(tmp_path) as ledger:
        assert ledger.reserve("run", 2**53 - 1, 0.5).new
        with pytest.raises(ValueError, match=r"round must be a whole number from 0 to 2\^53 - 1"):
            ledger.reserve("run", 2**53, 0.5)


def test_a_ledger_needs_a_name_and_a_limit_to_begin(tmp_path):
    for datum in ("", None, 3):
        with pytest.raises(ValueError, match="datum must be a name"):
            Ledger.open(tmp_path / "cost.jsonl", datum=datum, limit=Limit(1, 1.0))
    with pytest.raises(FileProblem, match=r"this ledger is empty: give limit=Limit\(...\) to begin it"):
        again(tmp_path)
    with begin(tmp_path) as ledger:
        assert (ledger.datum, ledger.spent) == ("cost", 0)
