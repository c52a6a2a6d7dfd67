"""The client's side: a Flower mod that decides, from a cost that stays here, whether this node trains in a round."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from logging import ERROR, WARNING, getLogger
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable, Mod

from turnout.algorithm import Coins, Mechanism, SeededCoins, SystemCoins, check_mechanism
from turnout.client import BudgetSpent, Cost, Limit, Owner, RoundLost, RoundPassed, Stopped, cost_from, limit_with, load
from turnout.client import read_cost as read_cost
from turnout.errors import TurnoutError, check_kind, invalid
from turnout.flower.client_state import StateDirectory, StudyState
from turnout.flower.protocol import (
    ABSTAINED,
    INELIGIBLE,
    LOST,
    RECORD,
    REFUSED,
    STOPPED,
    Question,
    answer,
    app_raised,
    mechanism_from_text,
    no_answer,
)
from turnout.privacy import Certificate, certificate
from turnout.problem import Costs

NUMBER, FILE, FUNCTION = "turnout-cost", "turnout-cost-file", "turnout-cost-function"
"""The keys of node-config, of which one must be given."""


@dataclass(frozen=True)
class Device:
    """What a cost function may use; it never leaves the client.

    Attributes:
        context: Flower's, with `node_config` and `run_config`.
        last_training_seconds: how long the last training here took, also a failed one; None before the first.

    Example:
        >>> def cost(device):                            # slower training, higher cost
        ...     return 1.0 + (device.last_training_seconds or 0.0)
        >>> cost(Device(context=None, last_training_seconds=4.0))
        5.0
    """

    context: Context = field(repr=False)  # may hold the cost
    last_training_seconds: float | None = field(default=None, repr=False)


CostSource = Cost | Callable[[Device], Cost] | None


def cost_of(source: CostSource, device: Device) -> Costs:
    """The cost of this client now: given, called for, or as its node-config says.

    Args:
        source: a number, a cost, a function of the device, or None for the owner's settings.
        device: this one.

    Raises:
        ValueError: none or several are given, or it is not convex. The text may hold the cost: keep it local.
        FileProblem: the file cannot be read.

    Example:
        >>> len(cost_of(3.0, Device(context=None)))
        1
    """
    found: Any = _from_settings(device.context.node_config) if source is None else source
    if callable(found) and not isinstance(found, Costs):
        found = found(device)
    return cost_from(found)


def _from_settings(settings: Mapping[str, Any]) -> Any:
    given = [key for key in (NUMBER, FILE, FUNCTION) if key in settings]
    if len(given) != 1:
        remedy = 'give one, such as --node-config "turnout-cost=3.0"'
        raise invalid("node-config", f"with one of {NUMBER}, {FILE}, {FUNCTION}", ", ".join(given) or "none", remedy)
    value = settings[given[0]]
    if given[0] == FILE:
        return read_cost(str(value))
    return load(str(value), FUNCTION) if given[0] == FUNCTION else value


log = getLogger("flwr").log

STATE, WITNESS, LEDGER = "turnout-state", "turnout-witness", "turnout-ledger"
REPORTS, EPSILON_PER_REPORT = "turnout-limit-reports", "turnout-limit-epsilon-per-report"
RELEASES, EPSILON_PER_RELEASE = "turnout-limit-releases", "turnout-limit-epsilon-per-release"
ALLOW_UNCERTIFIED, CONSENT = "turnout-allow-uncertified", "turnout-consent"

USUAL_LIMIT = Limit(reports=1000, epsilon_per_report=1.0)
"""What a client allows by default."""


class _Refused(TurnoutError):
    """This client does not report, for a reason that is public: it is sent to the server as it is."""


def self_selection_mod(
    cost: CostSource = None,
    *,
    limit: Limit = USUAL_LIMIT,
    mechanism: Mechanism | None = None,
    eligible: Callable[[Device], bool] | None = None,
    after_stop: str = "leave",
    durable: bool = True,
    seed: int | None = None,
    allow_uncertified: bool = False,
) -> Mod:
    """A mod for the train function, outermost: this node says whether it participates, and trains only if it does.

    The history and the ledger are kept in the folder that node-config names as `turnout-state`. The owner's
    node-config overrides what the app says here: `turnout-limit-reports`, `turnout-limit-epsilon-per-report`,
    `turnout-limit-releases`, `turnout-limit-epsilon-per-release`, `turnout-allow-uncertified`, `turnout-consent` (to a
    higher limit than before), `turnout-witness`, `turnout-ledger` (a ledger that clients of one device share).

    Args:
        cost: a number a for the cost a x^2, a cost, or a function of the `Device`, which may measure it in
            each round; None: as node-config says (`turnout-cost`, `-file` or `-function`).
        limit: how many reports about the cost, over all runs and servers, and the largest epsilon per report; how many
            releases, and the largest epsilon of one (of a mechanism that releases once, for a lifetime).
        mechanism: insist on this one; None: the server's, if its certificate keeps the limit.
        eligible: whether it can train now at all (on a charger, say). The server sees the answer, so let it
            depend on public things alone.
        after_stop: once the budget is spent "leave", or "follow": act on public data alone.
        durable: False keeps the history in Flower's Context instead. NOT for real clients: a restart forgets it.
        seed: repeatable coins for studies, by the node's partition-id; only if not durable.
        allow_uncertified: for studies, use also mechanisms without a certificate; a durable client needs its
            owner's `turnout-allow-uncertified=true`.

    Raises:
        ValueError: a setting of another kind, or settings that contradict each other.

    Example:
        >>> from flwr.clientapp import ClientApp
        >>> app = ClientApp()
        >>> @app.train(mods=[self_selection_mod(cost=3.0)])
        ... def train(message, context): ...
    """
    _check_kinds(limit, mechanism, eligible)
    if durable and seed is not None:
        remedy = "seeded coins can be predicted: pass durable=False for a study, or leave the seed out"
        raise invalid("seed", "None for a durable client", seed, remedy)
    if durable and allow_uncertified:
        remedy = f"its owner says so in node-config: {ALLOW_UNCERTIFIED}=true"
        raise invalid("allow_uncertified", "left out for a durable client", allow_uncertified, remedy)
    if after_stop not in (("leave", "follow") if durable else ("leave",)):
        raise invalid("after_stop", "'leave', or 'follow' for a durable client", repr(after_stop), "leave it out")
    coins = SystemCoins() if seed is None else SeededCoins(seed)
    owner = Owner(accept_uncertified=allow_uncertified, mechanism=mechanism, after_stop=after_stop)
    return _SelfSelectionMod(cost, limit, owner, eligible, durable, coins)


def _check_kinds(limit: object, mechanism: object, eligible: object) -> None:
    """Refuse here what would otherwise fail on every node."""
    check_kind("limit", limit, Limit, "a turnout.flower.Limit", "write limit=Limit(1000, 1.0)")
    if mechanism is not None:
        check_mechanism(mechanism)
    if eligible is not None and not callable(eligible):
        raise invalid("eligible", "a function of the Device", repr(eligible), "leave it out if it can always train")


class _SelfSelectionMod:
    """The mod itself; Ray copies it to its workers, so it holds settings only."""

    def __init__(
        self,
        cost: CostSource,
        limit: Limit,
        owner: Owner,
        eligible: Callable[[Device], bool] | None,
        durable: bool,
        coins: Coins,
    ) -> None:
        self._cost, self._limit, self._owner, self._eligible = cost, limit, owner, eligible
        self._durable, self._coins = durable, coins

    def __repr__(self) -> str:
        insists = f", mechanism={self._owner.mechanism}" if self._owner.mechanism else ""
        return f"self_selection_mod(limit={self._limit}{insists})"  # never the cost

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Answer the question, or train if this node said that it would participate."""
        if message.metadata.message_type.split(".")[0] != "train":
            return call_next(message, context)
        phase, code, reason = "", 0, ""
        try:
            question = self._question(message)
            phase = question.phase
            participates = self._decide(question, context)
        except _Refused as refusal:
            code, reason = REFUSED, str(refusal)
        except _Ineligible:
            code = INELIGIBLE
        except Stopped:
            code = STOPPED
        except (RoundLost, RoundPassed):
            code = LOST
        except Exception:  # its text may hold what is private: it stays in this client's own log
            log(ERROR, "self_selection_mod: this client cannot decide", exc_info=True)
            code, reason = REFUSED, "its settings or its files are not in order (see the client's own log)"
        if code:
            return no_answer(message, code, reason or None)
        if phase == "ask":
            return answer(message, question.round, participates)
        return self._train(message, context, call_next) if participates else no_answer(message, ABSTAINED)

    def _question(self, message: Message) -> Question:
        record = message.content.get(RECORD)
        if not isinstance(record, ConfigRecord):
            raise _Refused("the server did not ask: wrap its strategy in turnout.flower.SelfSelection")
        try:
            return Question.read(record)
        except ValueError as error:
            raise _Refused(f"{error}") from None

    def _decide(self, question: Question, context: Context) -> bool:
        settings: Mapping[str, Any] = context.node_config
        owner = replace(
            self._owner,
            consent=settings.get(CONSENT) is True,
            accept_uncertified=self._owner.accept_uncertified or settings.get(ALLOW_UNCERTIFIED) is True,
            ledger=settings.get(LEDGER),
            witness=settings.get(WITNESS),
        )
        if not self._durable:
            return self._decide_study(question, context, owner)
        files, run = _state_directory(settings), _run_name(context)
        limit = limit_with(owner.ledger_in(files.folder), _owner_limit(settings), self._limit)
        mechanism, promise = self._agree(question, owner, limit)
        device = Device(context, files.last_training_seconds(run))
        self._check_eligible(device)
        try:
            return files.decide(question, run, cost_of(self._cost, device), mechanism, replace(owner, limit=limit))
        except BudgetSpent:  # its text names files of this client
            raise _Refused(_too_much(mechanism, promise, limit)) from None

    def _decide_study(self, question: Question, context: Context, owner: Owner) -> bool:
        given = {name: value for name, value in _owner_limit(context.node_config).items() if value is not None}
        limit = replace(self._limit, **({"epsilon_per_release": None} if "epsilon_per_report" in given else {}) | given)
        mechanism, _ = self._agree(question, owner, limit)
        study = self._study(context)
        device = Device(context, study.last_training_seconds())
        self._check_eligible(device)
        return study.decide(question, cost_of(self._cost, device), mechanism, limit)

    def _agree(self, question: Question, owner: Owner, limit: Limit) -> tuple[Mechanism, Certificate]:
        """The mechanism and its certificate, which this client makes itself."""
        try:
            mechanism, promise = _certified(question.mechanism)
        except ValueError as error:
            raise _Refused(f"no such mechanism: {error}") from None
        if owner.mechanism is not None and owner.mechanism != mechanism:
            raise _Refused(f"it insists on {owner.mechanism!r}, and the server uses {mechanism!r}")
        if math.isinf(promise.epsilon) and not owner.accept_uncertified:
            raise _Refused(
                f"{mechanism!r} has no certificate, and its owner has not agreed to that: use a certified mechanism, "
                f"or set {ALLOW_UNCERTIFIED}=true in node-config (allow_uncertified=True in a study)"
            )
        # What a durable client may release is its ledger's to say: what was released before costs nothing more.
        allowed = limit.for_release if mechanism.releases_once else limit.epsilon_per_report
        if allowed < promise.epsilon < math.inf and not (self._durable and mechanism.releases_once):
            raise _Refused(_too_much(mechanism, promise, limit))
        return mechanism, promise

    def _check_eligible(self, device: Device) -> None:
        if self._eligible is not None and not self._eligible(device):
            raise _Ineligible

    def _train(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """The app's own training, timed, and without turnout's record."""
        message.content = RecordDict({name: record for name, record in message.content.items() if name != RECORD})
        begun = time.monotonic()
        try:
            return call_next(message, context)
        except Exception as error:
            if self._durable:
                raise
            # Flower would roll the Context back, and with it the history: report the failure as it does.
            log(ERROR, "self_selection_mod: train() failed", exc_info=True)
            return app_raised(message, error)
        finally:
            self._note_training(context, time.monotonic() - begun)

    def _note_training(self, context: Context, seconds: float) -> None:
        try:
            if self._durable:
                _state_directory(context.node_config).note_training(_run_name(context), seconds)
            else:
                self._study(context).note_training(seconds)
        except Exception:
            log(WARNING, "self_selection_mod: how long the training took could not be kept", exc_info=True)

    def _study(self, context: Context) -> StudyState:
        client = context.node_config.get("partition-id", context.node_id)
        return StudyState(context.state, self._coins, int(client))


class _Ineligible(Exception):
    """It cannot train now."""


def _too_much(mechanism: Mechanism, promise: Certificate, limit: Limit) -> str:
    """Why a client does not participate, without anything private."""
    has = f"{mechanism!r} has epsilon {promise.epsilon:g} per {promise.per} against the server"
    if not mechanism.releases_once:
        said, study = f"{EPSILON_PER_REPORT}={float(promise.epsilon)!r}", f"{limit.reports}, {float(promise.epsilon)!r}"
        remedy = f"its owner allows it with {said} in node-config (in a study, limit=Limit({study}))"
        return f"{has}, above what this client allows: use a smaller one, or {remedy}"
    said = f"{EPSILON_PER_RELEASE}={float(promise.epsilon)!r}"
    study = f"{limit.reports}, {limit.epsilon_per_report!r}, epsilon_per_release={float(promise.epsilon)!r}"
    return (
        f"{has}, which is all that it ever gives away, since it releases once; that is more than this client allows, "
        f"or its cost was released before and that is lost: use a smaller one, or its owner allows it with {said} (or "
        f"a further release with {RELEASES}) in node-config (in a study, limit=Limit({study}))"
    )


def _owner_limit(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the owner allows in node-config; None where nothing is said: then as the ledger has it.

    Example:
        >>> {name: value for name, value in _owner_limit({"turnout-limit-reports": 20}).items() if value}
        {'reports': 20}
    """
    names = ("reports", "epsilon-per-report", "releases", "epsilon-per-release")
    return {name.replace("-", "_"): settings.get(f"turnout-limit-{name}") for name in names}


def _state_directory(settings: Mapping[str, Any]) -> StateDirectory:
    """The client's own folder, from node-config.

    Raises:
        Refused: none is named, or it is not there.
    """
    folder = settings.get(STATE)
    if not isinstance(folder, str) or not folder:
        raise _Refused(
            f"it has no state directory: start it with --node-config '{STATE}=\"<folder>\"' (for a study, where a "
            "restart may forget the history, use self_selection_mod(durable=False))"
        )
    try:
        return StateDirectory(folder)
    except FileNotFoundError:
        raise _Refused(f"its state directory ({STATE}) is not there: create the folder first") from None


@lru_cache(maxsize=64)
def _certified(text: str) -> tuple[Mechanism, Certificate]:
    mechanism = mechanism_from_text(text)
    return mechanism, certificate(mechanism)


def _run_name(context: Context) -> str:
    return f"flower-{context.run_id}"
