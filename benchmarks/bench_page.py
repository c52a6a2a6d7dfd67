"""The benchmark as a page with plots."""

import json

import bench_tables
from turnout.report import INK, PALETTE, Markup, Page, chart, escape, line


def page(found):
    """A page about one run of the benchmark."""
    made = Page("turnout: benchmarks", lead(found))
    made.facts(facts(found))
    rates, limit, bandwidth, growth, *rest = bench_tables.tables(found)
    add(made, rates)
    made.figure(rates_chart(found), "Client-rounds a second, further right is faster; ten times between grid lines.")
    add(made, limit)
    add(made, bandwidth)
    add(made, growth)
    made.figure(growth_chart(found), "Nanoseconds a client and round: a level line means that time grows linearly.")
    for shown in rest:
        add(made, shown)
    made.heading("Where the numbers come from")
    made.text(
        Markup(
            "<p>All contenders took turns in one run, each in a process of its own; <code>make bench</code> measures "
            "them again.</p>"
        )
    )
    return made.details("All numbers", Markup(f"<pre>{escape(json.dumps(found, indent=1))}</pre>"))


def lead(found):
    """What it is, in a sentence."""
    quick = " A quick look: one short turn, so that the numbers say little." if found["quick"] else ""
    return (
        "How fast clients decide: our engines, what people write, and a C kernel written by hand as the practical "
        f"limit, on {found['machine']['cores']} cores of one machine.{quick}"
    )


def facts(found):
    """The big numbers."""
    best = max(found["rates"], key=lambda row: row["client_rounds_per_second"] * row["contender"].startswith("turnout"))
    compared = [row["times_c_kernel_seconds"] for row in found["rates"] if row["times_c_kernel_seconds"] is not None]
    shown = [
        (
            "Client-rounds a second",
            bench_tables.scientific(best["client_rounds_per_second"]),
            f"{best['contender']}, {best['clients']:,} clients",
        ),
        ("Times plain NumPy", f"{best['times_plain_numpy']:.0f}", f"{best['contender']}, {best['clients']:,} clients"),
    ]
    if compared:
        shown.append(("Numba / C", f"{max(compared):.2f}", "time, at the size where it is worst"))
    return [*shown, ("import turnout", f"{found['start_up']['import turnout']:.2f} s", "from a shell")]


def add(made, shown):
    """A section with a table, or the reason why there is none."""
    made.heading(shown.title)
    if shown.rows:
        made.table(shown.header, shown.rows, shown.caption)
    else:
        made.text(shown.caption)


def rates_chart(found):
    """A dot for each contender and size, rates to the right."""
    names = bench_tables.names(found)
    traces = []
    for number, clients in enumerate(sorted({row["clients"] for row in found["rates"]})):
        rows = [row for row in found["rates"] if row["clients"] == clients]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [row["client_rounds_per_second"] for row in rows],
                "y": [row["contender"] for row in rows],
                "name": f"{clients:,} clients",
                "marker": {"color": PALETTE[number], "size": 10, "symbol": ("circle", "diamond", "square")[number]},
                "hovertemplate": "%{y}: %{x:.3g} client-rounds a second",
            }
        )
    axis = {"type": "log", "dtick": 1, "exponentformat": "power"}
    order = {"categoryorder": "array", "categoryarray": names[::-1], "automargin": True}
    return chart(traces, x="Client-rounds a second", y="", xaxis=axis, yaxis=order, hovermode="closest")


def growth_chart(found):
    """Two lines a contender: as clients grow, and as rounds grow."""
    traces = []
    for (name, grown), colour in zip(found["growth"].items(), (PALETTE[0], INK), strict=False):
        kind = name.split(",")[0]
        traces.append(line(*columns(grown["by_clients"], "clients"), f"{kind}, more clients", colour=colour))
        traces.append(line(*columns(grown["by_rounds"], "rounds"), f"{kind}, more rounds", colour=colour, dash="dash"))
    x = {"type": "log", "dtick": 1, "exponentformat": "power"}
    return chart(traces, x="Clients, or rounds", y="ns a client and round", xaxis=x, yaxis={"rangemode": "tozero"})


def columns(rows, name):
    return [row[name] for row in rows], [row["nanoseconds"] for row in rows]
