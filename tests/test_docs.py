"""The code blocks of the site run, its numbers are true, and its links lead somewhere."""

import inspect
import math
import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from page_blocks import FENCE, WIDTH, Page
from turnout.algorithm import MECHANISMS, widest_box
from turnout.privacy import Observer, total_epsilon, total_epsilon_sum_only
from turnout.service import rules_from_settings
from turnout.settings import Table
from turnout.simulation import run_from_settings

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NEED_SERVERS = {"tutorial-fleet.md", "tutorial-flower.md"}  # followed in tests/service and tests/flower
NEED_A_CLUSTER = {"tutorial-cluster.md"}  # which takes long to start
TAKE_LONG = {"plan.md", "private-and-near-optimal.md"}
# besides the tutorials; elsewhere without output
SHOW_OUTPUT = {"plan.md", "first-deployment.md", "upgrading.md", "private-and-near-optimal.md"}
PAGES = [
    page
    for page in sorted(DOCS.glob("*.md"))
    if "```python" in page.read_text() or "tutorial" in page.name or page.name in SHOW_OUTPUT
]
WRITTEN = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


def _marked(page: Path) -> Any:
    """Pages that start a cluster, or plan for long, are followed by `make test-deployment`."""
    marks = [pytest.mark.deployment] if page.name in NEED_A_CLUSTER | TAKE_LONG else []
    return pytest.param(page, id=page.name, marks=marks)


@pytest.mark.parametrize("page", [_marked(page) for page in PAGES])
def test_every_block_runs_and_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", WIDTH)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    whole = page.name.startswith("tutorial") or page.name in SHOW_OUTPUT
    reader = Page(page, consoles=whole and page.name not in NEED_SERVERS)
    reader.follow()
    assert reader.ran or page.name in NEED_SERVERS


def test_a_wrong_output_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    for block in (
        "```python\nprint(2)\n```\n```output\n3\n```\n",
        "```console\n$ turnout --version\nturnout 0.0\n```\n",
        "```console\n$ turnout --version\n…\nturnout 0.0\n```\n",
        "```console\n$ printf 'one\\ntwo\\nthree\\n'\none\n…\ntwo\n```\n",
    ):
        page.write_text(block)
        with pytest.raises(AssertionError):
            Page(page).follow()


def heading_anchor(title: str) -> str:
    """As the site makes it: small letters and hyphens."""
    plain = re.sub(r"`|\*|\$", "", title).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    text = FENCE.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        file = page if not name else (page.parent / name).resolve()
        assert file.exists(), f"{page.name}: {target}"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", FENCE.sub("", file.read_text()), re.MULTILINE)
            assert anchor in map(heading_anchor, titles), f"{page.name}: {target}"


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
        assert upwards(total_epsilon_sum_only(*box, rounds, 1e-6, honest=1198).epsilon, 2) == only_sum


@pytest.mark.parametrize("page", ["privacy.md", "proofs/accounting.md"])
def test_assumptions_are_stated_in_the_words_that_are_printed(page):
    said = " ".join((DOCS / page).read_text().split())
    constants = {
        name: value
        for name, value in vars(inspect.getmodule(Observer)).items()
        if name.isupper() and isinstance(value, str)
    }
    assumed = {name: value for name, value in constants.items() if " " in value}  # the others are values of settings
    assert len(assumed) >= 9
    for name, words in assumed.items():
        assert words in said, name


def test_nobody_is_called_an_adversary():
    """One word for whoever looks on: observer."""
    found = [
        path for folder in ("src", "docs", "examples", "benchmarks", "tools") for path in (ROOT / folder).rglob("*")
    ]
    written = [
        path for path in [ROOT / "README.md", *found] if path.suffix in (".py", ".md", ".ipynb", ".toml", ".html")
    ]
    assert not [path for path in written if "adversar" in path.read_text().lower()]


def test_what_is_said_of_delta():
    """The chance that the odds shift further than the total is not delta; the definition holds with equality."""
    low, high = widest_box(0.1)
    total = total_epsilon(low, high, 100, 1e-6).epsilon
    losses = np.arange(101) * math.log(high / low) + np.arange(100, -1, -1) * math.log((1 - high) / (1 - low))
    chances = binom.pmf(np.arange(101), 100, high)
    further = chances[losses > total].sum()
    slack = np.maximum(0.0, chances - math.exp(total) * binom.pmf(np.arange(101), 100, low)).sum()
    assert slack == pytest.approx(1e-6, rel=1e-6)
    page = " ".join((DOCS / "privacy.md").read_text().split())
    assert f"a total of {upwards(total, 2)} at $\\delta = 10^{{-6}}$" in page
    assert f"$e^{{{upwards(total, 2)}}}$ with a chance of ${further * 1e6:.1f} \\cdot 10^{{-6}}$" in page


def test_the_settings_page_has_every_key_that_is_read(monkeypatch):
    asked, take = set(), Table.take

    def noted(self, key, *rest, **more):
        asked.add(key)
        return take(self, key, *rest, **more)

    monkeypatch.setattr(Table, "take", noted)
    usual = {"rounds": 1, "capacity": 600, "start": {"average": 0.5}, "controller": {"gain": 0.1, "initial": 1.0}}
    for kind, mechanism in MECHANISMS.items():
        needed = {
            field.name: 0.5 if field.name == "cap" else 1.0 for field in fields(mechanism) if field.default is MISSING
        }
        run_from_settings(Table(usual | {"mechanism": {"kind": kind} | needed}))
    rules_from_settings(Table({"safety": {"missing": "last"}}))
    page = (DOCS / "settings.md").read_text()
    assert len(asked) > 30
    named = {*re.findall(r"`(\w+)`", page), *re.findall(r"(\w+) =", page), *re.findall(r"`\[(\w+)\]`", page)}
    assert asked <= named, asked - named
