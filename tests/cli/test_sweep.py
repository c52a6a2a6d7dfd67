"""`turnout sweep` as a user meets it: a real process, its output and its exit status."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sweep.test_sweep import alive

ROOT = Path(__file__).parents[2]

SMALL = """
rounds = 30
capacity = 20
engine = "numpy"
[population]
kind = "paper"
clients = 40
[mechanism]
kind = "paper-coin"
[controller]
gain = 0.1
initial = 0.35
[sweep]
seeds = 2
[sweep.grid]
mechanism.beta = [1, 2.5, 3.5]
capacity = [5, 20]
"""


def turnout(*arguments, cwd=None, **environment):
    command = [sys.executable, "-m", "turnout", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, check=False, env=dict(os.environ) | environment
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


def test_a_dry_run_runs_nothing(folder):
    done = turnout("sweep", "small.toml", "--dry-run", cwd=folder)
    assert done.returncode == 0, done.stderr
    first, *shown = done.stdout.splitlines()
    assert first == "12 runs, which differ in mechanism.beta, capacity, seed; the first:"
    assert shown[0] == "  mechanism.beta = 1  capacity = 5  seed = 0"
    assert len(shown) == 5
    facts = json.loads(turnout("sweep", ROOT / "examples/sweep.toml", "--dry-run", "--json", cwd=folder).stdout)
    assert facts["runs"] == 500
    assert [path.name for path in folder.iterdir()] == ["small.toml"]


def test_a_sweep_and_the_same_again(folder):
    done = turnout("sweep", "small.toml", "--output", "out", "--jobs", 1, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "12 runs done, of which 2 failed (column error)",
        "table out/table.csv",
        "page out/summary.html",
    ]
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["runs.jsonl", "summary.html", "table.csv"]
    store, table = (folder / "out/runs.jsonl").read_bytes(), (folder / "out/table.csv").read_bytes()
    again = turnout("sweep", "small.toml", "--output", "out/all.parquet", "--json", cwd=folder)
    facts = json.loads(again.stdout)
    assert (facts["runs"], facts["done"], facts["failed"], facts["interrupted"]) == (12, 12, 2, False)
    assert (facts["table"], facts["page"]) == ("out/all.parquet", "out/summary.html")
    assert (folder / "out/runs.jsonl").read_bytes() == store
    turnout("sweep", "small.toml", "--output", "two", "--jobs", 2, cwd=folder)
    assert (folder / "two/table.csv").read_bytes() == table


def test_a_table_needs_no_library(folder):
    """A base install has neither pandas, pyarrow nor plotly."""
    code = (
        "import sys\n"
        "for name in ('pandas', 'pyarrow', 'plotly', 'scipy', 'numba', 'ray'): sys.modules[name] = None\n"
        "from turnout.cli import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", code, "sweep", "small.toml", "--jobs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == [
        "table results/sweep/table.csv",
        "no page: it needs plotly, pip install 'turnout[lab]'",
    ]
    assert len((folder / "results/sweep/table.csv").read_text().splitlines()) == 13
    for options, says in (
        (["-o", "x.parquet"], "needs pyarrow"),
        (["--on", "ray"], "needs ray, which is not installed"),
    ):
        command[4:] = ["small.toml", *options, "-o", "other"] if "--on" in options else ["small.toml", *options]
        refused = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
        assert refused.returncode == 2
        assert says in refused.stderr


@pytest.mark.deployment
def test_ray_gives_the_same_table(folder):
    pytest.importorskip("ray")
    turnout("sweep", "small.toml", "-o", "here", "--jobs", 1, cwd=folder)
    done = turnout("sweep", "small.toml", "-o", "there", "--on", "ray", "--jobs", 2, cwd=folder, RAY_ADDRESS="")
    assert done.returncode == 0, done.stderr
    assert (folder / "there/table.csv").read_bytes() == (folder / "here/table.csv").read_bytes()


def test_progress_and_ctrl_c(folder):
    """On a terminal: a bar; Ctrl-C, which the workers get too, keeps what is done and says how to go on."""
    text = SMALL.replace("rounds = 30", "rounds = 3000").replace("seeds = 2", "seeds = 1000")
    (folder / "long.toml").write_text(text)
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "turnout", "sweep", "long.toml", "-o", "out", "--jobs", "2"]
    # Standard output goes to a file: whoever waits for it does not read the terminal, which then fills and stops all.
    with (
        (folder / "said").open("w") as said,
        subprocess.Popen(command, stderr=follower, stdout=said, cwd=folder, start_new_session=True) as process,
    ):
        os.close(follower)
        deadline = time.monotonic() + 60
        seen = read_terminal(leader, deadline, lambda seen: b"/6000" in seen and stored(folder) >= 5)
        os.killpg(process.pid, signal.SIGINT)
        rest = read_terminal(leader, deadline)
        if process.poll() is None and time.monotonic() > deadline:
            os.killpg(process.pid, signal.SIGKILL)
    os.close(leader)
    output = (folder / "said").read_text()
    assert b"sweeping" in seen
    assert b"Traceback" not in seen + rest
    assert process.returncode == 130
    first, table, page = output.splitlines()
    assert "interrupted after" in first
    assert "of 6,000 runs; the same command goes on from there" in first
    assert (table, page) == ("table out/table.csv", "page out/summary.html")
    rows = (folder / "out/table.csv").read_text().splitlines()
    assert 5 <= len(rows) - 1 == stored(folder) < 6000
    while alive(process.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(process.pid)  # no worker is left


def read_terminal(leader, deadline, enough=lambda seen: False):
    """What a terminal shows until it is enough, or all who write to it are gone, or time is up."""
    seen = b""
    while not enough(seen) and time.monotonic() < deadline:
        if select.select([leader], [], [], 0.1)[0]:
            try:
                seen += os.read(leader, 4096)
            except OSError:
                break  # the other end is closed
    return seen


def stored(folder):
    path = folder / "out/runs.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


BAD = [
    ("sweep none.toml", "none.toml: cannot be read (No such file or directory)"),
    ("sweep unknown.toml", "sweep.grid.mechansim is not a known setting (known: averaging, capacity, controller,"),
    ("sweep plain.toml", "sweep is missing: give a table"),
    ("sweep small.toml --jobs 0", "jobs must be 1 or more"),
    ("sweep small.toml --on moon", "on must be one of cores, ray, got 'moon'"),
    ("sweep small.toml -o small.toml", "cannot be written"),
]


@pytest.mark.parametrize(("command", "says"), BAD, ids=[command for command, _ in BAD])
def test_bad_input_is_one_clear_line(folder, command, says):
    (folder / "unknown.toml").write_text(SMALL.replace("mechanism.beta =", "mechansim.beta ="))
    (folder / "plain.toml").write_text(SMALL.partition("[sweep]")[0])
    done = turnout(*command.split(), cwd=folder)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
