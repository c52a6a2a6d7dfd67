"""Numbers that were printed and false, found by readers who tried: now refused, or right, or with their assumption."""

import json
import math
import zipfile
from dataclasses import dataclass

import numpy as np
import pytest

from turnout import (
    Averaging,
    Clamp,
    Classical,
    FallingGainController,
    IntegralController,
    Memoized,
    PolynomialCosts,
    Problem,
    Schedule,
    SumNoise,
    Trajectory,
    simulate,
)
from turnout.algorithm import Mechanism, OneRelease, in_words
from turnout.errors import FileProblem
from turnout.flower import mechanism_text
from turnout.plan import Goal, plan
from turnout.privacy.accounting import shown, shown_delta, total_epsilon
from turnout.privacy.accounts import PublicAccount, account_of
from turnout.privacy.certificates import certificate
from turnout.privacy.floors import floor
from turnout.privacy.observer import OWN_BIT, OWN_BOX, PUBLIC_DESIGN, Observer
from turnout.privacy.sum_only import total_epsilon_sum_only
from turnout.problem import FunctionCosts
from turnout.service import Rules, Safety
from turnout.settings import Table
from turnout.simulation import UNKNOWN, privacy_in_words, run_from_settings

BY_PROBABILITY = Averaging(by="probability")
SERVER = IntegralController(0.01, 1.0)


def problem(clients=20):
    return Problem(PolynomialCosts(np.linspace(1.0, 5.0, clients)[:, None], (2,)), clients / 2)


def simulated(honest=None, schedule=None, **options):
    observer = Observer("sum", honest, averaging=BY_PROBABILITY)
    return simulate(problem(), Clamp(1.0), SERVER, 20, averaging=BY_PROBABILITY, observer=observer, schedule=schedule)


def settings(**more):
    given = {"rounds": 20, "capacity": 10, "observer": "sum", "averaging": {"by": "probability"}}
    given |= {"population": {"kind": "paper", "clients": 20}, "mechanism": {"kind": "clamp", "epsilon": 1.0}}
    return Table(given | {"controller": {"gain": 0.01, "initial": 1.0}} | more)


class TestHonestOthers:
    def test_are_no_more_than_there_are_clients(self):
        with pytest.raises(ValueError, match="honest must be at most 18, as many as are always there, got 100000"):
            simulated(honest=100_000)
        with pytest.raises(ValueError, match="honest must be at most 18"):
            run_from_settings(settings(honest=19))
        assert run_from_settings(settings()).seen_by.honest == 18

    def test_are_no_more_than_a_schedule_leaves(self):
        leaving = Schedule(leave={5: slice(2, 20)}, capacity={5: 1.0})
        assert leaving.fewest(20, 20) == 2
        with pytest.raises(ValueError, match="at most 0, as many as are always there, got 18"):
            simulated(honest=18, schedule=leaving)
        table = settings(schedule={"leave": [{"round": 5, "clients": [2, 20]}]})
        assert run_from_settings(table).seen_by.honest == 0
        assert Schedule(away=[(3, 9, slice(0, 4))]).fewest(20, 20) == 16
        assert Schedule(away=[(3, 9, slice(0, 4))]).fewest(3, 20) == 20
        assert Schedule(join={7: slice(0, 5)}).fewest(20, 20) == 15

    def test_of_a_weight_that_is_none(self):
        for weight in (math.nan, math.inf, 0.0, -1.0):
            with pytest.raises(ValueError, match="weights must be finite and above 0"):
                Observer("sum", 9, weights=[1.0] * 10 + [weight], averaging=BY_PROBABILITY)


class BySignal(Mechanism):
    """Wide open at a large signal."""

    kind = "by-signal"

    @staticmethod
    def response(intent, average, parameters):
        return intent

    @staticmethod
    def limits(average, parameters):
        return 0.45, 0.55

    def box(self, public):
        return (0.0001, 0.9999) if public.signal is not None and public.signal > 5 else (0.45, 0.55)


class ByAverage(BySignal):
    """Copes without an average, and follows it if there is one."""

    kind = "by-average"

    @staticmethod
    def limits(average, parameters):
        return (0.4, 0.6) if average is None else (0.9 * average, 1.0 - 0.9 * (1.0 - average))

    def box(self, public):
        return self.limits(public.average, ())


class Steady(BySignal):
    """Has a box of its own, which stays where it is."""

    kind = "steady"

    def box(self, public):
        return 0.4, 0.6


class Wide(Clamp):
    """Another box under the same name."""

    def parameters(self):
        return 1e-6, 1.0 - 1e-6


class NoEnrol(OneRelease):
    """Says that it releases once, and releases nothing: it acts on its own cost."""

    epsilon = 0.1
    kind = "no-enrol"


class TestMechanismsOfOnesOwn:
    @pytest.mark.parametrize("mechanism", [BySignal(), ByAverage()])
    def test_a_box_that_moves_is_refused(self, mechanism):
        with pytest.raises(ValueError, match="the same for every signal and average, or needs_public_average = True"):
            certificate(mechanism)

    def test_a_box_of_its_own_that_seems_to_stay_is_an_assumption(self):
        assert certificate(Steady()).assumptions == (OWN_BIT, OWN_BOX)

    def test_who_releases_nothing_has_released_nothing(self):
        assert certificate(NoEnrol()).epsilon == math.inf

    def test_what_is_derived_has_a_name_of_its_own(self):
        assert Wide(1.0).kind == "clamp, as Wide"
        run = simulate(problem(), Wide(1.0), SERVER, 5, engine="numpy")
        assert privacy_in_words(run.provenance) == UNKNOWN
        with pytest.raises(ValueError, match=r"one that every client knows by name: classical, .* got Wide"):
            Rules(Wide(1.0), SERVER, Safety("absent"))
        with pytest.raises(ValueError, match="one that every client knows by name"):
            mechanism_text(Wide(1.0))


class TestDesign:
    def test_a_channel_made_from_the_costs_says_so_itself(self):
        found = floor(problem(40), 4.0).memoized()
        assert PUBLIC_DESIGN in certificate(found).assumptions
        assert PUBLIC_DESIGN in account_of(found, 10, 1e-6).assumptions
        assert found.settings()["designed"] is True
        assert "designed" not in Memoized(4.0, 10.0).settings()
        assert PUBLIC_DESIGN not in certificate(Memoized(4.0, 10.0)).assumptions

    def test_so_does_every_plan_unless_the_costs_are_a_guess(self, paper_problem):
        """Gain and first signal are made from the costs, too: another cost of one client moves what is published."""
        goal = Goal(paper_problem, rounds=100, budget=3.0, observer="sum")
        found = plan(goal)
        assert not found.mechanism.releases_once
        assert PUBLIC_DESIGN in found.account.assumptions
        assert found.settings()["assuming"] == [PUBLIC_DESIGN]


class TestDigits:
    def test_a_delta_is_never_told_smaller(self):
        for delta in (0.10449, 0.00100499, 0.24324, 1.2345e-6, 1e-6, 0.5):
            assert float(shown_delta(delta)) >= delta
        assert "at delta 0.10449 over" in repr(total_epsilon(0.475, 0.525, 10, 0.10449))

    def test_nor_a_total_nor_a_setting(self):
        assert shown(591.00000001) == "591.1"
        assert in_words(Clamp(1.00049).settings()).startswith("clamp, epsilon 1.00049 per report")

    def test_a_box_that_is_nearly_symmetric_is_not(self):
        """Nobody hides a "no" of 2 in 2^53 words; 36.04 per report over 100 reports."""
        low, high = 9 / 2**53, 1 - 2 / 2**53
        found = total_epsilon_sum_only(low, high, 100, 1e-6, 10)
        assert found.epsilon > 3_600


def test_a_total_of_what_there_is_now_rests_on_when_it_is_read():
    assert "if the number of reports did not depend on their content" in PublicAccount(Clamp(0.1), 1e-6).sentence(9)
    assert "did not depend" not in repr(account_of(Clamp(0.1), 9, 1e-6))  # a number that is planned ahead


@dataclass(frozen=True)
class Follow(Mechanism):
    """All clients do what the first one wants."""

    kind = "follow"

    @staticmethod
    def response(intent, average, parameters):
        return 0.0 * intent + np.ravel(intent)[0]

    @staticmethod
    def limits(average, parameters):
        return 0.25, 0.75

    def parameters(self):
        return ()


@dataclass(frozen=True)
class Named(Follow):
    """Its settings are those of another mechanism."""

    kind = "named"

    def settings(self):
        return {"kind": "clamp", "epsilon": 0.1, "center": 0.5}


class TestOfOnesOwn:
    @pytest.mark.parametrize(
        "observer",
        [Observer(), Observer("sum", 38, averaging=BY_PROBABILITY), Observer("noisy-sum", noise=SumNoise(1.0))],
        ids=lambda observer: observer.sees,
    )
    def test_a_report_may_depend_on_other_clients(self, observer):
        """With sigma 1 the box alone is the smaller total: it assumes the same."""
        assert OWN_BIT in account_of(Follow(), 1, 1e-6, observer).assumptions
        assert OWN_BIT in certificate(Follow(), observer).assumptions
        assert OWN_BIT not in account_of(Clamp(1.0), 1, 1e-6, observer).assumptions

    def test_costs_may_follow_another_clients_whoever_observes(self):
        costs = FunctionCosts(lambda x: 3.0 * x**2 + 0.0 * x[0], lambda x: 6.0 * x, clients=20)
        run = simulate(Problem(costs, 10), Clamp(1.0), SERVER, 5)
        assert OWN_BIT in privacy_in_words(run.provenance)
        assert OWN_BIT not in privacy_in_words(simulate(problem(), Clamp(1.0), SERVER, 5).provenance)

    def test_a_mechanism_does_not_say_that_it_is_another(self):
        with pytest.raises(ValueError, match="the kind in the settings of Named must be its own, 'named', got 'clamp'"):
            simulate(problem(), Named(), SERVER, 5)


def test_a_longer_run_has_no_more_honest_others_than_its_schedule_leaves():
    leaving = Schedule(leave={60: slice(2, 20)}, capacity={60: 1.0})
    options = {"averaging": BY_PROBABILITY, "observer": Observer("sum", 18, averaging=BY_PROBABILITY)}
    first = simulate(problem(), Clamp(1.0), SERVER, 50, schedule=leaving, **options)
    with pytest.raises(ValueError, match="honest must be at most 0, as many as are always there, got 18"):
        simulate(problem(), Clamp(1.0), SERVER, 50, start=first, **options)


def changed(path, **changes):
    """The file with other settings, or without an array."""
    with np.load(path) as archive:
        parts = {name: archive[name] for name in archive.files if changes.get(name, True) is not None}
        text = json.loads(parts.pop("provenance.json"))
    text["provenance"] |= {name: value for name, value in changes.items() if name not in parts and value is not None}
    for name in [name for name, value in changes.items() if value is None]:
        text["provenance"].pop(name, None)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("provenance.json", json.dumps(text))
        for name, values in parts.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, values)


@pytest.mark.parametrize(
    "changes",
    [
        *({"heaviest": None}, {"heaviest": 1}, {"rounds": 1}),
        *({"seen": None}, {"noise": None}, {"noise": {"sigma": 9.0, "every": 5}}),
    ],
    ids=str,
)
def test_a_file_whose_parts_contradict_each_other_is_refused(changes, tmp_path):
    weighted = Problem(problem().costs, 30.0, np.arange(1, 21))
    server = FallingGainController(0.01, initial=10.0)
    simulate(weighted, Classical(), server, 20, noise=SumNoise(9.0)).save(tmp_path / "run.npz")
    assert Trajectory.load(tmp_path / "run.npz").rounds == 20
    changed(tmp_path / "run.npz", **changes)
    with pytest.raises(FileProblem, match="damaged inside"):
        Trajectory.load(tmp_path / "run.npz")
