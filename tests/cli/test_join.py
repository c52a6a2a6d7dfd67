"""`turnout join` as a user meets it, against a coordinator in this process."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from service.fake_coordinator import TOKEN, FakeCoordinator, served
from turnout.cli import app
from turnout.cli.join import OPTIONS, read_options
from turnout.client import usual_place
from turnout.service import tag_of
from turnout.service.coordinator import hashed

TAG = tag_of(hashed(TOKEN))


def command(*arguments):
    """As the installed program: the current folder is not on its path by itself."""
    return [sys.executable, "-P", "-m", "turnout", "join", *map(str, arguments)]


def turnout(*arguments, **options):
    return subprocess.run(command(*arguments), capture_output=True, text=True, check=False, timeout=60, **options)


@pytest.fixture
def coordinator():
    return FakeCoordinator(lease=30.0, signal=lambda round: 1e9)


@pytest.fixture
def url(coordinator):
    with served(coordinator) as url:
        yield url


def test_joining_tells_what_was_accepted_and_a_restart_needs_no_code(tmp_path, coordinator, url):
    home = tmp_path / "device"
    options = ["--cost", 3.0, "--folder", home, "--rounds", 3]
    first = turnout(url, *options, "--code", "GOOD-CODE", "--reports", 100)
    assert first.returncode == 0, first.stderr
    for line in (
        f"run         run at {url} as device {TAG}, weight 1",
        "mechanism   clamp",
        "promise     pure epsilon 1 per report, against an observer of every report",
        "at most     total epsilon 83.54 at delta 1e-06 over 100 reports, against an observer of every report",
        f"files       {home}",
        "round 0 ",
        "round 2 ",
        "over 3 reports",
    ):
        assert line in first.stdout, first.stdout
    again = turnout(url, *options)
    assert again.returncode == 0, again.stderr
    assert "over 100 reports" in again.stdout  # the limit is the ledger's
    assert "over 6 reports" in again.stdout
    assert sorted(coordinator.books) == list(range(6))
    assert "3.0" not in first.stdout.replace("epsilon 3.0", "").replace(str(home), "")


LIGHT = """
import sys
for name in ("typer", "rich", "click", "pydantic_core"):
    sys.modules[name] = None  # as if it were not installed
sys.argv = ["turnout", "join", *sys.argv[1:]]
from turnout.cli import main
main()
heavy = {"asyncio", "logging", "importlib.metadata", "tempfile", "encodings.idna", "numpy.random", "numpy.ma"}
ours = {"simulation", "theory", "plan", "report", "algorithm.controllers", "problem.solve", "privacy.sum_only"}
found = sorted((heavy | {f"turnout.{name}" for name in ours}) & set(sys.modules))
assert not found, found
"""


def test_a_device_loads_numpy_and_little_else(tmp_path, url):
    """What it must not load costs it memory and time; benchmarks/device.py measures both."""
    options = [url, "--cost", "3", "--folder", str(tmp_path), "--rounds", "2", "--code", "GOOD-CODE"]
    done = subprocess.run([sys.executable, "-c", LIGHT, *options], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "round 1 " in done.stdout


def test_one_thread_for_numpy_is_not_handed_on_to_the_work(tmp_path, coordinator, url):
    note = tmp_path / "note.txt"
    work = f"""sh -c 'echo "threads:$OPENBLAS_NUM_THREADS" >> {note}'"""
    options = ["--cost", 1e-6, "--code", "GOOD-CODE", "--folder", tmp_path / "device", "--on-participate", work]
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = turnout(url, *options, "--rounds", 8, env=environment)
    assert done.returncode == 0, done.stderr
    assert set(note.read_text().split()) == {"threads:"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--cots", "3"], "option must be one of `turnout join`, got --cots: did you mean --cost?"),
        (["--quux"], "got --quux: see `turnout join --help`"),
        (["--json=yes"], "got --json=yes: did you mean --json?"),
        (["--cost"], "--cost must be FLOAT, got nothing: write --cost and its value"),
        (["--cost", "cheap"], "--cost must be a number, got 'cheap': write --cost and a number"),
        (["--rounds", "2.5"], "--rounds must be a whole number, got '2.5'"),
        (["http://a", "http://b"], "URL must be one, got http://a and http://b: put a value with spaces in quotes"),
    ],
)
def test_options_that_are_none(words, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        read_options(words)


def test_options_as_people_write_them(monkeypatch):
    monkeypatch.setenv("TURNOUT_CODE", "FROM-OUTSIDE")
    found = read_options(["--cost=-3", "--on-stop", "-x", "--folder=a=b", "--json", "--", "http://a"])
    assert (found["cost"], found["on_stop"], found["folder"], found["url"]) == (-3.0, "-x", Path("a=b"), "http://a")
    assert (found["as_json"], found["raise_limit"], found["code"]) == (True, False, "FROM-OUTSIDE")
    assert read_options(["--code", ""])["code"] == ""


def test_help_tells_every_option_with_and_without_typer():
    shown = turnout("--help").stdout
    everywhere = " ".join(shown.split())
    for option in OPTIONS:
        assert f"{option.written} " in shown
        assert option.help in everywhere
        assert not option.shown or f"[default: {option.shown}]" in everywhere
    known = {option.written for option in OPTIONS}
    (join,) = [command for command in app.registered_commands if command.name == "join"]
    made = typer.main.get_params_convertors_ctx_param_name_from_function(join.callback)[0]
    assert {parameter.opts[0] for parameter in made} == known | {"url"}


def test_for_machines_each_line_is_json(tmp_path, url):
    done = turnout(url, "--cost", 3.0, "--folder", tmp_path, "--rounds", 2, "--code", "GOOD-CODE", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["event"] for event in events] == ["joined", "round", "round", "ended"]
    assert events[0]["tag"] == TAG
    assert events[0]["mechanism"] == {"kind": "clamp", "epsilon": 1.0, "center": 0.5}
    assert set(events[1]) == {"event", "round", "participates", "counted", "lease", "outcome"}


def test_the_hard_stop_is_a_success_and_says_what_was_given_away(tmp_path, coordinator, url):
    options = ["--cost", 3.0, "--folder", tmp_path, "--code", "GOOD-CODE", "--reports", 4]
    for _ in range(2):
        done = turnout(url, *options)
        assert done.returncode == 0, done.stderr
        assert (
            "the budget is spent: this device has left the run; in all runs together total epsilon 4.000" in done.stdout
        )
        assert "over 4 reports, against an observer of every report" in done.stdout
    assert coordinator.left
    assert len(coordinator.books) == 4


def test_costs_from_a_file_and_from_a_function(tmp_path, url):
    (tmp_path / "cost.toml").write_text("coefficients = [1.0, 2.0]\npowers = [2, 4]\n")
    (tmp_path / "mine.py").write_text("def cost():\n    return 3.0\n")
    home = tmp_path / "device"
    first = turnout(url, "--cost-file", tmp_path / "cost.toml", "--folder", home, "--code", "GOOD-CODE", "--rounds", 1)
    assert first.returncode == 0, first.stderr
    second = turnout(url, "--cost-function", "mine:cost", "--folder", home, "--rounds", 1, cwd=tmp_path)
    assert second.returncode == 0, second.stderr


@pytest.mark.parametrize(
    ("arguments", "told", "status"),
    [
        ([], "cost must be one of --cost, --cost-file, --cost-function, got none", 2),
        (["--cost", 3, "--cost-file", "a.toml"], "got --cost, --cost-file", 2),
        (["--cost", -3], "strictly convex", 2),
        (["--cost", 0], "strictly convex", 2),
        (["--cost", 0, "--cost-file", "a.toml"], "got --cost, --cost-file", 2),
        (["--cost-function", "no.such:thing"], "--cost-function must be in a module that can be imported", 2),
        (["--cost-function", "mine"], "--cost-function must be of the form package.module:function", 2),
        (["--cost", 3], "code must be the one-time code", 2),
        (["--cost", 3, "--code", ""], "the code must be the operator's, got an empty one: see that what should", 2),
        (["--cost", 3, "--code", " "], "the code must be the operator's, got an empty one", 2),
        (["--code", "--cost", 3], "--code must be TEXT, got nothing: write --code and its value", 2),
        (["--cost", 3, "--code", "WRONG-CODE"], "no such code", 3),
        (["--cost", 3, "--on-stop", "/no/such"], "no such program for --on-stop", 2),
        (["--cost", 3, "--code", "GOOD-CODE", "--epsilon-per-report", 0.5], "more than the 0.5 that this device", 3),
        (["--cost", 3, "--code", "GOOD-CODE", "--after-stop", "stay"], "after_stop must be", 2),
    ],
)
def test_what_cannot_be_is_one_readable_line(tmp_path, url, arguments, told, status):
    done = turnout(url, "--folder", tmp_path / "device", "--rounds", 1, *arguments)
    assert done.returncode == status, done.stderr
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_an_uncertified_mechanism_needs_a_word(tmp_path):
    coordinator = FakeCoordinator(mechanism={"kind": "paper-coin", "beta": 3.5})
    with served(coordinator) as url:
        options = ["--cost", 3, "--code", "GOOD-CODE", "--folder", tmp_path, "--rounds", 1]
        refused = turnout(url, *options)
        assert refused.returncode == 3
        assert 'paper-coin has no certificate (at intent 1 a "no" cannot happen)' in refused.stderr
        assert "This device has left the run: to join after all, it needs a new code" in refused.stderr
        assert coordinator.left
        assert coordinator.reports() == []
    with served(FakeCoordinator(mechanism=coordinator.welcome["mechanism"])) as url:
        options[options.index(tmp_path)] = tmp_path / "again"
        taken = turnout(url, *options, "--accept-uncertified")
        assert taken.returncode == 0, taken.stderr
        assert "promise     no bound per report" in taken.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
@pytest.mark.parametrize("machine", [False, True], ids=["text", "json"])
def test_a_signal_before_the_coordinator_has_answered_is_no_error(tmp_path, number, machine):
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        options = ["--cost", 3, "--code", "GOOD-CODE", "--folder", tmp_path, *(["--json"] if machine else [])]
        agent = subprocess.Popen(command(url, *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        first = agent.stdout.readline()
        agent.send_signal(number)
        stdout, stderr = agent.communicate(timeout=20)
    assert "Connection refused; trying again" in first
    assert (agent.returncode, stderr) == (0, "")
    if machine:
        ended = {"event": "ended", "why": "asked", "reports": None, "total_epsilon": None, "delta": None}
        assert json.loads(stdout.splitlines()[-1]) == ended
    else:
        assert stdout.splitlines()[-1] == "ended, work is off; the coordinator had not answered yet"


def test_a_lost_ledger_needs_a_word_and_is_nothing_to_start_again_for(tmp_path, url):
    options = ["--cost", 3.0, "--folder", tmp_path, "--rounds", 2]
    turnout(url, *options, "--code", "GOOD-CODE")
    (tmp_path / "ledger.jsonl").unlink()
    usual_place(tmp_path / "ledger.jsonl").unlink()
    refused = turnout(url, *options)
    assert refused.returncode == 3
    assert f"error: {tmp_path}/ledger.jsonl: there is no ledger, though this device has reported" in refused.stderr
    assert "--count-missing-as-spent" in refused.stderr
    taken = turnout(url, *options, "--count-missing-as-spent")
    assert taken.returncode == 0, taken.stderr
    assert "ledger      total epsilon 4.000 at delta 1e-06 over 4 reports" in turnout("--status", tmp_path).stdout
    (tmp_path / "run" / "rounds.jsonl").unlink()  # the other way round
    forgotten = turnout(url, *options)
    assert forgotten.returncode == 3
    assert "an older copy was restored" in forgotten.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_a_signal_ends_work_and_all_within_seconds_while_a_request_is_held(tmp_path, coordinator, url, number):
    note, home = tmp_path / "note.txt", tmp_path / "device"
    work = f"""sh -c 'echo on $TURNOUT_RUN $TURNOUT_ROUND >> {note}; sleep 60'"""
    off = f"""sh -c 'echo off $TURNOUT_ROUND >> {note}'"""
    options = ["--cost", 1e-6, "--code", "GOOD-CODE", "--folder", home, "--on-participate", work, "--on-stop", off]
    coordinator.holds_after_yes = True
    agent = subprocess.Popen(command(url, *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert coordinator.held.wait(20)
    _until(lambda: note.exists() and note.read_text().splitlines()[-1].startswith("on run "))
    shown = turnout("--status", home)  # while it runs
    assert "its agent runs" in shown.stdout, shown.stderr
    begun = time.monotonic()
    agent.send_signal(number)
    stdout, stderr = agent.communicate(timeout=20)
    assert time.monotonic() - begun < 5.0
    assert agent.returncode == 0, stderr
    assert "ended, work is off" in stdout
    lines = note.read_text().splitlines()
    working = coordinator.open - 1
    assert lines[-2:] == [f"on run {working}", f"off {working}"]
    assert not (home / "working.json").exists()
    assert not (home / "process.json").exists()


def test_killed_it_ends_its_work_at_the_next_start(tmp_path, coordinator, url):
    note, home = tmp_path / "note.txt", tmp_path / "device"
    options = ["--cost", 1e-6, "--code", "GOOD-CODE", "--folder", home, "--on-participate", "sleep 60"]
    options += ["--on-stop", f"sh -c 'echo off $TURNOUT_ROUND >> {note}'"]
    coordinator.holds_after_yes = True
    agent = subprocess.Popen(command(url, *options), stdout=subprocess.DEVNULL)
    assert coordinator.held.wait(20)
    _until(lambda: (home / "process.json").exists())
    working, left = coordinator.open - 1, json.loads((home / "process.json").read_text())["pid"]
    agent.kill()
    agent.wait()
    assert _runs(left)
    shown = turnout("--status", home)
    assert f"work on     yes, for round {working}" in shown.stdout
    assert "its agent does not run" in shown.stdout
    coordinator.holds_after_yes = False
    coordinator.release.set()
    done = turnout(url, *options, "--rounds", 1)
    assert done.returncode == 0, done.stderr
    assert note.read_text().splitlines()[0] == f"off {working}"
    assert not _runs(left)


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_status_of_a_folder(tmp_path, url):
    home = tmp_path / "device"
    nothing = turnout("--status", home)
    assert nothing.returncode == 2
    assert "no device has joined from here" in nothing.stderr
    turnout(url, "--cost", 3.0, "--folder", home, "--rounds", 3, "--code", "GOOD-CODE", "--reports", 10)
    shown = turnout("--status", home)
    assert shown.returncode == 0, shown.stderr
    for line in ("its agent does not run", f"run         run at {url} as device {TAG}, weight 1", "work on     no",
                 "last round  2: ", "ledger      total epsilon 3.000 at delta 1e-06 over 3 reports, against an",
                 "allowed     7 more reports, each of at most epsilon 1 per report; 1 release of at most"):  # fmt: skip
        assert line in shown.stdout, shown.stdout
    facts = json.loads(turnout("--status", home, "--json").stdout)
    assert facts["last_round"] == 2
    assert facts["tag"] == TAG
    assert not {"cost", "token", "average", "signal"} & set(facts)


def _until(true, seconds=20.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.002)
