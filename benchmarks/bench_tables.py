"""The numbers of a benchmark as tables, for the terminal, the page and the documentation alike."""

from dataclasses import dataclass
from numbers import Real


@dataclass(frozen=True)
class Shown:
    """A table and what it shows; without rows, the caption says why."""

    title: str
    caption: str
    header: list[str]
    rows: list[list[str]]


def tables(found):
    """All tables, in the order to show them."""
    return [
        rates(found),
        limit(found),
        bandwidth(found),
        growth(found),
        starts(found),
        flower(found),
        cluster(found),
        service(found.get("service", {"left out": "not measured"})),
        *comparison(found.get("comparison", {"left out": "not measured"})),
        *gpu(found["gpu"]),
        hardware(found),
    ]


def rates(found):
    """Client-rounds a second of all, by size."""
    sizes = sorted({row["clients"] for row in found["rates"]})
    by = {(row["contender"], row["clients"]): row for row in found["rates"]}
    header = ["Contender"]
    for clients in sizes:
        header += [f"{clients:,} clients", "× NumPy"]
    rows = []
    for name in names(found):
        cells = [name]
        for clients in sizes:
            row = by.get((name, clients))
            cells += (
                [scientific(row["client_rounds_per_second"]), f"{row['times_plain_numpy']:.2f}"] if row else ["–"] * 2
            )
        rows.append(cells)
    caption = (
        "Client-rounds per second, and the rate divided by that of plain NumPy in the same turn (medians over "
        f"{found['turns']} "
        f"turn{'' if found['turns'] == 1 else 's'}). The engines and the C kernel gave the identical trajectory, bit "
        "for bit, checked in this run."
    )
    return Shown("Rates", caption, header, rows)


def names(found):
    """All contenders, the ones with more threads after those with one."""
    largest = max(row["clients"] for row in found["rates"])
    order = [row["contender"] for row in found["rates"] if row["clients"] == largest]
    return list(dict.fromkeys([row["contender"] for row in found["rates"] if row["contender"] not in order] + order))


def limit(found):
    """Numba against the C kernel with as many threads."""
    by = {(row["contender"], row["clients"]): row for row in found["rates"]}
    rows = [
        [
            f"{row['clients']:,}",
            str(row["threads"]),
            f"{row['nanoseconds']:.3f}",
            f"{by[row['contender'].replace('turnout numba', 'C kernel'), row['clients']]['nanoseconds']:.3f}",
            f"{row['times_c_kernel_seconds']:.2f}",
        ]
        for row in found["rates"]
        if row["times_c_kernel_seconds"] is not None
    ]
    caption = (
        "Nanoseconds per client and round, and the time of Numba divided by that of C in the same turn. The C kernel "
        "has the same coins, arithmetic and threads; its vector instructions are written by hand."
        if rows
        else "There is no C compiler here."
    )
    return Shown(
        "Against the practical limit", caption, ["Clients", "Threads", "Numba, ns", "C, ns", "Numba / C"], rows
    )


def bandwidth(found):
    """Bytes moved against a plain copy."""
    rows = [
        [
            row["contender"],
            f"{row['bytes_per_second'] / 1e9:.1f}",
            f"{row['copy_bytes_per_second'] / 1e9:.1f}" if row["copy_bytes_per_second"] else "–",
            f"{100 * row['share']:.0f} %" if row["share"] else "–",
        ]
        for row in found["bandwidth"]
    ]
    clients = found["bandwidth"][0]["clients"] if found["bandwidth"] else 0
    caption = (
        f"Histories and coefficients moved at {clients:,} clients (20 bytes per client and round: two rounds per "
        "pass), "
        "compared with a plain copy by as many threads. Near 1, memory is the limit; well below 1, the arithmetic is."
    )
    return Shown("Bytes and bandwidth", caption, ["Contender", "GB/s moved", "GB/s of a copy", "Share"], rows)


def growth(found):
    """Time a client and round, as both grow."""
    columns = {name: [*grown["by_clients"], *grown["by_rounds"]] for name, grown in found["growth"].items()}
    header = ["Clients", "Rounds"]
    for name in columns:
        header += [f"{name}, ns", "× linear"]
    starts = {name: (grown["by_clients"][0], grown["by_rounds"][0]) for name, grown in found["growth"].items()}
    rows = []
    for number, one in enumerate(next(iter(columns.values()))):
        cells = [f"{one['clients']:,}", f"{one['rounds']:,}"]
        for name, column in columns.items():
            first = starts[name][number >= len(found["growth"][name]["by_clients"])]
            each = column[number]["nanoseconds"]
            cells += [f"{each:.3f}", f"{each / first['nanoseconds']:.2f}"]
        rows.append(cells)
    caption = (
        "Nanoseconds per client and round, first with more clients, then with more rounds. Times linear: the time, "
        "divided by that of the first such line scaled in proportion."
    )
    return Shown("Growth", caption, header, rows)


def starts(found):
    """Seconds until the first round, of whole runs, and memory."""
    both = found["start_up"] | found["whole_runs"]
    rows = [[name, f"{value:.2f}" if value is not None else "–"] for name, value in both.items()]
    caption = "Seconds: whole commands from a shell (the best of some), and whole calls."
    if found["bytes_a_client"] is not None:
        caption += (
            f" Memory beyond the coefficients at ten million clients: {found['bytes_a_client']:.0f} bytes per client."
        )
    return Shown("Starting, compiling, whole runs", caption, ["What", "Seconds"], rows)


def flower(found):
    """Flower's engine, a client and round."""
    each = found["flower"].get("milliseconds_per_client_and_round")
    header = ["Engine", "ms per client and round"]
    if each is None:
        return Shown("Compared with Flower", left_out(found["flower"]), header, [])
    ours = min(row["nanoseconds"] for row in found["rates"] if row["contender"].startswith("turnout"))
    rows = [
        ["Flower's simulation engine (Ray), an empty client", f"{each['ray']:.3g}"],
        ["turnout's in-process Grid, the same Flower app", f"{each['in-process']:.3g}"],
        ["turnout simulate, the decision alone", f"{ours / 1e6:.2g}"],
    ]
    caption = (
        f"Milliseconds per client and round, {found['flower']['nodes']} clients, {found['flower']['rounds']} rounds. "
        "Flower sends a model and a message to every client, which training needs and a study of participation does "
        "not."
    )
    return Shown("Compared with Flower", caption, header, rows)


def cluster(found):
    """What Ray adds to a pass."""
    return Shown("On a cluster", *_facts(found["ray"], "What a pass over Ray actors costs beyond the work itself."))


def service(found):
    """The coordinator beside a bare application with the same held requests."""
    header = ["Coordinator", "Rounds a second", "Ours, in times", "CPU ms a round", "CPU ms a round, devices"]
    if "left out" in found:
        return Shown("The coordinator", left_out(found), header, [])
    rows = []
    for name, figures in found["contenders"].items():
        by_turn = ("rounds_per_second", ".2f"), ("coordinator_cpu_ms_a_round", ".0f"), ("fleet_cpu_ms_a_round", ".0f")
        rate, cpu, devices = (" / ".join(format(turn[key], how) for turn in figures["turns"]) for key, how in by_turn)
        times = found.get(f"times {name}")
        rows.append([name, rate, "–" if times is None else f"{times:.2f}", cpu, devices])
    caption = (
        f"{found['devices']:,} devices, one connection each, on the machine of the coordinator; {found['rounds']} "
        "rounds of each, in turns; every round is on disk before any device is answered. The bare application also "
        "holds requests and commits rounds, and does nothing else. Ours, in times: our rounds per second, divided by "
        "theirs in the same turn. The database and the devices' records {'agree in every bit' if "
        "found['books']['agree'] else 'DIFFER'}."
    )
    return Shown("The coordinator", caption, header, rows)


def comparison(found):
    """Who is chosen and at what cost, and the totals of three privacy accounts; as docs/benchmarks.md shows them."""
    if "left out" in found:
        return [Shown("Compared with other selection", left_out(found), [], [])]
    return [selection(found["selection"]), accounts(found["privacy"])]


def selection(found):
    """Cost above the optimum, turnout, and who must know and decide what."""
    header = ["", "Cost above the optimum", "Turnout's spread", "The server must know of each client"]
    rows = [
        [
            row["contender"],
            f"{_mean(gaps):.2f} % ({min(gaps):.2f} to {max(gaps):.2f})".replace("-", "−"),
            f"{_mean(row['turnout_spread']):.1f}",
            row["server_knows"],
            row["promised"],
            row["decides"],
        ]
        for row in found["rows"]
        for gaps in (row["gap_percent"],)
    ]
    caption = (
        f"{found['capacity']:,} of {found['clients']:,} clients, {found['rounds']:,} rounds, the mean of "
        f"{found['seeds']} populations like the paper's (least to greatest), all in one run. Oort runs with the rule "
        "and the defaults of its artifact. It is designed to reach an accuracy in little time, not to minimise this "
        "cost: where costs are its durations, its pacer admits expensive clients whenever utility does not grow. "
        "Promises are against an observer of every report. When every client tells it its cost in every round, Oort is "
        "as good as the optimum: the difference is what the server must know."
    )
    return Shown("Compared with other selection", caption, [*header, "Promised about a report", "Who decides"], rows)


def accounts(found):
    """The total epsilon that three libraries report for the same reports."""
    low, high = found["asymmetric_box"]
    header = ["", "Total epsilon, randomized response", f"Total epsilon, box [{low:g}, {high:.4f}]", "Time, × ours"]
    rows = [
        [
            f"{row['library']} {row['version']}" + (" (stored)" if row.get("stored") else ""),
            f"{row['symmetric']:.2f}",
            f"{row['asymmetric']:.2f}",
            f"{row['times_turnout']:.0f}",
            WHAT_AN_ACCOUNT_KNOWS[row["library"]],
        ]
        for row in found["rows"]
    ]
    caption = (
        f"{found['reports']:,} reports at epsilon {found['epsilon_per_report']:g} per report, delta "
        f"{found['delta']:g}, against an observer of every report; processor time, all in one run. For the randomized "
        "response ours is exact. For the box that is not symmetric, ours also holds for signals that a server chooses "
        "adaptively, dp-accounting's for directions fixed in advance, and OpenDP gets only the epsilon per report."
    )
    ignored = found["accountant_that_ignores_the_count"]
    if ignored is not None:
        caption += f" (dp-accounting's `PLDAccountant` answers {ignored:.2f} for all of them: it ignores the count.)"
    return Shown("Compared with other privacy accounts", caption, [*header, "What it knows of participation"], rows)


WHAT_AN_ACCOUNT_KNOWS = {
    "turnout": "the mechanism's box, the observer, and each client's ledger",
    "dp-accounting": "nothing: it gets distributions",
    "OpenDP": "nothing: it gets measurements",
}


def gpu(found):
    """Whatever the GPU benchmark wrote: facts, and a table for each list of rows."""
    if "left out" in found:
        return [Shown("On a GPU", left_out(found), ["What", "Value"], [])]
    plain = {name: value for name, value in found.items() if not isinstance(value, list)}
    title = f"On a GPU ({found['device']})" if "device" in found else "On a GPU"
    shown = [Shown(title, *_facts(plain, "Measured there by benchmarks/gpu.py."))]
    for name, rows in found.items():
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
            header = list(dict.fromkeys(key for row in rows for key in row))
            body = [[_value(row.get(key, "–")) for key in header] for row in rows]
            shown.append(Shown(f"{title}: {name}", "One row per run.", [key.replace("_", " ") for key in header], body))
    return shown


def hardware(found):
    """What it ran on."""
    rows = [[name, str(value)] for name, value in found["machine"].items()]
    return Shown("The machine", f"What this ran on, {found['date']}.", ["What", "Which"], rows)


def _mean(values):
    return sum(values) / len(values)


def left_out(found):
    return f"Left out: {found.get('left out', 'no result')}."


def _facts(found, caption):
    header = ["What", "Value"]
    if "left out" in found:
        return left_out(found), header, []
    return caption, header, [[name.replace("_", " "), _value(value)] for name, value in _flat(found)]


def _flat(found, before=""):
    """Nested tables as one, names joined."""
    for name, value in found.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}: ")
        else:
            yield f"{before}{name}", value


def _value(value):
    """A number, a yes or no, or text, for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, Real):
        return "–" if value is None else str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return scientific(value) if abs(value) >= 1e6 else f"{value:.4g}"


def scientific(value):
    """1.23e9, without the plus and zeros."""
    digits, power = f"{value:.2e}".split("e")
    return f"{digits}e{int(power)}"
