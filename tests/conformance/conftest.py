"""A new store of each kind, for the suite that every store must pass."""

import pytest

from conformance.places import Places


@pytest.fixture(params=["sqlite", "postgres"])
def places(request, tmp_path):
    made = Places(request.param, tmp_path)
    yield made
    for opened in made.opened:
        opened.close()


@pytest.fixture
def kept(places):
    return places.begun()
