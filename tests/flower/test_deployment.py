"""A real SuperLink and four SuperNodes, TLS and node authentication on, one of them killed and started again."""

import json
import time

import pytest

from flower.deployment import Deployment

ROUNDS = 7
VICTIM = 3


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_until(deployment, what, condition, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.5)
    logs = "\n".join(deployment.log(name) for name in ("superlink", f"node{VICTIM}"))
    pytest.fail(f"{what} did not come within {seconds} s:\n{logs}")


@pytest.mark.deployment
def test_a_killed_node_continues_its_history_and_the_run_finishes(tmp_path):
    with Deployment(tmp_path) as deployment:
        results = tmp_path / "results.jsonl"
        deployment.flwr("run", ".", "test", "--run-config", f"num-server-rounds={ROUNDS} results='{results}'")
        wait_until(deployment, "round 1", lambda: lines(results), 120)
        deployment.kill_node(VICTIM)
        (store,) = (tmp_path / f"state{VICTIM}").glob("flower-*/rounds.jsonl")
        before = store.read_bytes()
        deployment.restart_node(VICTIM, 100)
        wait_until(deployment, "the end", lambda: any("finished" in line for line in lines(results)), 300)
    *rounds, end = lines(results)
    assert end == {"finished": ROUNDS}
    assert [entry["round"] for entry in rounds] == list(range(1, ROUNDS + 1))
    assert rounds[0]["turnout-participants"] + rounds[0]["turnout-abstained"] == 4
    # All four are heard again at the end, the one that was killed among them.
    assert rounds[-1]["turnout-participants"] + rounds[-1]["turnout-abstained"] == 4
    # Its history continues: the same file, the same beginning, later rounds after it, and one prior only.
    assert store.read_bytes().startswith(before)
    first, *later = lines(store)
    decided = [entry["round"] for entry in later if entry["entry"] == "decided"]
    assert first["entry"] == "client"
    assert decided[0] == 1
    assert decided == sorted(set(decided))
    assert decided[-1] == ROUNDS
    # Each report was reserved in its ledger before it was made, and none twice.
    reserved = [entry["round"] for entry in lines(tmp_path / f"state{VICTIM}" / "ledger.jsonl") if "round" in entry]
    assert reserved == [entry["round"] for entry in later if entry["entry"] == "decided"]
