"""The contenders take turns: rates, ratios within a turn, growth, and bytes against bandwidth.

Machines are noisy, so what counts is a ratio of two contenders in the same turn (the median over turns). Each
lives in a process of its own, as it would for its user, so that none gains or suffers from another's memory.
"""

import contextlib
import multiprocessing
import statistics
from concurrent.futures import ProcessPoolExecutor

from rich.progress import track

import c_kernel
import contenders

EXACT = 6
"""Rounds after which all exact contenders must agree to the bit."""
MOST_ROUNDS = 1 << 20
BYTES_A_CLIENT_ROUND = (2 * 8 + 3 * 8) / 2
"""A pass reads and writes a history, reads three coefficients, and moves two rounds."""
REFERENCE = "plain NumPy"
GROWING = ("turnout numba, 1 thread", "C kernel, 1 thread")


class Homes:
    """A process for each contender, started when it is first needed, ended with the block."""

    def __enter__(self):
        self._stack, self._pools = contextlib.ExitStack(), {}
        return self

    def __exit__(self, *error):
        self._stack.close()

    def ask(self, home, function, *arguments):
        if home not in self._pools:
            pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
            self._pools[home] = self._stack.enter_context(pool)
        return self._pools[home].submit(function, *arguments).result()


def warm_up(homes, clients, target):
    """Compiles, checks that all exact contenders agree, and finds the rounds that take each about `target` seconds."""
    rounds, digests = {}, {}
    for name in track(contenders.entrants(clients), description=f"{clients:>10,} clients, warming up", transient=True):
        _, digest = homes.ask(name, contenders.take_turn, name, clients, EXACT)
        if digest:
            digests[name] = digest
        rounds[name] = _long_enough(homes, name, clients, target)
    if len(set(digests.values())) > 1:
        raise SystemExit(f"with {clients:,} clients the trajectories differ: {digests}")
    return rounds, sorted(digests)


def _long_enough(homes, name, clients, target):
    """An even number of rounds; doubled up to `target`, since a short time tells little."""
    count = 2
    while count < MOST_ROUNDS:
        took, _ = homes.ask(name, contenders.take_turn, name, clients, count)
        if took >= target / 2:
            break
        count *= 2
    return count


def race(homes, sizes, turns, target):
    """(rates, who agreed): a row for each contender and size; names by size."""
    rows, identical = [], {}
    for clients in sizes:
        rounds, identical[str(clients)] = warm_up(homes, clients, target)
        taken = {name: [] for name in rounds}
        for _ in track(range(turns), description=f"{clients:>10,} clients", transient=True):
            for name, count in rounds.items():
                took, _ = homes.ask(name, contenders.take_turn, name, clients, count)
                taken[name].append(took / clients / count)
        rows += [_row(name, clients, rounds[name], taken) for name in taken]
    return rows, identical


def _row(name, clients, rounds, taken):
    """One contender at one size; ratios are of the same turn."""
    threads = contenders.contenders()[name][0]
    limit = f"C kernel, {contenders.counted(threads)}"
    compared = name != limit and limit in taken and name.startswith("turnout numba")
    return {
        "clients": clients,
        "contender": name,
        "threads": threads,
        "rounds": rounds,
        "nanoseconds": 1e9 * statistics.median(taken[name]),
        "client_rounds_per_second": 1 / statistics.median(taken[name]),
        "spread": max(taken[name]) / min(taken[name]),
        "times_plain_numpy": _ratio(taken[REFERENCE], taken[name]),
        "times_c_kernel_seconds": _ratio(taken[name], taken[limit]) if compared else None,
    }


def _ratio(one, other):
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def growth(homes, sizes, lengths, turns, work):
    """Nanoseconds a client and round as clients and rounds grow: level is linear. The best of some turns each."""
    names = [name for name in GROWING if name in contenders.contenders()] or ["turnout numpy"]
    by_clients = [(clients, max(2, int(work / clients) // 2 * 2)) for clients in sizes]
    by_rounds = [(1_200, rounds) for rounds in lengths]
    best = {}
    for _ in track(range(turns), description="growth", transient=True):
        for clients, rounds in (*by_clients, *by_rounds):
            for name in names:
                took, _ = homes.ask(name, contenders.take_turn, name, clients, rounds)
                each = 1e9 * took / clients / rounds
                best[name, clients, rounds] = min(best.get((name, clients, rounds), each), each)

    def series(name, points):
        return [{"clients": c, "rounds": r, "nanoseconds": best[name, c, r]} for c, r in points]

    return {name: {"by_clients": series(name, by_clients), "by_rounds": series(name, by_rounds)} for name in names}


def bandwidth(homes, rates, turns):
    """Bytes that histories and coefficients move a second, against a plain copy by as many threads."""
    rows, copies = [], {}
    largest = max(row["clients"] for row in rates)
    for row in rates:
        if row["clients"] == largest and row["contender"].startswith(("turnout numba", "C kernel")):
            threads = row["threads"]
            if threads not in copies and c_kernel.compiler():
                tries = [homes.ask("copy", copied, threads) for _ in range(turns)]
                copies[threads] = max(tries)
            moved = row["client_rounds_per_second"] * BYTES_A_CLIENT_ROUND
            copy = copies.get(threads)
            rows.append(
                {
                    "contender": row["contender"],
                    "clients": largest,
                    "bytes_per_second": moved,
                    "copy_bytes_per_second": copy,
                    "share": moved / copy if copy else None,
                }
            )
    return rows


def copied(threads):
    """Bytes a second of a copy; called in a process of its own."""
    return c_kernel.copy_bandwidth(threads, contenders.seconds)
