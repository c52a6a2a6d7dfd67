"""A coordinator with its agents and its operator, all of whose words are overheard."""

from __future__ import annotations

import base64
import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from service.agents import agent_with
from service.running import send
from service.wiretap import Wiretap
from turnout.algorithm import Clamp, SeededCoins
from turnout.client import DATUM, Ledger, Limit
from turnout.files import Disk
from turnout.privacy import UNKNOWN, Spending
from turnout.problem import PolynomialCosts

DEVICES, ROUNDS, SEED = 12, 15, 20
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101)
MECHANISM, LEASE = Clamp(0.75), 3.0
CAPACITY, LATER_CAPACITY, HARD_LIMIT = 712_390_625.125, 698_107_421.875, 1_013_671_875.625
QUORUM, MOST_SIGNAL, PRIOR = 0.28730468757, 8.3061929457e-5, (0.4375, 8.0)
LIMIT, SPENT_BEFORE = Limit(486_110_000_003, 1.31780364925), 104_729_000_017


class QuickDisk(Disk):
    """Does not wait for the disk: no power is cut here."""

    def sync(self, descriptor: int) -> None:
        return None


def cost_of(device: int) -> PolynomialCosts:
    """Three coefficients that are found nowhere else."""
    factors = [0.123456789012345 * PRIMES[2 * device + offset] for offset in (0, 1, 2)]
    return PolynomialCosts([[factors[0], 0.1 * factors[1], 0.01 * factors[2]]], powers=(2, 4, 6))


def weight_of(device: int) -> int:
    return 100_000_000 + 1_234_567 * PRIMES[device]


@dataclass
class Evidence:
    """All that was seen of a run."""

    home: Path
    tap: Wiretap
    operator: Wiretap
    files: dict[str, bytes] = field(default_factory=dict)
    words: dict[str, bytes] = field(default_factory=dict)  # logs, and what commands and the operator's API said
    random: set[bytes] = field(default_factory=set)  # secrets, and what is kept in their place


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "turnout", *map(str, arguments)]


def said_by(*arguments: object) -> bytes:
    done = subprocess.run(command(*arguments), capture_output=True, timeout=60, check=True)
    return done.stdout + done.stderr


class Serving:
    """`turnout serve` as a process of its own, and the proxies in front of it."""

    def __init__(self, home: Path) -> None:
        self.store, self.home = home / "run.db", home
        self._log = (home / "serve.log").open("wb")
        options = f"--capacity {CAPACITY} --hard-limit {HARD_LIMIT} --missing absent --run wire --wait-for {DEVICES}"
        options += f" --mechanism clamp --epsilon {MECHANISM.epsilon} --round-seconds 0.05 --deadline {LEASE} --port 0"
        options += f" --set safety.quorum={QUORUM} --set safety.most_signal={MOST_SIGNAL} --set controller.initial=1e-8"
        options += f" --set start.average={PRIOR[0]} --set start.rounds={PRIOR[1]} --operator-port 0 --log-format json"
        self.process = subprocess.Popen(
            command("serve", "--store", self.store, *options.split()), stdout=subprocess.PIPE, stderr=self._log
        )
        self.said = [self.process.stdout.readline().decode() for _ in range(3)]
        self.devices, self.operator = (re.search(r"http://[\d.:]+", line)[0] for line in self.said[1:])
        self.password = (home / "run.db.password").read_text().strip()

    def ask(self, url: str, path: str, body: object = None) -> bytes:
        """One request of the operator's; of a stream, the beginning."""
        where = urlsplit(url)
        connection = http.client.HTTPConnection(where.hostname, where.port, timeout=20)
        basic = base64.b64encode(f"operator:{self.password}".encode()).decode()
        headers = {"Authorization": f"Basic {basic}"}
        if body is not None:
            headers |= {"Content-Type": "application/json", "X-Turnout": "1"}
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), headers)
        reply = connection.getresponse()
        assert reply.status in (200, 201), (path, reply.status, reply.read())
        found = reply.read1(200_000) + reply.read1(200_000) if path == "/api/events" else reply.read()
        connection.close()
        return found

    def stop(self) -> bytes:
        self.process.send_signal(signal.SIGTERM)
        rest = self.process.communicate(timeout=20)[0]
        self._log.close()
        return "".join(self.said).encode() + rest + (self.home / "serve.log").read_bytes()


def start_agents(url: str, home: Path, codes: list[str]) -> list[threading.Thread]:
    threads = []
    for device, code in enumerate(codes):
        folder = home / f"device-{device}"
        folder.mkdir()
        with Ledger.open(folder / "ledger.jsonl", datum=DATUM, limit=LIMIT, disk=QuickDisk()) as ledger, ledger.turn():
            ledger._spend_missing(Spending(Counter({UNKNOWN: SPENT_BEFORE})), {}, {})
        coins, options = SeededCoins(SEED), {"limit": LIMIT, "client_id": device, "disk": QuickDisk(), "timeout": 20.0}
        agent = agent_with(url, folder, cost_of(device), code=code, coins=coins, **options)
        threads.append(threading.Thread(target=agent.run, args=(ROUNDS,), daemon=True))
        threads[-1].start()
    return threads


def misbehave(url: str, token: str) -> None:
    """Every refusal that devices can get, so that it is read as well."""
    report = {"run": "wire", "round": 0, "participates": True}
    for body in (report, report | {"participates": False}, report | {"round": 999}, report | {"run": "other"}, [1], {}):
        send(url, "POST", "/v1/report", body, token)
    send(url, "POST", "/v1/report", b"x" * 3000, token)
    for _ in range(30):
        send(url, "POST", "/v1/report", report, "wrong")
    send(url, "POST", "/v1/enrol", {"code": "abcd-efgh", "nonce": "n" * 20})
    send(url, "GET", "/v1/round", None, token)
    send(url, "GET", "/v1/nothing", None, token)
    send(url, "POST", "/v1/leave", {}, token)


def enrolment(home: Path, device: int) -> dict:
    return json.loads((home / f"device-{device}" / "agent.json").read_text())


def look_around(serving: Serving, found: Evidence) -> None:
    """Use everything that an operator has."""
    url = found.operator.url
    shown = ("snapshot", "rounds", "log", "devices", "events")
    for path in ("/", *(f"/api/{name}" for name in shown), "/metrics", "/healthz"):
        found.words[path] = serving.ask(url, path)
    found.words["codes"] = serving.ask(url, "/api/codes", {"count": 2, "weight": 3})
    found.random |= {code.encode() for code in json.loads(found.words["codes"])["codes"]}
    found.words["control"] = serving.ask(url, "/api/control", {"capacity": LATER_CAPACITY})
    password = serving.home / "run.db.password"
    found.words["status"] = said_by("status", url, "--password-file", password)
    found.words["export"] = said_by("operate", "export", serving.home / "run.npz", "--store", serving.store)
    found.words["backup"] = said_by("operate", "backup", serving.home / "copy.db", "--store", serving.store)
    found.words["devices"] = said_by("operate", "devices", "--store", serving.store)
