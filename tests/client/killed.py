"""Run by test_durable_crashes.py: one process that makes clients, and kills each with SIGKILL at a random moment.

    python killed.py FOLDER KILLS BUDGET SEED

Appends what the clients did to FOLDER/tosses.log and FOLDER/reports.log.
"""

import math
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from turnout.algorithm import Prior
from turnout.client import store
from turnout.client.durable import DurableClient, Seams, Stopped, Terms
from turnout.client.ledger import Ledger
from turnout.client.limit import Limit
from turnout.client.store import RoundLost, RoundPassed
from turnout.problem import PolynomialCosts

sys.path.insert(0, str(Path(__file__).parents[1]))
from client.faults import Boxed

SIGNALS = (0.0, 1.0, 3.0, 1e300, -1.0, math.nan, math.inf, -math.inf)


def note(path: Path, line: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.fsync(descriptor)
    os.close(descriptor)


class NotedCoins:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def uniform(self, clients, round, purpose=0):
        note(self.folder / "tosses.log", str(round))
        return np.frombuffer(os.urandom(8), dtype=np.uint64) * 2.0**-64


def live(folder: Path, budget: int) -> None:
    """One life: go on where the last one was killed, asking again for its last rounds too."""
    store.LINES, store.KEPT = 40, 10  # so that tidying is killed as well
    costs = PolynomialCosts([[3.0]], powers=(2,))
    with (
        Ledger.open(
            folder / "ledger.jsonl", datum="cost", limit=Limit(budget, 2.0), witness=folder / "witness"
        ) as ledger,
        DurableClient(
            folder,
            costs,
            Boxed(),
            ledger=ledger,
            terms=Terms("run", Prior(0.5)),
            seams=Seams(NotedCoins(folder)),
        ) as client,
    ):
        first = max(0, (client.status()["last_round"] or 0) - 3)
        for round in range(first, first + 60):
            try:
                bit = client.decide(round, random.choice(SIGNALS))
                note(folder / "reports.log", f"{round} {int(bit)}")
                client.acknowledge(round, round % 5 != 0)
            except (RoundLost, RoundPassed):
                continue
            except Stopped:
                note(folder / "stopped.log", str(round))
                return


def has_come_far(folder: Path, to_the_end: bool) -> bool:
    """Whether the budget is spent, or there are reports enough: a busy machine needs more lives for that."""
    reports = folder / "reports.log"
    if to_the_end:
        return (folder / "stopped.log").exists()
    return reports.exists() and len(reports.read_text().splitlines()) > 100


def main(folder: Path, kills: int, budget: int, seed: int) -> None:
    chance = random.Random(seed)
    for life in range(4 * kills):
        if life >= kills and has_come_far(folder, budget < kills):
            return
        ready, tell = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(tell, b".")
                live(folder, budget)
            except BaseException as error:
                note(folder / "errors.log", repr(error))
            finally:
                os._exit(0)
        os.read(ready, 1)
        os.close(ready)
        os.close(tell)
        time.sleep(chance.uniform(0.0, 0.04 * (1 + life // kills)))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(argument) for argument in sys.argv[2:]))
