"""The journal when a disk fails, or somebody else has the file."""

import errno
import fcntl
import os
from contextlib import nullcontext

import pytest

from client.faults import FailingDisk
from files.diaries import found, open_files, written
from turnout.errors import FileProblem
from turnout.files.journal import Disk, Head, InUse, Journal


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.jsonl"


def test_each_step_of_opening_that_fails_says_what_failed(path, monkeypatch):
    def failing(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    before = open_files()
    for module, name, says in ((os, "open", "opened for writing"), (fcntl, "flock", "locked"), (os, "stat", "locked")):
        with monkeypatch.context() as patched:
            if name == "stat":  # by the time of the lock the folder and the file have been looked at
                patched.setattr(fcntl, "flock", lambda *_: patched.setattr(os, "stat", failing))
            else:
                patched.setattr(module, name, failing)
            with pytest.raises(FileProblem, match=rf"cannot be {says} \(Permission denied\): free space, or make"):
                Journal(path, "diary")
        assert open_files() == before
    assert written(path, "one")
    with pytest.raises(FileProblem, match=r"cannot be read \(No space left on device\)"):
        Journal(path, "diary", FailingDisk(at=1))
    assert open_files() == before
    assert found(path) == ["one"]


@pytest.mark.parametrize("place", ["folder", "pipe"])
def test_only_an_ordinary_file_is_a_journal(path, place):
    path.mkdir() if place == "folder" else os.mkfifo(path)
    with pytest.raises(FileProblem, match="it is no ordinary file"):
        Journal(path, "diary")
    with pytest.raises(FileProblem, match=r"no folder .*nowhere for the diary: create it first"):
        Journal(path.parent / "nowhere" / "a", "diary")


@pytest.mark.parametrize("step", [0, 1, 2, 3, 4])  # none, writing, sync, name, the folder's sync
def test_a_small_file_is_the_old_one_or_the_new_and_nothing_is_left_open(path, step):
    Disk().put(path, b"old")
    before, disk = open_files(), FailingDisk(at=step)
    with pytest.raises(OSError, match="No space left") if step else nullcontext():
        disk.put(path, b"new")
    assert open_files() == before
    assert path.read_bytes() == (b"old" if step in (1, 2, 3) else b"new")


def test_mending_that_fails_leaves_it_torn(path):
    path.write_bytes(written(path, "one") + b"torn")
    disk = FailingDisk(at=2)  # after the sync of what was read
    with Journal(path, "diary", disk) as diary:
        with pytest.raises(FileProblem, match="cannot be mended"):
            diary.mend()
        assert diary.torn
        diary.mend()
        diary.append({"entry": "two"})
    assert found(path) == ["one", "two"]


@pytest.mark.parametrize("step", [1, 2, 3])  # the folder's sync, half a line, its sync
def test_an_entry_that_fails_is_taken_back(path, step):
    disk = FailingDisk(at=step)
    with Journal(path, "diary", disk) as diary:
        with pytest.raises(FileProblem, match="cannot be written"):
            diary.append({"entry": "one"})
        assert path.read_bytes() == b""
        assert diary.head == Head()
        diary.append({"entry": "two"})
    assert found(path) == ["two"]


def test_an_entry_that_cannot_be_taken_back_ends_the_use(path):
    """Where the undoing fails too, in its cut or in its sync, nobody knows what the disk holds."""
    disk = FailingDisk(lasting=True)
    with Journal(path, "diary", disk) as diary:
        disk.at = 2
        with pytest.raises(FileProblem, match="cannot be written"):
            diary.append({"entry": "one"})
        disk.at = 0
        for use in (lambda: diary.append({"entry": "two"}), lambda: diary.rewrite([])):
            with pytest.raises(FileProblem, match=r"could not be put right \(No space left on device\): open it again"):
                use()


@pytest.mark.parametrize("step", [1, 2, 3])  # writing, sync, name
def test_a_rewriting_that_fails_leaves_the_old_content_in_use(path, step):
    disk = FailingDisk()
    with Journal(path, "diary", disk) as diary:
        diary.append({"entry": "one"})
        before, disk.at = open_files(), disk.steps + step
        with pytest.raises(FileProblem, match=r"cannot be rewritten \(No space left on device\)"):
            diary.rewrite([{"entry": "other"}])
        assert open_files() == before
        diary.append({"entry": "two"})
    assert found(path) == ["one", "two"]


@pytest.mark.parametrize("meddle", ["longer", "replaced", "gone"])
def test_a_file_that_somebody_meddles_with_is_not_written_any_more(path, meddle):
    with Journal(path, "diary") as diary:
        diary.append({"entry": "one"})
        copy = path.read_bytes()
        if meddle == "longer":
            path.write_bytes(copy + b"x")
        else:
            path.unlink()
        if meddle == "replaced":
            path.write_bytes(copy)
        says = "cannot be found" if meddle == "gone" else "was changed or replaced while in use"
        for use in (lambda: diary.append({"entry": "two"}), lambda: diary.rewrite([])):
            with pytest.raises(FileProblem, match=says):
                use()


def test_a_journal_belongs_to_the_process_that_opened_it(path, monkeypatch):
    with Journal(path, "diary") as diary:
        monkeypatch.setattr(os, "getpid", lambda: 1)
        with pytest.raises(InUse, match="belongs to the process that opened it"):
            diary.append({"entry": "one"})
    assert path.read_bytes() == b""
