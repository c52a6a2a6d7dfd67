"""A budget of reports: how long it lasts, who is warned before it ends, and what is said of a device that has left."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from service.agents import make
from service.bare_device import Device
from service.fake_coordinator import FakeCoordinator
from service.running import Running, begun, codes_for, running, send, usual_rules
from turnout.client import Limit
from turnout.service import LEAVING, Report, Timing, Welcome, is_little, lasting
from turnout.service.agent import BUDGET, read_status
from turnout.service.coordinator.enrolment import why_left
from turnout.service.coordinator.overview import Overview
from turnout.service.operator import troubles
from turnout.service.store import Change

PAGE = Path(__file__).parents[2] / "docs" / "first-deployment.md"


def test_how_long_reports_last() -> None:
    assert lasting(10_000, 10.0) == "10,000 reports: 27.8 hours at 10-second rounds"
    assert lasting(10_000, 0.0) == lasting(10_000, None) == "10,000 reports", "nobody knows"
    assert [is_little(left, 1000) for left in (101, 100, 11, 10, 0)] == [None, 0.1, 0.1, 0.01, 0.01]


def test_the_page_s_table_is_true() -> None:
    head, *rows = re.findall(r"^\| (?:reports that an owner allows|[\d,]+.*?) \|.*$", PAGE.read_text(), re.MULTILINE)
    seconds = [float(found) for found in re.findall(r"(\d+)-second rounds", head)]
    assert len(rows) == 2
    for row in rows:
        number, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        reports = int(number.split()[0].replace(",", ""))
        assert [f"{lasting(reports, one)}" for one in seconds] == [
            f"{reports:,} reports: {cell} at {one:g}-second rounds" for cell, one in zip(cells, seconds, strict=True)
        ]


# The owner.


@pytest.fixture
def ended(tmp_path: Path) -> tuple[FakeCoordinator, list[str]]:
    """A device that has spent 200 reports, and what it said."""
    coordinator, said = FakeCoordinator(round_seconds=60.0), []
    with make(tmp_path / "device", coordinator, limit=Limit(200, 1.0), on_problem=said.append) as agent:
        assert agent.run() == BUDGET
        assert agent.status()["ended"] == BUDGET
    return coordinator, said


def test_the_owner_is_warned_twice_and_told_the_reason(ended: tuple[FakeCoordinator, list[str]]) -> None:
    _, said = ended
    first, second, last = said
    assert "few of the 200 reports that this device allows are left" in first
    assert "(20 reports: 20 minutes at 60-second rounds)" in first
    assert "(2 reports: 2 minutes at 60-second rounds); then it leaves the run" in second
    assert "--reports NUMBER --raise-limit" in second
    assert last.startswith("the budget is spent: ")


def test_the_coordinator_is_told_how_many_are_left_and_why_it_leaves(
    ended: tuple[FakeCoordinator, list[str]],
) -> None:
    coordinator, _ = ended
    left = [report.get("reports_left") for report in coordinator.reports()]
    assert left == [None] * 179 + list(range(20, -1, -1))
    assert json.loads(coordinator.received[-1][2]) == {"reason": "budget"}


def test_status_says_how_long_the_rest_lasts(tmp_path: Path) -> None:
    coordinator = FakeCoordinator(round_seconds=60.0)
    with make(tmp_path, coordinator, limit=Limit(200, 1.0)) as agent:
        agent.run(rounds=1)
        assert agent.reports_left() == (199, 200)
    found = read_status(tmp_path)
    assert found["round_seconds"] == 60.0
    assert found["uses_reports"]


@pytest.mark.parametrize("odd", [None, "60", -1.0, True, 1e300, [1]])
def test_an_older_or_odd_coordinator_says_nothing_of_the_length(tmp_path: Path, odd: Any) -> None:
    coordinator = FakeCoordinator() if odd is None else FakeCoordinator(round_seconds=odd)
    with make(tmp_path, coordinator, limit=Limit(20, 1.0)) as agent:
        welcome, _ = agent.join()
        assert welcome.round_seconds is None
    assert "round_seconds" not in Welcome.read(json.loads((tmp_path / "agent.json").read_text())).body()


def test_a_release_for_a_lifetime_uses_up_no_reports(tmp_path: Path) -> None:
    memoized = {"kind": "memoized", "epsilon": 1.0, "price": 3.0}
    coordinator = FakeCoordinator(mechanism=memoized)
    with make(tmp_path, coordinator, limit=Limit(5, 1.0)) as agent:
        agent.run(rounds=20)
        assert agent.reports_left() is None
    assert all("reports_left" not in report for report in coordinator.reports())
    assert not read_status(tmp_path)["uses_reports"]


# The operator.


@pytest.fixture
def served(tmp_path: Path):
    store = begun(tmp_path / "run.db", usual_rules(Timing(0.1, deadline=5.0, hold=5.0)), capacity=0.5)
    with running(store) as found:
        found.devices = [Device(found.url, code) for code in codes_for(store, 3)[:1]]  # type: ignore[attr-defined]
        yield found


def looked(found: Running, work: str = "snapshot", **options: Any) -> Any:
    async def look() -> Any:
        overview = Overview(found.coordinator)
        await overview.load()
        overview._log_troubles()
        said = getattr(overview, work)(**options)
        return await said if asyncio.iscoroutine(said) else said

    return found.call(look)


def report(found: Running, round: int, **more: Any) -> tuple[int, Any]:
    (device,) = found.devices  # type: ignore[attr-defined]
    body = {"run": "test", "round": round, "participates": True} | more
    return send(found.url, "POST", "/v1/report", body, device.token)


def test_the_operator_is_warned_until_more_are_allowed(served: Running, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert report(served, 0, reports_left=900)[0] == 200
        now = looked(served)
        assert (now["running_out"], now["least_reports_left"]) == (1, 900)
        (said,) = troubles(now)
        assert said.startswith(
            "few reports are left to 1 of 1 devices: the first of them has 900 reports: 90 seconds at 0.1"
        )
        assert report(served, 1, reports_left=899)[0] == 200
        assert report(served, 2)[0] == 200
        now = looked(served)
        assert (now["running_out"], now["least_reports_left"]) == (0, None)
        assert troubles(now) == []
    logged = [record.getMessage() for record in caplog.records]
    assert logged.count("a device has few reports left") == 1
    assert logged.count("trouble") == 1


@pytest.mark.parametrize("odd", [-1, 1.5, "many", True, None, 2**53])
def test_what_is_no_number_of_reports_is_refused(served: Running, odd: Any) -> None:
    assert report(served, 0, reports_left=odd)[0] == 400
    assert looked(served)["running_out"] == 0


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"reason": "budget"}, LEAVING["budget"]),
        ({"reason": "declined"}, LEAVING["declined"]),
        ({"reason": "<b>anything else</b>"}, "it gave no reason"),
        ([], "it gave no reason"),
        (b"{", "it gave no reason"),
        ({}, "it gave no reason"),  # an older agent
    ],
)
def test_why_a_device_left_is_on_the_page_and_in_the_log(served: Running, body: Any, why: str) -> None:
    assert report(served, 0, reports_left=0)[0] == 200
    (device,) = served.devices  # type: ignore[attr-defined]
    assert send(served.url, "POST", "/v1/leave", body, device.token)[0] == 200
    (line,) = looked(served, "devices")["devices"]
    assert (line["state"], line["why"]) == ("left", why)
    detail = "device 0" if why == "it gave no reason" else f"device 0: {why}"
    assert [(change.who, change.what, change.detail) for change in looked(served, "log") if change.what == "left"] == [
        ("device", "left", detail)
    ]
    now = looked(served)
    assert now["left_because"] == {why: 1}
    assert now["running_out"] == 0, "it is no member any more"
    assert now["spent_lately"] == (why == LEAVING["budget"])
    assert f"no device is a member any more; left have: 1 ({why})" in troubles(now)


def test_reasons_are_read_from_the_audit_log() -> None:
    lines = [("revoked", "device 3"), ("left", "device 4: its budget of reports is spent"), ("codes", "2 of weight 1")]
    found = why_left([Change(0.0, "me", what, detail) for what, detail in lines])
    assert found == {3: "revoked", 4: LEAVING["budget"]}


def test_a_report_has_the_field_only_where_it_is_needed() -> None:
    assert json.loads(Report("r", 1, True).body()) == {"run": "r", "round": 1, "participates": True}
    assert json.loads(Report("r", 1, True, 0).body())["reports_left"] == 0
