"""The code blocks of a page, run one after the other, as a reader would: in one folder, with one Python session.

    ```python      is executed;
    ```output      after it is what it printed;
    ```toml        whose first line is `# name.toml` is that file;
    ```console     holds `$ commands` and what each of them prints; `…` alone stands for any lines.

`turnout` itself runs in this process, which saves the second or two that it takes to start.
"""

import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

from turnout.cli import main

FENCE = re.compile(r"^```([\w-]+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
CUT = re.compile(r" \| (head|tail) -(\d+)$")
WIDTH = "100"


def lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def same_lines(printed: list[str], shown: list[str]) -> bool:
    """Whether a page shows what was printed."""
    gaps = [number for number, line in enumerate(shown) if line.strip() == "…"]
    if not gaps:
        return printed == shown
    [gap] = gaps
    after = shown[gap + 1 :]
    return printed[:gap] == shown[:gap] and len(printed) >= len(shown) and printed[len(printed) - len(after) :] == after


def run_turnout(command: str) -> tuple[int, str]:
    """The exit status, and what was printed: with an error, where errors go too."""
    cut = CUT.search(command)
    words = shlex.split(command[: cut.start()] if cut else command)
    out, err, status = io.StringIO(), io.StringIO(), 0
    with patch.object(sys, "argv", words), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
    printed = out.getvalue() + (err.getvalue() if status else "")
    if cut:
        kept = printed.splitlines()
        number = int(cut.group(2))
        printed = "\n".join(kept[:number] if cut.group(1) == "head" else kept[-number:])
    return status, printed


def run_other(command: str) -> tuple[int, str]:
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + (done.stderr if done.returncode else "")


class Page:
    """A page that is being followed; the current folder is the reader's."""

    def __init__(self, path: Path, consoles: bool = True) -> None:
        self.path, self.consoles = path, consoles
        self.space = {"__name__": "page"}
        self.printed = ""
        self.ran = 0

    def follow(self) -> None:
        for kind, text in FENCE.findall(self.path.read_text()):
            self.block(kind, text)

    def block(self, kind: str, text: str) -> None:
        if kind == "python":
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(text, self.space)
            self.printed = said.getvalue()
        elif kind == "output":
            assert lines_of(self.printed) == lines_of(text)
        elif kind == "toml" and (named := re.match(r"# ([\w-]+\.toml)\b", text)):
            Path(named.group(1)).write_text(text)
        elif kind == "console" and self.consoles:
            for command, expected in COMMAND.findall(text):
                self.command(command.replace("\\\n", " "), expected)
        else:
            return
        self.ran += 1

    def command(self, command: str, expected: str) -> None:
        command = re.sub(r"\s+# .*$", "", command)
        run = run_turnout if command.startswith("turnout ") else run_other
        status, printed = run(command)
        refused = expected.startswith("error: ")
        assert (status != 0) == refused, f"$ {command}\n{printed}"
        assert same_lines(lines_of(printed), lines_of(expected)), f"$ {command}\n{printed}"
