"""Write docs/paper-map.md: paper item -> function -> test, from lines `Paper: …` in docstrings.

python tools/paper_map.py          writes the page
python tools/paper_map.py --check  fails if the page is not up to date, or an item lacks a function or a test
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "paper-map.md"

ITEMS = {
    "Eq. (1)": "the average number of participations",
    "Problem (2)": "the optimisation problem",
    "Section III-A": "the assumptions on costs",
    "Section III-B": "joining the network",
    "Eq. (3)": "the public signal",
    "Eq. (4)": "the probability that a client wants to take part",
    "Algorithm 1": "the server",
    "Algorithm 2": "the client, classical",
    "Algorithm 3": "the client, differentially private",
    "Eq. (8)": "the coin's probability",
    "Eq. (9)": "the coin",
    "Eq. (10)": "the report",
    "Lemma IV.1": "the privacy error of a report",
    "Theorem IV.2": "the combined privacy error",
    "Theorem IV.3": "the mean privacy error",
    "Eq. (11)": "the cost functions of the experiments",
    "Section V": "the experiments' claims",
    "Fig. 1": "distance from the optimum",
    "Fig. 2": "cost difference",
    "Fig. 3": "privacy error",
    "Fig. 4": "turnout",
    "Fig. 5": "aggregate average and signal",
}
"""What can be checked, in the paper's order; numbers as its LaTeX source counts them."""

_RANGE = re.compile(r"(Eqs?\.|Algorithms?) \(?(\d+)\)? (?:to|and) \(?(\d+)\)?")


def items_in(docstring: str) -> list[str]:
    """The items that a docstring names in its `Paper: …` sentences."""
    found: list[str] = []
    for line in re.findall(r"Paper: (.*?)(?=Paper: |Differs from paper|Example:|\n\n|\Z)", docstring, re.DOTALL):
        for kind, first, last in _RANGE.findall(line):
            form = "Eq. ({})" if kind.startswith("Eq") else "Algorithm {}"
            found += [form.format(number) for number in range(int(first), int(last) + 1)]
        found += [item for item in ITEMS if item in line]
    return [item for item in ITEMS if item in found]


def documented(folder: Path) -> Iterator[tuple[str, str, str]]:
    """(path, name, docstring) of every function and class below a folder."""
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and (text := ast.get_docstring(node)):
                yield path.relative_to(ROOT).as_posix(), node.name, text


def build() -> tuple[str, list[str]]:
    """The page, and what is missing."""
    where: dict[str, dict[str, list[str]]] = {item: {"src": [], "tests": []} for item in ITEMS}
    for part in ("src", "tests"):
        for path, name, text in documented(ROOT / part):
            for item in items_in(text):
                where[item][part].append(f"`{name}` ({path.removeprefix('src/turnout/')})")
    lines = [
        "# The paper, item by item",
        "",
        "Generated from the lines `Paper: …` in docstrings by `make paper-map`; CI checks that it is up to date.",
        "Numbers are those of the paper's LaTeX source.",
        "",
        "| paper | what it is | where it is | what tests it |",
        "|---|---|---|---|",
    ]
    missing = []
    for item, what in ITEMS.items():
        found = where[item]
        missing += [f"{item} has no {part}" for part in ("src", "tests") if not found[part]]
        lines.append(f"| {item} | {what} | {'<br>'.join(found['src'])} | {'<br>'.join(found['tests'])} |")
    return "\n".join(lines) + "\n", missing


def main() -> int:
    """Write or check the page."""
    page, missing = build()
    if missing:
        print("paper map:", "; ".join(missing), file=sys.stderr)
        return 1
    if "--check" in sys.argv:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
            print("docs/paper-map.md is not up to date: run `make paper-map`", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
