"""Flower without telemetry and without its log on the screen."""

import logging
import os

import pytest

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"


@pytest.fixture(autouse=True)
def quiet_flower():
    logger = logging.getLogger("flwr")
    before = logger.level
    logger.setLevel(logging.WARNING)
    yield
    logger.setLevel(before)


@pytest.fixture
def told(caplog):
    """What Flower's log says, each line once."""
    logger = logging.getLogger("flwr")
    before = logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)
    logger.propagate = before
