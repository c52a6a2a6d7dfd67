"""A first deployment: the plan of the page is served and rehearsed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from page_blocks import COMMAND, FENCE
from service.test_tutorial_fleet import Terminal, wait_until

PAGE = Path(__file__).parents[2] / "docs" / "first-deployment.md"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    found = Terminal(tmp_path)
    yield found
    found.end()


@pytest.mark.deployment
def test_the_plan_of_the_page_is_served_and_rehearsed(terminal: Terminal) -> None:
    blocks = FENCE.findall(PAGE.read_text())
    ((command, _),) = (one for kind, text in blocks if kind == "console" for one in COMMAND.findall(text))
    terminal.run(command)
    serve, rehearse = (text for kind, text in blocks if kind == "bash")
    terminal.run(serve)

    def password() -> str:
        return (terminal.folder / "rehearsal.db.password").read_text().strip()

    wait_until(lambda: terminal.ask("/api/snapshot", password())["waiting_for"] == 300)
    printed = terminal.run(rehearse)
    assert "20 rounds of 300 devices" in printed
    assert "no limit of reports is used up" in " ".join(printed.split())
    turnout = int(re.search(r"turnout +(\d+), capacity 120, hard limit 151", printed)[1])  # type: ignore[index]
    assert 80 <= turnout <= 151  # five standard deviations below, and never above
