"""The agent of one device: it enrols, decides each round from a cost that stays here, and acts on what is acknowledged.

What is durable, and in which order. (1) Before enrolling: the code and a nonce; so a lost answer is asked for
again as the same device. (2) The welcome. (3) Each round, by `DurableClient`: the report is reserved, the coin is
tossed, the bit is stored; then it is sent, the same again and again, until it is answered. (4) The
acknowledgement, before the next round is decided. (5) The agreement to another version of the rules, before a round
is decided under it. (6) The marker of work, before work starts. Killed between any two of these, the next start resumes
from the files: it ends work that was on, sends a bit that is on file and not acknowledged, and never tosses for a round
that may have been tossed for.

All that ever leaves the device: the code and the nonce, its reports with the name of the rules it has agreed to, its
token; how many reports are left to it, once these are few; and why it leaves, if it leaves.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from turnout.client import LEDGER, Cost, Owner, Seams, cost_from
from turnout.errors import FileProblem, invalid
from turnout.privacy import Account
from turnout.problem import Costs
from turnout.service import Welcome, boot_clock
from turnout.service.agent.agreement import Agreement, Declined
from turnout.service.agent.connection import Backoff, Dialogue, Halted, HttpWire, RefusedByCoordinator, Wire
from turnout.service.agent.membership import PENDING, Membership, check_code, enrolled, make_folder, take_folder
from turnout.service.agent.rounds import LEFT, Decider, DeviceRounds, NoCost, RoundDone, left_declining
from turnout.service.agent.work import MARKER, CalledWork, Lease, Work

ASKED, ALL_ROUNDS, BUDGET = "asked", "rounds", "budget"
"""Why an agent has ended: it was asked to, all rounds are done, or its budget is spent."""


@dataclass(frozen=True)
class AgentSeams(Seams):
    """What tests replace.

    Args:
        clock: of leases; by default one that counts a machine's sleep and that nobody can set.
        sleep: instead of waiting.
    """

    clock: Callable[[], float] = boot_clock
    sleep: Callable[[float], None] | None = None


class Agent:
    """A device that participates in a coordinator's run; close it or use `with`.

    Args:
        url: of the coordinator.
        folder: for this device alone; made if it is missing.
        costs: its private cost: a number a for a x^2, a cost, or a function without arguments, called in each round.
        code: the one-time code; not needed once enrolled.
        owner: what the owner allows, and where the ledger is.
        work: what it does for a participation, such as `CalledWork` or `CommandWork`.
        on_round: called with the outcome of every round.
        on_problem: called with a sentence about each failure that will be tried again.
        wire: what carries requests, such as `HttpWire(url, ca=FILE)`; HTTP to the url unless given.
        seams: for tests.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, Agent("http://127.0.0.1:8440", folder, 3.0) as agent:
        ...     print(agent.status()["run"])
        None
    """

    def __init__(
        self,
        url: str,
        folder: str | Path,
        costs: Cost | Callable[[], Cost],
        *,
        code: str | None = None,
        owner: Owner = Owner(),  # noqa: B008 (frozen)
        work: Work = CalledWork(),  # noqa: B008 (frozen)
        on_round: Callable[[RoundDone], None] | None = None,
        on_problem: Callable[[str], None] | None = None,
        wire: Wire | None = None,
        seams: AgentSeams = AgentSeams(),  # noqa: B008 (frozen)
    ) -> None:
        if isinstance(costs, Costs) or not callable(costs):
            cost_from(costs)
        self._url, self._costs, self._code = url, costs, None if code is None else check_code(code)
        self._owner, self._work, self._seams = owner, work, seams
        self._on_round, self._on_problem = on_round, on_problem
        self._wire = wire or HttpWire(url)
        self._folder = make_folder(folder)
        self._dialogue = Dialogue(
            self._wire, clock=seams.clock, pause=self._pause, check=self._check, noted=self._noted
        )
        self._repairing = Backoff(self._pause)
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._halted, self._ended, self._problem = False, "", ""
        self._lock = -1
        self._lease: Lease | None = None
        self._joined: _Joined | None = None

    def __repr__(self) -> str:
        told = f"run {self._joined.welcome.run!r}" if self._joined else "not joined yet"
        return f"Agent({self._url}, folder {self._folder.name!r}, {told})"  # never its cost, its code or its ledger

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def join(self) -> tuple[Welcome, Agreement]:
        """End what a killed agent has left on, enrol if this device has not, and agree on a mechanism.

        Returns:
            The coordinator's welcome, and what this device has accepted.

        Raises:
            InUse: another agent has the folder.
            Declined: what the coordinator proposes is not allowed here; the device has left the run.
            RefusedByCoordinator: the code is not accepted.
            ValueError: it is not enrolled, and there is no code.
        """
        if self._joined is None:
            if self._lock < 0:
                self._lock = take_folder(self._folder)
            if self._lease is None:
                marker = self._folder / MARKER
                self._lease = Lease(
                    self._work, marker, clock=self._seams.clock, noted=self._noted, disk=self._seams.disk
                )
                self._lease.wait_until_ready()
            self._joined = self._join()
        return self._joined.welcome, self._joined.agreement

    def run(self, rounds: int | None = None) -> str:
        """Participate until stopped, or for a number of rounds; work has ended when this returns.

        Returns:
            `ASKED`, `ALL_ROUNDS` or `BUDGET`.

        Raises:
            Revoked, Declined, RefusedByCoordinator, AgentProblem, LedgerRolledBack: this device cannot continue;
                Declined also where the run's rules have changed to what is not allowed here.
        """
        done = 0
        try:
            while not self._ended and (rounds is None or done < rounds):
                done += self.step() is not None
            return self._ended or ALL_ROUNDS
        finally:
            self.close()

    def step(self) -> RoundDone | None:
        """One round: decide, report, wait for the answer, act on it.

        Returns:
            What became of it; None if nothing could be done (the problem was noted) or the agent was stopped.
        """
        try:
            self.join()
            assert self._joined is not None
            done = self._joined.rounds.one()
            self._repairing.reset()
        except Halted:
            self._ended = ASKED
            return None
        except (FileProblem, NoCost) as problem:  # a full disk, say: open everything again, after a pause
            if self._joined is None:
                raise
            self._noted(str(problem))
            self._joined.rounds.reopen()
            try:
                self._repairing.wait()
            except Halted:
                self._ended = ASKED
            return None
        if done.outcome == LEFT:
            self._ended = BUDGET
        if self._on_round is not None:
            self._on_round(done)
        return done

    def stop(self) -> None:
        """End work at once and `run` as soon as possible; from any thread or a signal's handler."""
        self._halted = True
        if self._lease is not None:
            self._lease.end()
        self._wire.cut()
        self._wake.put(None)

    def close(self) -> None:
        """End work, wait until it has ended, and release all files; may be called twice."""
        if self._lease is not None:
            self._lease.close()
            self._lease = None
        if self._joined is not None:
            self._joined.decider.close()
        self._wire.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def status(self) -> dict[str, Any]:
        """Where the device stands, for its own user: no cost, no intent, no probability."""
        joined, lease = self._joined, self._lease
        current = None if lease is None else lease.current
        found = {} if joined is None else joined.decider.status()
        return found | {
            "url": self._url,
            "run": None if joined is None else joined.welcome.run,
            "tag": None if joined is None else joined.welcome.tag,
            "rules": None if joined is None else joined.decider.rules,
            "working": None if current is None else current.round,
            "lease": 0.0 if current is None else max(0.0, current.until - self._seams.clock()),
            "ended": self._ended or None,
            "problem": self._problem or None,
        }

    def account(self, delta: float = 1e-6) -> Account | None:
        """The total epsilon at delta of all that the ledger has counted, in this run and all others.

        Returns:
            The account; None as long as the device has not joined.
        """
        return None if self._joined is None else self._joined.decider.account(delta)

    def reports_left(self) -> tuple[int, int] | None:
        """(reports that are left, of how many); None if it has not joined, or releases once: none is used up."""
        return None if self._joined is None else self._joined.decider.reports_left()

    def places(self) -> tuple[Path, Path] | None:
        """Where the ledger and its witness are; None as long as the device has not joined."""
        return None if self._joined is None else self._joined.decider.places()

    def at_most(self, delta: float = 1e-6) -> Account | None:
        """The same once all that the owner allows is spent in this run; None as long as it has not joined."""
        return None if self._joined is None else self._joined.decider.at_most(delta)

    def _join(self) -> _Joined:
        ledger, disk = self._ledger(), self._seams.disk
        decider = Decider(self._folder, self._costs, replace(self._owner, ledger=ledger or None), self._seams)
        try:
            decider.check_files()  # before a code is used up
            membership = self._enrolled()
            if membership.ledger != ledger:
                membership = replace(membership, ledger=ledger)
                membership.save(self._folder, disk)
            assert membership.welcome is not None
            agreement = self._agree(membership, decider)
        except BaseException:
            decider.close()
            raise
        assert self._lease is not None
        rounds = DeviceRounds(self._dialogue, decider, self._lease, membership.welcome)
        return _Joined(membership.welcome, agreement, decider, rounds)

    def _ledger(self) -> str:
        """Where the ledger is, if not in the folder: as given, or as this folder has had it, which must be the same."""
        given, known = self._owner.ledger, Membership.load(self._folder)
        before: str = known.ledger if known is not None else ""
        if given is None:
            return before
        asked = str(os.path.abspath(given))
        if known is not None and asked != (before or os.path.abspath(self._folder / LEDGER)):
            remedy = "give that one, or take another folder: one cost has one ledger"
            raise invalid("ledger", f"{before or self._folder / LEDGER}, as this folder has it", asked, remedy)
        return asked

    def _enrolled(self) -> Membership:
        try:
            return enrolled(self._folder, self._url, self._code, self._dialogue.enrol, self._seams.disk)
        except RefusedByCoordinator:
            (self._folder / PENDING).unlink(missing_ok=True)
            raise

    def _agree(self, membership: Membership, decider: Decider) -> Agreement:
        try:
            return decider.agree(membership)
        except Declined as declined:
            assert membership.welcome is not None
            raise left_declining(self._dialogue, membership.welcome, declined) from None

    def _check(self) -> None:
        if self._halted:
            raise Halted

    def _pause(self, seconds: float) -> None:
        self._check()
        if self._seams.sleep is not None:
            self._seams.sleep(seconds)
        else:
            with suppress(Empty):
                self._wake.get(timeout=seconds)
        self._check()

    def _noted(self, problem: str) -> None:
        self._problem = problem
        if self._on_problem is not None:
            self._on_problem(problem)


@dataclass(frozen=True)
class _Joined:
    """What a device has once it has joined."""

    welcome: Welcome
    agreement: Agreement
    decider: Decider
    rounds: DeviceRounds
