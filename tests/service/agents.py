"""An agent beside a coordinator's double, what it keeps on file, and coins that always say the same."""

import json
import time

from service.fake_coordinator import DirectWire
from turnout.algorithm import SeededCoins
from turnout.client import Owner
from turnout.service.agent import Agent, AgentSeams, CalledWork, HttpWire

URL = "http://coordinator.example"


def agent_with(url, folder, costs, kind=Agent, **options):
    """An agent from options one by one, whichever group they belong to."""

    def group(made, *names):
        return made(**{name: options.pop(name) for name in names if name in options})

    owner = group(Owner, *Owner.__dataclass_fields__)
    seams = group(AgentSeams, *AgentSeams.__dataclass_fields__)
    called = group(CalledWork, *CalledWork.__dataclass_fields__)
    if "timeout" in options:
        options["wire"] = HttpWire(url, seconds=options.pop("timeout"))
    return kind(url, folder, costs, **{"owner": owner, "work": called, "seams": seams} | options)


def make(folder, coordinator, **options):
    usual = {"wire": DirectWire(coordinator), "code": "GOOD-CODE", "sleep": lambda seconds: None}
    options = usual | {"witness": folder / "ledger.jsonl.witness"} | options
    return agent_with(options.pop("url", URL), folder, options.pop("costs", 3.0), **options)


def on_file(folder, run="run"):
    """{round: (bit, counted)} of the device, tosses and lost rounds."""
    found = {}
    for line in (folder / run / "rounds.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["entry"] == "decided" and entry["kind"] != "lost":
            found[entry["round"]] = (entry["participates"], entry["counted"])
        elif entry["entry"] == "acknowledged" and entry["round"] in found:
            found[entry["round"]] = (found[entry["round"]][0], entry["counted"])
    return found


def reserved(folder):
    entries = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    return [entry["round"] for entry in entries if entry["entry"] == "reserved"]


def average(books, rounds, prior=(0.5, 10)):
    return (prior[0] * prior[1] + sum(bit and counted for bit, counted in books.values())) / (prior[1] + rounds)


class Always(SeededCoins):
    """Says yes whenever that is possible at all."""

    def __init__(self):
        super().__init__(0)

    def uniform(self, clients, round, purpose=0):
        return super().uniform(clients, round, purpose) * 0.0


class Never(SeededCoins):
    """Says no whenever that is possible at all."""

    def __init__(self):
        super().__init__(0)

    def uniform(self, clients, round, purpose=0):
        return super().uniform(clients, round, purpose) * 0.0 + 0.999


def until(true, seconds=5.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)
