"""From a plan to a rehearsed coordinator: the last steps of the tutorial on planning, run one after the other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from page_blocks import COMMAND, FENCE
from service.test_tutorial_fleet import Terminal, wait_until
from turnout.privacy import RELEASED_ONCE

PAGE = Path(__file__).parents[2] / "docs" / "tutorial-plan.md"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    found = Terminal(tmp_path)
    yield found
    found.end()


@pytest.mark.deployment
def test_the_plan_is_served_and_rehearsed(terminal: Terminal) -> None:
    blocks = FENCE.findall(PAGE.read_text())
    (devices,) = (text for kind, text in blocks if kind == "toml")
    (terminal.folder / "devices.toml").write_text(devices)
    commands = [command for kind, text in blocks if kind == "console" for command, _ in COMMAND.findall(text)]
    for command in commands:
        terminal.run(command.replace("\\\n", " "))
    serve, rehearse = (text for kind, text in blocks if kind == "bash")
    terminal.run(serve)
    wait_until(lambda: terminal.ask("/api/snapshot")["waiting_for"] == 200)
    printed = terminal.run(rehearse)
    assert "30 rounds of 200 devices" in printed
    assert re.search(r"devices  200", printed)
    said = " ".join(printed.split())
    assert f"pure epsilon 6 per lifetime, against an observer of every report, if {RELEASED_ONCE}" in said
    assert "engine      a coordinator and real devices" in printed
