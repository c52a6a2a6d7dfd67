"""`turnout audit` as a user meets it: its words, its exit status, its errors."""

import json
import math
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "turnout", "audit"]

MINE = """
import itertools, os, random, signal
import numpy as np

calls = itertools.count()

def reporter(costs, signals):
    cheap = costs.slope(0.5)[0] < 1
    return [random.random() < (0.75 if cheap else 0.25) for signal in signals]

def answers_two(costs, signals):
    return [2 for signal in signals]

number = 3

def interrupted(costs, signals, trials, seed):
    if next(calls) == 100:  # of which 40 look around
        os.kill(os.getpid(), signal.SIGINT)
    return np.random.default_rng(seed).random((trials, len(signals))) < 0.5

def interrupted_at_once(costs, signals):
    raise KeyboardInterrupt
"""


def turnout_audit(*arguments, cwd=None):
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, check=False)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def test_a_mechanism_is_not_refuted():
    done = turnout_audit("--mechanism", "clamp", "--epsilon", 1, "--rounds", 2, "--trials", 5000, "--seed", 1)
    assert done.returncode == 0, done.stdout
    assert "not refuted" in done.stdout
    assert "proves nothing" in done.stdout
    assert "proven" not in done.stdout


def test_a_false_claim_is_refuted_and_the_exit_status_says_so():
    few = ("--rounds", 1, "--trials", 5000, "--seed", 1)
    done = turnout_audit("--mechanism", "classical", "--claim", 3, *few, "--json")
    assert done.returncode == 1
    facts = json.loads(done.stdout)
    assert facts["verdict"] == "refuted"
    assert facts["audits"][0]["worst"]["epsilon_at_least"] > 3
    assert turnout_audit("--claim", 1, "--beta", 3.5, *few).returncode == 1


def test_only_the_sum():
    done = turnout_audit("--sum-only", 5, "--rounds", 1, "--trials", 20000, "--seed", 1, "--json")
    assert done.returncode == 0
    found = json.loads(done.stdout)["audits"][0]["findings"]
    assert all(one["epsilon_at_least"] <= one["claimed_epsilon"] for one in found)
    assert all("sees only the sum, with 5 honest others" in one["claim"] for one in found)
    small = turnout_audit("--sum-only", 5, "--rounds", 1, "--trials", 20000, "--seed", 1, "--claim", 0.5)
    assert small.returncode == 1


def test_a_reporter_of_ones_own(folder):
    mine = ("--reporter", "mine:reporter", "--rounds", 2, "--trials", 3000)
    good = turnout_audit(*mine, "--claim", math.log(3), cwd=folder)
    assert good.returncode == 0, good.stderr
    bad = turnout_audit(*mine, "--claim", 0.6, cwd=folder)
    assert bad.returncode == 1
    assert bad.stdout.rstrip().endswith("refuted: mine:reporter (1 audit, family-wise false-alarm rate 1e-06)")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--reporter", "mine:answers_two", "--claim", 1], "must be 0 or 1, got 2"),
        (["--reporter", "mine:number", "--claim", 1], "reporter must be a function, got int"),
        (["--reporter", "mine:nothing", "--claim", 1], "the name of something in"),
        (["--reporter", "not_there:reporter", "--claim", 1], "cannot be imported"),
        (["--reporter", "mine", "--claim", 1], "of the form package.module:function"),
        (["--reporter", "mine:reporter"], "--claim is missing"),
        (["--reporter", "mine:reporter", "--claim", 1, "--epsilon", 1], "leave one out"),
        (["--all", "--claim", 1], "--all must be"),
        (["--mechanism", "classical"], "one with a bound"),
        (["--mechanism", "tracking-clamp", "--sum-only", 3], "averaging by 'probability'"),
        (["--set", "rounds=3"], "--set must be a setting of the mechanism"),
        (["--rounds", 0], "--rounds must be at least 1"),
    ],
)
def test_errors_say_what_to_do(folder, arguments, says):
    done = turnout_audit(*arguments, "--trials", 1000, cwd=folder)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_leaves_what_is_done(folder):
    """The signal comes from within, so that it comes in the middle of the tests on any machine."""
    few = ("--rounds", 1, "--trials", 2_000_000_000, "--json")
    done = turnout_audit("--reporter", "mine:interrupted", "--claim", 1, *few, cwd=folder)
    assert done.returncode == 130, done.stderr
    facts = json.loads(done.stdout)
    assert facts["interrupted"] is True
    assert 0 < facts["audits"][0]["worst"]["hits"][1] < 2_000_000_000
    soon = turnout_audit("--reporter", "mine:interrupted_at_once", "--claim", 1, "--rounds", 1, cwd=folder)
    assert soon.returncode == 130
    assert "interrupted: nothing was tested" in soon.stdout
