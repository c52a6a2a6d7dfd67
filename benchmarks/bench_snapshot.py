"""The benchmark in the terminal, and as a page of the documentation with a picture."""

import re
from textwrap import fill

from rich.table import Table

import bench_tables
from turnout.report import PALETTE

PICTURE = "benchmarks.png"
NUMBER = re.compile(r"[−-]?\d|–|yes$|no$")
INTRODUCTION = """# Benchmarks

How fast clients decide. Our engines, programs as people write them (plain Python objects, NumPy, JAX), and a C kernel
written by hand as the practical limit took turns in one run, each in its own process, so that a ratio compares
measurements close in time. This page is a snapshot, written by `python benchmarks/bench.py --snapshot`; `make bench`
measures your machine.

![Client-rounds per second of each program, and time per client and round as clients and rounds grow](images/{picture})
"""


def show(console, found):
    """All tables in the terminal."""
    for shown in bench_tables.tables(found):
        if not shown.rows:
            console.print(f"{shown.title}: {shown.caption}")
            continue
        table = Table(*shown.header, title=shown.title, caption=shown.caption, title_justify="left", show_edge=False)
        for column in table.columns[1:]:
            column.justify = "right"
        for row in shown.rows:
            table.add_row(*row)
        console.print(table, "")


def write(found, docs):
    """The page and its picture, into the folder of the documentation; gives back the page's path."""
    (docs / "images").mkdir(parents=True, exist_ok=True)
    draw(found, docs / "images" / PICTURE)
    parts = [INTRODUCTION.format(picture=PICTURE)]
    parts += [markdown(shown) for shown in bench_tables.tables(found)]
    path = docs / "benchmarks.md"
    path.write_text("\n".join(parts))
    return path


def markdown(shown):
    """A section with a table."""
    lines = [f"## {shown.title}", "", fill(shown.caption, 120), ""]
    return "\n".join([*lines, *table(shown), ""] if shown.rows else lines)


def table(shown):
    """The lines of a table; columns of numbers end where the others begin: at their right."""
    rule = ["---:" if all(map(NUMBER.match, column)) else "---" for column in zip(*shown.rows, strict=True)]
    return [f"| {' | '.join(row)} |" for row in (shown.header, ["---", *rule[1:]], *shown.rows)]


def draw(found, path):
    """Two panels: rates as dots, growth as lines."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    style = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True}
    style |= {"grid.color": "#dddddd", "grid.linewidth": 0.5, "axes.axisbelow": True, "legend.frameon": False}
    with matplotlib.rc_context(style):
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(9.6, 3.6), layout="constrained", width_ratios=(1.35, 1))
        _draw_rates(left, found)
        _draw_growth(right, found)
        figure.savefig(path, dpi=180)
        pyplot.close(figure)


def _draw_rates(axes, found):
    names = bench_tables.names(found)
    for number, clients in enumerate(sorted({row["clients"] for row in found["rates"]})):
        rows = [row for row in found["rates"] if row["clients"] == clients]
        axes.plot(
            [row["client_rounds_per_second"] for row in rows],
            [names.index(row["contender"]) for row in rows],
            "oDs"[number],
            color=PALETTE[number],
            markersize=6,
            label=f"{clients:,} clients",
        )
    axes.set_xscale("log")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("client-rounds a second")
    axes.legend(loc="lower left", fontsize=8)


def _draw_growth(axes, found):
    for (name, grown), colour in zip(found["growth"].items(), (PALETTE[0], "#444444"), strict=False):
        kind = name.split(",")[0]
        for rows, what, look in ((grown["by_clients"], "clients", "o-"), (grown["by_rounds"], "rounds", "D--")):
            values = [row["nanoseconds"] for row in rows]
            label = f"{kind}, more {what}"
            axes.plot([row[what] for row in rows], values, look, color=colour, label=label, markersize=4)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("clients, or rounds")
    axes.set_ylabel("ns a client and round, one thread")
    axes.legend(loc="lower right", fontsize=8)
