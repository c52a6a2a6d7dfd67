"""From a fresh clone, the README followed line by line: `make paper`, every command, every block of code.

The clone has an environment of its own, made by its own `make setup`. Two things differ from the letter: `make test`,
which would come back here, is left to CI, where it is run as written; and the coordinator listens on free ports.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from page_blocks import COMMAND, FENCE, lines_of
from service.test_tutorial_fleet import Terminal, ten_devices_are_there, wait_until

ROOT = Path(__file__).parents[1]
LEFT_TO_CI = "make test"
NOT_IN_A_CLONE = (".git", ".venv", "results", "_build", "__pycache__", ".*_cache", ".hypothesis")
LONGEST = 1_800
"""Seconds for one command: a slow machine makes its environment first."""


class Reader:
    """Somebody who has cloned the repository and types what the README says, in the clone's folder."""

    def __init__(self, folder: Path) -> None:
        clone = subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], capture_output=True, check=False)
        if clone.returncode:  # this is an unpacked archive: there is nothing to clone
            shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*NOT_IN_A_CLONE), dirs_exist_ok=True)
        self.folder, self.commands = folder, folder / ".venv" / "bin"
        self.terminal = Terminal(folder, self.commands)
        self.ran: list[str] = []

    def types(self, command: str) -> str:
        """What a command prints; as in a new shell, with the clone's environment on the path and no other."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "MAKE"))
        }
        path = ":".join([str(self.commands), *without(os.environ["PATH"], Path(sys.executable).parent)])
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=kept | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}\n{done.stderr}"
        self.ran.append(command)
        return done.stdout

    def follows(self, kind: str, text: str, following: str) -> None:
        """One block of the README; `following` is what it is said to print, if that is a block of its own."""
        if kind == "console":
            for command, expected in COMMAND.findall(text):
                bare = re.sub(r"\s+# .*$", "", command)
                if bare == LEFT_TO_CI:
                    continue
                printed = self.types(bare)
                assert not expected or lines_of(printed) == lines_of(expected), f"$ {bare}\n{printed}"
        elif kind == "python":
            (self.folder / "block.py").write_text(text)
            printed = self.types("python block.py")
            assert not following or lines_of(printed) == lines_of(following), printed
        elif kind == "bash":
            self.operates(text)

    def operates(self, block: str) -> None:
        """A block for operators; people wait until what they started is there."""
        self.terminal.run(block)
        self.ran.append(block)
        if "turnout serve" in block:
            wait_until(lambda: self.terminal.ask("/api/snapshot")["waiting_for"] == 10, LONGEST)
        if "turnout join" in block:
            ten_devices_are_there(self.terminal)


def without(path: str, folder: Path) -> list[str]:
    return [part for part in path.split(":") if Path(part) != folder]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    found = Reader(tmp_path / "turnout")
    yield found
    found.terminal.end()
    subprocess.run(["rm", "-rf", str(found.folder)], check=True)  # pytest would keep a gigabyte for each run


@pytest.mark.deployment
@pytest.mark.timeout(2 * LONGEST)
def test_the_readme_line_by_line(reader: Reader, capsys: pytest.CaptureFixture[str]) -> None:
    begun = time.monotonic()
    reader.types("make setup")
    ready = time.monotonic()
    assert (reader.commands / "turnout").is_file()
    text = (reader.folder / "README.md").read_text()
    found = FENCE.findall(text)
    for number, (kind, block) in enumerate(found):
        after = found[number + 1] if number + 1 < len(found) else ("", "")
        reader.follows(kind, block, after[1] if after[0] == "output" else "")
    assert (reader.folder / "results" / "paper" / "report.html").is_file()
    assert "make paper" in reader.ran
    assert any("turnout join" in command for command in reader.ran)
    with capsys.disabled():
        took = f"environment {ready - begun:.0f} s, {len(reader.ran) - 1} steps {time.monotonic() - ready:.0f} s"
        print(f"\nthe README in a fresh clone: {took}")


@pytest.mark.deployment
def test_a_readme_that_is_wrong_is_noticed(tmp_path: Path) -> None:
    """The sabotaged twin: a number that is not printed, and a command that fails."""
    reader = Reader(tmp_path / "turnout")
    reader.commands = Path(sys.executable).parent  # any environment will do
    reader.follows("console", "$ turnout --version\n", "")
    with pytest.raises(AssertionError, match="turnout --version"):
        reader.follows("console", "$ turnout --version\nturnout 99.0\n", "")
    with pytest.raises(AssertionError, match="no-such-command"):
        reader.follows("console", "$ turnout no-such-command\n", "")
    with pytest.raises(AssertionError, match="41"):
        reader.follows("python", "print(41)\n", "42\n")
