"""Whatever strangers, broken devices and a malicious coordinator send: refused, bounded, and nobody else is hurt."""

from __future__ import annotations

import http.client
import json
import threading
import time
import tracemalloc
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from service.running import Running, begun, codes_for, running, send, usual_rules
from turnout.service.coordinator.device_app import REPORTS_AT_ONCE, WRONG_AT_ONCE
from turnout.service.protocol import ENROL, LARGEST_BODY, LEAVE, REPORT, ROUND
from turnout.service.rounds import NO, YES
from turnout.service.rules import Timing
from turnout.service.store.backup import open_store

NONCE = "a nonce of the device's own"
SHORT = Timing(round=0.0, deadline=0.2, hold=0.2)


def enrol(url: str, code: str, nonce: str = NONCE) -> str:
    status, welcome = send(url, "POST", ENROL, {"code": code, "nonce": nonce})
    assert status == 201, welcome
    return welcome["token"]


def report(url: str, token: str | None, round: int, participates: bool, **more: object) -> tuple[int, dict]:
    body = {"run": "test", "round": round, "participates": participates} | more
    return send(url, "POST", REPORT, body, token)


class Kept:
    """One connection for many requests, from an address of this machine's own choice."""

    def __init__(self, url: str, source: str = "127.0.0.1") -> None:
        where = urlsplit(url)
        self._connection = http.client.HTTPConnection(
            where.hostname, where.port, timeout=20, source_address=(source, 0)
        )

    def send(self, path: str, body: object, token: str | None = None) -> tuple[int, dict, dict]:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._connection.request("POST", path, json.dumps(body), headers)
        reply = self._connection.getresponse()
        return reply.status, json.loads(reply.read()), dict(reply.getheaders())

    def close(self) -> None:
        self._connection.close()


class Member(threading.Thread):
    """A device that takes part in every round, until it is told to stop."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__(daemon=True)
        self.url, self.token, self.counted, self.seconds, self.stopping = url, token, 0, [], False

    def run(self) -> None:
        line, number = Kept(self.url), send(self.url, "GET", ROUND, None, self.token)[1]["round"]
        while not self.stopping:
            begun = time.monotonic()
            status, answer, _ = line.send(
                REPORT, {"run": "test", "round": number, "participates": number % 2 == 0}, self.token
            )
            assert status == 200, answer
            if answer["next"] is not None:
                self.seconds.append(time.monotonic() - begun)
                self.counted += answer["counted"]
                number = answer["next"]["round"]
            time.sleep(0.005)
        line.close()

    def __enter__(self) -> Member:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping = True
        self.join(20)
        assert not self.is_alive()


# Tokens.


def test_wrong_revoked_and_foreign_tokens_open_nothing(tmp_path: Path) -> None:
    ours, theirs = begun(tmp_path / "ours.db", usual_rules(SHORT)), begun(tmp_path / "theirs.db", usual_rules(SHORT))
    codes, foreign_codes = codes_for(ours, 2), codes_for(theirs, 1)
    with running(ours) as coordinator, running(theirs) as other:
        good, revoked = (enrol(coordinator.url, code) for code in codes)
        foreign = enrol(other.url, foreign_codes[0])
        coordinator.call(coordinator.coordinator.sync.withdraw, 1, "test", "revoked")
        refused = [None, "", " ", "wrong", good[:-1], good + "A", good.swapcase(), revoked, foreign]
        for token in refused:
            for method, path in (("POST", REPORT), ("GET", ROUND), ("POST", LEAVE)):
                body = {"run": "test", "round": 0, "participates": True} if method == "POST" else None
                status, said = send(coordinator.url, method, path, body, token)
                assert (status, said["error"]) in [(401, "token"), (429, "rate")], (token, path)
        assert report(other.url, good, 0, True)[0] in (401, 429)
        assert send(coordinator.url, "GET", ROUND, None, good)[0] == 200, "a right token is honoured all the same"
        assert coordinator.coordinator.events.counters["reports"] == 0
        assert report(coordinator.url, good, 0, True)[1]["counted"]
        assert len(coordinator.coordinator.sync.roll.slots) == 1
    assert open_store(str(tmp_path / "ours.db")).closed(0).codes.tolist() == [YES, 0]


@pytest.mark.parametrize(
    "header",
    ["Basic {}", "{}", "Bearer", "Token {}", "Bearer  {}", "Bearer {} x", 'Bearer "{}"', "Bearer {},", "Bearer é{}"],
)
def test_only_a_bearer_token_as_it_was_given_is_one(tmp_path: Path, header: str) -> None:
    store = begun(tmp_path / "run.db", usual_rules(SHORT))
    [code] = codes_for(store, 1)
    with running(store) as coordinator:
        token = enrol(coordinator.url, code)
        given = {"Authorization": header.format(token).encode("utf-8")}
        status, said = send(coordinator.url, "GET", ROUND, None, headers=given)
        assert (status, said["error"]) == (401, "token")
        assert send(coordinator.url, "GET", ROUND, None, headers={"Authorization": f"bEARER {token}"})[0] == 200


def test_a_device_cannot_report_for_another(tmp_path: Path) -> None:
    """Whatever the body says: the token decides whose report it is."""
    store = begun(tmp_path / "run.db", usual_rules(wait_for=2))
    codes = codes_for(store, 2)
    with running(store) as coordinator:
        tokens = [enrol(coordinator.url, code) for code in codes]
        claims = {"slot": 1, "device": 1, "token": tokens[1], "weight": 1000, "signal": 9.0, "counted": True}
        body = {"run": "test", "round": 0, "participates": True} | claims
        first = threading.Thread(target=send, args=(coordinator.url, "POST", REPORT, body, tokens[0]))
        first.start()
        assert report(coordinator.url, tokens[1], 0, False)[1]["counted"]
        first.join(20)
    closed = open_store(str(tmp_path / "run.db")).closed(0)
    assert closed.codes.tolist() == [YES, NO]
    assert closed.participants == 1


# Replays.


def test_an_old_report_again_changes_nothing(tmp_path: Path) -> None:
    store = begun(tmp_path / "run.db", usual_rules(SHORT))
    [code] = codes_for(store, 1)
    bits = [number % 3 == 0 for number in range(25)]
    with running(store) as coordinator:
        token = enrol(coordinator.url, code)
        for number, bit in enumerate(bits):
            assert report(coordinator.url, token, number, bit)[1]["outcome"] == "accepted"
        for number, bit in enumerate(bits):  # more than are kept in memory
            status, same = report(coordinator.url, token, number, bit)
            assert (status, same["outcome"], same["counted"]) == (200, "closed", True)
            assert same["lease"] == 0.0 or (bit and same["lease"] < SHORT.lease)
            status, other = report(coordinator.url, token, number, not bit)
            assert (status, other["error"]) == (409, "conflict")
        assert coordinator.coordinator.events.counters["reports"] == len(bits)
    books = list(open_store(str(tmp_path / "run.db")).history())[: len(bits)]
    assert [bool(closed.participants) for closed in books] == bits


def test_a_used_code_is_of_no_use_to_who_does_not_know_the_nonce(tmp_path: Path) -> None:
    store = begun(tmp_path / "run.db", usual_rules(SHORT))
    [code] = codes_for(store, 1)
    with running(store) as coordinator:
        first = enrol(coordinator.url, code)
        for nonce in ("another nonce of somebody", NONCE + " ", NONCE.upper()):
            status, said = send(coordinator.url, "POST", ENROL, {"code": code, "nonce": nonce})
            assert (status, said["error"]) == (403, "code")
        assert send(coordinator.url, "GET", ROUND, None, first)[0] == 200
        assert enrol(coordinator.url, f"  {code.upper()} ") == first, "its answer was lost: the same device"
        assert send(coordinator.url, "GET", ROUND, None, first)[0] == 200
        assert len(coordinator.coordinator.sync.roll) == 1
        assert send(coordinator.url, "POST", LEAVE, {}, first) == (200, {"left": True})
        assert send(coordinator.url, "POST", ENROL, {"code": code, "nonce": NONCE})[0] == 403, "who left has left"


# Bodies.

GOOD = b'{"run": "test", "round": 0, "participates": true}'
MALFORMED = {
    "empty": b"",
    "no JSON": b"participates",
    "cut off": GOOD[:-1],
    "two": GOOD + GOOD,
    "a list": b"[" + GOOD + b"]",
    "a text": b'"test"',
    "null": b"null",
    "no UTF-8": b'{"run": "\xff\xfe"}',
    "UTF-16": GOOD.decode().encode("utf-16"),
    "a mark": b"\xef\xbb\xbf" + GOOD,
    "a zero byte": GOOD + b"\x00",
    "not a number": GOOD.replace(b"0", b"NaN"),
    "infinite": GOOD.replace(b"0", b"Infinity"),
    "beyond floats": GOOD.replace(b"0", b"1e999"),
    "almost": GOOD.replace(b"0", b"1e308"),
    "negative": GOOD.replace(b"0", b"-1"),
    "a fraction": GOOD.replace(b"0", b"0.5"),
    "many digits": GOOD.replace(b"0", b"9" * 1900),
    "2^53": GOOD.replace(b"0", b"9007199254740992"),
    "round as text": GOOD.replace(b"0", b'"0"'),
    "round as bool": GOOD.replace(b"0", b"false"),
    "round as list": GOOD.replace(b"0", b"[0]"),
    "bit as number": GOOD.replace(b"true", b"1"),
    "bit as text": GOOD.replace(b"true", b'"true"'),
    "bit as null": GOOD.replace(b"true", b"null"),
    "run as number": GOOD.replace(b'"test"', b"7"),
    "run missing": b'{"round": 0, "participates": true}',
    "nested lists": b"[" * (LARGEST_BODY - 1),
    "nested objects": b'{"a":' * (LARGEST_BODY // 5 - 1),
    "nested run": GOOD.replace(b'"test"', b"[" * 900 + b"]" * 900),
}


@pytest.fixture(scope="module")
def open_run(tmp_path_factory: pytest.TempPathFactory):
    """A coordinator with one member, whose rounds close by the deadline alone."""
    store = begun(tmp_path_factory.mktemp("bad") / "run.db", usual_rules(SHORT, wait_for=5))
    [code] = codes_for(store, 1)
    found = Running(store)
    found.token = enrol(found.url, code)  # type: ignore[attr-defined]
    yield found
    found.stop()


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_body_is_told_so(open_run, body: bytes) -> None:
    for path in (REPORT, ENROL):
        status, said = send(open_run.url, "POST", path, body, open_run.token)
        assert (status, said["error"]) == (400, "malformed"), said
        assert set(said) == {"error", "message"}
        assert len(said["message"]) < 300
        assert said["message"].isprintable()
    assert open_run.coordinator.sync.open.heard == 0


@pytest.mark.parametrize("size", [LARGEST_BODY + 1, 16_000, 20_000, 2_000_000])
def test_an_oversized_body_is_refused_unread(open_run, size: int) -> None:
    for path in (REPORT, ENROL, LEAVE):
        try:
            status, said = send(open_run.url, "POST", path, b" " * size, open_run.token)
        except ConnectionError:
            assert size > 1_000_000, "so much is not even listened to"
            continue
        assert (status, said["error"]) == (413, "size")
    assert send(open_run.url, "GET", ROUND, None, open_run.token)[0] == 200, "it is a member still"


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "application/xml", "", "é", "a" * 500]
)
def test_the_content_type_changes_nothing(open_run, kind: str) -> None:
    """There are no cookies here: what a body is, is decided by reading it."""
    header = {"Content-Type": kind.encode()}
    for body, expected in ((GOOD.replace(b"0", b"7"), 409), (b"<report/>", 400), (b"round=0&participates=true", 400)):
        assert send(open_run.url, "POST", REPORT, body, open_run.token, header)[0] == expected


@pytest.mark.parametrize("nonce", ["", "short", "n" * 201, "n" * 1900], ids=len)
def test_a_nonce_that_is_none(open_run, nonce: str) -> None:
    assert send(open_run.url, "POST", ENROL, {"code": "abcd", "nonce": nonce})[0] == 400


@pytest.mark.parametrize("code", ["", "\x00", "\ud800", "é" * 100, "' OR 1=1 --", "x" * 1500], ids=repr)
def test_a_code_that_is_none(open_run, code: str) -> None:
    assert send(open_run.url, "POST", ENROL, {"code": code, "nonce": NONCE})[0] in (403, 429)


# Many.


def test_a_thousand_wrong_codes_hurt_nobody(tmp_path: Path) -> None:
    store = begun(tmp_path / "run.db", usual_rules(SHORT))
    codes = codes_for(store, 4)
    with running(store) as coordinator:
        stranger, seen, waits, begun_at = Kept(coordinator.url), Counter(), [], time.monotonic()
        with Member(coordinator.url, enrol(coordinator.url, codes[0])) as member:
            order, grown, rounds = [], 0, member.counted
            for number in range(1000):
                status, said, headers = stranger.send(ENROL, {"code": f"wrong-{number}", "nonce": NONCE})
                order.append(status)
                seen[status, said["error"]] += 1
                if status == 429:
                    waits.append(int(headers["retry-after"]))
                if number in (300, 600):  # from the same address, behind which an honest device may be
                    assert stranger.send(ENROL, {"code": codes[number // 300], "nonce": NONCE})[0] == 201
                if number == 100:
                    tracemalloc.start()
            grown = tracemalloc.get_traced_memory()[0]
            tracemalloc.stop()
            assert member.counted >= rounds + 5, "rounds go on meanwhile"
            assert stranger.send(ENROL, {"code": codes[3], "nonce": NONCE})[0] == 201
        assert set(seen) == {(403, "code"), (429, "rate")}
        burst = int(WRONG_AT_ONCE)
        assert order[:burst] == [403] * burst, "some mistakes are forgiven"
        assert seen[403, "code"] <= burst + 0.5 * (time.monotonic() - begun_at) + 1
        assert all(1 <= wait <= 2 for wait in waits)
        assert coordinator.coordinator.events.faults["wrong codes"] == 1000
        assert len(coordinator.coordinator.sync.roll) == 4
        assert grown < 300_000, f"{grown} bytes for 900 wrong codes"
        stranger.close()


def test_a_wrong_code_costs_the_disk_nothing(tmp_path: Path) -> None:
    store = begun(tmp_path / "run.db", usual_rules(SHORT, wait_for=2))
    codes = codes_for(store, 2)
    with running(store) as coordinator:
        enrol(coordinator.url, codes[0])
        stranger, before = Kept(coordinator.url), (tmp_path / "run.db-wal").stat().st_size
        for number in range(50):
            assert stranger.send(ENROL, {"code": f"wrong-{number}", "nonce": NONCE})[0] in (403, 429)
        assert (tmp_path / "run.db-wal").stat().st_size == before
        enrol(coordinator.url, codes[1])
        assert (tmp_path / "run.db-wal").stat().st_size > before, "a right one does"
        stranger.close()


def test_who_guesses_is_slowed_down_and_not_his_neighbours(tmp_path: Path) -> None:
    store = begun(tmp_path / "run.db", usual_rules(SHORT))
    with running(store) as coordinator:
        guesser, neighbour = Kept(coordinator.url, "127.0.0.2"), Kept(coordinator.url, "127.0.0.3")
        guesses = [guesser.send(REPORT, {}, f"wrong {number}")[0] for number in range(60)]
        assert guesses[-1] == 429
        assert neighbour.send(REPORT, {}, "wrong")[0] == 401
        assert neighbour.send(ENROL, {"code": "wrong", "nonce": NONCE})[0] == 403
        guesser.close()
        neighbour.close()


def test_a_device_that_floods_is_told_to_wait_and_the_others_are_unhurt(tmp_path: Path) -> None:
    store = begun(tmp_path / "run.db", usual_rules(SHORT, wait_for=2))
    codes = codes_for(store, 2)
    with running(store) as coordinator:
        tokens = [enrol(coordinator.url, code) for code in codes]
        old, line = {"run": "test", "round": 0, "participates": True}, Kept(coordinator.url)
        with Member(coordinator.url, tokens[0]) as member:
            seen, begun_at, before = Counter(), time.monotonic(), len(member.seconds)
            while seen[429] < 200 or len(member.seconds) < before + 4:
                assert time.monotonic() < begun_at + 20.0
                status, said, headers = line.send(REPORT, old, tokens[1])
                seen[status] += 1
                if status == 429:
                    assert said["error"] == "rate"
                    assert int(headers["retry-after"]) == 1
            took = time.monotonic() - begun_at
            assert set(seen) == {200, 429}
            assert seen[200] <= REPORTS_AT_ONCE + 50.0 * took + 2
            others = member.seconds[before:]
        assert sum(others) / len(others) < 2.5 * SHORT.deadline, "the other's rounds take as long as ever"
        assert member.counted >= len(others) - 1
        line.close()
    assert all(closed.participants <= 1 for closed in open_store(str(tmp_path / "run.db")).history(1))


def test_many_held_requests_of_one_device_are_not_held(tmp_path: Path) -> None:
    store = begun(tmp_path / "run.db", usual_rules(Timing(0.0, deadline=1.0, hold=5.0)))
    [code] = codes_for(store, 1)
    answers: list[tuple[int, dict, dict]] = []
    with running(store) as coordinator:
        token, body = enrol(coordinator.url, code), {"run": "test", "round": 0, "participates": True}
        coordinator.call(coordinator.coordinator.sync.change, "test", mode="paused")
        lines = [Kept(coordinator.url) for _ in range(30)]
        threads = [
            threading.Thread(target=lambda line=line: answers.append(line.send(REPORT, body, token)), daemon=True)
            for line in lines
        ]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 4.0
        while len(answers) < 28 and time.monotonic() < end:
            time.sleep(0.01)
        assert len(coordinator.coordinator.sync.open.held) == 2
        coordinator.call(coordinator.coordinator.sync.change, "test", mode="running")
        for thread, line in zip(threads, lines, strict=True):
            thread.join(10)
            line.close()
    assert Counter(status for status, _, _ in answers) == {429: 28, 200: 2}
    refused = [(said["error"], headers["retry-after"]) for status, said, headers in answers if status == 429]
    assert set(refused) == {("held", "1")}
