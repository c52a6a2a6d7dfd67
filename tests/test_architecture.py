"""The architecture page lists the files that are really run, and the numbers of the code can be had."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOL = ROOT / "tools" / "house.py"


def house(*arguments):
    done = subprocess.run([sys.executable, TOOL, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_lists_the_files_of_each_walk_and_they_are_at_most_25():
    assert "A coordinator: " in house("--walks", "--check")


def test_the_table_of_this_tree():
    head, _, row = house().splitlines()
    assert head.count("|") == row.count("|")
    assert int(row.split("|")[2]) > 100
