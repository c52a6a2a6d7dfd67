"""A store of an earlier release is brought up to date as a whole, and then is like one that was made today."""

import numpy as np
import pytest

from conformance import version_1
from turnout.service import MISSING, NO, YES, changed_settings
from turnout.service.coordinator.exporting import export
from turnout.service.store import schema, store
from turnout.service.store.backup import open_store, restore
from turnout.service.store.store import StoreProblem


@pytest.fixture
def location(places):
    found = places.new()
    version_1.make(places.kind, found)
    return found


def test_a_store_of_version_1_becomes_like_a_new_one(places, location):
    kept = places.open(location)
    assert kept.run().name == "chargers"
    assert [device.weight for device in kept.devices()] == [1, 3, 1]
    assert kept.devices()[2].left == 2
    assert [closed.codes.tolist() for closed in kept.history()] == [[YES], [YES, NO, MISSING]]
    assert [line.detail for line in kept.changes()] == ["4 -> 5"]
    assert [(version.number, version.since, version.at) for version in kept.rules()] == [(1, 0, 1234.5)]
    new = places.new()
    places.begun(new)
    assert version_1.columns(places.kind, location) == version_1.columns(places.kind, new)
    assert version_1.triggers(places.kind, location) == version_1.triggers(places.kind, new)


def test_a_run_of_version_1_goes_on_with_other_rules(places, location, tmp_path):
    kept = places.open(location)
    settings = changed_settings(kept.rules()[-1].settings, {"timing": {"round": 30}, "mechanism": {"epsilon": 0.5}})
    made = kept.change_rules(settings, 1, "me")
    assert (made.number, made.since) == (2, 3)
    assert np.array_equal(export(kept).participants, [1, 1])
    kept.backup(tmp_path / "copy.db")
    back = places.new()
    restore(tmp_path / "copy.db", back)
    assert places.open(back).rules() == kept.rules()
    with pytest.raises(ValueError, match="at most the hard limit of 7"):
        kept.change("me", capacity=8.0)


def test_a_copy_of_version_1_is_restored(places, tmp_path):
    version_1.make("sqlite", str(tmp_path / "copy.db"))
    before = (tmp_path / "copy.db").read_bytes()
    location = places.new()
    found = restore(tmp_path / "copy.db", location)
    assert (found.run.name, found.round, found.members) == ("chargers", 2, 2)
    assert (tmp_path / "copy.db").read_bytes() == before, "the copy stays as it is"
    assert len(places.open(location).devices()) == 3


def test_a_migration_that_fails_leaves_version_1(places, location, monkeypatch):
    monkeypatch.setitem(schema.MIGRATIONS, 1, [*schema.MIGRATIONS[1], "UPDATE nothing SET at_all = 1"])
    before = version_1.columns(places.kind, location)
    with pytest.raises(StoreProblem, match="nothing"):
        open_store(location)
    assert version_1.columns(places.kind, location) == before
    monkeypatch.undo()
    assert places.open(location).position().round == 2


def test_two_that_open_it_at_once_migrate_it_once(places, location):
    first, second = places.open(location), places.open(location)
    first.change("me", capacity=6.0)
    assert second.control().capacity == 6.0
    assert places.sql(location, "SELECT value FROM main.meta") == [(str(store.SCHEMA),)]
