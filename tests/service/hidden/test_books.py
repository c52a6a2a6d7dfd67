"""What the books hold: nothing that depends on a bit, beyond a side's own shares and the opened sum."""

import itertools
import json
import secrets
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from service.hidden.scene import Pair, a_round, open_device
from turnout.errors import FileProblem
from turnout.prio import split
from turnout.problem import Problem, paper_population
from turnout.service.hidden import Books, Helper, Leader, RoundWitness
from turnout.service.hidden.messages import Close, read

WEIGHTS = (1, 2, 3, 1)
BITS = (1, 0, 1, 1)


@pytest.fixture
def begun(tmp_path):
    pair = Pair(tmp_path, WEIGHTS, least=2, capacity=3, on_disk=True)
    for books in pair.books:
        books.close()
    return pair


def played(begun, folder, bits, noise, monkeypatch):
    """The same run with these bits, and all else the same: (tables before and after, files after, messages)."""
    tags = itertools.count()
    monkeypatch.setattr(secrets, "token_hex", lambda number: f"{next(tags):0{2 * number}x}")
    folder.mkdir()
    places = [Path(shutil.copy(place, folder)) for place in begun.places]
    books = [Books(place) for place in places]
    witnesses = [RoundWitness(folder / role, new=True) for role in ("leader", "helper")]
    leader = Leader(begun.rules, books[0], witnesses[0], lambda round, sigma: noise[0])
    helper = Helper(begun.rules, books[1], witnesses[1], lambda round, sigma: noise[1])
    for slot, bit in enumerate(bits):
        seeds = {"nonce": bytes([slot]) * 16, "randomness": bytes([slot + 1]) * 64}
        report = split(bit, begun.rules.context(0, WEIGHTS[slot]), **seeds)
        for side, body in zip((leader, helper), begun.report(slot, bit, 0, made=report), strict=True):
            assert side.report([(slot, body)]) == [""]
    tables, said = [rows(own) for own in books], []
    leader.close()
    while (question := leader.request()) is not None:
        answer = helper.answer(question)
        said += [question, answer]
        tables += [rows(own) for own in books] if b'"commit"' in question else []
        leader.take(answer)
    for own in books:
        own.close()
    return tables, [place.read_bytes() for place in places], said, leader.record


def rows(books):
    """Every cell of the books, by table, column and row."""
    found = {}
    for (table,) in books._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        cursor = books._db.execute(f"SELECT * FROM {table}")
        for number, row in enumerate(cursor.fetchall()):
            found |= {(table, column[0], number): cell for column, cell in zip(cursor.description, row, strict=True)}
    return found


def differing(one, other):
    assert one.keys() == other.keys()
    return {(table, column) for (table, column, row) in one if one[table, column, row] != other[table, column, row]}


def test_where_the_opened_sum_is_the_same_a_bit_shows_in_its_shares_alone(begun, tmp_path, monkeypatch):
    flipped = (*BITS[:2], 0, BITS[3])  # of weight 3
    one = played(begun, tmp_path / "one", BITS, (10, 20), monkeypatch)
    other = played(begun, tmp_path / "other", flipped, (13, 20), monkeypatch)
    for mine, theirs, where in zip(one[0], other[0], ["leader", "helper"] * 2, strict=True):
        assert differing(mine, theirs) == ({("reports", "share")} if where == "leader" else set())
    assert one[1] == other[1]  # the files, to the byte: shares of reports are deleted when a round is closed
    changed = [pair for pair in zip(one[2], other[2], strict=True) if pair[0] != pair[1]]
    ((mine, theirs),) = changed  # what is said, too, but for verifiers, which are random to the helper
    mine, theirs = read(mine, Close), read(theirs, Close)
    assert (mine.slots, mine.nonces, mine.verifiers[:2]) == (theirs.slots, theirs.nonces, theirs.verifiers[:2])
    assert one[3] == other[3]


def test_else_it_shows_in_the_shares_of_the_sum_and_in_what_follows_from_the_opened_one(begun, tmp_path, monkeypatch):
    one = played(begun, tmp_path / "one", BITS, (10, 20), monkeypatch)
    other = played(begun, tmp_path / "other", (0, *BITS[1:]), (10, 20), monkeypatch)
    assert one[3].opened - other[3].opened == 1
    shares = {("reports", "share"), ("shares", "share"), ("shares", "salt")}
    assert differing(one[0][2], other[0][2]) == shares
    assert differing(one[0][3], other[0][3]) == {("shares", "seen")}  # the leader's commitment


def test_no_share_of_a_report_is_left_in_a_file_when_its_round_is_closed(begun, tmp_path, monkeypatch):
    _, files, _, _ = played(begun, tmp_path / "one", BITS, (10, 20), monkeypatch)
    for slot, bit in enumerate(BITS):
        seeds = {"nonce": bytes([slot]) * 16, "randomness": bytes([slot + 1]) * 64}
        report = split(bit, begun.rules.context(0, WEIGHTS[slot]), **seeds)
        for share in (report.leader, report.helper):
            assert not any(share in data or share[:24] in data for data in files)
    assert not list((tmp_path / "one").glob("*-wal"))


def test_while_the_books_are_open_none_is_left_either(begun):
    begun.books = [Books(place) for place in begun.places]
    begun.leader, begun.helper = begun.open()
    begun.bits(BITS)
    held = [share[:16] for books in begun.books for _, share in books.reports(0).values()]
    assert any(held[0] in file.read_bytes() for file in begun.folder.iterdir())
    begun.close()
    begun.bits((0, 0, None, None))
    for file in begun.folder.iterdir():  # rollback journals among them
        assert not any(share in file.read_bytes() for share in held), file
    for books in begun.books:
        books.close()


def test_lines_of_a_ledger_depend_on_rounds_alone(tmp_path):
    problem = Problem(paper_population(seed=0).problem(600).costs[np.arange(4)], 2)
    pair = Pair(tmp_path, [1] * 4, least=2, capacity=2)
    devices = [open_device(tmp_path / str(slot), problem, pair.rules, slot, 3) for slot in range(4)]
    acted = {tuple(a_round(pair, devices)) for _ in range(5)}
    assert len(acted) > 1  # bits differ
    for device in devices:
        device.close()
    told = []
    for slot in range(4):
        lines = [json.loads(line) for line in (tmp_path / str(slot) / "ledger.jsonl").read_text().splitlines()]
        private = ("hash", "previous", "key", "at", "place", "time")
        told.append([{name: value for name, value in line.items() if name not in private} for line in lines])
        assert [line["round"] for line in told[-1] if "round" in line] == list(range(5))
    assert told == [told[0]] * 4


def test_nothing_is_printed_that_could_be_logged(begun, tmp_path):
    books = Books(begun.places[0])
    side = Leader(begun.rules, books, RoundWitness(tmp_path / "witness", new=True), None)
    body = begun.report(0, 1, 0, weight=1)[0]
    side.report([(0, body)])
    share = books.reports(0)[0][1]
    assert share.hex() not in repr([side, books, side.request()])


def test_what_was_written_once_stays(begun):
    books = Books(begun.places[0])
    books._db.execute("INSERT INTO shares VALUES (5, x'00', '1', 'salt', 'seen')")
    for change in ("share = '2'", "chosen = x'01'", "seen = 'other'"):
        with pytest.raises(sqlite3.IntegrityError, match="once"):
            books._db.execute(f"UPDATE shares SET {change}")
    with pytest.raises(sqlite3.IntegrityError, match="once"):
        books._db.execute("UPDATE records SET record = x'00'")
    with pytest.raises(sqlite3.IntegrityError, match="closed"):
        books._db.execute("INSERT INTO shares VALUES (-1, x'00', '1', 'salt', '')")


def test_books_are_of_one_process_and_a_lost_witness_is_noticed(begun, tmp_path):
    books = Books(begun.places[0])
    with pytest.raises(FileProblem, match="in use"):
        Books(begun.places[0])
    books.close()
    (tmp_path / "text").write_text("no database at all, but long enough to look at" * 99)
    with pytest.raises(FileProblem, match="not the books"):
        Books(tmp_path / "text")
    with pytest.raises(FileProblem, match="cannot be read"):
        RoundWitness(tmp_path / "gone")


def test_a_run_goes_on_after_a_restart_and_members_join_and_leave(begun, tmp_path):
    begun.books = [Books(place) for place in begun.places]
    begun.leader, begun.helper = begun.open()
    begun.bits(BITS)
    assert begun.close().opened == 5
    for side in begun.sides:
        with pytest.raises(ValueError, match="joined must be 1 or later, got 0"):
            side.enrol([(5, 1, 0)])
        for weight in (0, 2**32):
            with pytest.raises(ValueError, match="weight must be from 1 to 4,294,967,295"):
                side.enrol([(6, weight, 1)])
        side.enrol([(6, 2, 1)])
        with pytest.raises(ValueError, match=r"a member must be as slot 1 was given: \(2, 0\)"):
            side.enrol([(1, 3, 1)])
        side.enrol([(6, 2, 1)])
        side.leave(0, 1)
        side.books.close()
    begun.books = [Books(place) for place in begun.places]
    begun.leader, begun.helper = begun.open()
    begun.bits((1, 1, 1, 1, None, None, 1))
    record = begun.close()
    assert (record.round, record.count, record.opened) == (1, 4, 8)
    assert [begun.helper.is_counted(slot, 1) for slot in range(8)] == [
        False,
        True,
        True,
        True,
        False,
        False,
        True,
        False,
    ]
