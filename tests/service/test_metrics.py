"""Prometheus's text, read back by the rules of its format; and what counts as trouble."""

import asyncio
import math
import re
import subprocess
import sys

import pytest

from service.fake_operated import FakeOperated
from service.running import begun, usual_rules
from turnout import PaperCoin
from turnout.algorithm import Clamp, Memoized
from turnout.privacy import FIXED_NUMBER, certificate, provided
from turnout.service.coordinator.coordinator import Coordinator
from turnout.service.coordinator.overview import Overview
from turnout.service.operator.metrics import exposition, troubles

SAMPLE = re.compile(r'([a-z_][a-z0-9_]*)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)+)\})? (NaN|[+-]Inf|-?[0-9.e+-]+)')


def parsed(text):
    """{name: {labels: value}}; fails on anything that is not of the format."""
    assert text.endswith("\n")
    found, kinds = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds, "each metric once"
            assert kind in ("gauge", "counter")
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            name, labels, value = SAMPLE.fullmatch(line).groups()
            assert name in kinds
            assert (kinds[name] == "counter") == name.endswith("_total")
            assert (labels or "") not in found.setdefault(name, {})
            found[name][labels or ""] = float(value.replace("Inf", "inf"))
    return found


def test_a_snapshot_as_metrics():
    operated = FakeOperated(rounds=20, faults={"late reports": 3})
    found = parsed(exposition(operated.snapshot(), operated.recent(1)[-1]))
    assert found["turnout_up"] == {"": 1}
    assert found["turnout_round"] == {"": 20}
    assert found["turnout_capacity"] == {"": 600}
    assert found["turnout_hard_limit"] == {"": 700}
    assert found["turnout_last_participants"] == {"": operated.books[-1]["participants"]}
    assert found["turnout_last_seconds"] == {"": operated.books[-1]["seconds"]}
    assert found["turnout_mode"] == {'mode="running"': 1}
    assert found["turnout_info"] == {'run="night-shift",version="0.9"': 1}
    assert found["turnout_faults_total"] == {'fault="late reports"': 3}
    assert found["turnout_reports_total"] == {"": 1184 * 20}
    assert found["turnout_most_signal"] == {"": math.inf}
    assert found["turnout_account_total_epsilon"] == {"": 1.366}


@pytest.mark.parametrize(
    ("mechanism", "shown", "hidden"),
    [
        (Clamp(0.5), {"epsilon_per_report": 0.5}, "epsilon_lifetime"),
        (Memoized(6.0, price=9.97), {"epsilon_lifetime": 6.0}, "epsilon_per_report"),
        (PaperCoin(3.5), {}, "epsilon_per_report"),
    ],
    ids=["per report", "for a lifetime", "without a certificate"],
)
def test_a_certificate_stands_under_what_it_covers(tmp_path, mechanism, shown, hidden):
    async def snapshot():
        coordinator = Coordinator(begun(tmp_path / "run.db", usual_rules(mechanism=mechanism)))
        try:
            return Overview(coordinator).snapshot()
        finally:
            await coordinator.stop()

    now = asyncio.run(snapshot())
    found = parsed(exposition(now))
    assert f"turnout_account_{hidden}" not in found
    promise = certificate(mechanism)
    assert now["account"]["against"] == promise.against == "an observer of every report"
    on_the_way = [FIXED_NUMBER] if promise.per == "report" and promise.is_bounded else []
    assumed = [*promise.assumptions, *on_the_way]
    assert now["account"]["assumptions"] == assumed
    for one in ("total_epsilon", *shown):
        told = [line for line in exposition(now).splitlines() if line.startswith(f"# HELP turnout_account_{one} ")]
        assert all(line.endswith(f", against {promise.against}{provided(assumed)}.") for line in told)
        assert told or one == "total_epsilon"
    assert provided(assumed) in now["account"]["text"]
    for name, value in shown.items():
        assert found[f"turnout_account_{name}"] == {"": value}


def test_why_devices_have_left_is_counted():
    found = parsed(exposition(usual(left_because={"revoked": 3, "it gave no reason": 1})))
    assert found["turnout_left"] == {'why="revoked"': 3, 'why="it gave no reason"': 1}


def test_what_is_not_there_is_left_out():
    operated = FakeOperated(hard_limit=None)
    found = parsed(exposition(operated.snapshot()))
    assert "turnout_hard_limit" not in found
    assert "turnout_last_participants" not in found


def test_names_cannot_break_the_format():
    nasty = 'a"b\\c\nd} 1\nturnout_up 0'
    found = parsed(exposition({"run": nasty, "mode": nasty, "faults": {nasty: 1}, "counters": {nasty: 2}}))
    assert found["turnout_up"] == {"": 1}
    assert len(found["turnout_faults_total"]) == 1


def test_numbers_keep_all_their_digits():
    signal = 0.1 + 0.2
    assert parsed(exposition({"signal": signal}))["turnout_signal"] == {"": signal}


def usual(**changes):
    return FakeOperated(rounds=20).snapshot() | changes


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"frozen": True}, "frozen"),
        ({"gone": 1200}, "devices are gone: all are gone"),
        ({"gone": 120}, "devices are gone: 120 of 1,200 have not reported lately"),
        ({"gone": 2, "members": 9, "gone_at": {"hall 2": 1, "no site": 1}}, "lately (hall 2: 1, no site: 1)"),
        ({"spent_lately": 1}, "reports are spent: 1 device has left for good in the last 3 days"),
        ({"open_seconds": 100.0}, "does not close"),
        ({"open_seconds": 100.0, "mode": "draining"}, "does not close"),
        (
            {"capacity": 100.0, "members": 9, "gone": 3, "returning": 1, "reachable": [2.4, 6.6]},
            "capacity of 100 cannot be met: the 5 devices that can be counted on have a turnout of",
        ),
        (
            {"capacity": 1.0, "members": 9, "reachable": [2.4, 6.6]},
            "of 2.4 to 6.6 on average, and no setting of the signal brings 1 from",
        ),
        ({"gone": 600, "mode": "paused"}, "devices are gone: 600"),
        ({"spent_lately": 2, "mode": "stopped"}, "reports are spent: 2 devices have"),
        ({"capacity": 1.0, "members": 9, "reachable": [2.4, 6.6], "mode": "paused"}, "cannot be met"),
        ({"signal": 1e6, "most_signal": 1e6}, "at its bound"),
    ],
)
def test_trouble(changes, said):
    assert any(said in trouble for trouble in troubles(usual(**changes)))
    assert parsed(exposition(usual(**changes)))["turnout_up"] == {"": 0}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mode": "paused", "frozen": True, "open_seconds": 1e6},
        {"waiting_for": 3, "open_seconds": 1e6},
        {"members": 0, "heard": 0, "gone": 0, "open_seconds": 1e6},
        {"faults": {"full disk": 3}},
        {"late": 600},
        {"gone": 119},
        {"gone": 1, "members": 9},
        {"capacity": 100.0, "members": 9, "gone": 0, "reachable": [2.4, 6.6], "waiting_for": 50},
        {"capacity": 6.6, "members": 9, "gone": 0, "reachable": [2.4, 6.6]},
    ],
)
def test_no_trouble(changes):
    assert troubles(usual(**changes)) == []


def test_metrics_and_status_need_no_server_libraries():
    code = (
        "import sys, turnout.service.operator.metrics, turnout.service.operator.guard, turnout.cli.status; "
        "sys.exit(any(name in sys.modules for name in ('starlette', 'uvicorn', 'plotly', 'scipy', 'numba')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
