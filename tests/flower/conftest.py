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
