"""What the coordinator's log says of who comes, goes, changes something, or tries to."""

import asyncio
import io
import json
import logging
import subprocess
import sys

import pytest

from service.running import begun, codes_for, running, send
from service.served import eventually
from turnout.service import tag_of
from turnout.service.coordinator import hashed, issue_codes
from turnout.service.logs import Log, SparingLog, start_logging
from turnout.service.store import Names


@pytest.fixture
def written():
    """What was logged, as JSON; or of one event, its fields."""
    root, stream = logging.getLogger(), io.StringIO()
    handlers, level = list(root.handlers), root.level
    start_logging("json", "info", stream)

    def found(event=None):
        lines = [json.loads(line) for line in stream.getvalue().splitlines()]
        usual = ("time", "event", "part")
        return [
            {name: value for name, value in line.items() if event is None or name not in usual}
            for line in lines
            if event in (None, line["event"])
        ]

    yield found
    root.handlers[:] = handlers
    root.setLevel(level)


def enrolled(found, code):
    return send(found.url, "POST", "/v1/enrol", {"code": code, "nonce": "n" * 20})[1]["token"]


class TestWhoComesGoesAndChangesSomething:
    def test_is_in_the_log_whoever_did_it(self, tmp_path, written):
        store = begun(tmp_path / "run.db")
        codes = issue_codes(store, 3, 1, 1.0, "me", [Names(f"charger {slot}", "hall 2") for slot in range(3)])
        with running(store) as found:
            tokens = [enrolled(found, code) for code in codes]
            tags = [tag_of(hashed(token)) for token in tokens]
            send(found.url, "POST", "/v1/leave", {}, tokens[0])
            found.call(found.coordinator.sync.withdraw, 1, "operator page", "revoked")
            for words in (["capacity", "7"], ["codes", "5"], ["pause"], ["revoke", "2"]):
                command = [sys.executable, "-m", "turnout", "operate", *words, "--store", tmp_path / "run.db"]
                subprocess.run(command, check=True, timeout=60, capture_output=True)
            eventually(lambda: len(written("device revoked")) == 2)
        info = {"level": "info"}
        assert written("device enrolled") == [
            info | {"device": slot, "tag": tags[slot], "label": f"charger {slot}", "site": "hall 2", "round": 0}
            for slot in range(3)
        ]
        assert written("device left") == [
            info | {"who": "device", "detail": "device 0, label 'charger 0', site 'hall 2'"}
        ]
        assert written("device revoked") == [
            info | {"who": "operator page", "detail": "device 1, label 'charger 1', site 'hall 2'"},
            info | {"who": "command line", "detail": "device 2, label 'charger 2', site 'hall 2'"},
        ]
        assert written("capacity changed") == [info | {"who": "command line", "detail": "2 -> 7"}]
        assert written("codes made") == [info | {"who": "command line", "detail": "5 of weight 1"}]
        assert written("mode changed") == [info | {"who": "command line", "detail": "running -> paused"}]
        text = json.dumps(written())
        assert not any(secret in text for secret in (*tokens, *codes))

    def test_is_in_the_log_even_if_the_coordinator_ends_at_once(self, tmp_path, written):
        with running(begun(tmp_path / "run.db")) as found:
            found.call(found.coordinator.sync.change, "operator page", capacity=9.0, mode="paused")
        assert written("capacity changed") == [{"level": "info", "who": "operator page", "detail": "2 -> 9"}]
        assert len(written("mode changed")) == 1

    def test_what_was_changed_before_the_start_is_no_news(self, tmp_path, written):
        store = begun(tmp_path / "run.db")
        store.change("me", capacity=9.0)
        with running(store) as found:
            found.call(asyncio.sleep, 0.7)
        assert written("capacity changed") == []


class TestWhoTries:
    def test_wrong_tokens_codes_and_conflicts_are_there_with_how_many_they_were(self, tmp_path, written):
        store = begun(tmp_path / "run.db")
        (code,) = codes_for(store, 1)
        with running(store) as found:
            token = enrolled(found, code)
            report = {"run": "test", "round": 0, "participates": True}
            assert send(found.url, "POST", "/v1/report", report, token)[0] == 200
            for body in (report | {"participates": False}, report | {"round": 99}, report | {"run": "other"}):
                assert send(found.url, "POST", "/v1/report", body, token)[0] == 409
            for _ in range(12):
                send(found.url, "GET", "/v1/round", None, "wrong")
                send(found.url, "POST", "/v1/enrol", {"code": "abcd-efgh", "nonce": "n" * 20})
            eventually(lambda: sum(line["times"] for line in written("wrong token")) == 12)
            eventually(lambda: sum(line["times"] for line in written("wrong code")) == 12)
        for event in ("wrong token", "wrong code"):
            first = written(event)[0]
            assert first == {"level": "warning", "address": "127.0.0.1", "times": 1}
            assert len(written(event)) <= 4  # two seconds' worth, and a slow machine
        for kind in ("conflict", "ahead", "run"):
            assert written(f"conflict ({kind})") == [{"level": "warning", "device": 0, "times": 1}]

    def test_a_device_that_was_revoked_and_does_not_know_it_is_no_fault(self, tmp_path, written):
        store = begun(tmp_path / "run.db")
        (code,) = codes_for(store, 1)
        with running(store) as found:
            token = enrolled(found, code)
            found.call(found.coordinator.sync.withdraw, 0, "operator page", "revoked")
            assert send(found.url, "GET", "/v1/round", None, token)[0] == 401
        assert written("wrong token") == []
        assert "wrong tokens" not in found.coordinator.events.faults


class TestSparingLog:
    def test_the_first_comes_at_once_and_the_rest_once_a_second(self, written):
        now = [100.0]

        async def burst():
            log = SparingLog(Log("x"), seconds=0.05, clock=lambda: now[0])
            for number in range(1000):
                log.warning("odd", number=number)
            log.warning("other")
            assert written("odd") == [{"level": "warning", "number": 0, "times": 1}]
            now[0] += 0.06
            await asyncio.sleep(0.2)  # nobody comes any more: it is told all the same
            assert written("odd")[1:] == [{"level": "warning", "number": 999, "times": 999}]
            now[0] += 0.06
            log.warning("odd", number=5)
            assert written("odd")[2:] == [{"level": "warning", "number": 5, "times": 1}]

        asyncio.run(burst())
        assert written("other") == [{"level": "warning", "times": 1}]

    def test_a_flood_is_a_line_a_second_and_each_one_is_counted(self, written):
        now = [100.0]

        async def flood():
            log = SparingLog(Log("x"), clock=lambda: now[0])
            for _ in range(1000):
                log.warning("odd")
                now[0] += 0.01

        asyncio.run(flood())
        assert 10 <= len(written("odd")) <= 11
        assert sum(line["times"] for line in written("odd")) == 1000

    def test_what_is_left_at_the_end_of_the_process_is_told(self):
        code = (
            "import asyncio; from turnout.service.logs import Log, start_logging\n"
            "from turnout.service.logs import SparingLog; start_logging('json'); log = SparingLog(Log('x'))\n"
            "async def main(): [log.warning('odd', number=number) for number in range(5)]\n"
            "asyncio.run(main())"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
        assert [json.loads(line)["times"] for line in done.stderr.splitlines()] == [1, 4]
