"""`turnout fleet` as a user meets it: real processes, real connections."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest

from turnout import Prior, paper_population, simulate
from turnout.service import rules_from_settings
from turnout.service.store import open_store
from turnout.settings import Table

TURNOUT = [sys.executable, "-m", "turnout"]
DEVICES = 12


def turnout(*arguments):
    return subprocess.run([*TURNOUT, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60)


@contextlib.contextmanager
def coordinator(folder, *options):
    """A coordinator in a process of its own, and codes for its devices."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    store, url = folder / "run.db", f"http://127.0.0.1:{port}"
    serve = ["serve", "--store", store, "--capacity", DEVICES / 2, "--missing", "absent", "--wait-for", DEVICES]
    command = [*TURNOUT, *serve, "--port", port, "--operator-port", 0, *options]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{url}/healthz", timeout=5).close()
                break
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.05)
        codes = folder / "codes.txt"
        codes.write_text(turnout("operate", "codes", DEVICES, "--store", store).stdout)
        yield url, store, codes
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_a_run_over_real_connections_equals_the_simulation(tmp_path):
    rounds = 10
    with coordinator(tmp_path, "--round-seconds", 0) as (url, location, codes):
        done = turnout("fleet", url, "--codes", codes, "--seed", 3, "--rounds", rounds, "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["devices"], facts["enrolled"], facts["rounds"]) == (DEVICES, DEVICES, rounds)
    assert not facts["interrupted"]
    store = open_store(str(location))
    books, rules = list(store.history()), rules_from_settings(Table(dict(store.run().settings)))
    store.close()
    problem = paper_population(0, DEVICES).problem(DEVICES / 2)
    start = Prior(rules.prior.average, rules.prior.rounds)
    right = simulate(problem, rules.mechanism, rules.controller, rounds, seed=3, start=start)
    np.testing.assert_array_equal([closed.participants for closed in books], right.participants)
    np.testing.assert_array_equal([closed.signal for closed in books], right.signal)
    assert facts["last_participants"] == right.participants[-1]


def test_ctrl_c_ends_it_with_the_summary(tmp_path):
    with coordinator(tmp_path, "--round-seconds", 0.3) as (url, location, codes):
        fleet = [*TURNOUT, "fleet", url, "--codes", str(codes), "--late", "0.5:0.1"]
        process = subprocess.Popen(fleet, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        store = open_store(str(location))
        for _ in range(300):
            if store.position().round >= 2:
                break
            time.sleep(0.05)
        store.close()
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert f"rounds of {DEVICES} devices" in said
    assert "faults: none" in said
    assert "nothing is kept on disk" in said
    assert not errors


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--codes", "no-such-file"], "cannot be read"),
        (["--codes", "empty"], "holds no codes"),
        (["--codes", "codes", "--cut", "0.95"], "SHARE:FIRST:ROUNDS"),
        (["--codes", "codes", "--cut", "1:2:3"], "leave some devices online"),
        (["--codes", "codes", "--late", "often"], "SHARE[:SECONDS]"),
        (["--codes", "codes", "--rounds", "0"], "--rounds must be 1 or more"),
        (["--codes", "codes", "--devices", "9"], "codes must be at least one for each of 9 devices"),
        (["--codes", "table", "--devices", "9"], "codes must be at least one for each of 9 devices, got 2"),
        (["--codes", "codes", "--population", "clients.csv", "--devices", "4"], "at most the population's 2"),
        (["--codes", "codes", "--ca", "codes"], "not a readable PEM file"),
        (["--codes", "codes"], "cannot be reached"),
    ],
)
def test_errors_are_one_line(tmp_path, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text("# none\n\n")
    (tmp_path / "codes").write_text("aaaa-bbbb\ncccc-dddd\n")
    (tmp_path / "table").write_text('label,site,code\ngate 1,"hall 2, east",aaaa-bbbb\ngate 2,,cccc-dddd\n')
    (tmp_path / "clients.csv").write_text("x^2\n1.0\n2.0\n")
    url = "https://127.0.0.1:9" if "--ca" in options else "http://127.0.0.1:9"
    done = turnout("fleet", url, *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
