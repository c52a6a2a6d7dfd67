"""The numbers of docs/upgrading.md: what grows, and by how much."""

import re
from pathlib import Path

import numpy as np
import pytest

from service.agents import make
from service.fake_coordinator import FakeCoordinator
from service.postgres import server
from service.running import begun, usual_rules
from turnout.client import Limit
from turnout.client.store import KEPT, LINES
from turnout.files import Disk
from turnout.service import KEPT_ROUNDS, NO, YES, Members, Summary, close
from turnout.service.coordinator import hashed
from turnout.service.coordinator.exporting import STEP
from turnout.service.store import SCHEMA, Enrolment, SqliteStore

PAGE = (Path(__file__).parents[2] / "docs" / "upgrading.md").read_text()


class Unsynced(Disk):
    """For speed: nothing crashes here."""

    def sync(self, descriptor):
        pass

    def sync_folder(self, folder):
        pass


def numbers(row: str) -> list[float]:
    """Of the third column of a row of the table."""
    [line] = [line for line in PAGE.splitlines() if line.startswith(row)]
    found = re.findall(r"([\d.]+) (bytes|kB)", line.split("|")[3])
    return [float(number) * {"bytes": 1, "kB": 1000}[unit] for number, unit in found]


def test_a_devices_files(tmp_path):
    agent = make(tmp_path, FakeCoordinator(), disk=Unsynced(), limit=Limit(1000, 1.0))
    files, sizes = (tmp_path / "ledger.jsonl", tmp_path / "run" / "rounds.jsonl"), []
    for _ in range(2):
        for _ in range(150):
            agent.step()
        sizes.append([file.stat().st_size for file in files])
    agent.close()
    (ledger, rounds), told = (
        (np.diff(sizes, axis=0)[0] / 150),
        (numbers("| device | ledger"), numbers("| device | rounds")),
    )
    assert told[0] == [pytest.approx(ledger, rel=0.03)]
    assert told[1] == [pytest.approx(rounds, rel=0.03)]
    assert f"up to {LINES:,} lines, which is 1.1 MB" in PAGE
    assert LINES / 2 * rounds == pytest.approx(1.1e6, rel=0.05)
    assert f"the last {KEPT} rounds" in PAGE
    assert "10,000 reports are 3.3 MB" in PAGE


def size_of(store, location: str) -> int:
    if "://" not in location:
        store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return Path(location).stat().st_size
    sql = "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    return int(server().sql(location, sql + "WHERE n.nspname = 'turnout' AND relkind = 'r'")[0][0])


@pytest.mark.parametrize("kind", ["SQLite", "PostgreSQL"])
def test_a_coordinators_rounds(tmp_path, kind):
    found = []
    for devices, rounds in ((300, 1000), (10_000, 150))[: 2 if kind == "SQLite" else 1]:
        location = str(tmp_path / f"{devices}.db") if kind == "SQLite" else server().database()
        store = begun(location, usual_rules())
        if isinstance(store, SqliteStore):
            store._set("synchronous = OFF")
        keys = [Enrolment(*(hashed(f"{what}{i}") for what in "cnt")) for i in range(devices)]
        store.add_codes([key.code for key in keys], 1, None, "test")
        store.enrol(keys, 0.0)
        members = Members(np.ones(devices, np.int64), np.zeros(devices, np.int64), np.ones(devices, np.bool_))
        random, position, before = np.random.default_rng(0), store.position(), size_of(store, location)
        for _ in range(rounds):
            reports = random.integers(NO, YES + 1, devices).astype(np.uint8)
            closed, position = close(usual_rules(), position, members, reports, devices / 2, random, closed_at=1e9)
            store.close_round(closed, position)
        found.append((size_of(store, location) - before) / rounds)
        store.close()
    assert numbers(f"| {kind} ") == [pytest.approx(size, rel=0.1 if kind == "SQLite" else 0.2) for size in found]
    if kind == "SQLite":
        assert 8640 * found[0] == pytest.approx(1.0e6, rel=0.1)
        assert 8640 * found[1] == pytest.approx(35e6, rel=0.05)


def test_other_numbers():
    assert f"The last {KEPT_ROUNDS:,} always stay" in PAGE
    assert f"one transaction, {STEP:,} at a time" in PAGE
    one = Summary(1, np.zeros(1), np.zeros(1), np.zeros(1, np.int64), np.zeros(1, np.uint8))
    arrays = [getattr(one, name) for name in ("participations", "spans", "heard", "codes")]
    assert f"{sum(array.nbytes for array in arrays)} bytes per device before compression" in PAGE
    assert re.findall(r"^\| (\d) \| ", PAGE, re.MULTILINE) == [str(version) for version in range(1, SCHEMA + 1)]
