"""What an operator is told of devices that are silent: in the log when it begins and ends, and as a trouble."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from service.running import begun
from turnout.service.coordinator.coordinator import Coordinator
from turnout.service.coordinator.enrolment import GONE_AFTER, hashed
from turnout.service.coordinator.overview import Overview
from turnout.service.operator import troubles
from turnout.service.store import Enrolment, Names

SITES = ("hall 2", "hall 2", "depot", "")


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """A run with four devices."""
    made = begun(tmp_path / "run.db", capacity=2.0)
    for number, site in enumerate(SITES):
        made.add_codes([hashed(f"code {number}")], 1, None, "test", [Names("", site)])
        made.enrol([Enrolment(hashed(f"code {number}"), hashed(f"n{number}"), hashed(f"t{number}"))], 0.0)
    return made


def test_who_becomes_silent_and_reports_again_is_logged_by_site(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> list[str]:
        coordinator = Coordinator(store)
        try:
            overview, roll = Overview(coordinator), coordinator.sync.roll
            overview._log_troubles()
            roll.missed = [GONE_AFTER, GONE_AFTER, GONE_AFTER, 0]
            found = troubles(overview.snapshot())
            for _ in range(2):  # the second time nothing is new
                overview._log_troubles()
            roll.missed = [0, 0, GONE_AFTER, 0]
            overview._log_troubles()
            return found
        finally:
            await coordinator.stop()

    with caplog.at_level(logging.INFO):
        found = asyncio.run(play())
    assert "devices are gone: 3 of 4 have not reported lately (hall 2: 2, depot: 1)" in found
    told = [
        (record.getMessage(), *(vars(record)["turnout_fields"][name] for name in ("devices", "sites")))
        for record in caplog.records
        if record.getMessage().startswith("devices are")
    ]
    assert told == [("devices are gone", 3, "hall 2: 2, depot: 1"), ("devices are back", 2, "hall 2: 2")]
