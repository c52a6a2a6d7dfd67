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


def test_a_hard_limit_is_asked_for_with_the_reason(tmp_path):
    status, _, said = serve(tmp_path, "--capacity", "4", "--missing", "absent")
    assert status == 2
    assert "--hard-limit (safety.hard_limit in a file) must be a number, or none, got nothing" in said
    assert "nothing else stops it; `--hard-limit none` accepts that" in said
    assert not list(tmp_path.glob("turnout.db*")), "nothing is left of a run that was refused"
    status, _, said = serve(tmp_path, "--capacity", "4", "--missing", "absent", "--hard-limit", "some")
    assert status == 2
    assert "--hard-limit must be a number, or none, got 'some'" in said


def test_the_first_lines_say_for_whom_it_is_and_how_long_budgets_last(tmp_path):
    words = ("--capacity", "30", "--missing", "absent", "--hard-limit", "45", "--devices", "300", "--port", "0")
    command = [sys.executable, "-m", "turnout", "serve", *words, "--operator-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        said = [process.stdout.readline() for _ in range(5)]
        process.terminate()
    assert "clamp, epsilon 1 per report, center 0.1: a turnout of 30 is within reach of fleets of 185 to 501" in said[3]
    assert "hard limit 45" in said[3]
    assert "the usual limit lasts 10,000 reports: 27.8 hours at 10-second rounds, then the device leaves" in said[4]


def test_a_run_that_is_paused_says_so_at_its_start(tmp_path):
    kept = begun(tmp_path / "back.db")
    kept.change("me", mode="paused")
    kept.close()
    command = [sys.executable, "-m", "turnout", "serve", "--store", "back.db", "--port", "0", "--operator-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        said = [process.stdout.readline() for _ in range(2)]
        process.terminate()
    assert said[1] == "mode paused: no round closes until `turnout operate resume --store back.db`\n"


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
    refused = serve(tmp_path, *new, "--port", "0", "--operator-port", "0", "--hard-limit", "3")[2]
    assert (
        "capacity must be at most the hard limit of 3, got 4: give a lower capacity, or a higher hard limit" in refused
    )
    assert not list(tmp_path.iterdir()), "nor a store, a lock or a password"


def test_a_proxy_that_is_no_address_is_named_with_where_it_came_from(tmp_path, monkeypatch):
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "127.0.0.1, *")
    status, _, said = serve(tmp_path, "--capacity", "4", "--missing", "absent", "--hard-limit", "none", "--port", "0")
    assert status == 2
    assert "FORWARDED_ALLOW_IPS must be IP addresses or networks, with commas between them, got '*'" in said


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
    status, printed, said = serve(tmp_path, "--capacity", "4", "--missing", "absent", "--hard-limit", "none", *ports)
    assert status != 0
    assert "another coordinator has this store" in said
    assert printed == ""
    first.close()
