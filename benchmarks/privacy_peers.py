"""The total that our account, dp-accounting and OpenDP report for the same reports, and how long each takes.

A thousand reports at epsilon 0.1 per report, delta 1e-6, from a symmetric box (a randomized response) and from one
that is not. None of the peers knows anything about participation: each is handed a mechanism and a count.
"""

import importlib.metadata
import importlib.util
import math
import time

from turnout.privacy import total_epsilon

REPORT_EPSILON, REPORTS, DELTA = 0.1, 1_000, 1e-6
LOW = 1.0 / (1.0 + math.exp(REPORT_EPSILON))
SYMMETRIC = (LOW, 1.0 - LOW)
ASYMMETRIC = (0.1, 0.1 * math.exp(REPORT_EPSILON))
OURS, GOOGLE, OPENDP = "turnout", "dp-accounting", "OpenDP"


def ours(low, high):
    """Exact where the box is symmetric; elsewhere a bound for signals that mix both directions as they go."""
    return total_epsilon(low, high, REPORTS, DELTA).epsilon


def google(low, high):
    """Privacy loss distributions: the greater of both directions, all reports in the same one."""
    from dp_accounting.pld import privacy_loss_distribution as loss

    if low + high == 1.0:
        one = loss.from_randomized_response(2.0 * low, 2)
    else:
        upper, lower = ({1: math.log(p), 0: math.log1p(-p)} for p in (high, low))
        one = loss.from_two_probability_mass_functions(upper, lower, symmetric=False)
    return one.self_compose(REPORTS).get_epsilon_for_delta(DELTA)


def google_accountant():
    """The same question to dp-accounting's accountant, which in 0.6.0 does not count."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp_accounting.RandomizedResponseDpEvent(2.0 * LOW, 2), REPORTS)
    return accountant.get_epsilon(DELTA)


def opendp(low, high):
    """Pure to zero-concentrated, composed, then approximate; its pure composition gives the sum, 100."""
    import opendp.prelude as dp

    dp.enable_features("contrib", "honest-but-curious")
    if low + high == 1.0:
        one = dp.m.make_randomized_response_bool(prob=high)
    else:  # its randomized response is symmetric: a measurement of our own, of which it knows the epsilon alone
        domain, metric, measure = dp.atom_domain(T=bool), dp.discrete_distance(), dp.max_divergence()
        pure = max(math.log(high / low), math.log((1.0 - low) / (1.0 - high)))
        one = dp.m.make_user_measurement(domain, metric, measure, lambda bit: bit, lambda distance: distance * pure)
    composed = dp.c.make_composition([dp.c.make_pureDP_to_zCDP(one)] * REPORTS)
    return dp.c.make_zCDP_to_approxDP(composed).map(1).epsilon(DELTA)


ACCOUNTS = {
    OURS: ("turnout", ours),
    GOOGLE: ("dp_accounting", google),
    OPENDP: ("opendp", opendp),
}


CALLS = {OURS: 100, GOOGLE: 1, OPENDP: 10}
"""In a turn: the shorter a call, the more of them are needed to meet a quiet moment."""


def seconds(account):
    """Of the processor, so that other work on the machine does not count."""
    begun = time.process_time()
    account(*SYMMETRIC)
    return time.process_time() - begun


def measure(stored=None, turns=7):
    """A row for each library: version, both totals, and the best time, as a multiple of our best in the same run.

    A library that is not installed gives its `stored` row, marked with where it comes from.
    """
    here = {name: account for name, (module, account) in ACCOUNTS.items() if importlib.util.find_spec(module)}
    rows = {
        name: {
            "library": name,
            "version": importlib.metadata.version(name.lower()),
            "symmetric": account(*SYMMETRIC),
            "asymmetric": account(*ASYMMETRIC),
        }
        for name, account in here.items()
    }
    best = dict.fromkeys(here, math.inf)
    for _ in range(turns):
        for name, account in here.items():
            best[name] = min(best[name], *(seconds(account) for _ in range(CALLS[name])))
    for name, row in rows.items():
        row |= {"milliseconds": 1e3 * best[name], "times_turnout": best[name] / best[OURS]}
    for row in (stored or {}).get("rows", []):
        rows.setdefault(row["library"], row | {"stored": True})
    return {
        "reports": REPORTS,
        "epsilon_per_report": REPORT_EPSILON,
        "delta": DELTA,
        "symmetric_box": SYMMETRIC,
        "asymmetric_box": ASYMMETRIC,
        "accountant_that_ignores_the_count": google_accountant() if GOOGLE in here else None,
        "rows": [rows[name] for name in ACCOUNTS if name in rows],
    }
