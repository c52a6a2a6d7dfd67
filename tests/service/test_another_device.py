"""Devices in other languages: the test vectors, the conformance suite, and the reference device in Node under both."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import shutil
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema_rs
import pytest

from page_blocks import FENCE
from service.faults import until
from service.running import begun, codes_for, running, usual_rules
from service.served import self_signed
from turnout.algorithm import MECHANISMS
from turnout.client import KEPT
from turnout.service import LARGEST_BODY, LARGEST_REPLY, MISSING, ProtocolProblem, Timing, changed_settings, fields
from turnout.service.agent.connection import FIRST_PAUSE, LONGEST_PAUSE, LONGEST_POLL, REQUEST_SECONDS, TOO_SOON
from turnout.service.agent.rounds import LONGEST_LEASE, MOST_CONFLICTS, USUAL_LIMIT
from turnout.service.coordinator.device_app import HELD_AT_ONCE, REPORTS_A_SECOND, REPORTS_AT_ONCE
from turnout.service.coordinator.enrolment import GONE_AFTER

ROOT = Path(__file__).parents[2]
NODE_DEVICE = ROOT / "examples" / "node-device"
VECTORS = ROOT / "examples" / "device-vectors.json"
PAGE = ROOT / "docs" / "another-device.md"
OPTIONS = (
    "{url} --code {code} --folder {folder} --cost-file {cost} --reports {reports} --epsilon-per-report {epsilon} "
    "--on-participate {start} --on-stop {stop}"
)
NODE = f"node {NODE_DEVICE / 'device.mjs'} {OPTIONS}"
AGENT = f"{sys.executable} -m turnout join {OPTIONS}"
ROUNDED = ("paper-coin", "capped-coin")
"""Their box has an exponential, which libraries round differently in the last place."""


def tool(name: str) -> ModuleType:
    """A program of tools/, as a module."""
    if str(ROOT / "tools") not in sys.path:
        sys.path.append(str(ROOT / "tools"))
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node (Debian: nodejs)")

# The vectors.


def alike(mine: Any, theirs: Any, exactly: bool) -> bool:
    """Whether two results are the same doubles, or at least within some units in the last place."""
    if isinstance(mine, dict):
        return mine.keys() == theirs.keys() and all(alike(mine[name], theirs[name], exactly) for name in mine)
    if isinstance(mine, list):
        return len(mine) == len(theirs) and all(alike(a, b, exactly) for a, b in zip(mine, theirs, strict=True))
    if isinstance(mine, float) and not exactly:
        return math.isclose(mine, theirs, rel_tol=1e-14)
    if isinstance(mine, int) and not isinstance(mine, bool) and not exactly:
        return abs(mine - theirs) <= 64
    return bool(mine == theirs)


def test_the_vectors_are_what_the_code_decides() -> None:
    found, made = json.loads(VECTORS.read_text()), tool("device_vectors").vectors()
    assert found["words"] == made["words"] == 2**53
    assert len(found["cases"]) == len(made["cases"])
    for case, own in zip(found["cases"], made["cases"], strict=True):
        assert alike(case, json.loads(json.dumps(own)), case["mechanism"]["kind"] not in ROUNDED), case


def test_the_vectors_are_of_every_mechanism_and_of_both_bits() -> None:
    cases = json.loads(VECTORS.read_text())["cases"]
    for kind in {kind for kind, made in MECHANISMS.items() if not made.needs_population}:
        mine = [case for case in cases if case["mechanism"]["kind"] == kind]
        assert {case["participates"] for case in mine} == {True, False}, kind
        assert all(case["participates"] == (case["word"] < case["threshold"]) for case in mine)
        assert sum(case["word"] - case["threshold"] in (0, -1) for case in mine) >= 4, "at the edge of the coin"


def page_functions() -> dict[str, Any]:
    """What the page's Python blocks define."""
    space: dict[str, Any] = {}
    for kind, text in FENCE.findall(PAGE.read_text()):
        if kind == "python":
            exec(text, space)
    return space


def test_what_the_page_says_gives_the_vectors() -> None:
    """The formulas of the page, written out without turnout, are enough."""
    assert not re.search(r"^(from|import) turnout", PAGE.read_text(), re.MULTILINE)
    decided = page_functions()["decided"]
    for case in json.loads(VECTORS.read_text())["cases"]:
        mine = decided(**{name: case[name] for name in GIVEN})
        theirs = {name: case[name] for name in mine}
        assert len(mine) == 8
        assert alike(mine, theirs, case["mechanism"]["kind"] not in ROUNDED), (case, mine)


GIVEN = ("mechanism", "weight", "remember", "by", "state", "signal", "cost", "release", "word")


def node_checks(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["node", str(NODE_DEVICE / "decision.mjs"), str(path)], capture_output=True, text=True, check=False, timeout=60
    )


@needs_node
def test_node_decides_as_the_vectors_say(tmp_path: Path) -> None:
    done = node_checks(VECTORS)
    assert done.returncode == 0, done.stderr
    assert re.match(r"60 of \d+ cases are of mechanisms that this device knows; 0 differ", done.stdout)
    wrong = json.loads(VECTORS.read_text())
    for number, name in enumerate(("average", "intent", "probability")):
        wrong["cases"][number][name] = math.nextafter(wrong["cases"][number][name], 2.0)
    (tmp_path / "wrong.json").write_text(json.dumps(wrong))
    done = node_checks(tmp_path / "wrong.json")
    assert done.returncode == 1
    assert "; 3 differ" in done.stdout


# The page.

MESSAGES = ["Enrolment", "Welcome", "Round", "Report", "Answer", "Left", "Conflict", "Problem"]


def test_the_messages_of_the_page_keep_to_the_schema() -> None:
    schemas = json.loads((ROOT / "src/turnout/service/openapi.json").read_bytes())["components"]
    shown = [json.loads(text) for kind, text in FENCE.findall(PAGE.read_text()) if kind == "json"]
    for name, message in zip(MESSAGES, shown, strict=True):
        whole = {"$ref": f"#/components/schemas/{name}", "components": schemas}
        assert jsonschema_rs.Draft202012Validator(whole).is_valid(message), name
        assert set(message) == set(schemas["schemas"][name]["properties"]), name
    with pytest.raises(ProtocolProblem) as problem:
        fields({"round": "118"}, {"round": int}, "report")
    assert shown[-1]["message"] == str(problem.value)


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    said = " ".join(PAGE.read_text().split())
    for sentence in (
        f"at most {LARGEST_BODY // 1024} KB. Do not read more than {LARGEST_REPLY // 1024} KB",
        f"between 0 and {FIRST_PAUSE} · 2^n seconds, at most {LONGEST_PAUSE:g},",
        f"arrives within {TOO_SOON} seconds), wait likewise, at most {LONGEST_POLL:g} seconds",
        f"held for {Timing().hold:g} seconds",
        f"Wait {REQUEST_SECONDS:g} seconds",
        f"make {REPORTS_A_SECOND:g} requests a second, and no more than {REPORTS_AT_ONCE:g} at once",
        f"Keep the last {KEPT} at least",
    ):
        assert sentence in said, sentence
    assert (HELD_AT_ONCE, GONE_AFTER, MOST_CONFLICTS, LONGEST_LEASE) == (2, 3, 3, 3600.0), "in words"
    assert (USUAL_LIMIT.reports, round(USUAL_LIMIT.reports * Timing().round / 3600)) == (10_000, 28)


def test_the_commands_of_the_page_are_those_of_the_tests() -> None:
    said = " ".join(PAGE.read_text().replace("\\\n", " ").split())
    assert f"'{NODE.replace(str(ROOT) + '/', '')}'" in said


# The conformance suite.


@needs_node
def test_the_device_in_node_keeps_to_the_protocol() -> None:
    suite = tool("device_conformance")
    assert len(suite.CHECKS) >= 20
    assert suite.failures(NODE, at_once=12) == {}


@needs_node
@pytest.mark.deployment
def test_a_device_in_node_keeps_to_it_whose_files_are_often_written_again(tmp_path: Path) -> None:
    changes = [("const LINES = 4096;", "const LINES = 7;"), ("export const KEPT = 256;", "export const KEPT = 4;")]
    suite = tool("device_conformance")
    about_files = ["never_has_two_bits_for_a_round", "goes_back_with_what_is_on_file", "repeats_its_bit"]
    about_files += ["counts_missed_rounds", "takes_back_what_was_not_counted", "leaves_when_its_budget_is_spent"]
    assert suite.failures(sabotaged(tmp_path / "often", changes), about_files) == {}


@pytest.mark.deployment
def test_our_own_agent_keeps_to_the_protocol() -> None:
    assert tool("device_conformance").failures(AGENT, at_once=4) == {}


TOSSES_AGAIN = [
    ("this.ledger.reserve(welcome.run, offer.round, this.box.epsilon);", ""),
    ("rounds.add(decision);", "rounds.decisions.set(decision.round, decision);"),
]
SABOTAGED: dict[str, list[tuple[str, str]]] = {
    "repeats_its_bit_after_a_kill": TOSSES_AGAIN,
    "never_has_two_bits_for_a_round": TOSSES_AGAIN,
    "ends_work_with_its_lease": [("const until = sentAt +", "const until = clock() +")],
    "works_only_when_counted": [("participates && value.counted &&", "participates &&")],
    "leaves_when_its_budget_is_spent": [("remaining <= 0", "false")],
    "slows_down_while_all_fails": [("atLeast + Math.random() * most", "0.01")],
    "waits_as_long_as_it_is_told": [("atLeast + Math.random() * most", "Math.random()")],
    "ends_work_that_a_killed_one_left_on": [("if (readJson(marker)) this.end();", "")],
    "ends_work_when_it_is_stopped": [("device.work?.end();\n      process.exit(0);", "process.exit(0);")],
    "ends_work_at_the_next_no": [("if (!works) this.work.end();", "")],
    "takes_back_what_was_not_counted": [("takenBack ? 0 : decision.moved", "decision.moved")],
    "keeps_a_probability": [('decision.counted === false && by === "bit"', "decision.counted === false")],
    "forgets_old_rounds": [("remember ?? Infinity);", "Infinity);")],
    "counts_missed_rounds": [("return missed(state, round - 1 - last, remember);", "return state;")],
    "goes_back_with_what_is_on_file": [("let decision = rounds.decisions.get(offer.round);", "let decision;")],
    "ignores_what_it_does_not_know": [("const isOffer = (value) =>", "const isOffer = (value) => !value?.signals &&")],
    "declines_what_its_owner_does_not_allow": [("box.epsilon > this.ledger.limit.epsilon", "false")],
    "is_silent_once_revoked": [("reply.status === 401 && token &&", "false &&")],
    "keeps_its_bit_in_a_conflict": [
        (
            'if (refused === "conflict") return',
            'if (refused === "conflict") participates = !participates; else if (0) return',
        )
    ],
}
"""By the check that must notice it: what is replaced in the device."""


def sabotaged(folder: Path, changes: list[tuple[str, str]]) -> str:
    """A copy of the device with something wrong in it; the command that starts it."""
    shutil.copytree(NODE_DEVICE, folder)
    for before, after in changes:
        holders = [path for path in folder.glob("*.mjs") if before in path.read_text()]
        assert len(holders) == 1, before
        text = holders[0].read_text()
        assert text.count(before) == 1, before
        holders[0].write_text(text.replace(before, after))
    return NODE.replace(str(NODE_DEVICE), str(folder))


@needs_node
@pytest.mark.deployment
def test_the_suite_notices_a_device_that_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = tool("device_conformance")
    monkeypatch.setattr(sys.modules["scripted_coordinator"], "PATIENCE", 5.0)
    commands = {name: sabotaged(tmp_path / name, changes) for name, changes in SABOTAGED.items()}
    with ThreadPoolExecutor(8) as pool:
        found = dict(
            zip(commands, pool.map(lambda name: suite.failures(commands[name], [name]), commands), strict=True)
        )
    assert [name for name, wrong in found.items() if not wrong] == []


@needs_node
@pytest.mark.parametrize("trusted", [True, False])
def test_the_device_in_node_trusts_the_authority_that_it_is_given_alone(tmp_path: Path, trusted: bool) -> None:
    suite, (certificate, key) = tool("scripted_coordinator"), self_signed(tmp_path)
    coordinator = suite.Coordinator(last=1)
    scene = suite.Scene("", coordinator)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    scene._server.socket = context.wrap_socket(scene._server.socket, server_side=True)
    scene._template = NODE.replace("{url}", f"https://localhost:{scene._server.server_port}")
    scene._template += f" --ca {certificate}" * trusted
    with scene:
        if trusted:
            scene.reported(1)
        else:
            scene.until(lambda: "self-signed" in (scene.folder / "log").read_text(), "said why")
            assert not coordinator.requests


# In which order things are on the disk.

TRACED = """
import { fsyncSync as reallySync, readlinkSync, writeSync as reallyWrite } from "node:fs";
const named = (descriptor) => readlinkSync(`/proc/self/fd/${descriptor}`).split("/").pop();
function fsyncSync(descriptor) {
  reallySync(descriptor);
  console.error(`trace sync ${named(descriptor)}`);
}
function writeSync(descriptor, data) {
  console.error(`trace write ${named(descriptor)}`);
  return reallyWrite(descriptor, data);
}
"""
OWN_SYNC = [("fsyncSync, ftruncateSync,", "ftruncateSync,"), (", rmSync, writeSync }", ", rmSync }")]
SENDS = ("request.end(body", "console.error(`trace send ${path}`); request.end(body")
TOSSES = ("freshWord = () => Number(", 'freshWord = () => console.error("trace toss") ?? Number(')


def traced(folder: Path, *changes: tuple[str, str]) -> str:
    """What a device does on its disk and on the wire in its first two rounds, one word or two for each step."""
    command = sabotaged(folder, [*OWN_SYNC, SENDS, TOSSES, *changes])
    path = folder / "disk.mjs"
    path.write_text(path.read_text() + TRACED)
    suite = tool("scripted_coordinator")
    with suite.Scene(command, suite.Coordinator(last=2)) as scene:
        scene.reported(2)
        log = (scene.folder / "log").read_text()
    return "\n".join(line.removeprefix("trace ") for line in log.splitlines() if line.startswith("trace "))


ENROLLED = """write enrolling.json.new
sync enrolling.json.new
sync device
send /v1/enrol
write device.json.new
sync device.json.new
sync device"""
ROUND = """write ledger.jsonl
sync ledger.jsonl
toss
write rounds.jsonl
sync rounds.jsonl
send /v1/report
write rounds.jsonl
sync rounds.jsonl"""


@needs_node
def test_what_must_be_on_the_disk_before_what(tmp_path: Path) -> None:
    steps = traced(tmp_path / "right")
    assert f"{ENROLLED}\n" in steps
    assert steps.count(f"{ROUND}\n") == 2
    wrong = traced(
        tmp_path / "wrong",
        ("subarray(writeSync(descriptor, rest));\n  fsyncSync(descriptor);", "subarray(writeSync(descriptor, rest));"),
    )
    assert ROUND not in wrong, "a device that does not flush its files is noticed"


# Killed at every durable step.

DYING = """
import { fsyncSync as reallySync, writeSync as reallyWrite } from "node:fs";
let [syncs, writes] = [0, 0];
function fsyncSync(descriptor) {
  if (++syncs === Number(process.env.DIE_AT_SYNC)) process.kill(process.pid, "SIGKILL");
  reallySync(descriptor);
}
function writeSync(descriptor, data) {
  if (++writes !== Number(process.env.DIE_IN_WRITE)) return reallyWrite(descriptor, data);
  reallyWrite(descriptor, data.subarray(0, data.length / 2));
  process.kill(process.pid, "SIGKILL");
}
"""
MOST_STEPS = 60


def dying(folder: Path) -> str:
    """A device that kills itself at the step that its environment names."""
    command = sabotaged(folder, OWN_SYNC)
    path = folder / "disk.mjs"
    path.write_text(path.read_text() + DYING)
    return command


def killed_once(command: str, variable: str, step: int) -> bool:
    """One life that is killed at a step and one that goes on; whether there was such a step."""
    suite = sys.modules["scripted_coordinator"]
    asked: dict[int, int] = {}

    def odd(request: Any) -> Any:
        if request.path == "/v1/round":  # a round that was lost closes without the device
            asked[coordinator.open] = asked.get(coordinator.open, 0) + 1
            coordinator.open += asked[coordinator.open] >= 3

    coordinator = suite.Coordinator(last=2, odd=odd, counts=lambda round, bit: round != 1)
    scene = suite.Scene(f"env {variable}={step} {command}", coordinator)
    with scene:
        scene.until(lambda: scene.process.poll() is not None or coordinator.bits_of(2), "died, or gone on")
        died = scene.process.poll() is not None
        if died:
            assert scene.process.returncode == -9, (scene.folder / "log").read_text()
        scene.kill()
        flipped, before = coordinator.signal, coordinator.open
        coordinator.signal, coordinator.last = lambda round: suite.YES - flipped(round), before + 3
        scene._template = command
        scene.start()
        scene.until(lambda: any(round >= before + 3 for round, _ in coordinator.reports()), "gone on after the kill")
        assert len({request.body["nonce"] for request in coordinator.of("/v1/enrol")}) == 1
        assert all(len(set(coordinator.bits_of(round))) <= 1 for round in range(before + 4))
        own = on_disk(scene.folder / "device" / suite.RUN / "rounds.jsonl")
        for round, bit in coordinator.bits.items():
            assert own[round] == (bit, round != 1), (round, bit, own)
        reserved = [json.loads(line) for line in (scene.folder / "device" / "ledger.jsonl").read_text().splitlines()]
        assert set(own) <= {entry.get("round") for entry in reserved}
        return died


def on_disk(path: Path) -> dict[int, tuple[bool, bool | None]]:
    found: dict[int, tuple[bool, bool | None]] = {}
    for entry in map(json.loads, path.read_text().splitlines()):
        if entry["entry"] == "decided" and entry["kind"] == "tossed":
            found[entry["round"]] = (entry["participates"], entry.get("counted"))
        elif entry["entry"] == "acknowledged":
            found[entry["round"]] = (found[entry["round"]][0], entry["counted"])
    return found


@needs_node
@pytest.mark.deployment
@pytest.mark.parametrize("variable", ["DIE_AT_SYNC", "DIE_IN_WRITE"])
def test_the_device_in_node_survives_a_kill_at_every_durable_step(tmp_path: Path, variable: str) -> None:
    tool("device_conformance")
    command, step, died = dying(tmp_path / "dying"), 1, True
    with ThreadPoolExecutor(6) as pool:
        while died:
            assert step < MOST_STEPS
            steps = range(step, step + 12)
            died = all(pool.map(lambda one: killed_once(command, variable, one), steps))
            step += 12
    assert step > 13, "there are more steps than that"


@needs_node
@pytest.mark.parametrize("allowed", [True, False], ids=["agrees", "declines"])
def test_the_device_in_node_agrees_to_new_rules_or_leaves(tmp_path: Path, allowed: bool) -> None:
    """No code is used for it, and the token stays."""
    store = begun(tmp_path / "run.db", usual_rules(Timing(round=0.05, deadline=5.0)), capacity=0.5)
    [code] = codes_for(store, 1)
    limit = "2" if allowed else "1"
    with running(store) as coordinator:
        options = ["--code", code, "--cost", "1", "--folder", str(tmp_path / "device"), "--epsilon-per-report", limit]
        command = ["node", str(ROOT / "examples/node-device/device.mjs"), coordinator.url, *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as device:
            try:
                sync = coordinator.coordinator.sync
                until(lambda: sync.open.number > 3)
                changed = changed_settings(store.rules()[-1].settings, {"mechanism": {"epsilon": 1.5}})
                coordinator.call(sync.call, lambda: store.change_rules(changed, 1, "test"))
                if allowed:
                    until(lambda: sync.open.version.number == 2)
                    reached = sync.open.number
                    until(lambda: sync.open.number > reached + 3)
                    assert (sync.closed.last.codes != MISSING).all()
                else:
                    assert device.wait(20) == 3
                    assert "more than the 1 that the owner allows. This device has left the run" in device.stdout.read()
            finally:
                device.kill()
    agreement = tmp_path / "device/agreement.json"
    assert agreement.exists() == allowed
    assert not allowed or json.loads(agreement.read_text())["mechanism"]["epsilon"] == 1.5
