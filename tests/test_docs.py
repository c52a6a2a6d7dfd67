"""The code blocks of the site run, and its numbers are true."""

import math
import re
from pathlib import Path

import pytest

from turnout.algorithm.thresholds import widest_box
from turnout.privacy.accounting import total_epsilon
from turnout.privacy.sum_only import total_epsilon_sum_only

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [page for page in sorted(DOCS.glob("*.md")) if "```python" in page.read_text()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page, capsys):
    space = {"__name__": "docs"}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(block, space)


def upwards(value, digits):
    """Bounds are rounded upwards."""
    return f"{math.ceil(value * 10**digits) / 10**digits:.{digits}f}"


def test_the_table_of_totals():
    rows = re.findall(
        r"^\| ([\d.]+) \| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \|$", (DOCS / "privacy.md").read_text(), re.MULTILINE
    )
    assert len(rows) == 2
    for per_report, rounds, every, only_sum in rows:
        box, rounds = widest_box(float(per_report)), int(rounds.replace(",", ""))
        assert upwards(total_epsilon(*box, rounds, 1e-6).epsilon, 1) == every
        assert upwards(total_epsilon_sum_only(*box, rounds, 1e-6, honest=1199).epsilon, 2) == only_sum
