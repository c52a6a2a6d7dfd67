"""Noise on the sum: the laws of the exact draws and of the seeded ones, and the server that expects noise."""

import inspect
import itertools
import json
import math
import random
import secrets

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import chi2, norm

from statistical.binomial import FALSE_ALARM
from turnout import FallingGainController, SumNoise
from turnout.algorithm import controller_from_settings, discrete_gaussian, noise, noise_from_settings
from turnout.algorithm.controllers import FallingGainState
from turnout.problem import philox4x32
from turnout.settings import Table

SIGMAS = (1.0, 1.5, 3.0, 20.0)
TABLE = 2.0**15
DRAWS = 25_000
LIMIT = norm.isf(FALSE_ALARM / 2)
"""Standard deviations that a normal number passes with a chance of 1e-6."""


# The law


def mass(sigma):
    """(whole numbers, their chances) of discrete Gaussian noise."""
    places = np.arange(-math.ceil(12 * sigma), math.ceil(12 * sigma) + 1)
    chances = np.exp(-0.5 * np.square(places / sigma))
    return places, chances / chances.sum()


def agreement(values, places, chances):
    """The p-value of a chi-square test: values against the chances of places, in cells of 0.4 deviations."""
    deviation = math.sqrt(np.sum(chances * np.square(places)))
    edges = np.unique(np.ceil(deviation * np.linspace(-2.4, 2.4, 13)))
    wanted = len(values) * np.bincount(np.searchsorted(edges, places, side="right"), chances)
    found = np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(wanted))
    assert wanted.min() > 20  # or the test statistic has another law
    return chi2.sf(np.sum(np.square(found - wanted) / wanted), len(wanted) - 1)


def drawn(sigma, seed=11):
    """Exact draws, from a generator that is always the same."""
    below = random.Random(seed).randrange
    return np.array([discrete_gaussian(sigma, below) for _ in range(DRAWS)])


@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_exact_draws_have_the_law_and_thin_tails_do_not(sigma):
    """A sampler that is right fails with a chance of 1e-6. In the sabotaged twin, values beyond 2 sigma are redrawn."""
    values = drawn(sigma)
    assert agreement(values, *mass(sigma)) >= FALSE_ALARM
    assert agreement(values[np.abs(values) <= 2 * sigma], *mass(sigma)) < FALSE_ALARM


@pytest.mark.parametrize("sigma", SIGMAS)
def test_a_sigma_that_is_5_percent_too_small_is_noticed(sigma):
    """The other sabotaged twins, in as many draws: the same law with less noise, and a rounded normal number.

    Rounding adds 1/12 to the variance, which hides the 5 % where sigma is small.
    """
    generator = np.random.default_rng(5)
    narrow = mass(0.95 * sigma)
    assert agreement(generator.choice(narrow[0], DRAWS, p=narrow[1]), *mass(sigma)) < FALSE_ALARM
    if sigma >= 3:
        assert agreement(np.rint(generator.normal(0, 0.95 * sigma, DRAWS)), *mass(sigma)) < FALSE_ALARM


def test_one_draw_is_a_whole_number_of_python():
    assert all(type(discrete_gaussian(2.5)) is int for _ in range(5))
    assert abs(discrete_gaussian(2.0**40)) < 12 * 2**40


# The seeded noise of simulations


@pytest.mark.parametrize("sigma", [*SIGMAS, TABLE, 1.01 * TABLE])
def test_the_seeded_noise_has_the_law(sigma):
    """Fails with a chance of 1e-6. The twin has 5 % less noise."""
    assert agreement(SumNoise(sigma).seeded(3, 0, DRAWS), *mass(sigma)) >= FALSE_ALARM
    if 0.95 * sigma >= 1:
        assert agreement(SumNoise(0.95 * sigma).seeded(3, 0, DRAWS), *mass(sigma)) < FALSE_ALARM


def test_it_is_a_function_of_the_seed_and_the_round_alone():
    for some in (SumNoise(50.0), SumNoise(50.0, 7, 9.0, aggregators=2, every=2), SumNoise(2.0**20)):
        whole = some.seeded(42, 0, 20)
        np.testing.assert_array_equal(some.seeded(42, 5, 9), whole[5:9])
        np.testing.assert_array_equal([some.seeded(42, k, k + 1)[0] for k in range(20)], whole)
        np.testing.assert_array_equal(SumNoise(**vars(some)).seeded(42, 0, 20), whole)
        assert whole.dtype == np.int64
    assert SumNoise(50.0).seeded(42, 3, 3).shape == (0,)


def correlation(one, other):
    """In standard deviations of that of independent numbers."""
    return abs(np.corrcoef(one, other)[0, 1]) * math.sqrt(len(one))


def test_seeds_rounds_and_aggregators_are_independent():
    """Each correlation is too large with a chance of 1e-6; the seeds differ in either word of the key."""
    some, both = SumNoise(50.0), SumNoise(50.0, aggregators=2)
    first = some.seeded(1, 0, DRAWS)
    others = [some.seeded(seed, 0, DRAWS) for seed in (0, 2, 1 + 2**32, 2**63)]
    second = both.seeded(1, 0, DRAWS) - first
    for other in [*others, second]:
        assert correlation(first, other) < LIMIT
    assert correlation(first[1:], first[:-1]) < LIMIT
    assert correlation(first, others[0] + 0.1 * first) > LIMIT  # the twin


def test_two_aggregators_add_all_the_noise_each():
    """The variance is 2 sigma^2; it is off by more with a chance of 1e-6, as it is for one aggregator."""
    places, once = mass(3.0)
    twice = np.convolve(once, once)
    spread = np.arange(2 * places[0], 2 * places[-1] + 1)
    both, one = (SumNoise(3.0, aggregators=many).seeded(8, 0, DRAWS) for many in (2, 1))
    assert agreement(both, spread, twice) >= FALSE_ALARM
    assert agreement(one, spread, twice) < FALSE_ALARM
    allowed = LIMIT * math.sqrt(2 / DRAWS)
    assert abs(both.var() / 18.0 - 1) < allowed < abs(one.var() / 18.0 - 1)
    assert SumNoise(3.0, aggregators=2).factor == pytest.approx(math.sqrt(both.var() / 9.0), rel=allowed)


def test_nothing_is_added_where_nothing_is_opened():
    every, all_opened = SumNoise(400.0, every=3), SumNoise(400.0).seeded(5, 0, 30)
    opened = np.arange(30) % 3 == 2
    assert [every.is_opened(round) for round in range(30)] == opened.tolist()
    np.testing.assert_array_equal(every.seeded(5, 0, 30), np.where(opened, all_opened, 0))
    assert np.isinf(every.sigmas(0, 30)).tolist() == (~opened).tolist()
    assert SumNoise(400.0, 8, 60.0, every=3).opened(0, 30) == {60.0: 2, 400.0: 8}
    assert SumNoise(400.0, 8, 60.0, every=3).opened(8, 10) == {400.0: 1}
    assert every.opened(0, 2) == {}


def test_early_rounds_have_their_own_sigma():
    some = SumNoise(400.0, early=10, early_sigma=60.0)
    assert some.sigmas(8, 12).tolist() == [60.0, 60.0, 400.0, 400.0]
    np.testing.assert_array_equal(some.seeded(5, 0, 10), SumNoise(60.0).seeded(5, 0, 10))
    np.testing.assert_array_equal(some.seeded(5, 10, 30), SumNoise(400.0).seeded(5, 10, 30))


def test_a_large_sigma_takes_a_rounded_normal_number():
    """At the border both ways give the same, up to a rounding; above it no table is made, which would not fit."""
    table, normal = (SumNoise(sigma).seeded(6, 0, 3_000) for sigma in (TABLE, np.nextafter(TABLE, np.inf)))
    assert np.abs(table - normal).max() <= 1
    places = SumNoise(2.0**40).seeded(6, 0, DRAWS) / 2.0**40
    edges = np.linspace(-2.4, 2.4, 13)
    wanted = np.diff(np.concatenate([[0.0], ndtr(edges), [1.0]])) * DRAWS
    found = np.bincount(np.searchsorted(edges, places), minlength=len(wanted))
    assert chi2.sf(np.sum(np.square(found - wanted) / wanted), len(wanted) - 1) >= FALSE_ALARM


@pytest.mark.parametrize("sigma", [1.0, 3.0, TABLE, 1.01 * TABLE, 2.0**40])
def test_the_outermost_words_give_finite_noise(sigma, monkeypatch):
    """Uniform numbers 0, one half and 1 - 2^-53: the least, the median and the largest noise."""
    found = []
    for word in (0, 2**31, 2**32 - 1):
        words = np.full(1, word, np.uint32)
        low = words if word != 2**31 else np.zeros(1, np.uint32)
        monkeypatch.setattr(noise, "philox4x32", lambda counter, key, words=words, low=low: (words, low, low, low))
        found.append(int(SumNoise(sigma).seeded(0, 0, 1)[0]))
    assert -9.0 * sigma <= found[0] < -7 * sigma
    assert found[1] == 0
    assert 7 * sigma < found[2] <= 9.0 * sigma


# Bounded noise


def conditioned(sigma, bound):
    """(whole numbers, their chances) of the noise, given that it is from -bound to bound."""
    places, chances = mass(sigma)
    inside = np.abs(places) <= bound
    return places[inside], chances[inside] / chances[inside].sum()


@pytest.mark.parametrize(("sigma", "bound"), [(1.0, 1), (3.0, 3), (20.0, 26), (1.01 * TABLE, math.ceil(1.4 * TABLE))])
def test_bounded_noise_has_the_law_given_the_bound(sigma, bound):
    """Exact and seeded. Fails with a chance of 1e-6. The twin moves what is beyond the bound to the bound."""
    law, below = conditioned(sigma, bound), random.Random(2).randrange
    kinds = [SumNoise(sigma, bound=bound).seeded(3, 0, DRAWS)]
    if sigma < TABLE:
        kinds.append(np.array([SumNoise(sigma, bound=bound).draw(0, below) for _ in range(DRAWS)]))
    for values in kinds:
        assert np.abs(values).max() == bound or sigma > TABLE
        assert np.abs(values).max() <= bound
        assert cells(values, *law) >= FALSE_ALARM
    clipped = np.clip(SumNoise(sigma).seeded(3, 0, DRAWS), -bound, bound)
    assert cells(clipped, *law) < FALSE_ALARM


def cells(values, places, chances):
    """The p-value of a chi-square test in some nine cells of the places."""
    cell = np.minimum((9 * (places - places[0])) // len(places), 8)
    mine = cell[np.asarray(values) - places[0]]
    wanted = len(values) * np.bincount(cell, chances)
    wanted, found = wanted[wanted > 0], np.bincount(mine, minlength=len(wanted))[wanted > 0]
    return chi2.sf(np.sum(np.square(found - wanted) / wanted), len(wanted) - 1)


def test_a_bound_changes_only_what_is_beyond_it():
    """Also for two aggregators: each draws its own again, at the next turn of its counter, until it is inside."""
    for bound in (50, 80, 10**6):
        free, held = SumNoise(50.0), SumNoise(50.0, bound=bound)
        one, other = free.seeded(4, 0, 3_000), held.seeded(4, 0, 3_000)
        inside = np.abs(one) <= bound
        np.testing.assert_array_equal(one[inside], other[inside])
        assert np.all(one[~inside] != other[~inside])
        assert (bound == 10**6) == bool(inside.all())
        both = SumNoise(50.0, aggregators=2, bound=bound).seeded(4, 0, 3_000)
        assert np.abs(both).max() <= 2 * bound
        assert np.abs(both - other).max() <= bound
    some = SumNoise(50.0, 7, 9.0, aggregators=2, every=2, bound=51)
    whole = some.seeded(42, 0, 40)
    np.testing.assert_array_equal([some.seeded(42, k, k + 1)[0] for k in range(40)], whole)


def test_the_turn_is_the_third_word_of_the_counter(monkeypatch):
    asked = []
    monkeypatch.setattr(noise, "philox4x32", lambda counter, key: asked.append(counter) or philox4x32(counter, key))
    SumNoise(50.0, bound=50).seeded(4, 0, 1_000)
    assert [counter[2] for counter in asked] == list(range(len(asked)))
    for before, after in itertools.pairwise(asked):
        assert set(after[1].tolist()) < set(before[1].tolist())
    asked.clear()
    SumNoise(50.0).seeded(4, 0, 1_000)
    assert [counter[2] for counter in asked] == [0]


def test_the_first_draw_inside_the_bound_is_taken():
    below = random.Random(8).randrange
    drawn_there = [discrete_gaussian(3.0, below) for _ in range(2_000)]
    below = random.Random(8).randrange
    held = [SumNoise(3.0, bound=4).draw(0, below) for _ in range(1_000)]
    assert held == [value for value in drawn_there if abs(value) <= 4][:1_000]


# The exact draws of a round


def test_a_draw_has_the_sigma_of_its_round():
    some = SumNoise(300.0, early=4, early_sigma=2.0, aggregators=2, every=2)
    for round, sigma in ((1, 2.0), (3, 2.0), (5, 300.0), (2**31 - 1, 300.0)):
        drawn_there = [some.draw(round, random.Random(7).randrange) for _ in range(2)]
        assert drawn_there == [discrete_gaussian(sigma, random.Random(7).randrange)] * 2


def test_a_draw_comes_from_the_entropy_of_the_system():
    for function in (SumNoise.draw, discrete_gaussian):
        assert inspect.signature(function).parameters["below"].default is secrets.randbelow
    assert len({SumNoise(1e6).draw(0) for _ in range(10)}) > 5


@pytest.mark.parametrize("round", [0, 1, 3])
def test_no_draw_where_nothing_is_opened(round):
    with pytest.raises(
        ValueError, match=rf"^round must be one in which .* \(every 3\), got {round}: wait for the next"
    ):
        SumNoise(5.0, every=3).draw(round)


# Settings and refusals


@pytest.mark.parametrize(
    ("some", "settings"),
    [
        (SumNoise(20), {"sigma": 20.0}),
        (SumNoise(400.5, 30, 60.0), {"sigma": 400.5, "early": 30, "early_sigma": 60.0}),
        (SumNoise(1.0, aggregators=2, every=7), {"sigma": 1.0, "aggregators": 2, "every": 7}),
        (SumNoise(9.0, bound=np.int64(50)), {"sigma": 9.0, "bound": 50}),
        (
            SumNoise(np.float32(9.5), np.int64(3), np.float64(2.0), np.int32(2), np.int64(4)),
            {"sigma": 9.5, "early": 3, "early_sigma": 2.0, "aggregators": 2, "every": 4},
        ),
    ],
)
def test_settings_make_the_same_noise_again(some, settings):
    assert some.settings() == settings
    assert json.loads(json.dumps(some.settings())) == settings
    again = noise_from_settings(Table(some.settings(), "noise"))
    assert again == some
    np.testing.assert_array_equal(again.seeded(1, 0, 50), some.seeded(1, 0, 50))


REMEDY = "leave the noise out for exact sums; turnout plan finds the sigma for a budget"
LARGEST = 2**31
BOUND = "sigma_for(…, bounded=True) finds one for a budget"
REFUSED = [
    ({"sigma": 0.99}, f"noise.sigma must be from 1 to 2^40, got 0.99: {REMEDY}"),
    ({"sigma": 2.0**41}, f"noise.sigma must be from 1 to 2^40, got {2.0**41}: {REMEDY}"),
    ({"sigma": -5}, f"noise.sigma must be from 1 to 2^40, got -5: {REMEDY}"),
    ({"sigma": math.nan}, f"noise.sigma must be from 1 to 2^40, got nan: {REMEDY}"),
    ({"sigma": math.inf}, f"noise.sigma must be from 1 to 2^40, got inf: {REMEDY}"),
    ({"sigma": "9"}, f"noise.sigma must be one number from 1 to 2^40, got '9': {REMEDY}"),
    (
        {"sigma": 9.0, "early": 3, "early_sigma": 0.5},
        f"noise.early_sigma must be from 1 to 2^40, got 0.5: {REMEDY}",
    ),
    ({"early": -1}, f"noise.early must be a whole number from 0 to {LARGEST}, got -1: choose such a one"),
    ({"early": 2.5}, f"noise.early must be a whole number from 0 to {LARGEST}, got 2.5: choose such a one"),
    ({"every": 0}, f"noise.every must be a whole number from 1 to {LARGEST}, got 0: choose such a one"),
    ({"every": LARGEST + 1}, f"noise.every must be a whole number from 1 to {LARGEST}, got {LARGEST + 1}: choose"),
    ({"every": "2"}, f"noise.every must be a whole number from 1 to {LARGEST}, got '2': choose such a one"),
    (
        {"bound": 8},
        f"noise.bound must be a whole number from 9 (the largest sigma) to 2^53, or left out, got 8: {BOUND}",
    ),
    ({"bound": 50.0}, "noise.bound must be a whole number from 9 (the largest sigma) to 2^53, or left out, got 50.0: "),
    ({"bound": True}, "noise.bound must be a whole number from 9 (the largest sigma) to 2^53, or left out, got True: "),
    ({"bound": 2**53 + 1}, "noise.bound must be a whole number from 9 (the largest sigma) to 2^53, or left out, got 9"),
    ({"aggregators": 0}, "noise.aggregators must be a whole number from 1 to 2, got 0: choose such a one"),
    ({"aggregators": 3}, "noise.aggregators must be a whole number from 1 to 2, got 3: choose such a one"),
    (
        {"early": 3},
        "noise.early and early_sigma must be given together, got early 3, early_sigma None: give both, or none",
    ),
    (
        {"early_sigma": 3.0},
        "noise.early and early_sigma must be given together, got early 0, early_sigma 3.0: give both, or none",
    ),
]


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_refusals_name_the_range_what_came_and_the_remedy(given, message):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 (the whole message is compared)
        SumNoise(**{"sigma": 9.0} | given)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "noise.sigma is missing: give a number"),
        ({"sigma": "9"}, "noise.sigma must be a number, got '9': change its value"),
        ({"sigma": 9, "early": 2.5}, "noise.early must be a whole number, got 2.5: change its value"),
        ({"sigma": 9, "evry": 2}, "noise.evry is not a known setting .*: did you mean 'every'"),
        ({"sigma": 0}, "noise.sigma must be from 1 to 2.40, got 0.0: leave the noise out"),
    ],
)
def test_refused_settings(given, message):
    with pytest.raises(ValueError, match=message):
        noise_from_settings(Table(given, "noise"))


# The server that expects noise


def stepped(server, rounds, state=None):
    """(the gains of these rounds, from how far the signal moves for an error of 1 %; the last state)."""
    state, found = state or server.start(), []
    for _ in range(rounds):
        after = server.step(state, 99.0, 100.0)
        found.append(math.log(after.signal / state.signal) / 0.01)
        state = after
    return found, state


@pytest.mark.parametrize("early", [None, 1, 7, 30, 10_000])
@pytest.mark.parametrize("floor", [0.004, 0.03, 0.7, 1.0])
def test_the_gain_falls_and_ends_at_the_floor(floor, early):
    server, rounds = FallingGainController(floor, 2.0, early), 1_200
    gains = server.gains(rounds)
    until = rounds if early is None else min(early, rounds)
    np.testing.assert_allclose(gains[:until], [max(floor, 4 / (k + 4)) for k in range(until)])
    assert gains[until:] == [floor] * (rounds - until)
    assert gains[-1] == floor
    used, _ = stepped(server, rounds)
    np.testing.assert_allclose(used, gains, rtol=1e-9)
    state = server.start()
    for gain in gains[:50]:
        assert server.gain(state.rounds) == gain
        state = server.step(state, 100.0, 100.0)


def test_it_starts_with_a_gain_of_1_and_no_lag():
    server = FallingGainController(0.01, 3)
    assert server.start() == FallingGainState(3.0, 0.0)
    assert (server.lag, server.gain(0.0), server.early) == (0, 1.0, None)
    assert server.step(server.start(), 50, 100.0).signal == pytest.approx(3.0 * math.exp(0.5))


@pytest.mark.parametrize("early", [None, 30])
@pytest.mark.parametrize("scale", [0.5, 0.94, 1.06, 2.0])
def test_after_a_known_change_the_gain_falls_again_from_twenty_floors(scale, early):
    server = FallingGainController(0.008, 2.0, early)
    state = server.scaled(FallingGainState(6.0, 5_000.0), scale)
    assert state.signal == 6.0 * scale
    used, _ = stepped(server, 1_000, state)
    assert used[0] == pytest.approx(0.16)
    assert used == sorted(used, reverse=True)
    np.testing.assert_allclose(used[:900], [8 / (k + 50) for k in range(900)], rtol=1e-6)
    assert used[-1] == pytest.approx(0.008)


@pytest.mark.parametrize("scale", [1 / 1.05, 0.97, 1.0, 1.03, 1.05])
def test_a_change_of_at_most_5_percent_scales_the_signal_alone(scale):
    server = FallingGainController(0.008, 2.0)
    assert server.scaled(FallingGainState(6.0, 5_000.0), scale) == FallingGainState(6.0 * scale, 5_000.0)


def test_a_change_never_lowers_the_gain():
    server = FallingGainController(0.008, 2.0, early=30)
    early = server.scaled(FallingGainState(6.0, 3.0), 2.0)
    assert server.gain(early.rounds, early.falls) == pytest.approx(4 / 7)  # above twenty floors
    large = FallingGainController(0.3)
    after = large.scaled(FallingGainState(1.0, 99.0), 2.0)
    assert large.gain(after.rounds, after.falls) == 1.0  # not 6


@pytest.mark.parametrize(("total", "factor"), [(-1e9, 10.0), (-140.0, 10.0), (340.0, 0.1), (1e9, 0.1)])
def test_no_round_moves_the_signal_more_than_tenfold(total, factor):
    server = FallingGainController(0.01, 5.0)
    assert server.step(server.start(), total, 100.0).signal == pytest.approx(5.0 * factor)
    within = server.step(server.start(), 320.0, 100.0)
    assert within.signal == pytest.approx(5.0 * math.exp(-2.2))


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=120), st.floats(1e-4, 1.0), st.floats(1e-6, 1e6))
def test_no_sequence_of_sums_makes_nonsense(sums, floor, initial):
    server = FallingGainController(floor, initial)
    state = server.start()
    for total in sums:
        state = server.step(state, total, 10.0)
        assert initial * 0.99e-15 < state.signal < initial * 1.01e15
        assert floor <= server.gain(state.rounds) <= 1.0


def test_the_signal_stays_within_reach_of_the_first():
    server = FallingGainController(0.5, 3.0)
    for total, bound in ((-1e6, 3e15), (1e6, 3e-15)):
        state = server.start()
        for _ in range(40):
            state = server.step(state, total, 10.0)
        assert state.signal == pytest.approx(bound)


@pytest.mark.parametrize("early", [None, 25])
def test_settings_make_the_same_server_again(early):
    server = FallingGainController(0.02, 7.5, early)
    settings = json.loads(json.dumps(server.settings()))
    assert settings == {"kind": "falling-gain", "floor": 0.02, "initial": 7.5} | ({"early": 25} if early else {})
    assert controller_from_settings(Table(settings, "controller")) == server
    bare = controller_from_settings(Table({"kind": "falling-gain", "floor": 0.02}))
    assert bare == FallingGainController(0.02, 1.0)


FLOOR = "above 0 and at most 1, got {}: try 10 / rounds, or let turnout plan choose"
EARLY = "early must be a whole number from 1 up, or left out, got {}: give the early rounds of the noise"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"floor": 0.0}, "floor must be " + FLOOR.format(0.0)),
        ({"floor": 1.01}, "floor must be " + FLOOR.format(1.01)),
        ({"floor": math.nan}, "floor must be " + FLOOR.format("nan")),
        ({"floor": "1"}, "floor must be one number " + FLOOR.format("'1'")),
        ({"initial": 0.0}, "initial must be above 0 and finite, got 0.0: give any first signal, such as 1"),
        ({"initial": 1e300}, "initial must be above 0 and finite, got 1e+300: give any first signal, such as 1"),
        ({"early": 0}, EARLY.format(0)),
        ({"early": -3}, EARLY.format(-3)),
        ({"early": 2.0}, EARLY.format(2.0)),
        ({"early": "2"}, EARLY.format("'2'")),
    ],
)
def test_refused_servers(given, message):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 (the whole message is compared)
        FallingGainController(**{"floor": 0.01} | given)
    assert str(refused.value) == message
