import io
import json
import logging
import secrets

import pytest

from turnout.service.coordinator.enrolment import _new_codes
from turnout.service.logs import WITHHELD, Log, start_logging, without_secrets


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def logging_restored():
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def written(logging_restored):
    """What was logged, as JSON; and the stream."""
    stream = io.StringIO()
    start_logging("json", "debug", stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object(written):
    Log("coordinator").info("round closed", round=17, seconds=9.5, frozen=False, mode="running", nothing=None)
    (line,) = written()
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "event": "round closed",
        "part": "coordinator",
        "round": 17,
        "seconds": 9.5,
        "frozen": False,
        "mode": "running",
        "nothing": None,
    }


def test_whatever_is_in_it_a_line_stays_one(written):
    Log("coordinator").warning(
        "two\nlines", host='"\r\n{"level": "error"}', odd=object(), many={"a": [1, {2}]}, level=3
    )
    (line,) = written()
    assert line["event"] == "two\nlines"
    assert line["many"] == {"a": [1, [2]]}
    assert line["level"] == "warning"
    assert line["level_"] == 3


def test_libraries_log_there_too_and_a_traceback_is_in_the_line(written):
    logging.getLogger("uvicorn.error").error("worker %d is %s", 3, "odd")
    try:
        raise RuntimeError("broken")
    except RuntimeError as problem:
        Log("listeners").error("stopping failed", trace=problem)
    first, second = written()
    assert (first["event"], first["part"]) == ("worker 3 is odd", "uvicorn.error")
    assert second["trace"].endswith("RuntimeError: broken")


def test_levels_and_a_second_start(logging_restored):
    first, second = io.StringIO(), io.StringIO()
    start_logging("json", "warning", first)
    Log("x").info("unseen")
    Log("x").warning("seen")
    start_logging("json", "error", second)
    Log("x").warning("unseen")
    Log("x").error("seen")
    assert first.getvalue().count("\n") == second.getvalue().count("\n") == 1
    assert "unseen" not in first.getvalue() + second.getvalue()


TOKEN = "Zk3" + secrets.token_urlsafe(32) + "a9Q"
CODE = _new_codes(1)[0]


def test_no_secret_is_written_whatever_it_hides_in(written):
    log = Log("coordinator")
    log.info("enrolled", token=TOKEN, code=CODE, device_token=TOKEN, codes=[CODE], cost=0.123456, costs=[0.123456])
    log.info("enrolled", details={"token": TOKEN, "deep": [{"code": CODE, "cost": 0.123456}]})
    log.info("request", headers=f"Authorization: Bearer {CODE}", body=f'{{"code": "{CODE}", "nonce": "{CODE}"}}')
    log.info(f"GET /page?token={CODE}", url=f"postgresql://me:{CODE}@there/db", seen=TOKEN, pair=("a", TOKEN))
    logging.getLogger("some.library").warning("body was %r", {"code": CODE, "cost": 0.123456})
    logging.getLogger("some.library").warning("token %s", TOKEN)
    try:
        raise ValueError(f"cannot use {TOKEN}")
    except ValueError as problem:
        log.error("failed", trace=problem)
    lines = written()
    text = json.dumps(lines)
    assert len(lines) == 7
    assert text.count(WITHHELD) >= 16
    for secret in (TOKEN, CODE, "0.123456"):
        assert secret not in text


def test_random_tokens_are_withheld_and_names_are_not():
    assert all(WITHHELD in without_secrets(f"saw {code}.") for code in _new_codes(100))
    found = sum(secret in without_secrets(f"saw {secret} here") for secret in (_token() for _ in range(500)))
    assert found == 0
    for name in (
        "chargers-2026-northern-district-three",
        "RequestResponseCycle",
        "HttpParserInvalidURLError",
        "2026-11-15T14:00:00.000Z",
        "src/turnout/service/http/listeners.py",
        "http://127.0.0.1:8000/v1/report",
        "turnout.service.coordinator.coordinator",
    ):
        assert without_secrets(name) == name


def _token():
    """As `secrets.token_urlsafe` makes them, of 32 bytes; 1 in 1,500 has no digit, and is drawn again."""
    while True:
        token = secrets.token_urlsafe(32)
        if any(letter.isdigit() for letter in token):
            return token


def test_on_a_terminal_lines_are_for_people(logging_restored, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    start_logging("auto", "info", stream)
    Log("coordinator").info("round closed", round=17, token=TOKEN)
    Log("coordinator").warning("odd\x1b[2Jname", name="a\nb")
    first, second = stream.getvalue().splitlines()
    assert first.endswith(f"info     round closed  round=17  token={WITHHELD}")
    assert second.endswith(r"warning  odd\x1b[2Jname  name=a\x0ab")
    monkeypatch.delenv("NO_COLOR")
    start_logging("auto", "info", stream)
    Log("coordinator").warning("late")
    assert "\x1b[33mwarning \x1b[0m late" in stream.getvalue()
    try:
        raise RuntimeError("broken")
    except RuntimeError as problem:
        Log("x").error("failed", trace=problem)
    assert stream.getvalue().endswith("\n    RuntimeError: broken\n")


def test_not_on_a_terminal_auto_is_json(logging_restored):
    stream = io.StringIO()
    start_logging("auto", "info", stream)
    Log("x").info("here")
    assert json.loads(stream.getvalue())["event"] == "here"


@pytest.mark.parametrize("wrong", [{"format": "xml"}, {"level": "loud"}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        start_logging(**wrong)
