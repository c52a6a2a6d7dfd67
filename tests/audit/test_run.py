"""An audit: true claims are not refuted more often than allowed, and what it says of itself is true."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from privacy.extreme_costs import EXTREMES
from statistical.binomial import FALSE_ALARM
from turnout import PolynomialCosts
from turnout.algorithm import Clamp, Mechanism, TrackingClamp
from turnout.audit.bounds import epsilon_at_least
from turnout.audit.claims import Claim, of_mechanism, per_report
from turnout.audit.events import Column, Event
from turnout.audit.reporters import MechanismReporter, ReporterProblem, usual_costs, usual_signals
from turnout.audit.run import Audit, AuditInterrupted, Cell, Finalist, Finding, _finding, _Tally, audit
from turnout.audit.subjects import mechanism_subject


@pytest.mark.parametrize("mechanism", [Clamp(1.0), TrackingClamp(0.5)], ids=repr)
def test_a_claim_a_tenth_too_small_is_refuted(mechanism):
    claims = per_report(0.9 * mechanism.epsilon, 2)
    outcome = audit(MechanismReporter(mechanism), claims, trials=200_000, seed=2, false_alarm=FALSE_ALARM)
    assert outcome.verdict == "refuted"
    assert outcome.worst.lower > outcome.worst.claim.epsilon


def test_a_true_claim_is_refuted_no_more_often_than_allowed():
    """60 audits of a reporter that has exactly the claimed epsilon, at a false-alarm rate of 0.2 each."""
    reporter = MechanismReporter(Clamp(1.0))
    signals = {name: usual_signals(2)[name] for name in ("usual", "on and off")}
    times = {"trials": 2000, "explore": 200, "costs": EXTREMES, "signals": signals, "false_alarm": 0.2}
    claims = per_report(1.0, 2)
    refuted = sum(audit(reporter, claims, seed=seed, **times).refuted for seed in range(60))
    assert binom.sf(refuted - 1, 60, 0.2) > FALSE_ALARM
    sabotaged = per_report(0.8, 2)
    assert sum(audit(reporter, sabotaged, seed=seed, **times).refuted for seed in range(60)) > 40


def test_mechanisms_of_ones_own_are_audited_by_their_box():
    class Half(Mechanism):
        kind = "half"

        @staticmethod
        def response(intent, average, parameters):
            return intent

        @staticmethod
        def limits(average, parameters):
            return 0.4, 0.6

    claims = of_mechanism(Half(), 2)
    assert claims[0].epsilon == pytest.approx(math.log(1.5))
    assert not audit(MechanismReporter(Half()), claims, trials=20_000, seed=17).refuted


def test_a_plain_function_is_enough():
    random = np.random.default_rng(13)

    def reporter(costs, signals):
        return random.random(len(signals)) < (0.75 if costs.slope(np.array([0.5]))[0] < 1.0 else 0.25)

    assert audit(reporter, per_report(0.8, 2), trials=3000, seed=13).refuted
    assert not audit(reporter, per_report(math.log(3.0), 2), trials=3000, seed=13).refuted


@pytest.mark.parametrize(
    ("reporter", "says"),
    [
        (lambda costs, signals: [1], r"must be of shape \(2,\)"),
        (lambda costs, signals: [[1], [1, 0]], "must be of shape"),
        (lambda costs, signals: [0, 2], "must be 0 or 1, got 2"),
        (lambda costs, signals: [0.5, 1], r"must be 0 or 1, got 0\.5"),
        (lambda costs, signals: [np.nan, 1], "must be 0 or 1, got nan"),
        (lambda costs, signals: ["yes", "no"], "must be 0 or 1, got type"),
        (lambda costs, signals: 1 / 0, "raised ZeroDivisionError: division by zero"),
    ],
)
def test_reporters_that_do_not_answer(reporter, says):
    with pytest.raises(ReporterProblem, match=says):
        audit(reporter, per_report(1.0, 2), trials=100)


ONE_ROUND = {"costs": EXTREMES, "signals": {"one": np.ones(1)}}
TWO_ROUNDS = {"costs": EXTREMES, "signals": {"one": np.ones(2)}}


@pytest.mark.parametrize(("changes", "says"), [
    ({"costs": {"one": usual_costs()["expensive"]}}, "costs must be two or more, each of one client, got 1 costs"),
    ({"costs": {"a": PolynomialCosts([[1.0], [2.0]], (2,)), "b": usual_costs()["expensive"]}}, "each of one client"),
    ({"signals": {"short": [1.0]}}, r"signals must be one or more of shape \(2,\), got {'short': \(1,\)}"),
    ({"signals": {"right": [1.0, 1.0], "long": [1.0, 1.0, 1.0]}}, r"got {'long': \(3,\)}"),
    ({"signals": {}}, r"signals must be one or more of shape \(2,\), got none"),
    ({"trials": 0}, "trials must be at least 1, and 10 to explore"),
    ({"trials": 0, "explore": 10}, "trials must be"),
    ({"explore": 9}, "trials must be"),
    ({"false_alarm": 0.0}, "false_alarm must be above 0 and below 1"),
    ({"false_alarm": 1.0}, "false_alarm must be"),
    ({"false_alarm": np.nan}, "false_alarm must be"),
])  # fmt: skip
def test_bad_arguments(changes, says):
    with pytest.raises(ValueError, match=says):
        audit(MechanismReporter(Clamp(1.0)), per_report(1.0, 2), **{**TWO_ROUNDS, "trials": 100, **changes})


def test_the_least_that_can_be_asked_for():
    outcome = audit(
        MechanismReporter(Clamp(1.0)), per_report(1.0, 2), trials=1, explore=10, false_alarm=0.9, **TWO_ROUNDS
    )
    assert (outcome.trials, outcome.verdict) == (1, "not refuted")


@pytest.mark.parametrize("claims", [[], [*per_report(1.0, 2), *per_report(1.0, 3)]], ids=["none", "different"])
def test_claims_are_for_one_number_of_rounds(claims):
    with pytest.raises(ValueError, match="claims must be one or more, all for the same number of rounds, got rounds"):
        audit(MechanismReporter(Clamp(1.0)), claims)


def test_every_trial_has_the_same_number_of_deliveries():
    def wavering(costs, signals, trials, seed):
        return np.zeros((trials, len(signals), 1 if costs is EXTREMES["cheap"] else 2))

    with pytest.raises(ValueError, match=r"deliveries must be the same number in all trials, got \[2, 4\]"):
        audit(wavering, per_report(1.0, 2), trials=100, **TWO_ROUNDS)


def test_the_same_seed_gives_the_same_outcome_and_progress_is_told():
    told = []
    runs = [
        mechanism_subject(Clamp(1.0), 2).audit(3000, 0.1, seed=14, progress=lambda *now: told.append(now))
        for _ in range(2)
    ]
    assert runs[0] == runs[1] != mechanism_subject(Clamp(1.0), 2).audit(3000, 0.1, seed=15)
    assert told[len(told) // 2 - 1][0] == told[len(told) // 2 - 1][1]


def test_ctrl_c_leaves_what_is_done():
    calls = itertools.count()
    honest = MechanismReporter(Clamp(1.0))

    def reporter(costs, signals):
        made = next(calls)
        if made == 2 * 200 + 2500:  # of two costs each 1,024, and some
            raise KeyboardInterrupt
        return honest(costs, signals, 1, made)[0]

    only = {"usual": np.ones(1)}
    with pytest.raises(AuditInterrupted) as stop:
        audit(reporter, per_report(0.1, 1), trials=50_000, explore=200, costs=EXTREMES, signals=only, seed=16)
    assert 0 < stop.value.audit.worst.trials < 50_000
    assert stop.value.audit.trials == 1024  # what all cells have done
    assert str(stop.value) == "interrupted after 1,024 trials"
    assert issubclass(AuditInterrupted, KeyboardInterrupt)


def cheap_says_yes(costs, signals):
    """A reporter that tells its cost, nine times in ten."""
    return [(costs.slope(0.5)[0] < 1) ^ (np.random.default_rng().random() < 0.1)]


@pytest.mark.parametrize("number", [1, 2])
def test_the_false_alarm_rate_is_shared_among_all_tests(number):
    """Each of the events that were chosen may raise a false alarm, so each gets its part of the rate."""
    claims = [claim for _ in range(number) for claim in per_report(1.0, 1)[:1]]
    found = audit(cheap_says_yes, claims, trials=1500, seed=3)
    assert found.tests == 4 * number
    for finding in found.findings:
        counts = finding.hits, finding.trials, finding.other_hits, finding.other_trials
        assert finding.lower == epsilon_at_least(*counts, found.false_alarm / found.tests, finding.claim.delta)
        assert finding.trials == finding.other_trials == 1500


@pytest.mark.parametrize(("trials", "explore"), [(200, 100), (3000, 300)])
def test_progress_ends_where_it_said(trials, explore):
    """A tenth of the trials, but at least a hundred, of each cost and signal choose the events."""
    told = []
    costs = {"cheap": PolynomialCosts([[0.1]], (2,)), "expensive": PolynomialCosts([[9.0]], (2,))}
    signals = {"one": np.ones(1)}
    found = audit(
        cheap_says_yes, per_report(1.0, 1), trials=trials, costs=costs, signals=signals,
        progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert told[-1] == (2 * (explore + trials), 2 * (explore + trials))
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert 2 * explore in [done for done, _ in told]
    assert found.trials == trials


def test_a_finding_says_what_was_seen():
    claim = per_report(1.0, rounds=1)[0]
    found = Finding(claim, 1.25, "a yes", 1900, 2000, 100, 2001)
    assert str(found).startswith("REFUTED: ")
    assert str(found).endswith(": at least 1.2500 (a yes: 1,900 of 2,000 against 100 of 2,001)")
    assert str(Finding(claim, 1.0, "a yes")).endswith("(a yes: 0 of 0 against 0 of 0)")
    assert str(Finding(claim, 1.0, "a yes")).startswith("not refuted: ")


def tells(costs, signals, trials, seed):
    """A reporter that tells its cost, always."""
    return np.full((trials, len(signals)), costs is EXTREMES["cheap"])


def test_what_is_counted():
    """Of a reporter that tells all: every trial of the one cost, and none of the other."""
    (found,) = audit(tells, per_report(1.0, 1)[:1], trials=700, **ONE_ROUND).findings
    assert (found.hits, found.trials, found.other_hits, found.other_trials) == (700, 700, 0, 700)
    assert found.lower == epsilon_at_least(700, 700, 0, 700, 1e-6 / 4)
    event = "answer of round 0 = {}, cost '{}' against '{}', signals 'one'"
    assert found.event in (event.format(1, "cheap", "expensive"), event.format(0, "expensive", "cheap"))


def test_a_hundred_thousand_trials_and_a_millionth_unless_said_otherwise():
    found = audit(tells, per_report(1.0, 1)[:2], **ONE_ROUND)
    assert (found.name, found.trials, found.false_alarm, found.tests) == ("reporter", 100_000, 1e-6, 8)
    with pytest.raises(ReporterProblem, match="must be 0 or 1"):
        audit(lambda *given: np.full((given[2], 1), 2), per_report(1.0, 1))


@pytest.mark.parametrize(("at_once", "together"), [(True, 65_536), (False, 1024)], ids=["at once", "one by one"])
def test_trials_are_drawn_in_parts_and_told_of(at_once, together):
    """What answers one trial at a time is slow, and is told of more often."""
    told, trials = [], 2 * together + 5
    reporter = tells if at_once else lambda costs, signals: [0]
    audit(
        reporter, per_report(1.0, 1)[:1], trials=trials, explore=11, **ONE_ROUND,
        progress=lambda *now: told.append(now),
    )  # fmt: skip
    assert told[0] == (11, 2 * (11 + trials))
    done = [0, *(now for now, _ in told)]
    assert np.diff(done).tolist() == [11, 11, *[together] * 4, 5, 5]


def test_no_more_than_65536_trials_choose_the_events():
    told = []
    audit(
        tells, per_report(1.0, 1)[:1], trials=700_000, **ONE_ROUND,
        progress=lambda *now: told.append(now),
    )  # fmt: skip
    assert told[-1] == (2 * 765_536, 2 * 765_536)


def test_ctrl_c_before_the_first_part_is_done_leaves_nothing():
    calls = itertools.count()

    def reporter(costs, signals, trials, seed):
        if next(calls) == 3:  # the second cell of the tests
            raise KeyboardInterrupt
        return tells(costs, signals, trials, seed)

    with pytest.raises(AuditInterrupted, match="interrupted after 0 trials") as stop:
        audit(reporter, per_report(1.0, 1)[:1], trials=500, **ONE_ROUND)
    (found,) = stop.value.audit.findings
    assert (found.trials, found.other_trials) in ((500, 0), (0, 500))


def test_a_claim_about_nothing_that_is_seen_is_not_refuted():
    """There are no rounds after the last report."""
    found = audit(tells, [Claim(0.0, 1, of="after", reports=1)], trials=100, **ONE_ROUND)
    assert str(found.findings[0]).endswith("at least 0.0000 (no event seen: 0 of 0 against 0 of 0)")
    assert (found.verdict, found.tests) == ("not refuted", 4)


def test_the_event_that_shows_most_is_found():
    claim, finalist = Claim(1.0, 1), Finalist(Event(Column(0, "a"), np.array([1])), Cell("x", "on"), Cell("y", "on"))
    counts = ([60, 100, 40, 100], [90, 100, 10, 100], [50, 100, 50, 100])
    best = _finding(claim, [_Tally(finalist, each) for each in counts], 0.1)
    assert best == Finding(claim, epsilon_at_least(90, 100, 10, 100, 0.1), str(finalist), 90, 100, 10, 100)


def found(epsilon, lower):
    return Finding(Claim(epsilon, 1), lower, "a yes")


def test_the_worst_finding_comes_nearest_to_its_claim_or_exceeds_it_the_most():
    for findings, worst in (
        ([found(1.0, 0.5), found(2.0, 0.6)], 0),
        ([found(2.0, 0.6), found(1.0, 0.5)], 1),
        ([found(1.0, 0.5), found(2.0, 1.0)], 1),  # as near, and more
        ([found(0.0, 0.0), found(1.0, 0.1)], 1),
        ([found(0.0, 0.1), found(0.0, 0.2), found(1.0, 5.0)], 1),
        ([found(1.0, 1.1), found(5.0, 5.0)], 0),
    ):
        assert Audit("", tuple(findings), 1, 1, 0.1).worst is findings[worst]


def test_one_claim_refuted_is_enough():
    holds, fails = found(1.0, 1.0), found(1.0, 1.0 + 1e-9)
    assert [one.refuted for one in (holds, fails)] == [False, True]
    for findings, verdict in (((holds, holds), "not refuted"), ((holds, fails), "refuted"), ((), "not refuted")):
        outcome = Audit("mine", findings, 2000, 8, 1e-6)
        first, *rest = str(outcome).splitlines()
        assert (outcome.verdict, outcome.refuted) == (verdict, verdict == "refuted")
        assert first == f"mine: {verdict} (false-alarm rate 1e-06 over 8 tests of 2,000 trials per cost)"
        assert rest == [f"  {one}" for one in findings]


def test_what_was_counted_exactly_is_shown_with_more_digits_and_rounded_down():
    claim, half = Claim(16.0, 1, of="report"), 2**52
    for lower, exact, shown in (
        (16.00000000049, True, "16.0000000004"),
        (0.99999, False, "0.9999"),
        (1.25, False, "1.2500"),
        (0.0, True, "0.0000"),
        (math.inf, True, "inf"),
    ):
        assert Finding(claim, lower, "exact: 12 of 2^53 words against 5", half, 2 * half, exact=exact).shown == shown
    text = str(Finding(claim, 16.5, "exact: 12 of 2^53 words against 5", 12, 2 * half, 5, 2 * half, exact=True))
    assert text.startswith("REFUTED: ")
    assert text.endswith("at least 16.5 (exact: 12 of 2^53 words against 5)")


def test_what_is_known_without_draws_is_told_and_counts_as_worst_only_if_it_refutes():
    holds, fails = (Finding(Claim(1.0, 1), lower, "exact", exact=True) for lower in (1.0, 1.1))
    claims = per_report(10.0, 1)
    for known, verdict in (((holds,), "not refuted"), ((holds, fails), "refuted")):
        outcome = audit(tells, claims, trials=700, known=known, **ONE_ROUND)
        assert (outcome.verdict, outcome.findings[len(claims) :]) == (verdict, known)
        assert outcome.worst is (known[-1] if verdict == "refuted" else outcome.findings[0])
        assert outcome.tests == 4 * len(claims)  # they need no part of the false-alarm rate


def test_ctrl_c_leaves_what_is_known_without_draws():
    def reporter(costs, signals, trials, seed):
        if trials == 500:
            raise KeyboardInterrupt
        return tells(costs, signals, trials, seed)

    known = Finding(Claim(1.0, 1), 1.0, "exact", exact=True)
    with pytest.raises(AuditInterrupted) as stop:
        audit(reporter, per_report(1.0, 1)[:1], trials=500, explore=100, known=[known], **ONE_ROUND)
    assert stop.value.audit.findings[-1] is known
