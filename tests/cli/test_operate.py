"""`turnout operate` as an operator meets it."""

import time

import pytest
from typer.testing import CliRunner

from service.running import begun
from turnout.cli.operate import app
from turnout.service.coordinator.roll import hashed
from turnout.service.stores.locations import open_store
from turnout.service.stores.store import Enrolment


@pytest.fixture
def store(tmp_path):
    begun(tmp_path / "run.db").close()
    return str(tmp_path / "run.db")


def codes(store, *arguments):
    done = CliRunner().invoke(app, ["codes", "--store", store, *map(str, arguments)])
    if done.exception:
        raise done.exception
    return done.stdout.split()


def is_good(store, code, hours):
    """Whether a device can still enrol with it so many hours from now."""
    opened = open_store(store)
    try:
        [device] = opened.enrol(
            [Enrolment(hashed(code), hashed("nonce"), hashed(f"token {code}"))], time.time() + 3600.0 * hours
        )
    finally:
        opened.close()
    return device is not None


def test_codes_are_good_for_a_day_unless_told_otherwise(store):
    usual, late = codes(store, 2)
    assert is_good(store, usual, 23.9)
    assert not is_good(store, late, 24.1)
    usual, late = codes(store, 2, "--hours", 1000, "--weight", 2**40)
    assert is_good(store, usual, 999.9)
    assert not is_good(store, late, 1000.1)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["0"], "count must be from 1 to 100,000"),
        (["100001"], "count must be from 1 to 100,000"),
        (["--weight", 2**40 + 1], "weight must be a whole number from 1 to 1,099,511,627,776"),
        (["--hours", 0], "hours must be above 0 and below a million, got 0.0"),
        (["--hours", "nan"], "hours must be above 0 and below a million"),
    ],
)
def test_what_no_operator_means_is_refused(store, arguments, told):
    with pytest.raises(ValueError, match=told):
        codes(store, *arguments)
