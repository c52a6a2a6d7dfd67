"""`turnout serve` before it serves: the first things that an operator types."""

import socket
import subprocess
import sys

from service.running import begun
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
    new = ("--capacity", "4", "--missing", "absent")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for option in ("--port", "--operator-port"):
            status, _, said = serve(tmp_path, *new, option, str(taken.getsockname()[1]))
            assert status != 0
            assert "cannot listen on 127.0.0.1" in said
    status, _, said = serve(tmp_path, *new, "--port", "0", "--certificate", "none.pem")
    assert status != 0
    assert "none.pem" in said
    refused = serve(tmp_path, *new, "--port", "0", "--operator-port", "0", "--hard-limit", "3")[2]
    assert (
        "capacity must be at most the hard limit of 3, got 4: give a lower capacity, or a higher hard limit" in refused
    )
    assert not list(tmp_path.iterdir()), "nor a store, a lock or a password"


def test_a_store_that_was_there_stays_when_the_command_is_refused(tmp_path):
    """Only what the refused command itself has made is removed."""
    ports = ("--port", "0", "--operator-port", "0")
    (tmp_path / "turnout.db").touch()
    assert serve(tmp_path, "--capacity", "4", *ports)[0] == 2
    assert (tmp_path / "turnout.db").exists()
    (tmp_path / "turnout.db").unlink()
    begun(tmp_path / "turnout.db", capacity=2.0).close()
    assert "capacity must be 2, as the store has it" in serve(tmp_path, "--capacity", "4", *ports)[2]
    assert open_store(str(tmp_path / "turnout.db")).run().name == "test"


def test_a_store_that_is_taken_is_not_announced(tmp_path):
    first = open_store(str(tmp_path / "turnout.db"), create=True)
    assert first.lead()
    ports = ("--port", "0", "--operator-port", "0")
    status, printed, said = serve(tmp_path, "--capacity", "4", "--missing", "absent", *ports)
    assert status != 0
    assert "another coordinator has this store" in said
    assert printed == ""
    first.close()
