"""A new run's defaults: the hard limit is asked for, and the box brings the capacity, or the run is refused."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from service.running import begun, usual_rules
from turnout.algorithm import Clamp, Memoized, RandomizedResponse, widest
from turnout.privacy import certificate
from turnout.service.coordinator import begin_or_continue, fitting_fleet, overview
from turnout.service.coordinator.coordinator import Coordinator
from turnout.service.coordinator.enrolment import hashed
from turnout.service.coordinator.overview import Overview
from turnout.service.coordinator.sizing import for_a_new_run
from turnout.service.operator import troubles
from turnout.service.rules import Safety, rules_from_settings
from turnout.service.store import Enrolment, open_store
from turnout.settings import Table

SAFE = {"missing": "absent", "hard_limit": "none"}


def settled(capacity: float, **given: Any) -> Any:
    """The mechanism of a new run."""
    return rules_from_settings(Table(for_a_new_run({"safety": SAFE} | given, capacity))).mechanism


def test_a_hard_limit_is_asked_for_or_declined_on_purpose(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--hard-limit .* a number, or none, got nothing: give the largest turnout"):
        for_a_new_run({"safety": {"missing": "absent"}}, 4.0)
    for given, limit in (("none", None), (700, 700.0)):
        store = open_store(str(tmp_path / f"{given}.db"), create=True)
        run = begin_or_continue(store, "test", {"capacity": 4.0, "safety": {"missing": "absent", "hard_limit": given}})
        assert run.settings["safety"].get("hard_limit") == limit
        again = begin_or_continue(store, None, {"safety": {"hard_limit": given}})
        assert again.settings == run.settings
    with pytest.raises(ValueError, match=r"safety.hard_limit must be a number"):
        for_a_new_run({"safety": {"missing": "absent", "hard_limit": "some"}}, 4.0)
    assert Safety("absent").hard_limit is None, "the Python interface stays as it is"


@pytest.mark.parametrize("share", [0.013, 0.05, 0.1, 0.26, 0.29, 0.68, 0.74, 0.9, 0.98])
def test_the_default_box_is_centred_where_it_cannot_bring_the_capacity(share: float) -> None:
    made = settled(1000.0 * share, devices=1000)
    low, high = widest(made)
    assert isinstance(made, Clamp)
    assert made.center == pytest.approx(share, rel=0.05)
    assert low < share < high
    assert certificate(made).epsilon <= certificate(Clamp(1.0)).epsilon, "the promise is the same"


@pytest.mark.parametrize("share", [0.31, 0.4, 0.5, 0.65])
def test_a_box_that_does_is_left_alone(share: float) -> None:
    assert settled(1000.0 * share, devices=1000) == Clamp(1.0)
    assert settled(1000.0 * share) == Clamp(1.0)


def test_a_centre_of_ones_own_is_kept_or_refused() -> None:
    own = {"kind": "clamp", "epsilon": 1.0, "center": 0.3}
    assert settled(300.0, devices=1000, mechanism=own) == Clamp(1.0, 0.3)
    with pytest.raises(ValueError, match="got 100 \\(10 %\\)"):
        settled(100.0, devices=1000, mechanism=own)


def test_a_capacity_out_of_reach_is_refused_with_the_numbers() -> None:
    fixed = {"kind": "randomized-response", "epsilon": 1.0}
    told = (
        r"--capacity must be from 80\.68 to 219\.3 \(26\.9 to 73\.1 % of 300 devices\), which is what "
        r"randomized-response, epsilon 1 per report can bring, got 30 \(10 %\): "
        r".*`turnout plan --devices 300 --capacity 30`"
    )
    with pytest.raises(ValueError, match=told):
        settled(30.0, devices=300, mechanism=fixed)
    assert settled(82.0, devices=300, mechanism=fixed) == RandomizedResponse(1.0), "without room to spare, but it can"
    with pytest.raises(ValueError, match="at most 300, all 300 devices together"):
        settled(301.0, devices=300)
    with pytest.raises(ValueError, match=r"100 %"):
        settled(300.0, devices=300)
    whole = {"kind": "memoized", "epsilon": 6.0, "price": 3.0}
    for capacity in (1.0, 300.0):
        assert settled(capacity, devices=300, mechanism=whole) == Memoized(6.0, price=3.0)
    with pytest.raises(ValueError, match="--devices must be 1 or more"):
        settled(1.0, devices=0)


def test_weights_count() -> None:
    assert settled(350_000.0, devices=200, weight=3500.0) == Clamp(1.0)
    assert settled(70_000.0, devices=200, weight=3500.0) == Clamp(1.0, 0.1)


def test_a_centred_run_is_continued_with_the_same_options(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "run.db"), create=True)
    given = {"capacity": 30.0, "devices": 300, "safety": SAFE, "mechanism": {"kind": "clamp", "epsilon": 1.0}}
    run = begin_or_continue(store, "test", given)
    assert run.settings["mechanism"]["center"] == 0.1
    assert begin_or_continue(store, None, given).settings == run.settings


def test_which_fleets_bring_the_capacity() -> None:
    said = fitting_fleet(Clamp(1.0), 120.0)
    assert "fleets of 165 to 446" in said
    for size, fits in ((164, False), (165, True), (446, True), (447, False)):
        low, high = (float(chance) * size for chance in widest(Clamp(1.0)))
        assert (low <= 120.0 <= high) == fits


def snapshot_of(path: Path, members: int, capacity: float, hard_limit: float | None) -> dict[str, Any]:
    store = begun(path, usual_rules(safety=Safety("absent", hard_limit)), capacity)
    codes = [f"code {number}" for number in range(members)]
    store.add_codes([hashed(code) for code in codes], 1, None, "test")
    store.enrol([Enrolment(hashed(code), hashed(f"n{code}"), hashed(f"t{code}")) for code in codes], 0.0)

    async def look() -> dict[str, Any]:
        coordinator = Coordinator(store)
        try:
            return Overview(coordinator).snapshot()
        finally:
            await coordinator.stop()

    return asyncio.run(look())


def test_the_range_is_never_inverted_and_the_remedy_is_named(tmp_path: Path) -> None:
    for members, capacity, hard_limit, remedy in (
        (100, 10.0, 20.0, "It takes 37 such devices or fewer"),  # 27 at least, though no more than 20 are acknowledged
        (4, 10.0, None, "It takes 14 such devices"),
    ):
        now = snapshot_of(tmp_path / f"{members}.db", members, capacity, hard_limit)
        least, most = now["reachable"]
        assert least < most
        (said,) = troubles(now)
        assert f"the capacity of 10 cannot be met: {members} devices have a turnout of" in said
        assert remedy in said
    assert troubles(snapshot_of(tmp_path / "good.db", 20, 10.0, None)) == []


def test_the_log_says_it_while_the_members_cannot_bring_the_capacity(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "LOG_EVERY", 1e-9)
    store = begun(tmp_path / "run.db", capacity=10.0)

    async def follow() -> None:
        coordinator = Coordinator(store)
        following = asyncio.create_task(Overview(coordinator).follow())
        for capacity in (0.9, 0.6, 0.5):  # of one device, which brings 0.27 to 0.73
            await coordinator.sync.change("test", capacity=capacity)
            if capacity == 0.9:
                store.add_codes([hashed("code")], 1, None, "test")
                await coordinator.sync.enrol([Enrolment(hashed("code"), hashed("nonce"), hashed("token"))])
            await asyncio.sleep(0.05)
        following.cancel()
        await coordinator.stop()

    with caplog.at_level(logging.INFO):
        asyncio.run(follow())
    said = [record.getMessage() for record in caplog.records]
    assert [word for word in said if word.startswith("trouble")] == ["trouble", "trouble is over"]


def test_the_log_says_it_though_nothing_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds that stand still are the worst trouble, and tell nobody that anything has changed."""
    wrong: list[str] = []
    monkeypatch.setattr(overview, "LOG_EVERY", 0.01)
    monkeypatch.setattr(overview, "troubles", lambda now: wrong)
    store = begun(tmp_path / "run.db")

    async def follow() -> None:
        coordinator = Coordinator(store)  # its rounds are not started
        following = asyncio.create_task(Overview(coordinator).follow())
        await asyncio.sleep(0.05)
        wrong.append("no round closes")
        for _ in range(100):
            if "trouble" in [record.getMessage() for record in caplog.records]:
                break
            await asyncio.sleep(0.02)
        following.cancel()
        await coordinator.stop()

    with caplog.at_level(logging.INFO):
        asyncio.run(follow())
    assert "trouble" in [record.getMessage() for record in caplog.records]
