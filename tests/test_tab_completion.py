"""What a notebook offers after a dot: the names a user wants, though none is loaded before it is used."""

import importlib
import subprocess
import sys

import pytest

from turnout.algorithm import Mechanism

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
    offered = set(dir(importlib.import_module("turnout.algorithm")))
    assert {kind.__name__ for kind in package.MECHANISMS.values()} <= offered
    assert all(issubclass(kind, Mechanism) for kind in package.MECHANISMS.values())


def test_names_are_offered_before_anything_is_loaded():
    code = "import sys, turnout; assert 'plot' in dir(turnout); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_what_a_user_looks_for_first_is_at_the_root():
    package = importlib.import_module("turnout")
    mechanisms = importlib.import_module("turnout.algorithm.mechanisms").MECHANISMS
    for kind in mechanisms.values():
        assert getattr(package, kind.__name__) is kind
    assert {"Clamp", "Memoized", "certificate", "account_of"} <= set(dir(package))
    assert package.Goal.__name__ == "Goal"


@pytest.mark.parametrize(("wrong", "hint"), [("clamp", "did you mean 'Clamp'?"), ("quux", "dir(turnout) lists")])
def test_a_wrong_name_gets_the_nearest(wrong, hint):
    with pytest.raises(AttributeError) as caught:
        getattr(importlib.import_module("turnout"), wrong)
    assert hint in str(caught.value)


@pytest.mark.parametrize("module", ["turnout.privacy.certificates", "turnout.privacy.accounts", "turnout.plan"])
def test_a_name_of_the_root_hides_no_module(module):
    package = importlib.import_module("turnout")
    _ = package.certificate, package.account_of, package.Goal
    assert importlib.import_module(module).__name__ == module
    assert callable(package.certificate)
    assert callable(package.account_of)
