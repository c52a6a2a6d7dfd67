"""Run by test_agent.py: for each durable step of an agent, one life that is killed there and one that goes on.

    python killed_agent.py FOLDER killed|torn

The coordinator lives in this process, each life of the agent in a forked one. Prints what the coordinator has.
"""

import json
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from turnout.files import Disk
from turnout.service.agent.agent import Agent

sys.path.insert(0, str(Path(__file__).parents[1]))
from service.agents import agent_with
from service.fake_coordinator import FakeCoordinator, served

FIRST_ROUNDS, LATER_ROUNDS, MOST_STEPS, PATIENT_QUESTIONS = 2, 2, 400, 10


def note(path: Path, line: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


class NotedCoins:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def uniform(self, clients, round, purpose=0):
        note(self.folder / "tosses.log", str(round))
        return np.array([0.0 if round % 4 < 2 else 0.999])  # yes, yes (not counted), no, no, …


class KillingDisk(Disk):
    """Kills its own process at the chosen step, before it or, if torn, in the middle of a write."""

    def __init__(self, at: int, torn: bool) -> None:
        self.steps, self.at, self.torn = 0, at, torn
        self.mutex = threading.Lock()

    def step(self) -> bool:
        with self.mutex:
            self.steps += 1
            return self.steps == self.at

    def write(self, descriptor, data):
        if self.step():
            if self.torn:
                super().write(descriptor, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        super().write(descriptor, data)

    def sync(self, descriptor):
        if self.step():
            os.kill(os.getpid(), signal.SIGKILL)

    def replace(self, source, target):
        if self.step():
            os.kill(os.getpid(), signal.SIGKILL)
        os.replace(source, target)


def live(url: str, folder: Path, rounds: int, at: int, torn: bool, life: int) -> None:
    events = folder / f"events{life}.log"
    agent = agent_with(
        url,
        folder,
        3.0,
        Agent,
        code="GOOD-CODE",
        coins=NotedCoins(folder),
        disk=KillingDisk(at, torn),
        sleep=lambda seconds: time.sleep(0.002),
        on_participate=lambda one: note(events, "start"),
        on_stop=lambda: note(events, "stop"),
        on_round=lambda done: (note(events, f"round {done.round}"), time.sleep(0.01)),
    )
    agent.run(rounds)
    note(folder / f"average{life}.log", str(agent.average_at_end))  # type: ignore[attr-defined]


def forked(*arguments) -> bool:
    """Whether the life was killed."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            live_and_tell(*arguments)
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit(f"a life failed: {arguments}")
    return os.WIFSIGNALED(status)


def live_and_tell(url, folder, rounds, at, torn, life):
    class Telling(Agent):
        average_at_end = None

        def close(self):
            if self._joined is not None and self._joined.decider.status():
                self.average_at_end = self.status()["average"]
            super().close()

    globals()["Agent"] = Telling
    live(url, folder, rounds, at, torn, life)


def main(home: Path, torn: bool) -> None:
    cases = []
    for step in range(1, MOST_STEPS):
        folder = home / str(step)
        folder.mkdir()
        coordinator = FakeCoordinator(lease=30.0, counts=lambda round, bit: round != 1)
        with served(coordinator) as url:
            if not forked(url, folder, FIRST_ROUNDS, step, torn, 1):
                break
            marked = (folder / "working.json").exists()
            with closing_a_lost_round(coordinator):
                forked(url, folder, LATER_ROUNDS, 0, False, 2)
        events = (folder / "events2.log").read_text().split("\n")
        cases.append(
            {
                "step": step,
                "killed": True,
                "marked": marked,
                "books": coordinator.books,
                "reported": sorted({report["round"] for report in coordinator.reports()}),
                "conflicts": len(coordinator.reports())
                - sum(1 for report in coordinator.reports() if same(coordinator, report)),
                "nonces": len(set(coordinator.nonces)),
                "first_event": events[0],
                "average": float((folder / "average2.log").read_text()),
            }
        )
    print(json.dumps(cases))


def same(coordinator, report) -> bool:
    return coordinator.books.get(report["round"], (report["participates"],))[0] == report["participates"]


@contextmanager
def closing_a_lost_round(coordinator):
    """A device that lost its round only asks, again and again, until the round has closed without it."""
    done, before, lost = threading.Event(), len(coordinator.received), coordinator.open

    def watch() -> None:
        while not done.wait(0.005):
            with coordinator.lock:
                asked = sum(path == "/v1/round" for _, path, _, _ in coordinator.received[before:])
                if coordinator.open == lost and asked >= PATIENT_QUESTIONS:
                    coordinator.open += 1

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        done.set()
        watching.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "torn")
