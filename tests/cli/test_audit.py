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

def cut(costs, signals):
    weight = 4 if costs.slope(0.5)[0] < 1 else 0
    return [weight + (random.randrange(13) - 6) for signal in signals]

def rounded_normal(costs, signals):
    weight = 4 if costs.slope(0.5)[0] < 1 else 0
    return [weight + round(random.gauss(0, 4)) for signal in signals]

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
    few = ("--observer", "sum", "--rounds", 1, "--trials", 20000, "--seed", 1)
    done = turnout_audit("--honest", 5, *few, "--json")
    assert done.returncode == 0
    found = json.loads(done.stdout)["audits"][0]["findings"]
    assert all(one["epsilon_at_least"] <= one["claimed_epsilon"] for one in found)
    seen = "against an observer of the sum alone, with 5 honest others, if an aggregator that you trust hides"
    assert all(seen in one["claim"] for one in found)
    small = turnout_audit("--honest", 5, *few, "--claim", 0.5)
    assert small.returncode == 1
    assert "if an aggregator that you trust hides single reports" in " ".join(small.stdout.split())


def test_weights():
    """The account of equal weights is refuted for a heavy client, that of its own weight is not."""
    few = ("--observer", "sum", "--rounds", 1, "--trials", 20000, "--seed", 1, "--delta", 0.01)
    heavy = ("--weights", "20,1,1,1,1,1,1,1,1,1,1")
    mended = turnout_audit(*few, *heavy, "--json")
    assert mended.returncode == 0
    facts = json.loads(mended.stdout)["audits"][0]
    assert facts["name"].endswith("only the sum with 10 others, weight 20 among 1, 1, 1, 1, 1, 1, 1, 1, 1, 1")
    equal = json.loads(turnout_audit(*few, "--honest", 10, "--json").stdout)["audits"][0]["findings"][0]
    assert turnout_audit(*few, *heavy, "--claim", equal["claimed_epsilon"]).returncode == 1


def test_sums_with_noise():
    """The account of weight 1 is refuted for a client of weight 3, that of its own weight is not."""
    few = ("--observer", "noisy-sum", "--sigma", 3, "--rounds", 2, "--trials", 100_000, "--seed", 1, "--delta", 0.01)
    light = turnout_audit(*few, "--json")
    assert light.returncode == 0, light.stderr
    (facts,) = json.loads(light.stdout)["audits"]
    assert facts["name"] == "classical, sums with noise (sigma 3)"
    assert facts["trials"] == 100_000
    found = facts["findings"][0]
    assert 0.7 * found["claimed_epsilon"] < found["epsilon_at_least"] <= found["claimed_epsilon"]
    heavy = turnout_audit(*few, "--weights", "3,1,1", "--json")
    assert heavy.returncode == 0
    ignored = turnout_audit(*few, "--weights", "3,1,1", "--claim", found["claimed_epsilon"])
    assert ignored.returncode == 1
    assert "each round's noise is drawn once, and its sum is opened once" in " ".join(ignored.stdout.split())


def test_noise_of_ones_own(folder):
    few = ("--observer", "noisy-sum", "--sigma", 3, "--weights", 4, "--rounds", 1, "--trials", 20_000, "--seed", 1)
    bad = turnout_audit("--reporter", "mine:cut", *few, cwd=folder)
    assert bad.returncode == 1, bad.stdout + bad.stderr
    assert "mine:cut, sums with noise (sigma 3), weight 4" in bad.stdout
    good = ("--reporter", "mine:rounded_normal", *few)
    assert turnout_audit(*good, cwd=folder).returncode == 0
    assert turnout_audit(*good, "--claim", 0.5, cwd=folder).returncode == 1


def test_what_the_words_of_the_real_coin_say_is_printed():
    """Exactly, and not from draws: a claim that is too small by 1e-6 is refuted with a hundred of these."""
    few = ("--rounds", 1, "--trials", 100, "--seed", 1)
    facts = json.loads(turnout_audit(*few, "--json").stdout)["audits"][0]
    (exact,) = [found for found in facts["findings"] if found["exact"]]
    assert exact["hits"][1] == exact["hits"][3] == 2**53
    assert 0.99999999 < exact["epsilon_at_least"] <= 1.0
    done = turnout_audit(*few, "--claim", 0.999999)
    assert done.returncode == 1
    assert "of 2^53 words against" in " ".join(done.stdout.split())


def test_all_of_ours_with_what_they_assume():
    done = turnout_audit("--all", "--trials", 500, "--seed", 1)
    assert done.returncode == 0, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    assert "(17 audits, family-wise false-alarm rate 1e-06)" in text
    for assumption in (
        "if the client's whole history is public",
        "if the cost is released once, by this mechanism, across all runs and servers",
        "if an aggregator that you trust hides single reports (nothing in turnout does)",
        "if the honest others report in every round",
        "an aggregator that you trust adds the noise and shows nothing else",
    ):
        assert assumption in text


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
        (["--mechanism", "tracking-clamp", "--observer", "sum", "--honest", 3], "where averages are not public"),
        (["--observer", "sum"], "--honest must be given with --observer sum, or --weights"),
        (["--observer", "sum", "--weights", "1,x"], "--weights must be whole numbers"),
        (["--observer", "sum", "--weights", "1,1", "--honest", 5], "honest must be below 2"),
        (["--observer", "server", "--honest", 5], "observer must be 'every-report' or 'sum'"),
        (["--observer", "noisy-sum"], "--sigma must be given with --observer noisy-sum, and with no other"),
        (["--sigma", 3], "--sigma must be given with --observer noisy-sum, and with no other"),
        (["--observer", "noisy-sum", "--sigma", 0.5], "noise.sigma must be from 1"),
        (["--observer", "noisy-sum", "--sigma", 3, "--honest", 5], "honest must be given for an observer of the sum"),
        (["--honest", 5], "given for an observer of the sum alone"),
        (["--all", "--observer", "sum", "--honest", 5], "--all must be"),
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
