"""What a client has decided, round by round, on its own disk: a stored bit is never tossed again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from turnout.algorithm import Averaging, ClientState
from turnout.client.history import History
from turnout.errors import TurnoutError, invalid
from turnout.files import Disk, Journal, entries_of
from turnout.privacy import plain

KEPT = 256
"""The least number of rounds whose bits stay on file; an acknowledgement may be as late as that."""

LINES = 4096
"""With this number of lines the file is written again, with the older rounds summed up in the history."""


class RoundPassed(TurnoutError):
    """A round older than the last, and not on file: it can be neither decided nor acknowledged any more."""


class RoundLost(TurnoutError):
    """A coin may have been tossed for the round before a crash and its bit is gone: there is no report."""


class Conflict(TurnoutError):
    """The server has acknowledged the round before, as counted or not, and now says the opposite."""


@dataclass(frozen=True)
class Decision:
    """One round on file.

    Attributes:
        round: which.
        kind: "tossed", "followed" (public, after the stop) or "lost".
        participates: the bit to report.
        moved: what it adds to the history if it is counted: the bit or the probability.
        signal: what it was decided on.
        counted: the server's acknowledgement; None as long as there is none, which moves as counted.
        epsilon: what its report was reserved at; 0 where it holds nothing that was not public or released.
    """

    round: int
    kind: str
    participates: bool
    moved: float = field(repr=False)  # a probability gives the cost away
    signal: float
    counted: bool | None = None
    epsilon: float = 0.0

    def body(self) -> dict[str, Any]:
        """As a line of the journal."""
        return {"entry": "decided"} | vars(self) | {"signal": plain(self.signal), "epsilon": plain(self.epsilon)}


@dataclass(frozen=True)
class Stop:
    """The public numbers that a client acts on once its budget is spent, frozen at that moment.

    Attributes:
        round: the first round without a budget.
        average: the client's average, where it is public, or a public constant.
        signal: the signal then; None if there never was a usable one.
    """

    round: int
    average: float
    signal: float | None


@dataclass(frozen=True)
class OnFile:
    """What a client's file tells of a run that is not open.

    Attributes:
        run: which.
        tossed: the rounds on file whose reports were reserved, with their epsilon.
        folded: how many were reserved before these, by their epsilon.
        releases: what the client acted on.
    """

    run: str
    tossed: dict[int, float]
    folded: Counter[float]
    releases: list[dict[str, Any]]

    @classmethod
    def read(cls, path: Path) -> OnFile | None:
        """From a file that may be in use; None if it is none, or damaged."""
        entries = list(entries_of(path))
        try:
            header, decided = entries[0], [_decision(entry) for entry in entries if entry["entry"] == "decided"]
            tossed = {decision.round: decision.epsilon for decision in decided if decision.epsilon > 0.0}
            releases = [entry["release"] for entry in entries if entry["entry"] == "released"]
            return cls(header["run"], tossed, _folded_on_file(header), releases)
        except (IndexError, KeyError, TypeError, ValueError):
            return None


def _folded_on_file(header: Mapping[str, Any]) -> Counter[float]:
    return Counter({float(epsilon): number for epsilon, number in header["folded"]})


class RoundStore:
    """The rounds of one client in one run, in an append-only file that is shortened now and then.

    Args:
        path: the file, mode 0600.
        settings: what must stay the same as long as the file lives: run, client, prior, averaging.
        start: the history before the first round.
        averaging: how it moves.
        joined: the round from which missed rounds count; None: from the first one decided.
        disk: the durable steps.

    Attributes:
        last: the last round on file, or the one before `joined`; None before any.
        stop: what was frozen when the budget was spent, or None.
        folded: the epsilons per report of tosses for rounds that are not on file any more, and how many of each.
        releases: what the client has acted on, where its mechanism releases once, the newest last.
    """

    def __init__(
        self,
        path: Path,
        settings: Mapping[str, Any],
        start: ClientState,
        averaging: Averaging,
        joined: int | None = None,
        disk: Disk | None = None,
    ) -> None:
        self._settings, self._averaging = dict(settings), averaging
        self._base = start
        self._base_last = self.last = None if joined is None else joined - 1
        self._decisions: dict[int, Decision] = {}
        self.stop: Stop | None = None
        self.folded: Counter[float] = Counter()
        self.releases: list[dict[str, Any]] = []
        self._journal = Journal(path, "client's store", disk)
        try:
            self._journal.mend()
            if self._journal.entries:
                self._replay()
            else:
                self._journal.append(self._header(self._base, self._base_last))
            self._lines = max(1, len(self._journal.entries))
            self._journal.entries.clear()
            self._fold()
        except BaseException:
            self._journal.close()
            raise

    def close(self) -> None:
        """Release the file and its lock."""
        self._journal.close()

    def find(self, round: int) -> Decision | None:
        """The decision on file for a round."""
        return self._decisions.get(round)

    def before(self, round: int) -> ClientState:
        """The history before a later round than the last: rounds in between count as not participating."""
        return self._history.before(round)

    def usable_signal(self) -> float | None:
        """The last signal on file that is finite and above 0."""
        signals = (decision.signal for decision in reversed(self._decisions.values()))
        return next((signal for signal in signals if 0.0 < signal < math.inf), None)

    def lost(self) -> int:
        """How many of the rounds on file are lost."""
        return sum(decision.kind == "lost" for decision in self._decisions.values())

    def tossed(self) -> dict[int, float]:
        """The rounds on file whose reports were reserved, with their epsilon."""
        return {decision.round: decision.epsilon for decision in self._decisions.values() if decision.epsilon > 0.0}

    def add(self, decision: Decision) -> None:
        """Put a decision on file; on return it is durable, and may be reported."""
        self._append(decision.body())
        self._enter(self._history, decision)
        self._take(decision)
        self.last = decision.round

    def stopped(self, stop: Stop) -> None:
        """Freeze what the client acts on after the stop."""
        self._append({"entry": "stopped"} | vars(stop))
        self.stop = stop

    def released(self, release: Mapping[str, Any]) -> None:
        """Note what the client acts on."""
        if not self.releases or dict(release) != self.releases[-1]:
            self._append({"entry": "released", "release": dict(release)})
            self.releases.append(dict(release))

    def acknowledge(self, round: int, counted: bool) -> None:
        """Whether the server counted a round; if not, the history moves as if it had not participated (by the bit).

        Raises:
            RoundPassed: the round is not on file (any more).
            RoundLost: the server counted a round that this client has lost.
            Conflict: it was acknowledged the other way before.
        """
        known = self._decisions.get(round)
        if known is None:
            raise RoundPassed(
                f"round must be one that this client decided and still has on file (the last {KEPT} at least), "
                f"got {round}: acknowledge a round as soon as the server has answered"
            )
        if known.kind == "lost" and counted:
            raise RoundLost(f"round {round} was lost in a crash, yet the server has counted it: join under a new run")
        if known.counted is not None and known.counted != counted:
            raise Conflict(
                f"round {round} was acknowledged as counted={known.counted}, now as {counted}: keep the first"
            )
        if known.counted is None:
            self._append({"entry": "acknowledged", "round": round, "counted": counted})
            self._decisions[round] = replace(known, counted=counted)
            if round == self.last:
                self._history.acknowledge(round, counted)
            elif not counted:
                self._fold()

    def tidy(self) -> None:
        """If the file has grown long, write it again: the older rounds remain in the history alone."""
        if self._lines < LINES:
            return
        recent = dict(list(self._decisions.items())[-KEPT:])
        older = [decision for round, decision in self._decisions.items() if round not in recent]
        base, base_last = self._base, self._base_last
        if older:
            base, base_last = self._folded(older).before(older[-1].round + 1), older[-1].round
        folded = self.folded + Counter(decision.epsilon for decision in older if decision.epsilon > 0.0)
        tail: list[dict[str, Any]] = [] if self.stop is None else [{"entry": "stopped"} | vars(self.stop)]
        tail += [{"entry": "released", "release": release} for release in self.releases]
        bodies = [self._header(base, base_last, folded), *(decision.body() for decision in recent.values()), *tail]
        self._journal.rewrite(bodies)
        self._base, self._base_last, self._decisions, self._lines = base, base_last, recent, len(bodies)
        self.folded = folded

    def _append(self, body: Mapping[str, Any]) -> None:
        self._journal.append(body)
        self._lines += 1

    def _header(self, base: ClientState, last: int | None, folded: Mapping[float, int] | None = None) -> dict[str, Any]:
        history = {"participations": float(base.participations[0]), "rounds": float(np.max(base.rounds))}
        older = [[plain(epsilon), number] for epsilon, number in (folded or {}).items()]
        return {"entry": "client"} | self._settings | {"history": history, "last": last, "folded": older}

    def _take(self, decision: Decision) -> None:
        self._decisions[decision.round] = decision
        if decision.kind == "tossed":
            self.stop = None  # a higher limit: the client is on its own again

    def _replay(self) -> None:
        header, *entries = self._journal.entries
        for name, value in self._settings.items():
            if header.get(name) != value:
                remedy = "use the folder of that run, or an empty one for another"
                raise invalid(name, f"{header.get(name)!r}, as {self._journal.path} began", repr(value), remedy)
        history = header["history"]
        self._base = ClientState(np.array([history["participations"]]), history["rounds"])
        self._base_last = header["last"]
        self.folded = _folded_on_file(header)
        for entry in entries:
            if entry["entry"] == "decided":
                self._take(_decision(entry))
            elif entry["entry"] == "released":
                self.releases.append(entry["release"])
            elif entry["entry"] == "acknowledged":
                self._decisions[entry["round"]] = replace(self._decisions[entry["round"]], counted=entry["counted"])
            else:
                self.stop = Stop(entry["round"], entry["average"], entry["signal"])

    def _fold(self) -> None:
        self._history = self._folded(self._decisions.values())
        self.last = next(reversed(self._decisions), self._base_last)

    def _folded(self, decisions: Iterable[Decision]) -> History:
        history = History(self._base, self._averaging, self._base_last)
        for decision in decisions:
            self._enter(history, decision)
        return history

    def _enter(self, history: History, decision: Decision) -> None:
        before = history.before(decision.round)
        history.add(decision.round, before, before.after(np.array([decision.moved]), self._averaging))
        if decision.counted is not None:
            history.acknowledge(decision.round, decision.counted)


def _decision(entry: Mapping[str, Any]) -> Decision:
    values = {name: entry[name] for name in Decision.__dataclass_fields__}
    return Decision(**values | {"signal": float(entry["signal"]), "epsilon": float(entry["epsilon"])})
