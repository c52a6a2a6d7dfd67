"""The ledger notices an older copy of itself, and one that somebody else has used."""

import json
import os
import shutil
from contextlib import suppress

import pytest

from client.faults import Crash, CrashingDisk
from client.ledgers import again, begin, spend
from turnout.client.ledger import BudgetSpent, Ledger, LedgerRolledBack
from turnout.client.limit import Limit
from turnout.errors import FileProblem
from turnout.privacy import FIXED_NUMBER, UNWITNESSED, Kind


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_restored_older_file_is_refused(tmp_path, elsewhere):
    options = {"witness": tmp_path / "stick"} if elsewhere else {}
    path = tmp_path / "cost.jsonl"
    with begin(tmp_path, **options) as ledger:
        spend(ledger, range(3))
    older = path.read_bytes()
    with again(tmp_path, **options) as ledger:
        spend(ledger, range(3, 5))
    newest = path.read_bytes()
    for copy in (
        older,
        newest[:-1],
        newest[:-90],
        newest.rsplit(b"\n", 2)[0] + b"\n",
        older.split(b"\n")[0] + b"\n",
        b"",
    ):
        path.write_bytes(copy)
        with pytest.raises(LedgerRolledBack, match=r"has seen entry 5.*Restore the newest copy"):
            again(tmp_path, **options)
        assert path.read_bytes() == copy  # a refusal changes nothing
    path.unlink()
    with pytest.raises(LedgerRolledBack):
        begin(tmp_path, **options)
    path.write_bytes(newest)
    with again(tmp_path, **options) as ledger:
        assert ledger.spent == 5


def test_a_missing_or_unreadable_witness_is_refused(tmp_path):
    with begin(tmp_path) as ledger:
        spend(ledger, range(2))
    witness = tmp_path / "cost.jsonl.witness"
    with pytest.raises(LedgerRolledBack, match=r"no witness at .*other \(the ledger's was at .*cost\.jsonl\.witness\)"):
        again(tmp_path, witness=tmp_path / "other")
    kept = witness.read_bytes()
    for garbage in (b"", b"[]", b"{}", b"\xff", kept[: len(kept) // 2]):
        witness.write_bytes(garbage)
        with pytest.raises(FileProblem, match="cannot be read"):
            again(tmp_path)
    witness.unlink()
    with pytest.raises(LedgerRolledBack, match="or restore it"):
        again(tmp_path)
    witness.write_bytes(kept)
    again(tmp_path).close()


def test_two_copies_that_share_a_witness_are_found_out(tmp_path):
    witness = tmp_path / "stick"
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    with begin(first, witness=witness) as ledger:
        spend(ledger, range(2))
    shutil.copytree(first, second)
    with again(first, witness=witness) as one, again(second, witness=witness) as two:
        spend(one, [2])
        with pytest.raises(LedgerRolledBack, match="another copy of this ledger may be in use"):
            spend(two, [3])
    with pytest.raises(LedgerRolledBack, match=r"its witness .* has seen entry 3"):
        again(second, witness=witness)
    witness.unlink()
    shutil.copy(first / "cost.jsonl", witness)  # not a witness at all
    with pytest.raises(FileProblem):
        again(second, witness=witness)


@pytest.mark.parametrize("others", [[7], [7, 8]], ids=["as long", "longer"])
def test_a_fork_is_refused(tmp_path, others):
    """Two copies went different ways, and the witness has seen the other one."""
    with begin(tmp_path) as ledger:
        spend(ledger, [0])
    fork = (tmp_path / "cost.jsonl").read_bytes(), (tmp_path / "cost.jsonl.witness").read_bytes()
    with again(tmp_path) as ledger:
        spend(ledger, [1])
    mine = (tmp_path / "cost.jsonl.witness").read_bytes()
    (tmp_path / "cost.jsonl").write_bytes(fork[0])
    (tmp_path / "cost.jsonl.witness").write_bytes(fork[1])
    with again(tmp_path) as ledger:
        spend(ledger, others)
    (tmp_path / "cost.jsonl.witness").write_bytes(mine)
    with pytest.raises(LedgerRolledBack, match="two copies were in use"):
        again(tmp_path)


def test_what_is_missing_can_be_counted_as_spent(tmp_path):
    behind(tmp_path)
    older = (tmp_path / "cost.jsonl").read_bytes()
    disk = CrashingDisk(2)  # and a crash before the witness has moved
    with pytest.raises(Crash):
        again(tmp_path, spend_missing=True, disk=disk)
    (tmp_path / "cost.jsonl").write_bytes(older)
    with again(tmp_path, spend_missing=True) as ledger:
        assert ledger.spent == 6
        spend(ledger, range(10, 14))
        with pytest.raises(BudgetSpent):
            spend(ledger, [14])
    with again(tmp_path) as ledger:
        assert ledger.spent == 10


def test_an_older_witness_is_harmless(tmp_path):
    with begin(tmp_path) as ledger:
        spend(ledger, range(2))
    older = (tmp_path / "cost.jsonl.witness").read_bytes()
    with again(tmp_path) as ledger:
        spend(ledger, range(2, 6))
    (tmp_path / "cost.jsonl.witness").write_bytes(older)
    with again(tmp_path) as ledger:
        assert ledger.spent == 6
    assert json.loads((tmp_path / "cost.jsonl.witness").read_text())["number"] == 6


def test_the_witness_has_seen_every_entry_once_it_returns(tmp_path):
    """Also a changed limit: an older copy, with the higher limit, is refused at once."""
    path, witness = tmp_path / "cost.jsonl", tmp_path / "cost.jsonl.witness"

    def seen():
        return json.loads(witness.read_text())["number"]

    with Ledger.open(path, datum="cost", limit=Limit(5, 1.0), witness=witness) as ledger:
        assert seen() == 0
        ledger.reserve("run", 0, 0.5)
        assert seen() == 1
        older = path.read_bytes()
        ledger.change_limit(Limit(2, 0.5))
        assert seen() == 2
    path.write_bytes(older)
    with pytest.raises(LedgerRolledBack, match="ends at entry 1"):
        Ledger.open(path, datum="cost")


def test_a_file_replaced_under_an_open_ledger_is_noticed(tmp_path):
    path = tmp_path / "cost.jsonl"
    with begin(tmp_path) as ledger:
        spend(ledger, [0])
        older = path.read_bytes()
        spend(ledger, [1])
        (tmp_path / "restored").write_bytes(older)
        os.replace(tmp_path / "restored", path)
        with pytest.raises(FileProblem, match="changed or replaced while in use"):
            spend(ledger, [2])
    with pytest.raises(FileProblem, match="is closed"):
        spend(ledger, [2])
    with pytest.raises(LedgerRolledBack):
        again(tmp_path)


def behind(folder):
    """A ledger that ends at entry 2, with 2 reports, and a witness that has seen entry 6."""
    with begin(folder) as ledger:
        spend(ledger, range(2))
    older = (folder / "cost.jsonl").read_bytes()
    with again(folder) as ledger:
        spend(ledger, range(2, 6))
    (folder / "cost.jsonl").write_bytes(older)
    return json.loads((folder / "cost.jsonl.witness").read_text())


def test_a_crash_while_the_missing_are_counted_neither_loses_nor_doubles_them(tmp_path):
    """Once the line is there it stands for what the witness has seen: nobody need agree a second time."""
    agreed = []
    for step in range(1, 8):  # sync of what is read; write, sync; write, sync, name of the witness, sync of the folder
        folder = tmp_path / str(step)
        folder.mkdir()
        behind(folder)
        with pytest.raises(Crash):
            again(folder, spend_missing=True, disk=CrashingDisk(step))
        agreed.append(b'"missing"' in (folder / "cost.jsonl").read_bytes().rpartition(b"\n")[0])
        with again(folder, spend_missing=not agreed[-1]) as ledger:
            assert ledger.spent == 6
    assert agreed == [False, False, True, True, True, True, True]


def test_what_is_missing_is_one_line_numbered_after_all_that_the_witness_saw(tmp_path):
    seen = behind(tmp_path)
    again(tmp_path, spend_missing=True).close()
    line = json.loads((tmp_path / "cost.jsonl").read_bytes().splitlines()[-1])
    assert (line["number"], line["reports"], line["witness"]) == (7, 4, [6, seen["hash"]])
    (tmp_path / "cost.jsonl.witness").write_text(json.dumps(seen | {"hash": "another of that number"}))
    with pytest.raises(LedgerRolledBack, match="two copies were in use"):
        again(tmp_path)


@pytest.mark.parametrize("entries", [0, 1, 5])
def test_a_ledger_that_is_lost_whole_is_refused_or_begins_with_what_its_witness_saw(tmp_path, entries):
    with begin(tmp_path) as ledger:
        spend(ledger, range(entries))
    (tmp_path / "cost.jsonl").unlink()
    with pytest.raises(LedgerRolledBack, match=r"empty or was deleted.*--count-missing-as-spent"):
        begin(tmp_path)
    with pytest.raises(FileProblem, match="give limit"):  # it held the limit, too
        again(tmp_path, spend_missing=True)
    for spend_missing in (True, False):  # agreed to once
        with begin(tmp_path, 99, 9.0, spend_missing=spend_missing) as ledger:
            assert ledger.spent == entries  # the witness knows how many, and of which kind
            assert ledger.limit == Limit(99, 9.0)
    with again(tmp_path) as ledger:
        spend(ledger, [entries])
        assert ledger.spent == entries + 1


def test_a_crash_while_a_lost_ledger_is_begun_again_neither_loses_nor_doubles_it(tmp_path):
    for step in range(1, 8):
        folder = tmp_path / str(step)
        folder.mkdir()
        with begin(folder) as ledger:
            spend(ledger, range(3))
        (folder / "cost.jsonl").unlink()
        with suppress(Crash):
            begin(folder, spend_missing=True, disk=CrashingDisk(step)).close()
        with begin(folder, spend_missing=True) as ledger:
            assert ledger.spent == 3


def at(rounds, epsilon=0.5):
    return dict.fromkeys(rounds, epsilon)


class TestAccountFor:
    """What a client has tossed for is compared with what is counted."""

    def test_what_is_reserved_is_accounted_for(self, tmp_path):
        with begin(tmp_path) as ledger:
            spend(ledger, range(6))
            ledger.account_for("run", at(range(6)))
            ledger.account_for("run", at(range(3, 6)), {0.5: 3})
            with pytest.raises(LedgerRolledBack, match=r"lacks reports .* in 'run' \(1\)"):
                ledger.account_for("run", at(range(3, 6)), {0.5: 4})
            with pytest.raises(LedgerRolledBack, match=r"in 'run' \(2\)"):
                ledger.account_for("run", at([5, 6, 7]))
            with pytest.raises(LedgerRolledBack, match=r"cost\.jsonl: .* in 'other' \(1\).* --count-missing-as-spent"):
                ledger.account_for("other", at([0]))

    def test_with_consent_it_is_counted_once_for_each_run(self, tmp_path):
        with begin(tmp_path, spend_missing=True) as ledger:
            ledger.account_for("a", at(range(3)), {0.25: 1})
            ledger.account_for("b", at(range(2)))
            assert ledger.spent == 6
            assert ledger.account(0.0).epsilon == pytest.approx(5 * 0.5 + 0.25)
        with again(tmp_path) as ledger:
            ledger.account_for("a", at(range(3)), {0.25: 1})
            ledger.account_for("b", at(range(2)))
            assert ledger.spent == 6

    def test_what_the_witness_knew_is_not_counted_twice(self, tmp_path):
        behind(tmp_path)
        with again(tmp_path, spend_missing=True) as ledger:
            ledger.account_for("run", at(range(6)))
            assert ledger.spent == 6

    def test_a_release_excuses_no_report(self, tmp_path):
        """Ledger and witness restored: a release in it must not hide that 500 reports are forgotten."""
        with begin(tmp_path, reports=1000) as ledger:
            ledger.release(1.0, {"kind": "memoized"}, {"level": 3})
            with pytest.raises(LedgerRolledBack, match=r"in 'run' \(500\)"):
                ledger.account_for("run", at(range(500)))
        with again(tmp_path, spend_missing=True) as ledger:
            ledger.account_for("run", at(range(500)))
            assert (ledger.spent, ledger.releases) == (500, 1)

    def test_a_release_that_a_client_acts_on_must_be_counted(self, tmp_path):
        acts_on = {"epsilon": 1.0, "mechanism": {"kind": "memoized"}, "released": {"level": 3}}
        with begin(tmp_path) as ledger, pytest.raises(LedgerRolledBack, match="lacks the release that the client acts"):
            ledger.account_for_release(acts_on)
        with again(tmp_path, spend_missing=True) as ledger:
            ledger.account_for_release(acts_on)
            assert (ledger.releases, ledger.last_release) == (1, acts_on)  # the same again, not a new one
        with again(tmp_path) as ledger:
            ledger.account_for_release(acts_on)
            assert ledger.account(1e-6).epsilon == 1.0


def test_a_torn_first_line_without_a_witness_is_refused(tmp_path):
    """Before the first line there is a witness: so this one was lost."""
    (tmp_path / "cost.jsonl").write_bytes(b'{"number": 0')
    with pytest.raises(LedgerRolledBack, match=r"no witness at .* \(the ledger's was at an unknown place\)"):
        begin(tmp_path)
    assert (tmp_path / "cost.jsonl").read_bytes() == b'{"number": 0'


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "moved"])
def test_nothing_is_written_or_granted_once_the_witness_is_not_where_it_was_left(tmp_path, gone):
    path, witness = tmp_path / "cost.jsonl", tmp_path / "cost.jsonl.witness"
    with begin(tmp_path) as ledger:
        spend(ledger, range(2))
        before, kept = path.read_bytes(), witness.read_bytes()
        if gone:
            witness.unlink()
        else:
            witness.write_text(json.dumps(json.loads(kept) | {"number": 9, "hash": "other"}))
        for asked in (
            lambda: ledger.reserve("run", 0, 0.5),  # reserved already
            lambda: ledger.reserve("run", 2, 0.5),
            lambda: ledger.change_limit(Limit(1, 0.1)),
        ):
            with pytest.raises(LedgerRolledBack, match="was moved by somebody else or is gone"):
                asked()
        assert path.read_bytes() == before
        assert (ledger.spent, ledger.limit) == (2, Limit(10, 1.0))
        witness.write_bytes(kept)
        spend(ledger, [2])


def two_runs(folder):
    """40 reports in each of two runs; the ledger as it was after 10 of each, the witness as it was after 25."""
    with begin(folder, reports=1000) as ledger:
        for round in range(40):
            if round == 10:
                older = (folder / "cost.jsonl").read_bytes()
            if round == 25:
                witness = (folder / "cost.jsonl.witness").read_bytes()
            for run in ("a", "b"):
                ledger.reserve(run, round, 0.5)
        whole = ledger.account(1e-6).epsilon
    (folder / "cost.jsonl").write_bytes(older)
    (folder / "cost.jsonl.witness").write_bytes(witness)
    return whole


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_what_a_witness_knew_is_credited_to_the_run_that_it_was_of(tmp_path, order):
    """Ledger and witness of different ages: reports that the witness knew of were credited to every run."""
    whole = two_runs(tmp_path)
    with again(tmp_path, spend_missing=True) as ledger:
        assert ledger.spent == 50
        for run in order * 2:
            ledger.account_for(run, at(range(40)))
        assert (ledger.spent, ledger.account(1e-6).epsilon) == (80, pytest.approx(whole))


def test_a_run_whose_rounds_are_gone_keeps_what_the_witness_knew(tmp_path):
    two_runs(tmp_path)
    with again(tmp_path, spend_missing=True) as ledger:
        ledger.account_for("a", at(range(40)))  # the rounds of b are not on file any more
        assert ledger.spent == 40 + 25


def test_another_release_in_the_ledger_excuses_none(tmp_path):
    """The ledger was lost, somebody released anew, and then a client came that acts on the release before that."""
    first = {"epsilon": 0.5, "mechanism": {"kind": "memoized"}, "released": {"level": 3}}
    with begin(tmp_path) as ledger:
        ledger.release(0.5, {"kind": "memoized"}, {"level": 4})
        with pytest.raises(LedgerRolledBack, match="lacks the release that the client acts on"):
            ledger.account_for_release(first)
    with again(tmp_path, spend_missing=True) as ledger:
        ledger.account_for_release(first)
        ledger.account_for_release(first)
        assert (ledger.releases, ledger.account(0.0).epsilon) == (2, pytest.approx(1.0))


def test_a_release_that_is_counted_but_lost_is_found_again_in_a_clients_file(tmp_path):
    with begin(tmp_path) as ledger:
        ledger.release(0.5, {"kind": "memoized"}, {"level": 3})
        mine = ledger.last_release
    (tmp_path / "cost.jsonl").unlink()
    with begin(tmp_path, spend_missing=True) as ledger:
        assert (ledger.releases, ledger.last_release) == (1, None)
        ledger.account_for_release(mine)
        assert (ledger.releases, ledger.last_release) == (1, mine)
    with again(tmp_path) as ledger:
        assert (ledger.releases, ledger.last_release, ledger.account(0.0).epsilon) == (1, mine, 0.5)


def test_a_lost_witness_has_a_way_on_that_every_total_tells_of(tmp_path):
    with begin(tmp_path) as ledger:
        spend(ledger, range(3))
    (tmp_path / "cost.jsonl.witness").unlink()
    with pytest.raises(LedgerRolledBack, match="--count-missing-as-spent"):
        again(tmp_path)
    with again(tmp_path, spend_missing=True) as ledger:
        spend(ledger, [3])
    with again(tmp_path) as ledger:
        assert ledger.spent == 4
        assert UNWITNESSED in ledger.account(1e-6).assumptions


def test_what_there_is_now_and_what_is_allowed_ahead(tmp_path):
    """A number of reports that somebody may have chosen who saw them is an assumption; the owner's limit is not."""
    with begin(tmp_path, reports=9) as ledger:
        spend(ledger, range(3))
        assert ledger.account(1e-6).assumptions == (FIXED_NUMBER,)
        assert ledger.account(0.0).assumptions == ()
        assert ledger.account(1e-6, more={Kind(0.5): ledger.remaining}).assumptions == ()
