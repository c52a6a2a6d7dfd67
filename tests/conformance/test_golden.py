"""Every result is what it was when `golden.json` was written, to the bit and on every engine.

`golden.py` makes the digests and says when they may be written again.
"""

import numpy as np
import pytest

from conformance.golden import LIBRARY, OWN, Case, digest, known, library, of_run, others, simulated
from simulation.test_ray_engine import two_nodes  # noqa: F401 (a fixture)
from turnout import PaperCoin

pytestmark = pytest.mark.filterwarnings("ignore:the turnout swings")  # some gains are unstable on purpose

GOLDEN, CASES, OTHERS = known(), simulated(), others()


def on_shards(case):
    """On a cluster that is only pretended, three shards."""
    from simulation.test_ray_engine import Pretended, sharded, staged

    given = {"seed": 9, "keep": None} | case.options
    if isinstance(given.get("start"), Case):
        given |= {"seed": None, "start": on_shards(given["start"])}
    stage = staged(case.problem, case.mechanism, case.rounds, server=case.controller, **given)
    return sharded(stage, 3, Pretended())


ENGINES = {
    "numpy": lambda case: case.run("numpy"),
    "numba": lambda case: case.run("numba", threads=2),
    "jax": lambda case: case.run("jax"),
    "ray": on_shards,
}


def changed(group, found):
    """The cases whose digests are others than in the file; the machine's library is named if that may be why."""
    wrong = [name for name, made in found.items() if made != GOLDEN[group][name]]
    return (
        [*wrong, "(its exp or pow rounds differently)"] if wrong and library() != GOLDEN[LIBRARY]["rounds"] else wrong
    )


def check(group, engine):
    cases = CASES[group]
    if engine in ("numba", "jax"):  # these run polynomials alone
        cases = {name: case for name, case in cases.items() if not name.startswith(OWN)}
    assert cases
    assert not changed(group, {name: of_run(ENGINES[engine](case)) for name, case in cases.items()})


def test_the_file_holds_these_cases_and_no_others():
    named = {group: set(cases) for group, cases in (CASES | OTHERS).items()}
    assert {group: set(cases) for group, cases in GOLDEN.items() if group != LIBRARY} == named


@pytest.mark.parametrize("group", CASES)
def test_every_case_on_the_readable_engine(group):
    check(group, "numpy")


@pytest.mark.deployment
@pytest.mark.parametrize("engine", ["numba", "jax", "ray"])
@pytest.mark.parametrize("group", CASES)
def test_every_case_on_every_engine(group, engine):
    """Long, since kernels are compiled; that engines agree with each other is tested in test_engines.py."""
    check(group, engine)


@pytest.mark.parametrize("group", OTHERS)
def test_what_no_engine_runs(group):
    assert not changed(group, {name: made() for name, made in OTHERS[group].items()})


def test_a_changed_last_bit_changes_the_digest():
    arrays = [np.linspace(0.0, 1.0, 5), np.arange(4), np.array([True, False]), None]
    usual = digest(*arrays)
    assert digest(*[None if array is None else array.copy() for array in arrays]) == usual
    other = np.nextafter(arrays[0], 2.0)
    for place in range(5):
        one = arrays[0].copy()
        one[place] = other[place]
        assert digest(one, *arrays[1:]) != usual
    assert digest(arrays[0].reshape(5, 1), *arrays[1:]) != usual, "the shape"
    assert digest(arrays[0], arrays[1].astype(np.uint64), *arrays[2:]) != usual, "the dtype"
    assert digest(arrays[1], arrays[0], *arrays[2:]) != usual, "the order"
    assert digest(*arrays[:3]) != usual, "what was not recorded"


def test_a_coin_off_by_its_last_bit_is_noticed():
    """The sabotaged twin: equal turnouts, and yet another digest."""
    group, name = "mechanisms and options", "paper-coin, by probability"
    right = CASES[group][name]
    wrong = Case(right.problem, PaperCoin(np.nextafter(3.5, 4.0)), right.controller, right.rounds, right.options)
    np.testing.assert_array_equal(wrong.run().participants, right.run().participants)
    assert not changed(group, {name: of_run(right.run())})
    assert changed(group, {name: of_run(wrong.run())})


@pytest.mark.deployment
@pytest.mark.usefixtures("two_nodes")
@pytest.mark.parametrize(
    ("group", "name"),
    [
        ("mechanisms and options", "paper-coin by client, all"),
        ("controllers", "self-tuning, clamp, prior"),
        ("noise on the sum", "falling-gain, half leave"),
    ],
)
def test_some_cases_on_ray_nodes(group, name):
    run = CASES[group][name].run("ray")
    assert run.provenance["engine"] == "ray"
    assert not changed(group, {name: of_run(run)})
