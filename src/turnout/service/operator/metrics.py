"""A coordinator's state for monitoring: Prometheus's text format, and what is wrong now, in words."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of the text that `exposition` gives."""

GONE_SHARE, FEWEST_GONE = 0.1, 2
"""So many members must be gone to be a trouble: this share of them, and this number, unless it is all of them."""

SPENT_DAYS = 3
"""For which it is a trouble that a device has left since its reports are spent: no weekend hides it."""

_GAUGES = {
    "round": "The round that is open.",
    "capacity": "The turnout that is needed in each round, in units of weight.",
    "hard_limit": "The largest turnout that is acknowledged in a round.",
    "signal": "Theta of the open round.",
    "most_signal": "The upper bound of the signal.",
    "offered": "The signal that is sent to devices.",
    "members": "Devices that have enrolled and not left.",
    "heard": "Devices that have reported in the open round.",
    "late": "Devices that are expected and have not reported in the open round.",
    "gone": "Devices that missed the last rounds; rounds do not wait for them.",
    "running_out": "Devices that have a tenth or less of the reports that their owners allow.",
    "least_reports_left": "Reports that are left to the first of them.",
    "waiting_for": "Devices still to enrol before the first round closes.",
    "returning": "Devices that have returned from an absence, and are counted again within a few rounds.",
    "frozen": "1 if the signal did not follow the last closed round: too few decided by it.",
    "beyond_reach": "1 if those counted on cannot bring the capacity at any signal: it only moves back into reach.",
    "leader": "1 if this process closes rounds.",
    "open_seconds": "How long the open round has been open.",
    "round_seconds": "The shortest time from one round's close to the next.",
    "deadline": "The longest that a round is open, in seconds.",
    "uptime": "Seconds since this process began.",
}
_LAST = {
    "participants": "The weight that was acknowledged in the last closed round.",
    "demand": "The weight that moved the signal in the last closed round.",
    "seconds": "How long the last closed round was open.",
}
_ACCOUNT = {
    "epsilon_per_report": "The privacy loss of one report at most",
    "epsilon_lifetime": "The privacy loss of all reports ever at most, where one release covers them",
    "total_epsilon": "The privacy loss of all reports so far at most, at the account's delta, of any one device",
    "delta": "The slack of the account's total: P(A) <= e^total P'(A) + delta for all events A.",
    "reports": "The reports that the account's total covers.",
}


def exposition(snapshot: Mapping[str, Any], last: Mapping[str, Any] | None = None) -> str:
    """A coordinator's state for Prometheus. No label ever names a device.

    Args:
        snapshot: as `Operated.snapshot` gives it; what is None is left out.
        last: the last closed round, as `Operated.recent` gives it.

    Example:
        >>> print(exposition({"round": 7, "mode": "running", "faults": {"full disk": 2}}))
        # HELP turnout_up 1 if nothing is wrong now.
        # TYPE turnout_up gauge
        turnout_up 1.0
        # HELP turnout_round The round that is open.
        # TYPE turnout_round gauge
        turnout_round 7.0
        # HELP turnout_mode 1 for the mode that holds.
        # TYPE turnout_mode gauge
        turnout_mode{mode="running"} 1.0
        # HELP turnout_faults_total What has gone wrong since the process began.
        # TYPE turnout_faults_total counter
        turnout_faults_total{fault="full disk"} 2.0
        <BLANKLINE>
    """
    from prometheus_client import CollectorRegistry, generate_latest  # `turnout status` does without the library

    registry = CollectorRegistry()
    registry.register(_Snapshot(snapshot, last or {}))
    return generate_latest(registry).decode()


class _Snapshot:
    """What `exposition` was given, as prometheus_client collects it."""

    def __init__(self, snapshot: Mapping[str, Any], last: Mapping[str, Any]) -> None:
        self._snapshot, self._last = snapshot, last

    def collect(self) -> Iterator[Metric]:
        snapshot = self._snapshot
        yield from _metric("up", "1 if nothing is wrong now.", not troubles(snapshot))
        account = snapshot.get("account") or {}
        said = {name: words + _held(account) if "epsilon" in name else words for name, words in _ACCOUNT.items()}
        groups = ((_GAUGES, snapshot, ""), (_LAST, self._last, "last_"), (said, account, "account_"))
        for names, values, prefix in groups:
            for name, words in names.items():
                yield from _metric(prefix + name, words, values.get(name))
        if "mode" in snapshot:
            yield from _labelled("mode", "1 for the mode that holds.", [({"mode": snapshot["mode"]}, 1)])
        if "run" in snapshot:
            about = {"run": snapshot["run"], "version": snapshot.get("version", "")}
            yield from _labelled("info", "Which run, and which turnout.", [(about, 1)])
        left = [({"why": why}, count) for why, count in snapshot.get("left_because", {}).items()]
        yield from _labelled("left", "Devices that have left, by the reason.", left)
        faults = [({"fault": name}, count) for name, count in snapshot.get("faults", {}).items()]
        yield from _labelled("faults_total", "What has gone wrong since the process began.", faults)
        counters = dict(snapshot.get("counters", {}))
        yield from _metric("held", "Requests that wait for their round to close.", counters.pop("held", None))
        for name, count in counters.items():
            clean = re.sub(r"\W", "_", name, flags=re.ASCII)
            yield from _metric(f"{clean}_total", f"How many since the process began: {name}.", count)


def _held(account: Mapping[str, Any]) -> str:
    """The observer and the assumptions, as the end of a sentence."""
    from turnout.privacy import provided

    return f", against {account.get('against', 'the coordinator')}{provided(account.get('assumptions', ()))}."


def _metric(name: str, words: str, value: float | None) -> Iterator[Metric]:
    if value is not None:
        yield from _labelled(name, words, [({}, value)])


def _labelled(name: str, words: str, samples: Sequence[tuple[Mapping[str, object], float]]) -> Iterator[Metric]:
    """A metric with one sample for each set of labels; a counter if its name says so; none without samples."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    if samples:
        names = tuple(samples[0][0])
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        metric = kind(f"turnout_{name}", words, labels=names)
        for labels, value in samples:
            metric.add_metric([str(labels[label]) for label in names], float(value))
        yield metric


def troubles(snapshot: Mapping[str, Any]) -> list[str]:
    """What is wrong now, worst first, a sentence each; an empty list means healthy.

    Past faults are not listed, only counted. Nor is what the operator chose, such as a pause: while no round closes,
    what rounds would show is left out, and all else stays.

    Example:
        >>> troubles({"mode": "running", "frozen": True, "heard": 3, "members": 100})
        ['the signal is frozen: too few devices decided by it']
    """
    found, closes = [], snapshot.get("mode") in ("running", "draining")
    members = snapshot.get("members") or 0
    found += _gone_troubles(snapshot)
    if not members and snapshot.get("left_because"):
        why = ", ".join(f"{count:,} ({words})" for words, count in snapshot["left_because"].items())
        found.append(f"no device is a member any more; left have: {why}")
    if closes and snapshot.get("frozen"):
        found.append("the signal is frozen: too few devices decided by it")
    found += _capacity_troubles(snapshot) + _budget_troubles(snapshot)
    open_seconds, deadline = snapshot.get("open_seconds") or 0.0, snapshot.get("deadline") or math.inf
    if closes and members and not snapshot.get("waiting_for") and open_seconds > 2.0 * deadline + 1.0:
        found.append(f"the round does not close: open for {open_seconds:.0f} s, its deadline is {deadline:g} s")
    return found


def told_sites(counts: Mapping[str, int]) -> str:
    """Devices by site, in words.

    Example:
        >>> told_sites({"hall 2": 70, "no site": 1})
        'hall 2: 70, no site: 1'
    """
    return ", ".join(f"{site}: {count:,}" for site, count in counts.items())


def _gone_troubles(snapshot: Mapping[str, Any]) -> list[str]:
    """A share of the members is silent, which single devices on a bad network are not."""
    members, gone = snapshot.get("members") or 0, snapshot.get("gone") or 0
    if not members or gone < min(members, max(FEWEST_GONE, GONE_SHARE * members)):
        return []
    who = "all are gone" if gone >= members else f"{gone:,} of {members:,} have not reported lately"
    sites = snapshot.get("gone_at") or {}
    where = f" ({told_sites(sites)})" if any(site != "no site" for site in sites) else ""
    return [f"devices are gone: {who}{where}"]


def _budget_troubles(snapshot: Mapping[str, Any]) -> list[str]:
    """Devices have left, or will leave soon, because their reports are spent."""
    from turnout.service import lasting

    found, spent = [], snapshot.get("spent_lately") or 0
    if spent:
        who = "1 device has" if spent == 1 else f"{spent:,} devices have"
        found = [f"reports are spent: {who} left for good in the last {SPENT_DAYS} days"]
    few, left = snapshot.get("running_out") or 0, snapshot.get("least_reports_left")
    if not few or left is None:
        return found
    first, members = lasting(left, snapshot.get("round_seconds")), snapshot.get("members") or 0
    remedy = "ask their owners for more (turnout join --reports NUMBER --raise-limit)"
    return [*found, f"few reports are left to {few:,} of {members:,} devices: the first of them has {first}; {remedy}"]


def _what_would_do(capacity: float, least: float, most: float, members: int) -> str:
    """A capacity, or a number of members like these, that would do."""
    if capacity > most:
        if most <= 0.0:
            return "It takes devices that report"
        return f"It takes {math.ceil(members * capacity / most):,} such devices, or a smaller capacity"
    fewest = math.floor(members * capacity / least)
    return f"It takes {fewest:,} such devices or fewer, a larger capacity, or another mechanism (turnout operate rules)"


def _capacity_troubles(snapshot: Mapping[str, Any]) -> list[str]:
    """The capacity cannot be met, or is not met although it could be."""
    from turnout.algorithm import in_reach

    capacity, members = snapshot.get("capacity") or 0.0, snapshot.get("members") or 0
    least, most = snapshot.get("reachable") or (-1.0, math.inf)
    if members and not snapshot.get("waiting_for") and not in_reach(capacity, least, most):
        away = (snapshot.get("gone") or 0) + (snapshot.get("returning") or 0)
        who = f"the {max(0, members - away)} devices that can be counted on" if away else f"{members} devices"
        why = f"{who} have a turnout of {least:.4g} to {most:.4g} on average"
        why += f", and no setting of the signal brings {capacity:.6g} from these devices"
        remedy = _what_would_do(capacity, least, most, max(1, members - away))
        return [f"the capacity of {capacity:.6g} cannot be met: {why}. {remedy}"]
    if (snapshot.get("signal") or 0.0) >= (snapshot.get("most_signal") or math.inf):
        return ["the signal is at its bound, and too few participate: devices are gone, or their costs are too high"]
    return []
