"""Every command and every number in the README is true: each block is run, and its output compared."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
CONSOLE = [text for kind, text in BLOCKS if kind == "console"]
PYTHON = [text for kind, text in BLOCKS if kind == "python"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("readme")


def test_console_blocks(folder):
    """`$ command` lines are run in order, in one folder; what follows must be what is printed."""
    ran = 0
    for text in CONSOLE:
        for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
            if command.startswith(("make", "git", "cd", "pip", "python")):
                continue  # the commands that make and test this very environment
            words = command.replace("turnout", f"{sys.executable} -m turnout", 1)
            done = subprocess.run(words, shell=True, cwd=folder, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            assert [line.rstrip() for line in done.stdout.splitlines()] == [
                line.rstrip() for line in expected.splitlines()
            ]
            ran += 1
    assert ran


def test_python_blocks(capsys):
    """They run, one after the other; where an output block follows, that is what is printed."""
    space = {"__name__": "readme"}
    for (kind, text), (after, expected) in itertools.zip_longest(BLOCKS, BLOCKS[1:], fillvalue=("", "")):
        if kind == "python":
            exec(text, space)
            printed = capsys.readouterr().out
            assert after != "output" or printed == expected
    assert PYTHON


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", (ROOT / "README.md").read_text()))
    assert named <= targets
