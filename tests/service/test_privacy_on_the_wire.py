"""Everything that a coordinator stores, logs and sends is read for what is a device's own; everything that devices
receive, for what is the operator's. None of it is there, and leaks that are put in on purpose are found."""

from __future__ import annotations

import base64
import io
import json
import logging
import re
import sqlite3
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from service import running as service_running
from service.agents import agent_with
from service.overheard import (
    CAPACITY,
    DEVICES,
    HARD_LIMIT,
    LATER_CAPACITY,
    LEASE,
    LIMIT,
    MECHANISM,
    MOST_SIGNAL,
    PRIOR,
    QUORUM,
    ROUNDS,
    SEED,
    SPENT_BEFORE,
    Evidence,
    QuickDisk,
    Serving,
    cost_of,
    enrolment,
    look_around,
    misbehave,
    said_by,
    start_agents,
    weight_of,
)
from service.running import begun, codes_for, running, usual_rules
from service.wiretap import Finder, Wiretap, leaves, messages
from turnout.algorithm import Averaging, ClientState, Prior, Public, SeededCoins, client_step, intent
from turnout.client import Limit
from turnout.privacy import lemma_epsilon
from turnout.service.agent.connection import HttpWire
from turnout.service.coordinator.device_app import DeviceApp
from turnout.service.logs import SECRET_NAMES, JsonLines, Log
from turnout.service.rounds import REFUSED, YES
from turnout.service.rules import Timing
from turnout.service.store.backup import open_store
from turnout.service.store.schema import COLUMNS

BY_BIT = Averaging()
OFFERS = {"offer.round", "offer.signal"}
NEXT, NO_NEXT = {"next.round", "next.signal"}, {"next"}
WELCOME = {"version", "run", "token", "weight", "prior_average", "prior_rounds", "remember", "by"}
WELCOME |= {"mechanism.kind", "mechanism.epsilon", "mechanism.center", "round_seconds"} | OFFERS
ANSWER, REFUSAL = {"round", "outcome", "counted", "lease"}, {"error", "message"}
SHAPES = [WELCOME, ANSWER | NEXT, ANSWER | NO_NEXT, {"run", "round", "signal"}, REFUSAL, REFUSAL | NEXT, {"left"}]
"""What a device is ever told, to the last field."""

HEADERS = {
    "date": r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT",
    "content-type": "application/json",
    "content-length": r"\d{1,3}",
    "retry-after": "[1-9]",
    "www-authenticate": "Bearer",
    "cache-control": "no-store",
    "connection": "close",
}
REQUEST_HEADERS = {"host", "accept", "accept-encoding", "content-type", "content-length", "authorization"}


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evidence]:
    home = tmp_path_factory.mktemp("wire")
    serving = Serving(home)
    try:
        with Wiretap(serving.devices) as tap, Wiretap(serving.operator) as operator:
            found = Evidence(home, tap, operator)
            store, codes = open_store(str(serving.store)), []
            for device in range(DEVICES):
                codes += codes_for(store, 1, weight=weight_of(device))
            store.close()
            for thread in start_agents(tap.url, home, codes):
                thread.join(60)
                assert not thread.is_alive()
            look_around(serving, found)
            misbehave(tap.url, enrolment(home, 0)["token"])
            for secret in [enrolment(home, i)[name] for i in range(DEVICES) for name in ("code", "nonce", "token")]:
                found.random |= {secret.encode(), sha256(secret.encode()).digest()}
            found.files |= {path.name: path.read_bytes() for path in home.glob("run.db*")}  # with the log, as it runs
        found.words["log"] = serving.stop()
        found.files |= {f"{path.name} at the end": path.read_bytes() for path in home.glob("*.*")}
        found.random |= {serving.password.encode(), base64.b64encode(f"operator:{serving.password}".encode())}
        yield found
    finally:
        if serving.process.poll() is None:
            serving.process.kill()
            serving.stop()


def private_numbers(store_at: Path, home: Path, averaging: Averaging = BY_BIT) -> dict[str, float]:
    """The true intents, probabilities, slopes and Lemma values, replayed with the devices' own coins.

    The replay gives every reported bit again, so these are the numbers that decided it.
    """
    store, private = open_store(str(store_at)), {}
    books, slots = list(store.history()), {device.token: device for device in store.devices()}
    for device in range(DEVICES):
        cost, state = cost_of(device), ClientState(np.array([PRIOR[0] * PRIOR[1]]), PRIOR[1])
        private |= {f"cost {device}.{term}": float(cost.terms[term, 0]) for term in range(3)}
        member = slots[sha256(enrolment(home, device)["token"].encode()).digest()]
        for closed in books[:ROUNDS]:
            average, uniform = state.average, SeededCoins(SEED).uniform([device], closed.round)
            slope = cost.slope(average)
            wanted = intent(closed.signal, member.weight, average, slope)
            chance = MECHANISM.probability(wanted, Public(average, closed.signal))
            lemma = lemma_epsilon(wanted, MECHANISM.parameters()[0])
            found = {"slope": slope, "intent": wanted, "probability": chance, "lemma": lemma}
            found |= {} if averaging.by == "bit" else {"average": average, "history": state.participations}
            private |= {f"{name} of {device} in {closed.round}": float(value[0]) for name, value in found.items()}
            step, settings = closed.signal, {"weights": member.weight, "averaging": averaging}
            counted = closed.code(member.slot)
            later, bits, *_ = client_step(cost, MECHANISM, state, step, uniform, **settings)
            assert bool(bits[0]) == (counted in (YES, REFUSED)), "the replay is the device"
            state = state.after(np.zeros(1), averaging) if counted == REFUSED else later
    store.close()
    return private


def ledger_numbers() -> dict[str, float]:
    spent = {f"spent after {after}": float(SPENT_BEFORE + after) for after in range(ROUNDS + 1)}
    left = {f"left after {after}": float(LIMIT.reports - SPENT_BEFORE - after) for after in range(ROUNDS + 1)}
    return spent | left | {"limit": float(LIMIT.reports), "limit per report": LIMIT.epsilon_per_report}


@pytest.fixture(scope="module")
def private(evidence: Evidence) -> Finder:
    numbers = private_numbers(evidence.home / "run.db", evidence.home) | ledger_numbers()
    finder = Finder(numbers, public=MECHANISM.parameters())
    inner = [name for name in finder.private if name.startswith("probability")]
    assert len(inner) > DEVICES, "some chances are no bounds of the box"
    return finder


def without(text: bytes, random: set[bytes]) -> bytes:
    """The text without the random words that are known and belong there: what is left has nothing to hide."""
    for word in sorted(random, key=len, reverse=True):
        text = text.replace(word, b"\n")
    return text


def test_nothing_that_crosses_the_wire_is_a_devices_own(evidence: Evidence, private: Finder) -> None:
    assert len(evidence.tap.conversations) >= DEVICES
    for crossed in (evidence.tap.sent, evidence.tap.received, evidence.operator.sent, evidence.operator.received):
        assert len(crossed) > 1000
        assert private.in_bytes(without(crossed, evidence.random)) == []


def test_a_device_sends_its_bit_and_nothing_else(evidence: Evidence) -> None:
    check_requests(evidence.tap.conversations[:DEVICES])


def check_requests(conversations) -> None:
    """Every field and every header that agents sent is one of the protocol's."""
    reports = 0
    for one in conversations:
        for request in messages(bytes(one.sent)):
            assert {name for name, _ in request.headers} <= REQUEST_HEADERS
            keys = {path for path, _ in leaves(request.json() or {})}
            assert keys in [{"code", "nonce"}, {"run", "round", "participates"}, set()], request
            reports += "participates" in keys
    assert reports


def test_nothing_that_is_stored_is_a_devices_own(evidence: Evidence, private: Finder) -> None:
    assert {"run.db", "run.db-wal", "run.db at the end", "copy.db at the end", "run.npz at the end"} <= set(
        evidence.files
    )
    for content, name in {content: name for name, content in evidence.files.items()}.items():
        assert private.in_bytes(without(content, evidence.random)) == [], name
    for name in ("run.db", "copy.db"):
        cells = 0
        connection = sqlite3.connect(evidence.home / name)
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        assert set(tables) == {"meta", *COLUMNS}
        for table in tables:
            for row in connection.execute(f"SELECT * FROM {table}"):
                cells += len(row)
                assert not any(private.in_value(cell) for cell in row if cell not in evidence.random), (table, row)
        connection.close()
        assert cells > 12 * ROUNDS


def test_nothing_that_is_exported_is_a_devices_own(evidence: Evidence, private: Finder) -> None:
    archive = zipfile.ZipFile(io.BytesIO(evidence.files["run.npz at the end"]))
    arrays = {"signal", "participants", "capacity", "checkpoints", "state_participations", "state_rounds"}
    kept = {name.removesuffix(".npy") for name in archive.namelist()}
    assert arrays <= kept
    assert all(re.match("signal|participants|capacity|checkpoints|state_|controller|provenance", name) for name in kept)
    for name in archive.namelist():
        content = archive.read(name)
        assert private.in_bytes(content) == [], name
        if name.endswith(".npy"):
            values = np.load(io.BytesIO(content), allow_pickle=False)
            assert not any(private.in_value(value) for value in values.reshape(-1).tolist()), name


def test_nothing_that_is_logged_or_said_is_a_devices_own(evidence: Evidence, private: Finder) -> None:
    assert evidence.words["log"].count(b'"round closed"') >= ROUNDS
    for name, words in evidence.words.items():
        assert private.in_bytes(without(words, evidence.random)) == [], name


def test_logs_and_the_operators_interface_have_no_field_for_it(evidence: Evidence) -> None:
    """Short numbers, such as seconds, could be anything: so each of them stands under a name that is known."""
    logged = set()
    for line in evidence.words["log"].splitlines():
        if line.startswith(b"{"):
            logged |= {path for path, _ in leaves(json.loads(line))}
    usual = {"time", "level", "event", "part", "round", "participants", "heard", "members", "frozen", "seconds"}
    usual |= {"signal", "reason", "who", "detail", "device", "address", "times", "version", "devices", "sites"}
    assert logged <= usual | {"tag", "label", "site"}
    shown = {path for path, _ in leaves(json.loads(evidence.words["/api/snapshot"]))}
    terms = "text epsilon_per_report epsilon_lifetime total_epsilon delta reports against assumptions[]"
    account = {f"account.{name}" for name in terms.split()}
    plain = "run round mode capacity hard_limit most_signal signal offered members heard late gone waiting_for frozen"
    plain += " open_seconds round_seconds deadline leader version uptime reachable[] returning beyond_reach"
    plain += " rules.version rules.since rules.next"
    plain += " budget running_out least_reports_left spent_lately"
    counted = {path for path in shown if path.startswith(("faults.", "counters.", "left_because.", "gone_at."))}
    assert shown - counted <= {*plain.split(), *account}
    metrics = set(re.findall(r"^turnout_(\w+)", evidence.words["/metrics"].decode(), re.MULTILINE))
    assert len(metrics) > 20
    assert not any(word in SECRET_NAMES for name in metrics for word in name.split("_"))
    rounds = {path for path, _ in leaves(json.loads(evidence.words["/api/rounds"]))}
    names = "round signal participants demand capacity members heard frozen seconds closed_at expected beyond_reach"
    assert rounds == {f"rounds[].{name}" for name in names.split()}


def check_answers(conversations, public: dict[str, set]) -> None:
    """Every byte that devices received is a known field with a value that it may have."""
    told = set()
    for one in conversations:
        for answer in messages(bytes(one.received)):
            assert re.fullmatch(r"HTTP/1\.1 \d{3}( [A-Za-z ]*)?", answer.first)
            for name, value in answer.headers:
                assert re.fullmatch(HEADERS[name], value), (name, value)
            found = dict(leaves(answer.json()))
            assert set(found) in SHAPES, found
            told |= set(found)
            for path, value in found.items():
                name = path.rpartition(".")[2]
                assert name not in public or value in public[name], (path, value)
            assert 0.0 <= found.get("lease", 0.0) <= 4 * LEASE
            numbers = re.findall(r"\d+", str(found.get("message", "")))
            assert {int(number) for number in numbers} <= {53, 2048} | public.get("round", set()), found
    assert told >= WELCOME | ANSWER | REFUSAL


def test_devices_receive_the_signal_and_nothing_else_of_capacity_number_or_turnout(evidence: Evidence) -> None:
    store = open_store(str(evidence.home / "run.db"))
    books = list(store.history())
    assert books[0].signal == 1e-8, "as it was set"
    tokens = {enrolment(evidence.home, device)["token"] for device in range(DEVICES)}
    public = {"signal": {closed.signal for closed in books} | {store.position().offered}, "token": tokens}
    public |= {"weight": set(map(weight_of, range(DEVICES))), "prior_average": {PRIOR[0]}, "prior_rounds": {PRIOR[1]}}
    public |= {"round": set(range(len(books) + 1)), "version": {1}, "run": {"wire"}, "remember": {None}}
    public |= {"round_seconds": {0.05}}
    public |= {"by": {"bit"}, "kind": {"clamp"}, "epsilon": {MECHANISM.epsilon}, "center": {MECHANISM.center}}
    check_answers(evidence.tap.conversations, public)
    secret = {"capacity": CAPACITY, "later capacity": LATER_CAPACITY, "hard limit": HARD_LIMIT}
    secret |= {"quorum": QUORUM, "bound": MOST_SIGNAL}
    secret |= {f"turnout {closed.round}": closed.participants for closed in books}
    secret |= {f"demand {closed.round}": closed.demand for closed in books}
    finder = Finder(secret, public=map(weight_of, range(DEVICES)), digits=6)
    assert len(finder.private) > ROUNDS
    assert finder.in_bytes(without(evidence.tap.received, evidence.random)) == []
    assert {"capacity", "hard limit"} <= set(finder.in_bytes(evidence.words["/api/snapshot"])), "it finds what is there"


def test_an_average_that_moves_by_probability_stays_on_the_device(tmp_path: Path) -> None:
    """Then it is not public either: neither stored, nor sent, nor exported."""
    averaging = Averaging(by="probability")
    rules = usual_rules(wait_for=DEVICES, mechanism=MECHANISM, averaging=averaging, prior=Prior(*PRIOR))
    store = begun(tmp_path / "run.db", rules, capacity=7.390625)
    with running(store) as coordinator, Wiretap(coordinator.url) as tap:
        for thread in start_agents(tap.url, tmp_path, codes_for(store, DEVICES)):
            thread.join(60)
            assert not thread.is_alive()
    private = Finder(private_numbers(tmp_path / "run.db", tmp_path, averaging), [*MECHANISM.parameters(), *PRIOR, 3.5])
    said_by("operate", "export", tmp_path / "run.npz", "--store", tmp_path / "run.db")
    archive = zipfile.ZipFile(tmp_path / "run.npz")
    assert not any(name.startswith("state_") for name in archive.namelist())
    secrets = {enrolment(tmp_path, i)[name].encode() for i in range(DEVICES) for name in ("code", "nonce", "token")}
    secrets |= {sha256(secret).digest() for secret in secrets}
    kept = [(tmp_path / "run.db").read_bytes(), *(archive.read(name) for name in archive.namelist())]
    for text in (tap.sent, tap.received, *kept):
        assert private.in_bytes(without(text, secrets)) == []
    assert private.in_bytes(b"".join((tmp_path / f"device-{i}/test/rounds.jsonl").read_bytes() for i in range(DEVICES)))


# Leaks that are put in on purpose.


COST = 0.123456789012345 * 7
LONG, SHORT = [repr(COST), f"{COST:.15e}", f"{100 * COST:.14f}"], [f"{COST:.9g}", f"{COST:.9e}", "0.8641975230"]


@pytest.mark.parametrize("written", [*LONG, *SHORT])
def test_a_number_is_found_as_text(written: str) -> None:
    finder, near = Finder({"cost": COST}), b"0.8641975241 0.864 1.8641975230 -0.86419752 10.8641975230"
    for around in ("cost={}", '{{"a": {}}}', "[1, {},2]", "{}", *(["x{}y"] if written in LONG else [])):
        assert set(finder.in_bytes(around.format(written).encode())) == {"cost"}
    assert finder.in_bytes(near) == []


@pytest.mark.parametrize("kind", ["<f8", ">f8", "<f4", ">f4"])
def test_a_number_is_found_as_bytes(kind: str) -> None:
    finder, form = Finder({"cost": COST}), np.array(COST, kind).tobytes()
    for written in (form, form.hex().encode(), base64.b64encode(form)):
        assert finder.in_bytes(b"before" + written + b"after") == ["cost"]
    assert finder.in_bytes(np.array(1.001 * COST, kind).tobytes()) == []


class Leaky:
    """The device application of a careless day: a header that helps with debugging."""

    def __init__(self, coordinator) -> None:
        self._app, self._coordinator = DeviceApp(coordinator), coordinator

    async def __call__(self, scope, receive, send) -> None:
        async def leak(message) -> None:
            if message["type"] == "http.response.start":
                capacity = str(self._coordinator.sync.control.capacity).encode()
                message["headers"] = [*message["headers"], (b"x-debug", capacity)]
            await send(message)

        await self._app(scope, receive, leak)


def tapped_round(store_at: Path, wire=HttpWire) -> Wiretap:
    """One device's first rounds, overheard."""
    store = begun(store_at, usual_rules(Timing(0.0, deadline=1.0, hold=1.0)), capacity=CAPACITY)
    [code] = codes_for(store, 1)
    with running(store) as coordinator, Wiretap(coordinator.url) as tap:
        folder, options = store_at.with_suffix(".device"), {"code": code, "wire": wire(tap.url), "disk": QuickDisk()}
        agent_with(tap.url, folder, cost_of(1), limit=Limit(10, 1.0), **options).run(rounds=3)
    return tap


def test_a_capacity_in_a_header_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finder = Finder({"capacity": CAPACITY}, digits=6)
    assert finder.in_bytes(tapped_round(tmp_path / "sound.db").received) == []
    monkeypatch.setattr(service_running, "DeviceApp", Leaky)
    tap = tapped_round(tmp_path / "leaky.db")
    assert "capacity" in finder.in_bytes(tap.received)
    with pytest.raises(KeyError, match="x-debug"):
        check_answers(tap.conversations, {})


class Telling(HttpWire):
    """The agent of a careless day: its report says what it was decided from."""

    def send(self, method, path, body, token):
        if path == "/v1/report":
            body = json.dumps(json.loads(body) | {"cost": float(cost_of(1).terms[0, 0])}).encode()
        return super().send(method, path, body, token)


def test_a_cost_in_a_report_is_found(tmp_path: Path) -> None:
    finder = Finder({"cost": float(cost_of(1).terms[0, 0])})
    sound, telling = tapped_round(tmp_path / "sound.db"), tapped_round(tmp_path / "telling.db", Telling)
    check_requests(sound.conversations)
    assert finder.in_bytes(sound.sent) == []
    assert "cost" in finder.in_bytes(telling.sent)
    with pytest.raises(AssertionError, match="participates"):
        check_requests(telling.conversations)


def test_an_intent_in_a_log_is_found() -> None:
    wanted = 0.123456789012345 * 5
    finder, stream = Finder({"intent": wanted}), io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("turnout.sabotage")
    logger.addHandler(handler)
    try:
        Log("sabotage").error("decided", intent=wanted)
        assert finder.in_bytes(stream.getvalue().encode()) == [], "its own name is withheld"
        Log("sabotage").error("decided", wanted=wanted)
        assert "intent" in finder.in_bytes(stream.getvalue().encode())
    finally:
        logger.removeHandler(handler)
