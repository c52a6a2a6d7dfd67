"""The journal: what has returned from `append` is on the disk, and only the last line can be torn."""

import fcntl
import hashlib
import json
import math
import os
from pathlib import Path

import pytest

from files.diaries import found, open_files, path_of, written
from turnout.errors import FileProblem
from turnout.files.journal import Disk, Head, InUse, Journal, seal, unseal


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.jsonl"


class Noted(Disk):
    """Notes the durable steps in their order."""

    def __init__(self):
        self.steps = []

    def write(self, descriptor, data):
        self.steps.append(f"write {path_of(descriptor).name}")
        super().write(descriptor, data)

    def sync(self, descriptor):
        self.steps.append(f"sync {path_of(descriptor).name}")
        super().sync(descriptor)

    def replace(self, source, target):
        self.steps.append(f"replace {source.name} {target.name}")
        super().replace(source, target)

    def taken(self):
        """The steps since this was last asked."""
        steps, self.steps = self.steps, []
        return steps


# Lines


def test_a_line_carries_its_number_the_hash_before_and_its_own(path):
    """The hash is SHA-256 of the line without it: a reader needs nothing of ours to check a journal."""
    previous = ""
    for number, line in enumerate(written(path, "one", "two", "three").splitlines()):
        entry = json.loads(line)
        digest = entry.pop("hash")
        assert hashlib.sha256(json.dumps(entry).encode()).hexdigest() == digest
        assert list(entry) == ["number", "entry", "previous"]
        assert (entry["number"], entry["previous"]) == (number, previous)
        previous = digest


def test_a_line_follows_the_one_before():
    before = Head(3, "digest")

    def follows(number, previous):
        line, head = seal({"entry": "x"}, number, previous)
        entry = unseal(line[:-1], before)
        assert head == Head(number, json.loads(line)["hash"])
        return entry is not None and entry == json.loads(line)

    assert follows(4, "digest")
    assert follows(9, "digest")  # numbers may be left out
    for number, previous in ((3, "digest"), (2, "digest"), ("4", "digest"), (4, ""), (4, "other")):
        assert not follows(number, previous)


@pytest.mark.parametrize("line", [b"", b"nonsense", b"\xff", b"3", b"[]", b"{}", b'"hash"'])
def test_what_is_no_entry_is_no_line(line):
    assert unseal(line, Head()) is None


def test_a_changed_letter_is_noticed():
    line = seal({"entry": "x"}, 0, "")[0][:-1]
    assert unseal(line, Head()) is not None
    for place in range(len(line)):
        changed = line[:place] + bytes([line[place] ^ 1]) + line[place + 1 :]
        assert unseal(changed, Head()) is None


def test_numbers_that_json_does_not_know_are_refused():
    with pytest.raises(ValueError, match="JSON compliant"):
        seal({"value": math.nan}, 0, "")


# The durable steps


def test_an_entry_is_written_and_synced_the_first_one_with_its_folder(path):
    disk = Noted()
    with Journal(path, "diary", disk) as diary:
        assert disk.taken() == []
        diary.append({"entry": "one"})
        assert disk.taken() == [f"sync {path.parent.name}", "write a.jsonl", "sync a.jsonl"]
        diary.append({"entry": "two"})
        assert disk.taken() == ["write a.jsonl", "sync a.jsonl"]


def test_what_is_read_is_synced_before_anyone_relies_on_it(path):
    """It may have been written by a process that was killed before its own sync."""
    whole = written(path, "one")
    disk = Noted()
    Journal(path, "diary", disk).close()
    assert disk.taken() == ["sync a.jsonl"]
    path.write_bytes(whole + b"torn")
    with Journal(path, "diary", disk) as diary:
        assert disk.taken() == ["sync a.jsonl"]
        assert diary.torn
        diary.mend()
        assert disk.taken() == ["sync a.jsonl"]
        assert not diary.torn
        diary.mend()
        assert disk.taken() == []
    assert path.read_bytes() == whole


def test_a_new_content_is_complete_on_the_disk_before_it_has_the_name(path):
    disk = Noted()
    with Journal(path, "diary", disk) as diary:
        diary.append({"entry": "one"})
        disk.taken()
        diary.rewrite([{"entry": "other"}, {"entry": "more"}])
        there = ["write a.jsonl.new", "sync a.jsonl.new", "replace a.jsonl.new a.jsonl", f"sync {path.parent.name}"]
        assert disk.taken() == there
        disk.put(path.parent / "b", b"small")
        assert disk.taken() == [step.replace("a.jsonl", "b") for step in there]
    assert (path.parent / "b").read_bytes() == b"small"


def test_the_disk_itself_syncs_and_renames(tmp_path, monkeypatch):
    steps = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: steps.append(f"sync {path_of(descriptor).name}"))
    monkeypatch.setattr(os, "replace", lambda source, target: steps.append(f"{source.name} becomes {target.name}"))
    Disk().put(tmp_path / "b", b"small")
    assert steps == ["sync b.new", "b.new becomes b", f"sync {tmp_path.name}"]


def test_a_disk_that_takes_a_few_bytes_at_a_time_gets_them_all(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    Disk().put(tmp_path / "b", b"0123456789")
    assert (tmp_path / "b").read_bytes() == b"0123456789"


def test_files_are_private_from_their_first_moment(path, monkeypatch):
    real, made = os.open, []

    def noting(name, flags, mode=0o777, **options):
        if flags & os.O_CREAT:
            made.append((Path(name).name, mode))
        return real(name, flags, mode, **options)

    monkeypatch.setattr(os, "open", noting)
    with Journal(path, "diary") as diary:
        diary.rewrite([{"entry": "other"}])
    Disk().put(path.parent / "b", b"small")
    assert made == [("a.jsonl", 0o600), ("a.jsonl.new", 0o600), ("b.new", 0o600)]
    os.chmod(path, 0o666)
    Journal(path, "diary").close()
    assert path.stat().st_mode & 0o777 == 0o600


# Opening


def test_a_rewritten_journal_goes_on_where_its_new_content_ends(path):
    with Journal(path, "diary") as diary:
        diary.append({"entry": "one"})
        before = open_files()
        diary.rewrite({"entry": name} for name in ("other", "more"))
        assert open_files() == before
        with pytest.raises(InUse):
            Journal(path, "diary")
        diary.append({"entry": "last"})
    assert found(path) == ["other", "more", "last"]
    assert [json.loads(line)["number"] for line in path.read_bytes().splitlines()] == [0, 1, 2]


def test_a_number_may_be_given(path):
    with Journal(path, "diary") as diary:
        diary.append({"entry": "one"}, number=0)
        diary.append({"entry": "two"}, number=7)
        assert diary.head.number == 7
        diary.append({"entry": "three"})
    with Journal(path, "diary") as diary:
        assert [entry["number"] for entry in diary.entries] == [0, 7, 8]
        assert diary.head == Head(8, diary.entries[-1]["hash"])


@pytest.mark.parametrize(("rest", "torn"), [(b"", False), (b"{", True), (b"\n", True), (b"{}\n", True)])
def test_the_last_line_may_be_torn(path, rest, torn):
    whole = written(path, "one", "two")
    path.write_bytes(whole + rest)
    with Journal(path, "diary") as diary:
        assert diary.torn == torn
        assert len(diary.entries) == 2


@pytest.mark.parametrize("rest", [b"\n{", b"{\n}", b"\n\n", b"x\n\n", b"{}\n{}\n"])
def test_more_than_a_torn_line_is_damage_and_leaves_the_file_alone(path, rest):
    whole = written(path, "one", "two")
    path.write_bytes(whole + rest)
    before = open_files()
    with pytest.raises(FileProblem, match=r"this diary is damaged after line 2 .*restore its newest copy"):
        Journal(path, "diary")
    assert open_files() == before
    assert path.read_bytes() == whole + rest
    path.write_bytes(whole)
    assert found(path) == ["one", "two"]  # and it is not locked


def test_a_torn_journal_takes_no_entry_before_it_is_mended(path):
    path.write_bytes(written(path, "one") + b"torn")
    with Journal(path, "diary") as diary:
        with pytest.raises(FileProblem, match="changed or replaced while in use"):
            diary.append({"entry": "two"})
        diary.mend()
        diary.append({"entry": "two"})
    assert found(path) == ["one", "two"]


def test_a_journal_that_is_replaced_while_it_is_being_locked_is_opened_anew(path, monkeypatch):
    written(path, "old")
    other = path.with_name("other")
    written(other, "new", "newer")
    lock, before = fcntl.flock, open_files()

    def slowly(descriptor, how):
        if other.exists():
            os.replace(other, path)
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", slowly)
    with Journal(path, "diary") as diary:
        assert [entry["entry"] for entry in diary.entries] == ["new", "newer"]
        assert open_files() == before + 1
        diary.append({"entry": "newest"})
    assert open_files() == before


def test_who_finds_it_in_use_leaves_nothing_open(path):
    with Journal(path, "diary"):
        before = open_files()
        with pytest.raises(InUse, match="this diary is in use elsewhere"):
            Journal(path, "diary")
        assert open_files() == before


def test_a_closed_journal_stays_closed_and_its_number_may_be_zero(path):
    """A service may have closed its standard input: then zero is the next file's number."""
    saved = os.dup(0)
    os.close(0)
    try:
        diary = Journal(path, "diary")
        assert path_of(0) == path
        diary.append({"entry": "one"})
        diary.rewrite([{"entry": "one"}])
        diary.append({"entry": "two"})
        diary.close()
        with pytest.raises(FileNotFoundError):
            path_of(0)
    finally:
        os.dup2(saved, 0)
        os.close(saved)
    diary.close()
    for use in (lambda: diary.append({"entry": "three"}), lambda: diary.rewrite([])):
        with pytest.raises(FileProblem, match="this diary is closed: open it again"):
            use()
    assert found(path) == ["one", "two"]
