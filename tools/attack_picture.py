"""Attack fresh runs, draw docs/images/attack.png, and write the table of docs/attack.md.

python tools/attack_picture.py
"""

from __future__ import annotations

from pathlib import Path

from turnout import paper_population
from turnout.attack import AttackErrors, attack_case, usual_cases
from turnout.paper import panels
from turnout.report import PALETTE, PRIOR, Lines, attack_rows, priors
from turnout.settings import Table
from turnout.simulation import Run, run_from_settings

DOCS = Path(__file__).resolve().parents[1] / "docs"
COLOURS = (*PALETTE, "#444444")
BEGIN, END = "<!-- table: tools/attack_picture.py -->\n", "<!-- end of the table -->\n"


def paper_run(rounds: int) -> Run:
    """The paper's population and server, population and coins of seed 0."""
    controller = {"kind": "integral", "gain": 0.0075, "initial": 0.35}
    settings = {"rounds": rounds, "capacity": 600, "mechanism": {"kind": "classical"}, "controller": controller}
    return run_from_settings(Table(settings))


def markdown(lines: Lines) -> str:
    """The table as Markdown."""
    header, rows = attack_rows(lines)
    body = [["mechanism", *(f"{name} rounds" for name in header[1:])], ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in body)


def draw(lines: Lines) -> None:
    """Error against rounds, one line per mechanism."""
    with panels(DOCS / "images", "attack", 1, width=7.2, height=4.4) as axes:
        axis = axes[0]
        kinds = list(dict.fromkeys(name.split(", for ")[0] for name in lines))  # a budget keeps its mechanism's colour
        for name, found in lines.items():
            kind = name.split(", for ")[0]
            look = {"color": COLOURS[kinds.index(kind)], "linestyle": "-" if kind == name else (0, (4, 1.5))}
            seen = [errors for errors in found if errors.rounds]
            x, y = [errors.rounds for errors in seen], [100 * errors.cost for errors in seen]
            axis.plot(x, y, marker="o", markersize=3, label=name, **look)
        axis.axhline(100 * priors(lines)[PRIOR], color="black", linestyle="--", linewidth=1, label=PRIOR)
        axis.set(xscale="log", yscale="log", xlabel="observed rounds", ylabel="median relative error")
        axis.set_title("How well an observer of every report recovers the costs")
        ticks = [0.5, 1, 2, 5, 10, 20, 40]
        axis.set_yticks(ticks, [f"{tick:g} %" for tick in ticks])
        axis.set_xticks([100, 300, 1000, 3000, 10000], ["100", "300", "1,000", "3,000", "10,000"])
        axis.minorticks_off()
        axis.legend(fontsize=7.5, loc="center left", bbox_to_anchor=(1.01, 0.5))
    (DOCS / "images" / "attack.svg").unlink()


def main() -> None:
    """Attack, draw, and write the table into the document."""
    lines: dict[str, list[AttackErrors]] = {}
    for case in usual_cases(paper_population(seed=0).problem(600)):
        lines[case.name] = list(attack_case(case, paper_run(10_000)))
        print(case.name, flush=True)
    draw(lines)
    page = DOCS / "attack.md"
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    table = markdown(lines)
    page.write_text(before + BEGIN + table + END + rest.split(END)[1], encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
