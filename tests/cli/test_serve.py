"""`turnout serve` before it serves: the first things that an operator types."""

import socket
import subprocess
import sys

from turnout.service.store import open_store


def serve(folder, *words):
    """What it says on ending by itself, with its exit status."""
    command = [sys.executable, "-m", "turnout", "serve", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=60)
    assert len(done.stderr.splitlines()) == 1
    return done.returncode, done.stdout, done.stderr


def test_the_one_choice_without_a_default_is_asked_for_in_the_operators_words(tmp_path):
    status, _, said = serve(tmp_path, "--capacity", "4")
    assert status == 2
    assert "--missing (safety.missing in a file) must be absent or last, got nothing" in said
    assert "a silent device then counts as not taking part" in said


def test_what_cannot_be_served_begins_nothing(tmp_path):
    new = ("--capacity", "4", "--missing", "absent", "--hard-limit", "none")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for option in ("--port", "--operator-port"):
            status, _, said = serve(tmp_path, *new, option, str(taken.getsockname()[1]))
            assert status != 0
            assert "cannot listen on 127.0.0.1" in said
    status, _, said = serve(tmp_path, *new, "--port", "0", "--certificate", "none.pem")
    assert status != 0
    assert "none.pem" in said
    assert "at least the capacity of 4, got 3.0" in serve(tmp_path, *new, "--port", "0", "--hard-limit", "3")[2]
    assert not list(tmp_path.glob("*.password"))
    if (tmp_path / "turnout.db").exists():
        assert open_store(str(tmp_path / "turnout.db")).run() is None


def test_a_store_that_is_taken_is_not_announced(tmp_path):
    first = open_store(str(tmp_path / "turnout.db"), create=True)
    assert first.lead()
    ports = ("--port", "0", "--operator-port", "0")
    status, printed, said = serve(tmp_path, "--capacity", "4", "--missing", "absent", "--hard-limit", "none", *ports)
    assert status != 0
    assert "another coordinator has this store" in said
    assert printed == ""
    first.close()
