"""Ten minutes as an operator: the steps of the README and of the tutorial, run one after the other."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

ROOT = Path(__file__).parents[2]


def blocks(text: str) -> list[str]:
    return re.findall(r"```bash\n(.*?)```", text, re.DOTALL)


def section(text: str, title: str) -> str:
    found = re.search(rf"^##+ {title}.*?(?=^##+ |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found.group(0)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Terminal:
    """Runs blocks of commands in one folder; what they leave in the background ends with it.

    Args:
        folder: where.
        commands: the folder in which `turnout` is found; of this environment, unless given.
    """

    def __init__(self, folder: Path, commands: Path | None = None) -> None:
        self.folder, self.commands, self._groups = folder, commands or Path(sys.executable).parent, []
        self._ports = {"8440": str(free_port()), "8441": str(free_port())}
        self.page = f"http://127.0.0.1:{self._ports['8441']}"
        self.printed = ""

    def run(self, block: str) -> str:
        for usual, ours in self._ports.items():
            block = block.replace(usual, ours)
        block = block.replace(
            "turnout serve", f"turnout serve --port {self._ports['8440']} --operator-port {self._ports['8441']}"
        )
        path = f"{self.commands}:{os.environ['PATH']}"
        with (self.folder / "printed.txt").open("w+") as out:
            shell = subprocess.Popen(
                ["bash", "-euc", block],
                cwd=self.folder,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | {"PATH": path, "COLUMNS": "200"},
            )
            self._groups.append(shell.pid)
            status = shell.wait(60)
            out.seek(0)
            printed = out.read()
        assert status == 0, f"{block}\n{printed}"
        self.printed += printed
        return printed

    def ask(self, path: str, password: str | None = None) -> dict:
        password = password or (self.folder / "turnout.db.password").read_text().strip()
        secret = b64encode(f"operator:{password}".encode()).decode()
        request = urllib.request.Request(self.page + path, headers={"Authorization": f"Basic {secret}"})
        with urllib.request.urlopen(request, timeout=10) as reply:
            content = reply.read()
        return json.loads(content) if path.startswith("/api") else {"page": content.decode()}

    def end(self) -> None:
        for group in self._groups:
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(group, number)
                except ProcessLookupError:
                    break
                time.sleep(0.5 if number == signal.SIGTERM else 0.0)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    found = Terminal(tmp_path)
    yield found
    found.end()


def wait_until(condition: Callable[[], bool], seconds: float = 40.0) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        assert time.monotonic() < end
        time.sleep(0.1)


def ten_devices_are_there(terminal: Terminal) -> None:
    wait_until(lambda: terminal.ask("/api/snapshot")["members"] == 10)
    wait_until(lambda: terminal.ask("/api/snapshot")["round"] >= 3)
    assert "<title>" in terminal.ask("/")["page"]
    with pytest.raises(HTTPError, match="401"):
        terminal.ask("/", password="wrong")


@pytest.mark.deployment
def test_the_readme_s_steps_for_operators_pasted_as_one_script(terminal: Terminal) -> None:
    """`codes` waits for the run that `serve` is about to begin, and agents for a coordinator that listens."""
    serve, agents = blocks(section((ROOT / "README.md").read_text(), "A fleet of devices"))
    printed = terminal.run(serve + agents)
    assert "note: no run in turnout.db yet: waiting for `turnout serve`, 10 s at most" in printed
    assert len((terminal.folder / "codes.txt").read_text().split()) == 10
    ten_devices_are_there(terminal)


@pytest.mark.deployment
def test_the_tutorial_s_steps(terminal: Terminal) -> None:
    serve, codes, agents, work, look, end = blocks((ROOT / "docs" / "tutorial-fleet.md").read_text())
    terminal.run(serve)
    wait_until(lambda: terminal.ask("/api/snapshot")["waiting_for"] == 10)
    terminal.run(codes)
    assert len((terminal.folder / "codes.txt").read_text().split()) == 10
    terminal.run(agents)
    ten_devices_are_there(terminal)
    terminal.run(work)
    worked = (terminal.folder / "work.txt").read_text().split("\n") if (terminal.folder / "work.txt").exists() else []
    assert all(re.fullmatch(r"on in round \d+|off|", line) for line in worked)
    assert sum(line.startswith("on") for line in worked) <= 3
    printed = terminal.run(look)
    assert "capacity 5" in printed
    assert "device 0: label 'pump 1', site 'cellar'" in printed
    assert re.search(r"^ +0 +\w{8} +pump 1 +cellar ", printed, re.MULTILINE), printed
    assert re.search(r"^ +10 +\w{8} +pump 11 +roof ", printed, re.MULTILINE), printed
    assert re.search(r"^cellar +1 +0 +0$", printed, re.MULTILINE), printed
    assert re.search(r"devices +1[01]", printed), printed
    said = " ".join(printed.split())
    assert re.search(r"epsilon 1\.000 per report; total epsilon .* against an observer of every report", said)
    printed = terminal.run(end)
    assert (terminal.folder / "fleet.npz").exists()
    assert "engine      a coordinator and real devices" in printed
    assert "capacity  4 -> 5" in printed
