"""What a run with noise on the sums promises: nothing that one client's input could make false."""

import math
from dataclasses import replace

import numpy as np
import pytest

from turnout import (
    Averaging,
    Clamp,
    Classical,
    FallingGainController,
    IntegralController,
    LearnedMemoized,
    Memoized,
    PolynomialCosts,
    Prior,
    Problem,
    SumNoise,
    paper_population,
    simulate,
)
from turnout.algorithm import Mechanism, TrackingClamp
from turnout.attack import AttackCase, attack_case
from turnout.plan import Goal, plan
from turnout.privacy import (
    FIXED_ROUNDS,
    NOISY_SUM,
    OWN_BIT,
    PUBLIC_DESIGN,
    RELEASED_ONCE,
    UNKNOWN_SEED,
    Observer,
    account_of,
    certificate,
    total_epsilon_noisy_sum,
)
from turnout.problem import FunctionCosts
from turnout.settings import Table
from turnout.simulation import privacy_in_words, run_from_settings

NOISE = SumNoise(60.0)
SERVER = FallingGainController(0.01, initial=10.0)
SEEN = Observer(NOISY_SUM, noise=NOISE)


def run_of(mechanism, rounds=40, **asked):
    return simulate(
        paper_population(0, 60).problem(30),
        mechanism,
        SERVER,
        rounds,
        **({"start": Prior(0.5), "noise": NOISE} | asked),
    )


def test_one_release_that_others_learn_from_moves_many_bits():
    """The reason: with one client's cost changed, sums differ by more than 1. So only its own epsilon holds."""
    scales = 1 + 9 * np.random.default_rng(0).random(200)
    totals = []
    for cost in (0.05, 1000.0):
        costs = scales.copy()
        costs[:20] = np.where(np.arange(20) == 0, cost, costs[:20])
        problem = Problem(PolynomialCosts(costs[:, None], (2,)), 100)
        mechanism, server = LearnedMemoized(8.0, price=5.0), IntegralController(gain=1e-9, initial=5.0)
        runs = [simulate(problem, mechanism, server, 20, start=Prior(0.5), noise=NOISE, seed=seed) for seed in range(6)]
        totals.append([run.participants for run in runs])
    assert np.abs(np.array(totals[0]) - np.array(totals[1])).max() > 1
    account = account_of(LearnedMemoized(8.0, price=5.0), 300, 1e-6, SEEN)
    assert account.epsilon == 8.0 > total_epsilon_noisy_sum(NOISE, 20, 1e-6).epsilon
    assert RELEASED_ONCE in account.assumptions
    assert account_of(Memoized(8.0, price=5.0), 20, 1e-6, SEEN).epsilon < 8.0  # each client by itself: the noise holds


def test_a_run_with_such_a_release_states_it_and_none_with_a_further_part():
    run = run_of(LearnedMemoized(8.0, price=5.0))
    assert privacy_in_words(run.provenance).startswith("total epsilon 8.000 ")
    longer = run_of(Classical(), start=run)
    assert "total epsilon inf" in privacy_in_words(longer.provenance)


class Relative(Mechanism):
    """Whoever wants most, among all clients, participates."""

    kind = "relative"

    def settings(self):
        return {"kind": self.kind}

    def box(self, public):
        return 0.0, 1.0

    def probability(self, intent, public, memory=None):
        return np.asarray(intent >= np.max(intent), float)


def test_a_mechanism_of_ones_own_may_mix_clients():
    assert OWN_BIT in account_of(Relative(), 100, 1e-6, SEEN).assumptions
    assert OWN_BIT not in account_of(Classical(), 100, 1e-6, SEEN).assumptions
    assert OWN_BIT in privacy_in_words({"rounds": 9, "mechanism": {"kind": "relative"}, "noise": NOISE.settings()})


def test_a_run_says_that_its_rounds_were_fixed_and_keeps_what_earlier_parts_assumed():
    first = run_of(Classical(), observer=replace(SEEN, assuming=(PUBLIC_DESIGN,)))
    assert FIXED_ROUNDS in privacy_in_words(first.provenance)
    for observer in (None, Observer(), SEEN):
        longer = run_of(Classical(), start=first, observer=observer)
        told = privacy_in_words(longer.provenance)
        assert "over 80 opened sums" in told
        assert PUBLIC_DESIGN in told
        assert FIXED_ROUNDS in told
    assert PUBLIC_DESIGN not in privacy_in_words(run_of(Classical()).provenance)


def test_who_stops_by_what_was_opened_has_a_larger_delta():
    """Exactly, for sigma 3 and up to two sums: stop after the first if its loss is large, else open another one."""
    places, sigma, delta = np.arange(-60, 61), 3.0, 1e-3
    noise = np.exp(-0.5 * np.square(places / sigma))
    noise, moved = noise / noise.sum(), np.roll(noise, 1) / noise.sum()
    fixed = total_epsilon_noisy_sum(SumNoise(sigma), 1, delta).epsilon
    good = noise > math.exp(fixed) * moved

    def excess(epsilon):
        return float(np.sum(np.maximum(0.0, noise - math.exp(epsilon) * moved)))

    assert excess(fixed) <= delta * (1 + 1e-9)
    again = np.sum(noise[~good]) * excess(fixed) + excess(fixed)
    assert again > 1.5 * delta  # the best of two chances, at the total of one


def test_a_budget_of_reports_is_refused_where_sums_have_noise():
    table = {"population": {"kind": "paper", "clients": 40}, "capacity": 20, "rounds": 60, "noise": {"sigma": 20.0}}
    run = run_from_settings(Table(table | {"mechanism": {"kind": "clamp", "epsilon": 1.0}}))
    with pytest.raises(ValueError, match="budget must be left out for a run with noise on the sums, got 20"):
        list(attack_case(AttackCase("clamp", run.mechanism, 20), run))


class Named(Mechanism):
    """With the name of one of turnout's own, and no box at all."""

    kind = "clamp"

    def settings(self):
        return {"kind": self.kind}

    @staticmethod
    def response(intent, average, parameters):
        return intent

    @staticmethod
    def limits(average, parameters):
        return 0.0, 1.0


@pytest.mark.parametrize("asked", [{}, {"noise": None}])
def test_no_mechanism_takes_the_name_of_another_and_with_it_its_promise(asked):
    told = "the kind of Named must be a name of its own, got 'clamp', which is the name of turnout's Clamp"
    with pytest.raises(ValueError, match=told):
        run_of(Named(), **asked)

    class Wider(Clamp):
        kind = "clamp"

    with pytest.raises(ValueError, match="the kind of Wider must be a name of its own"):
        run_of(Wider(1.0), **asked)
    run_of(type("Own", (Named,), {"kind": "own"})(), **asked)


def coupled(first):
    """Everyone's cost is that of the first client."""
    return FunctionCosts(lambda x: first * x**2 + 0.0 * x[0], lambda x: 2.0 * first * x, clients=60)


def test_costs_that_follow_another_clients_are_an_assumption():
    """The reason: one client's cost moves an opened sum by more than its weight."""
    runs = []
    for first in (1.0, 40.0):
        problem = Problem(coupled(first), 30)
        runs.append(simulate(problem, Classical(), SERVER, 5, start=Prior(0.5), noise=NOISE))
    assert abs(runs[0].participants[0] - runs[1].participants[0]) > 20
    assert OWN_BIT in privacy_in_words(runs[0].provenance)
    longer = simulate(problem, Classical(), SERVER, 5, start=runs[1])
    assert OWN_BIT in privacy_in_words(longer.provenance)
    assert OWN_BIT not in privacy_in_words(run_of(Classical()).provenance)
    found = plan(Goal(Problem(coupled(4.0), 30), 200, budget=8.0, observer="noisy-sum", guessed=True))
    (with_noise,) = (offer.account for offer in found.others if offer.name == "noise on the sum")
    assert OWN_BIT in with_noise.assumptions
    assert PUBLIC_DESIGN not in with_noise.assumptions


def test_a_simulations_noise_can_be_taken_away_by_who_guesses_its_seed():
    run = run_of(Classical())
    np.testing.assert_array_equal(run.server.seen - NOISE.seeded(0, 0, 40), run.participants)
    assert UNKNOWN_SEED in privacy_in_words(run.provenance)
    assert UNKNOWN_SEED not in account_of(Classical(), 40, 1e-6, SEEN).assumptions  # real noise has no seed


def test_the_bare_account_says_what_it_assumes_and_for_which_weight():
    found = total_epsilon_noisy_sum(NOISE, 20, 1e-6)
    assert found.assumptions == (*SEEN.assumptions(Classical()), OWN_BIT)
    assert "over 20 opened sums, for a client of weight 1, against" in str(found)
    assert account_of(Classical(), 20, 1e-6, SEEN).over == "20 opened sums"
    heavy = account_of(Classical(), 20, 1e-6, replace(SEEN, weights=[20, 1]))
    assert heavy.over == "20 opened sums, for the heaviest client, of weight 20"
    assert heavy.over in heavy._repr_html_()


def test_the_record_states_the_smaller_noise_of_the_first_rounds():
    noise = SumNoise(60.0, early=4, early_sigma=2.0)
    assert repr(run_of(Classical(), noise=noise).server) == (
        "ServerRecord(40 rounds, sums with noise of sigma 2 in the first 4 rounds, then 60)"
    )


def test_a_certificate_has_what_is_pure_and_says_where_the_rest_is():
    assert str(certificate(Classical(), SEEN)) == (
        "no bound per report: noise on the sum has no pure epsilon, but a total at a delta: see the account"
    )
    assert not certificate(TrackingClamp(1.0), replace(SEEN, averaging=Averaging(by="probability"))).is_bounded
    clamp = certificate(Clamp(1.0), SEEN)
    assert (clamp.epsilon, clamp.per, clamp.against, clamp.assumptions) == (1.0, "report", str(SEEN), ())
    assert certificate(Memoized(4.0, 10.0), SEEN).assumptions == (RELEASED_ONCE,)
