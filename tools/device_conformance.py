"""Whether a device, in whatever language, keeps to the protocol: a scripted coordinator that looks from the outside.

    python tools/device_conformance.py 'node examples/node-device/device.mjs {url} --code {code} --folder {folder}
        --cost-file {cost} --reports {reports} --epsilon-per-report {epsilon} --on-participate {start} --on-stop {stop}'

The command starts the device. In it stand:

    {url}, {code}   of the coordinator
    {folder}        for the device's files: the same one after a restart
    {cost}          a JSON file with `coefficients` and `powers` of the cost
    {reports}       how many reports the owner allows
    {epsilon}       the largest epsilon per report that the owner allows
    {start}, {stop} programs without arguments: to start work, and to end it

Python and its standard library are enough. Each check has a coordinator, a folder and a device of its own. The
mechanism is clamp with epsilon 30, whose probability is within 1e-12 of 0 or 1: so the signal says what a device that
tosses now must report, and a bit that was tossed twice shows. A device that is right fails by chance (an unlikely
bit, or pauses that are all short) less than once in 100,000 runs. docs/another-device.md explains what is checked.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from scripted_coordinator import DROP, NO, YES, Coordinator, Reply, Request, Scene

SLACK = 1.2
"""Seconds by which a busy machine may be late."""


def require(true: Any, what: str) -> None:
    """Raise with what a device must do, unless it has."""
    if not true:
        raise AssertionError(what)


Check = Callable[[str], None]
CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    """Enter a check under its name; the first line of its text says what a device must do."""
    CHECKS[function.__name__] = function
    return function


def in_turn(path: str, *replies: Reply) -> Callable[[Request], Reply]:
    """Answer the first requests for a path like this, the others as usual."""
    left = list(replies)
    return lambda request: left.pop(0) if request.path == path and left else None


# Enrolling and leaving.


@check
def enrols_once(template: str) -> None:
    """Enrol with a random nonce; with the same one if the answer is lost; not again after a restart."""
    odd = in_turn("/v1/enrol", DROP, (503, {"error": "store", "message": "later"}, 1))
    with Scene(template, Coordinator(odd=odd, last=2)) as scene:
        scene.reported(2)
        scene.kill()
        scene.start()
        scene.reported(2, times=2)
        asked = scene.coordinator.of("/v1/enrol")
        require(len(asked) == 3, f"three requests to enrol, and none after a restart; got {len(asked)}")
        require(len({request.body["nonce"] for request in asked}) == 1, "the same nonce whenever it asks again")
        require(16 <= len(asked[0].body["nonce"]) <= 200, "a nonce of 16 to 200 characters")
        require(asked[2].at - asked[1].at >= 1.0, "as long a pause as Retry-After says")


@check
def refuses_another_version(template: str) -> None:
    """Report nothing to a coordinator whose protocol has another version."""
    with Scene(template, Coordinator(welcome={"version": 2})) as scene:
        require(scene.ended("ended") != 0, "another exit status than 0")
        require(not scene.coordinator.reports(), "no report")


@check
def declines_what_its_owner_does_not_allow(template: str) -> None:
    """Leave, and report nothing, where one report would have a larger epsilon than the owner allows."""
    with Scene(template, Coordinator(epsilon=1.5), epsilon=1.0) as scene:
        require(scene.ended("declined and ended") != 0, "another exit status than 0")
        require(scene.coordinator.left and not scene.coordinator.reports(), "to leave without a report")


@check
def declines_what_it_does_not_know(template: str) -> None:
    """Leave, and report nothing, where it does not know the mechanism."""
    with Scene(template, Coordinator(welcome={"mechanism": {"kind": "not-a-mechanism", "epsilon": 0.1}})) as scene:
        require(scene.ended("declined and ended") != 0, "another exit status than 0")
        require(scene.coordinator.left and not scene.coordinator.reports(), "to leave without a report")


@check
def leaves_when_its_budget_is_spent(template: str) -> None:
    """Leave after the last report that the owner allows, say so again if that was lost, and report nothing more."""
    coordinator = Coordinator(last=10, odd=in_turn("/v1/leave", DROP))
    with Scene(template, coordinator, reports=3) as scene:
        scene.until(lambda: coordinator.left, "left")
        scene.ended("ended")
        coordinator.left = False  # it must not return, even where the coordinator would have it
        scene.start()
        time.sleep(1.0)
        require([round for round, _ in coordinator.reports()] == [0, 1, 2], "three reports, and none after leaving")
        require(len(coordinator.of("/v1/leave")) >= 2, "to leave again where the answer was lost")


@check
def is_silent_once_revoked(template: str) -> None:
    """Report nothing more once the coordinator does not know its token."""
    refused = 401, {"error": "token", "message": "no device has this token"}

    def odd(request: Request) -> Reply:
        return refused if coordinator.open >= 2 and request.path != "/v1/enrol" else None

    coordinator = Coordinator(last=10, odd=odd)
    with Scene(template, coordinator) as scene:
        scene.until(lambda: any(coordinator.open >= 2 and round == 2 for round, _ in coordinator.reports()), "reported")
        time.sleep(1.5)
        require(len(coordinator.bits_of(2)) == 1 and len(coordinator.reports()) == 3, "no report after a 401")


# One bit for a round.


@check
def repeats_its_bit(template: str) -> None:
    """Send the same bit again after every failure, whatever the signal is by then."""
    flipped: set[int] = set()
    bad: dict[int, list[Reply]] = {
        0: [DROP, (500, b"oops")],
        1: [(200, b"<html>"), (200, b"x" * 300_000)],
        2: [(200, {"round": 77, "outcome": "accepted", "counted": True, "lease": 9.0, "next": None}), (200, b'{"rou')],
        3: [(200, {"round": 3, "outcome": "lost", "counted": True, "lease": 9.0, "next": None}), (302, b"")],
    }

    def odd(request: Request) -> Reply:
        left = bad.get(request.body.get("round", -1), []) if request.path == "/v1/report" else []
        if left:
            flipped.add(request.body["round"])
        return left.pop(0) if left else None

    def usual(round: int) -> float:
        return (YES, NO)[(round + (round in flipped)) % 2]

    with Scene(template, Coordinator(signal=usual, odd=odd, last=4)) as scene:
        scene.reported(4)
        for round in range(4):
            bits = scene.coordinator.bits_of(round)
            require(bits == [round % 2 == 0] * 3, f"round {round} three times with the bit of its signal; got {bits}")
        require(not scene.events("start"), "no work without an answer that it can read")


@check
def repeats_its_bit_after_a_kill(template: str) -> None:
    """Killed before its report is answered: report the same bit after the restart, whatever the signal is by then."""
    coordinator = Coordinator(last=0)
    with Scene(template, coordinator) as scene:
        for round, now in enumerate((YES, NO, YES)):
            scene.reported(round)  # it is held: the bit is on file
            scene.kill()
            coordinator.signal = lambda _, now=now: YES - now  # type: ignore[misc]
            coordinator.last = round + 1
            scene.start()
            scene.reported(round, times=2)
            bits = coordinator.bits_of(round)
            require(set(bits) == {now == YES}, f"the bit on file for round {round}; got {bits}")


@check
def never_has_two_bits_for_a_round(template: str) -> None:
    """Killed at any moment, again and again: never two bits for a round, and no round that it had passed."""
    chance, asked = random.Random(4), {-1: 0}

    def odd(request: Request) -> Reply:
        time.sleep(0.005)
        if request.path == "/v1/round":  # it has lost its round, perhaps, and waits until that closes without it
            asked[coordinator.open] = asked.get(coordinator.open, 0) + 1
            coordinator.open += asked[coordinator.open] >= 3
        return DROP if chance.random() < 0.1 else None

    coordinator = Coordinator(last=10**9, odd=odd)
    with Scene(template, coordinator) as scene:
        for life in range(6):
            before = len(coordinator.reports())
            scene.until(lambda before=before: len(coordinator.reports()) > before + 1, "reported after a restart")  # type: ignore[misc]
            time.sleep(chance.uniform(0.0, 0.1))
            scene.kill()
            coordinator.signal = lambda round, life=life: YES if (round + life) % 2 else NO  # type: ignore[misc]
            scene.start()
        bits: dict[int, set[bool]] = {}
        for round, bit in coordinator.reports():
            bits.setdefault(round, set()).add(bit)
        twice = [round for round, found in bits.items() if len(found) > 1]
        require(not twice, f"one bit for a round; got both for {twice}")


@check
def goes_back_with_what_is_on_file(template: str) -> None:
    """`ahead`, from a coordinator that was restored: send the bits on file for the older rounds, and go on."""
    coordinator = Coordinator(last=5)
    with Scene(template, coordinator) as scene:
        scene.reported(5)
        with coordinator.lock:
            coordinator.open, coordinator.bits, coordinator.last = 2, {}, 7
            coordinator.signal = lambda round: NO if round % 2 == 0 else YES
        coordinator.released.set()  # drops the report of round 5, which is sent again
        scene.until(lambda: coordinator.open == 7, "gone on to round 7")
        for round in range(7):
            expected = {round % 2 == (0 if round <= 5 else 1)}
            found = set(coordinator.bits_of(round))
            require(found == expected, f"round {round} as on file, or as its signal says now; got {found}")


@check
def keeps_its_bit_in_a_conflict(template: str) -> None:
    """`conflict`, where the coordinator has another bit: no work, no other bit, and on to the next round."""

    def odd(request: Request) -> Reply:
        time.sleep(0.8 if request.body.get("round") == 1 else 0.0)  # long enough to see work
        return None

    coordinator = Coordinator(lease=30.0, last=2, odd=odd)
    coordinator.bits[0] = False  # it will report "yes"
    with Scene(template, coordinator) as scene:
        scene.reported(1)
        require(set(coordinator.bits_of(0)) == {True}, "its own bit, and no other")
        scene.until(lambda: coordinator.open >= 2, "gone on")
        require(not scene.events("start"), "no work in a round in which the two sides differ")


# What it must understand.


@check
def ignores_what_it_does_not_know(template: str) -> None:
    """Ignore fields that it does not know, in every message."""
    more = {"signals": 7, "a_field_of_tomorrow": {"deep": [1, None, "text"]}}
    with Scene(template, Coordinator(more=more, last=3)) as scene:
        scene.reported(3)
        require([bit for _, bit in scene.coordinator.reports()[:3]] == [True, False, True], "the bits of the signals")


@check
def waits_as_long_as_it_is_told(template: str) -> None:
    """503 and 429 with Retry-After: the same again, and not earlier."""
    busy = [(503, {"error": "store", "message": "later"}, 1), (429, {"error": "rate", "message": "slower"}, 2)]
    with Scene(template, Coordinator(odd=in_turn("/v1/report", *busy), last=1)) as scene:
        scene.reported(1)
        first, second, third = (request.at for request in scene.coordinator.of("/v1/report")[:3])
        require(second - first >= 1.0 and third - second >= 2.0, "pauses of at least Retry-After")
        require(set(scene.coordinator.bits_of(0)) == {True}, "the same bit")


@check
def slows_down_while_all_fails(template: str) -> None:
    """Back off while nothing answers: pauses that grow, and no storm."""
    coordinator = Coordinator(odd=lambda request: None if request.path == "/v1/enrol" else DROP)
    with Scene(template, coordinator) as scene:
        scene.until(lambda: len(coordinator.requests) > 1, "asked")
        time.sleep(3.0)
        require(len(coordinator.requests) <= 20, f"few requests in 3 seconds; got {len(coordinator.requests)}")
        require(len(coordinator.requests) >= 2, "to try again")


@check
def asks_again_while_pending(template: str) -> None:
    """`pending`: the same report again; not in a storm where the answer comes at once."""
    waits = 200, {"round": 0, "outcome": "pending", "counted": False, "lease": 0.0, "next": None}
    coordinator = Coordinator(odd=in_turn("/v1/report", *[waits] * 3), last=1)
    with Scene(template, coordinator) as scene:
        scene.reported(1)
        at = [request.at for request in coordinator.of("/v1/report")[:4]]
        require(coordinator.bits_of(0) == [True] * 4, "the same bit each time")
        require(at[-1] - at[0] > 0.02, "a pause where the coordinator did not hold the request")
        require(coordinator.reports()[4][0] == 1, "a pending report is not acknowledged")


@check
def asks_for_the_round_where_none_is_told(template: str) -> None:
    """`next` is null: ask for the open round."""

    def odd(request: Request) -> Reply:
        if request.path != "/v1/report" or coordinator.open > 0:
            return None
        status, value = coordinator.usual(request)
        return status, value | {"next": None}

    coordinator = Coordinator(odd=odd, last=2)
    with Scene(template, coordinator) as scene:
        scene.reported(2)
        require(len(coordinator.of("/v1/round")) >= 1, "to ask")
        require(set(coordinator.bits_of(1)) == {False}, "the bit of the signal that it was told then")


# Work.


@check
def works_only_when_counted(template: str) -> None:
    """Work for a counted "yes" with a lease alone: not if it was not counted, nor for a lease of 0."""

    def odd(request: Request) -> Reply:
        time.sleep(0.8 if request.body.get("round") == 1 else 0.0)  # long enough to see work
        if request.path != "/v1/report" or request.body["round"] > 0:
            return None
        status, value = coordinator.usual(request)
        return status, value | {"counted": False, "lease": 30.0}

    coordinator = Coordinator(signal=lambda round: YES, odd=odd, last=2)
    with Scene(template, coordinator) as scene:
        scene.reported(2)  # round 0 was not counted, though it has a lease; round 1 has none
        time.sleep(0.2)
        require(not scene.events("start"), "no work yet")
        with coordinator.lock:
            coordinator.lease, coordinator.last, coordinator.odd = 30.0, 3, lambda request: None
        coordinator.released.set()
        scene.until(lambda: scene.events("start"), "started work in round 2")


@check
def ends_work_with_its_lease(template: str) -> None:
    """A lease counts from when the request was *sent*: work ends no later, though the answer came late."""
    held, lease = 1.5, 2.5

    def odd(request: Request) -> Reply:
        if request.path == "/v1/report" and request.body["round"] == 0:
            time.sleep(held)
        return None

    with Scene(template, Coordinator(lease=lease, odd=odd, last=1)) as scene:
        scene.until(lambda: scene.events("start"), "started work")
        scene.until(lambda: scene.events("stop"), "ended work")
        sent = scene.coordinator.of("/v1/report")[0].at
        worked = scene.events("stop")[0] - sent
        require(worked <= lease + SLACK, f"to end work {lease} s after sending; got {worked:.2f} s")
        require(worked >= lease - SLACK, f"to work until the lease ends; got {worked:.2f} s")


@check
def ends_work_at_the_next_no(template: str) -> None:
    """Work ends as soon as a later "no" is acknowledged, whatever is left of the lease."""

    def odd(request: Request) -> Reply:
        time.sleep(0.5 if request.body.get("round") == 1 else 0.0)  # long enough to see work
        return None

    with Scene(template, Coordinator(lease=60.0, last=2, odd=odd)) as scene:
        scene.until(lambda: scene.events("start"), "started work")
        scene.until(lambda: scene.events("stop"), "ended work", seconds=5.0)


@check
def ends_work_when_it_is_stopped(template: str) -> None:
    """Asked to stop (SIGTERM) while work is on: end it, then end."""
    with Scene(template, Coordinator(lease=60.0, last=1)) as scene:
        scene.until(lambda: scene.events("start"), "started work")
        scene.reported(1)
        assert scene.process is not None
        scene.process.terminate()
        scene.ended("ended")
        require(scene.events("stop"), "to end work before it ends itself")


@check
def ends_work_that_a_killed_one_left_on(template: str) -> None:
    """Killed while work is on: end it at the next start, before anything is reported."""
    coordinator = Coordinator(lease=60.0, last=1)
    with Scene(template, coordinator) as scene:
        scene.until(lambda: scene.events("start"), "started work")
        scene.until(lambda: coordinator.bits_of(1), "gone on to round 1")
        scene.kill()
        require(not scene.events("stop"), "nothing ends work when all is killed: the check itself is wrong")
        before = len(coordinator.reports())
        scene.start()
        scene.until(lambda: len(coordinator.reports()) > before, "reported again")
        require(scene.events("stop"), "to end what was left on before it reports")


# Histories: with the cost x^4 the intent is signal / (4 average^2), so that the average decides the bit.

STEEP = ([1.0], [4])


def _steep(round: int) -> float:
    """First a certain yes; then one that is certain below an average of 0.0007, and has a chance of 5e-7 near 1."""
    return 1e9 if round == 0 else 2e-6


@check
def counts_a_yes(template: str) -> None:
    """A counted "yes" raises the average (and a device that has participated much then says "no")."""
    start = {"prior_average": 0.5, "prior_rounds": 0.001}
    with Scene(template, Coordinator(signal=_steep, welcome=start, last=2), cost=STEEP) as scene:
        scene.reported(1)
        require(scene.coordinator.bits_of(0)[0], "yes in round 0")
        require(not scene.coordinator.bits_of(1)[0], "no in round 1, at an average near 1")


@check
def takes_back_what_was_not_counted(template: str) -> None:
    """A "yes" that was not counted is a round without participation, also after a restart."""
    start = {"prior_average": 0.5, "prior_rounds": 0.001}
    coordinator = Coordinator(signal=_steep, welcome=start, counts=lambda round, bit: False, last=1)
    with Scene(template, coordinator, cost=STEEP) as scene:
        scene.reported(1)
        require(scene.coordinator.bits_of(1)[0], "yes in round 1, at an average near 0")


@check
def keeps_a_probability(template: str) -> None:
    """`by` is "probability": a "yes" that was not counted moves the history by its probability all the same."""
    start = {"prior_average": 0.5, "prior_rounds": 0.001, "by": "probability"}
    coordinator = Coordinator(signal=_steep, welcome=start, counts=lambda round, bit: False, last=1)
    with Scene(template, coordinator, cost=STEEP) as scene:
        scene.reported(1)
        require(not coordinator.bits_of(1)[0], "no in round 1, at an average near 1")


@check
def forgets_old_rounds(template: str) -> None:
    """`remember` rounds are behind an average at most: with 1, a round without participation is all there is."""
    start = {"prior_average": 0.5, "prior_rounds": 1000, "remember": 1}
    coordinator = Coordinator(signal=lambda round: _steep(round) if round else NO, welcome=start, last=1)
    with Scene(template, coordinator, cost=STEEP) as scene:
        scene.reported(1)
        require(not coordinator.bits_of(0)[0], "no in round 0")
        require(coordinator.bits_of(1)[0], "yes in round 1, at an average near 0")


@check
def counts_missed_rounds(template: str) -> None:
    """Rounds that it missed are rounds without participation."""

    def odd(request: Request) -> Reply:
        if request.path == "/v1/report" and request.body["round"] == 0:
            coordinator.bits[0], coordinator.open = request.body["participates"], 20_000
            return 200, coordinator.settled(0, request.body["participates"])
        return None

    coordinator = Coordinator(signal=_steep, odd=odd, last=1)
    with Scene(template, coordinator, cost=STEEP) as scene:
        scene.reported(20_000)
        require(scene.coordinator.bits_of(20_000)[0], "yes in round 20,000, after 19,999 that it missed")


def failures(template: str, names: list[str] | None = None, at_once: int = 6) -> dict[str, str]:
    """Run checks (all, unless named) against a device.

    Returns:
        What is wrong, by the name of the check; empty for a device that keeps to the protocol.
    """

    def run(name: str) -> tuple[str, str]:
        try:
            CHECKS[name](template)
        except AssertionError as problem:
            return name, f"{str(CHECKS[name].__doc__).splitlines()[0]} Wanted: {problem}"
        return name, ""

    with ThreadPoolExecutor(at_once) as pool:
        return {name: problem for name, problem in pool.map(run, names or CHECKS) if problem}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("command", help="starts the device; see the beginning of this file")
    parser.add_argument("--only", nargs="*", choices=CHECKS, help="these checks")
    options = parser.parse_args()
    wrong = failures(options.command, options.only)
    for name in options.only or CHECKS:
        print(f"{'WRONG' if name in wrong else 'right'}  {name}: {wrong.get(name, str(CHECKS[name].__doc__))}")
    print(f"{len(wrong)} of {len(options.only or CHECKS)} checks are wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
