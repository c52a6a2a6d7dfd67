"""A compiled kernel is kept on disk by its name: the name must change with all that it is compiled from."""

from turnout.simulation.engines.numba_kernel import _fingerprint


def function(text="x * SCALE", **constants):
    exec(f"def decide(x):\n    return {text}", constants)
    return constants["decide"]


def test_the_name_of_a_kernel_changes_with_description_code_and_constants():
    usual = _fingerprint("paper-coin", function(SCALE=2.0))
    assert usual == _fingerprint("paper-coin", function(SCALE=2.0))
    assert usual != _fingerprint("clamp", function(SCALE=2.0))
    assert usual != _fingerprint("paper-coin", function("x + SCALE", SCALE=2.0))
    assert usual != _fingerprint("paper-coin", function(SCALE=3.0))
