"""What a notebook offers after a dot: the names a user wants, though none is loaded before it is used."""

import importlib
import subprocess
import sys

import pytest

from turnout.algorithm.mechanism import Mechanism

PACKAGES = ["turnout", "turnout.algorithm.mechanisms", "turnout.flower"]


@pytest.mark.parametrize("name", PACKAGES)
def test_every_name_offered_is_there_and_none_is_borrowed(name):
    package = importlib.import_module(name)
    assert dir(package) == sorted(package.__all__)
    for offered in package.__all__:
        thing = getattr(package, offered)
        assert getattr(thing, "__module__", "turnout").startswith("turnout")


def test_every_mechanism_is_offered():
    package = importlib.import_module("turnout.algorithm.mechanisms")
    assert {kind.__name__ for kind in package.MECHANISMS.values()} <= set(dir(package))
    assert all(issubclass(kind, Mechanism) for kind in package.MECHANISMS.values())


def test_names_are_offered_before_anything_is_loaded():
    code = "import sys, turnout; assert 'plot' in dir(turnout); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
