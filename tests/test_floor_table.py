"""The table of docs/floor.md says what the programme computes; the quick part of it is computed again here."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("floor_table", ROOT / "tools" / "floor_table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(tool):
    table = tool.PAGE.read_text(encoding="utf-8").split(tool.BEGIN)[1].split(tool.END)[0]
    lines = re.findall(r"^\| ([\d.]+) \| (.+) \|$", table, re.MULTILINE)
    return {float(total): [float(cell.strip(" %")) for cell in cells.split("|")] for total, cells in lines}


def test_every_row_is_there_and_in_order(tool):
    found = rows(tool)
    assert tuple(found) == tool.TOTALS
    for floor, reached, usual, few, many in found.values():
        assert floor <= reached <= min(usual, few, many) + 0.5  # means over draws, of some tenths
        assert len((floor, reached, usual, few, many)) == len(tool.HEADER) - 1


def test_a_row_is_true(tool):
    floor, reached, usual, _, _ = rows(tool)[2.0]
    assert [100 * gap for gap in tool.bounds(2.0)] == pytest.approx([floor, reached], abs=0.06)
    assert 100 * tool.usual(2.0) == pytest.approx(usual, abs=0.06)


@pytest.mark.parametrize("total", [4.0, 8.0])
def test_usual_levels(tool, total):
    assert 100 * tool.usual(total) == pytest.approx(rows(tool)[total][2], abs=0.06)
