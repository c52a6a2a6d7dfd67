"""Close rounds of a store as fast as it goes, in a process that is killed at random moments, again and again.

    python closing.py LOCATION KILLS

prints the number of every round that was committed, one a line, as the killed process itself said it.
"""

import os
import random
import signal
import sys
import time

import numpy as np

from turnout.service.rounds import ClosedRound, Position
from turnout.service.store.backup import open_store
from turnout.service.store.store import Store

DEVICES = 1000


def closed(round: int) -> ClosedRound:
    """A round whose every value follows from its number."""
    codes = np.random.default_rng(round).integers(0, 4, DEVICES).astype(np.uint8)
    return ClosedRound(
        round, 0.1 * round, 600.0, codes, round, 2 * round, DEVICES, 3, bool(round % 2), 0.5, 1e9 + round
    )


def after(round: int) -> Position:
    """Where the run stands after it."""
    return Position(round + 1, 0.2 * round, {"signal": 0.3 * round}, round.to_bytes(8, "big"))


def close_rounds(store: Store, told: int) -> None:
    """Close and tell, forever."""
    while True:
        round = store.position().round
        store.close_round(closed(round), after(round))
        os.write(told, b"%d\n" % round)


def has_come_far(location: str) -> bool:
    """Whether enough rounds have closed for a test."""
    store = open_store(location)
    try:
        return store.position().round > 30
    finally:
        store.close()


def main(location: str, kills: int) -> None:
    """Start it and kill it, so often: every fifth time while it opens the store, else while it closes rounds.

    A busy machine is given more lives, and longer ones, until some rounds have closed.
    """
    chance = random.Random(7)
    open_store(location).close()  # whatever is imported on the way is there for all
    for number in range(6 * kills):
        if number >= kills and has_come_far(location):
            return
        opened, tell = os.pipe()
        child = os.fork()
        if not child:
            try:
                store = open_store(location)
                os.close(tell)
                close_rounds(store, sys.stdout.fileno())
            finally:
                os._exit(1)
        os.close(tell)
        if number % 5:
            os.read(opened, 1)
        time.sleep(chance.uniform(0.0, 0.05 * (1 + number // kills)))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the process failed by itself"
        os.close(opened)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
