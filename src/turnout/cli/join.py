"""`turnout join`: the agent of one device.

A device has neither typer nor rich: this command reads its own options, from one table. `turnout.cli.commands` makes
the entry in the list of all commands, and what the shell completes, from the same table.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from turnout.errors import invalid

if TYPE_CHECKING:
    from turnout.client import Limit
    from turnout.service import Welcome
    from turnout.service.agent import Agent, Agreement, RoundDone

DELTA = 1e-6
FOR_GOOD = 3
"""The exit status when a restart would not help: revoked, declined, refused, lost files."""


class Option(NamedTuple):
    """One option of `turnout join`.

    Attributes:
        name: the parameter of `join`.
        help: what it is.
        kind: of its value; bool takes none.
        default: the value, if it is not given.
        shown: the default in words; "" shows none.
        flag: as it is written; "" for the name itself, with hyphens.
        variable: of the environment, that is used if the option is not given.
        words: what the shell offers.
    """

    name: str
    help: str
    kind: type = str
    default: Any = None
    shown: str = ""
    flag: str = ""
    variable: str = ""
    words: tuple[str, ...] = ()

    @property
    def written(self) -> str:
        """Such as --cost-file."""
        return self.flag or f"--{self.name.replace('_', '-')}"


URL = Option("url", "The coordinator, like https://coordinator.example:8443.")
OPTIONS = (
    Option(
        "folder",
        "For this device's files alone; keep it as long as the device lives.",
        Path,
        Path("turnout-device"),
        "turnout-device",
    ),
    Option("code", "The operator's one-time code; once is enough.", variable="TURNOUT_CODE"),
    Option("cost", "The cost a of a x^2.", float),
    Option("cost_file", "A TOML or JSON file with coefficients and powers.", Path),
    Option("cost_function", "module:name, called in each round; also of the current folder."),
    Option("reports", "Reports about this cost, over all runs; then it stops.", int, None, shown="as before, or 10000"),
    Option("epsilon_per_report", "The largest epsilon of one report.", float, shown="as before, or 1.0"),
    Option("releases", "How often this cost may be released, over all runs.", int, shown="as before, or 1"),
    Option(
        "epsilon_per_release",
        "The largest epsilon of one release, made once for a lifetime.",
        float,
        shown="as before, or as per report",
    ),
    Option(
        "accept_uncertified",
        "Participate, this time, also without a certificate; a mechanism that has one must still keep the limit.",
        bool,
        False,
    ),
    Option("raise_limit", "Agree to higher limits than before; this is recorded.", bool, False),
    Option(
        "count_missing_as_spent",
        "The ledger is lost, or older than its witness, and no copy is left: continue, and count what is missing "
        "as spent; this is recorded.",
        bool,
        False,
    ),
    Option(
        "ledger",
        "The file that counts all reports about this cost; folders of one device that share a cost share it.",
        Path,
        shown="in the folder",
    ),
    Option(
        "witness",
        "The ledger's second file, best on other storage.",
        Path,
        shown="as before, or in your folder for state",
    ),
    Option(
        "after_stop",
        "When all reports are spent: leave, or follow (public data alone).",
        str,
        "leave",
        "leave",
        words=("leave", "follow"),
    ),
    Option("on_participate", "A command that does the work (no shell)."),
    Option("on_stop", "A command that ends it, whenever a lease ends."),
    Option("ca", "A PEM file: trust only this authority.", Path),
    Option("timeout", "Seconds for a request; more than the coordinator's hold.", float, 90.0, "90.0"),
    Option("rounds", "Stop after this number of rounds.", int),
    Option("status", "Only show where the device in this folder stands.", Path),
    Option("as_json", "Print JSON for machines.", bool, False, flag="--json"),
)
HELP = "Participate in a coordinator's run as one device: decide each round from a cost that stays here."
EXAMPLE = "turnout join https://coordinator.example:8443 --code CODE --cost 3.0 --folder charger"
KINDS = {str: "TEXT", int: "INTEGER", float: "FLOAT", Path: "PATH"}


def run(words: list[str]) -> None:
    """`turnout join`, with what stands behind it on the command line."""
    values = read_options(words)
    _load_numpy()
    join(**values)


def read_options(words: list[str]) -> dict[str, Any]:
    """The value of each option, by the name of the parameter of `join`; --help prints and ends the program.

    Raises:
        ValueError: there is no such option, or its value cannot be read.

    Example:
        >>> read_options(["http://localhost:8440", "--cost", "3"])["cost"]
        3.0
    """
    values = {option.name: _default(option) for option in OPTIONS} | {"url": None}
    known = {option.written: option for option in OPTIONS}
    left, plain = list(words), []
    while left:
        word = left.pop(0)
        if word == "--":
            plain += left
            break
        name, equals, text = word.partition("=")
        if word == "--help":
            print(help_text())
            raise SystemExit(0)
        if not word.startswith("-") or word == "-":
            plain.append(word)
        elif name not in known or (equals and known[name].kind is bool):
            raise invalid("option", "one of `turnout join`", word, _nearest(name, known))
        elif known[name].kind is bool:
            values[known[name].name] = True
        elif not equals and (not left or left[0] in known):  # such as --code $(cat an-empty-file) --cost 3
            raise invalid(name, KINDS[known[name].kind], "nothing", f"write {name} and its value")
        else:
            values[known[name].name] = _value(known[name], text if equals else left.pop(0))
    if len(plain) > 1:
        raise invalid("URL", "one", " and ".join(plain), "put a value with spaces in quotes; see `turnout join --help`")
    return values | {"url": plain[0] if plain else None}


def _default(option: Option) -> Any:
    given = os.environ.get(option.variable, "") if option.variable else ""
    return _value(option, given) if given else option.default


def _value(option: Option, text: str) -> Any:
    try:
        return option.kind(text)
    except ValueError:
        allowed = "a whole number" if option.kind is int else "a number"
        raise invalid(option.written, allowed, repr(text), f"write {option.written} and {allowed}") from None


def _nearest(name: str, known: dict[str, Option]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else "see `turnout join --help`"


def help_text() -> str:
    """What `turnout join --help` prints."""
    import shutil
    import textwrap

    width = min(max(shutil.get_terminal_size().columns, 60), 120)
    lines = [
        "Usage: turnout join [OPTIONS] [URL]",
        "",
        *textwrap.wrap(HELP, width, break_on_hyphens=False),
        "",
        f"Example: {EXAMPLE}",
        "",
    ]
    rows = [("[URL]", "TEXT", URL.help)]
    for option in OPTIONS:
        shown = f" [env var: {option.variable}]" if option.variable else ""
        shown += f" [default: {option.shown}]" if option.shown else ""
        rows.append((option.written, KINDS.get(option.kind, ""), option.help + shown))
    rows.append(("--help", "", "Show this message and exit."))
    for name, kind, told in rows:
        first, *more = textwrap.wrap(told, width - 36, break_on_hyphens=False)
        lines += [f"  {name:<25}{kind:<9}{first}", *(f"{'':36}{line}" for line in more)]
    return "\n".join(lines)


def _load_numpy() -> None:
    """NumPy for one device: it multiplies no matrices, so the library for that need not start a thread per core.

    The variable is there for that moment alone: the command that does the work inherits the environment.
    """
    name = "OPENBLAS_NUM_THREADS"
    if name in os.environ:
        return
    os.environ[name] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[name]


def join(
    url: str | None,
    folder: Path,
    code: str | None,
    cost: float | None,
    cost_file: Path | None,
    cost_function: str | None,
    reports: int | None,
    epsilon_per_report: float | None,
    releases: int | None,
    epsilon_per_release: float | None,
    accept_uncertified: bool,
    raise_limit: bool,
    count_missing_as_spent: bool,
    ledger: Path | None,
    witness: Path | None,
    after_stop: str,
    on_participate: str | None,
    on_stop: str | None,
    ca: Path | None,
    timeout: float,
    rounds: int | None,
    status: Path | None,
    as_json: bool,
) -> None:
    """Participate in a coordinator's run as one device; `OPTIONS` says what each argument is."""
    from turnout.client import Owner
    from turnout.service.agent import Agent, CommandWork, HttpWire, ledger_of, make_folder

    if status is not None:
        _show_status(status, ledger, as_json)
        return
    if url is None:
        raise invalid("URL", "the coordinator's", "none", "give it, or --status FOLDER to look at a device")
    costs = _cost(cost, cost_file, cost_function)
    screen = _Screen(as_json)
    given = {"reports": reports, "epsilon_per_report": epsilon_per_report}
    given |= {"releases": releases, "epsilon_per_release": epsilon_per_release}
    limit, consents = _limit(ledger_of(folder, ledger), given), (raise_limit, accept_uncertified)
    owner = Owner(limit, *consents, count_missing_as_spent, after_stop=after_stop, ledger=ledger, witness=witness)
    agent = Agent(
        url,
        folder,
        costs,
        code=code,
        owner=owner,
        work=CommandWork(on_participate, on_stop, make_folder(folder)),
        on_round=screen.round,
        on_problem=screen.problem,
        wire=HttpWire(url, ca=ca, seconds=timeout),
    )
    _take_part(screen, agent, url, folder, rounds)


def _take_part(screen: _Screen, agent: Agent, url: str, folder: Path, rounds: int | None) -> None:
    """Run the agent until it ends or a signal ends it; if a restart would not help, the exit status says so."""
    from turnout.client import LedgerRolledBack, NoPlace, StoreRolledBack
    from turnout.service.agent import ASKED, BUDGET, AgentProblem, Declined, Halted, RefusedByCoordinator, Revoked

    for_good = (Declined, RefusedByCoordinator, Revoked, AgentProblem, LedgerRolledBack, StoreRolledBack, NoPlace)
    with agent:
        with _signals(agent.stop):
            try:
                welcome, agreement = agent.join()
                screen.joined(url, folder, welcome, agreement, agent)
                ended = agent.run(rounds)
            except Halted:
                ended = ASKED
            except for_good as problem:
                agent.close()
                print(f"error: {' '.join(str(problem).split())}", file=sys.stderr)
                raise SystemExit(FOR_GOOD) from None
        screen.ended(agent, ended, spent=ended == BUDGET)


BOLD, DIM, GREEN, YELLOW = "1", "2", "32", "33"
"""As terminals know them."""


def _say(text: str) -> None:
    """A line, at once: whoever reads it through a pipe waits for it."""
    print(text, flush=True)


class _Screen:
    """One line for each thing that happens: for people, or JSON for machines."""

    def __init__(self, as_json: bool) -> None:
        self._json, self._last = as_json, ""
        self._colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def joined(self, url: str, folder: Path, welcome: Welcome, agreement: Agreement, agent: Agent) -> None:
        """What this device has accepted, and what its ledger holds: all runs together."""
        so_far, total, places = agent.account(DELTA), agent.at_most(DELTA), agent.places()
        assert so_far is not None and total is not None and places is not None  # noqa: PT018 (it has joined)
        facts = {
            "run": welcome.run,
            "tag": welcome.tag,
            "mechanism": agreement.mechanism.settings(),
            "epsilon": agreement.certificate.epsilon,
            "per": agreement.certificate.per,
            "against": agreement.certificate.against,
            "certificate_assumptions": agreement.certificate.assumptions,
            "total_epsilon": so_far.epsilon,
            "total_epsilon_at_most": total.epsilon,
            "delta": total.delta,
            "reports_at_most": total.rounds,
            "total_against": total.against,
            "assumptions": total.assumptions,
            "weight": welcome.weight,
            "folder": str(folder),
            "ledger": str(places[0]),
            "witness": str(places[1]),
        }
        if self._json:
            self._print({"event": "joined"} | facts)
            return
        if url.startswith("http:") and not any(f"//{near}" in url for near in ("localhost", "127.0.0.1", "[::1]")):
            self._line("note", "plain http: others on the way can read this device's token", YELLOW)
        for name, text in (
            ("run", f"{welcome.run} at {url} as device {welcome.tag}, weight {welcome.weight:,}"),
            ("mechanism", agreement.mechanism.kind),
            ("promise", str(agreement.certificate)),
            ("so far", repr(so_far)),
            ("at most", repr(total)),
            ("files", f"{folder} (private to this device), ledger {places[0]}, its witness {places[1]}"),
        ):
            self._line(name, text, BOLD)

    def round(self, done: RoundDone) -> None:
        """The outcome of a round."""
        self._last = ""
        if self._json:
            self._print({"event": "round"} | vars(done))
            return
        if done.round < 0:  # the budget was spent before any round
            return
        said = "no report" if done.participates is None else "yes" if done.participates else "no"
        if done.participates and not done.counted:
            said += ", not acknowledged"
        style = GREEN if done.lease > 0.0 else DIM
        lease = f", work for {done.lease:.1f} s" if done.lease > 0.0 else ""
        _say(self._styled(f"round {done.round:<8} {said}{lease} ({done.outcome})", style))

    def problem(self, problem: str) -> None:
        """A failure that will be tried again; the same twice in a row is printed once."""
        if problem == self._last:
            return
        self._last = problem
        if self._json:
            self._print({"event": "problem", "message": problem})
        else:
            _say(self._styled(f"note: {problem}", YELLOW))

    def ended(self, agent: Agent, why: str, spent: bool) -> None:
        """The account at the end."""
        account = agent.account(DELTA)
        if self._json:
            facts: dict[str, Any] = {"event": "ended", "why": why}
            facts |= {"reports": None, "total_epsilon": None, "delta": None}
            if account is not None:
                facts |= {"reports": account.rounds, "total_epsilon": account.epsilon, "delta": account.delta}
                facts |= {"total_against": account.against, "assumptions": account.assumptions}
            self._print(facts)
            return
        first = "the budget is spent: this device has left the run" if spent else "ended, work is off"
        told = f"in all runs together {account!r}" if account else "the coordinator had not answered yet"
        _say(f"{first}; {told}")

    def _line(self, name: str, text: str, style: str) -> None:
        _say(self._styled(f"{name:<12}", style) + text)

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._colour else text

    def _print(self, facts: dict[str, Any]) -> None:
        plain = {name: str(value) if value in (math.inf, -math.inf) else value for name, value in facts.items()}
        _say(json.dumps(plain, default=str))


def _cost(number: float | None, file: Path | None, function: str | None) -> Any:
    from turnout.client import load, read_cost

    options = {"--cost": number, "--cost-file": file, "--cost-function": function}
    given = [name for name, value in options.items() if value is not None]
    if len(given) != 1:
        remedy = "give one, such as --cost 3.0; it stays on this device"
        raise invalid("cost", "one of --cost, --cost-file, --cost-function", ", ".join(given) or "none", remedy)
    if file is not None:
        return read_cost(file)
    return number if function is None else load(function, "--cost-function")


def _limit(ledger: Path, given: dict[str, Any]) -> Limit | None:
    """The limit given by options; parts that are not given stay as they were."""
    from turnout.client import limit_with
    from turnout.service.agent import USUAL_LIMIT

    return limit_with(ledger, given, USUAL_LIMIT) if any(value is not None for value in given.values()) else None


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM stop the agent instead of this program."""
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show_status(folder: Path, ledger: Path | None, as_json: bool) -> None:
    from turnout.service.agent import read_status

    found = read_status(folder, ledger)
    if as_json:
        _say(json.dumps({name: str(value) if value == math.inf else value for name, value in found.items()}))
        return
    running = {True: "runs", False: "does not run", None: "may run"}[found["running"]]
    _say(f"device      {folder}, its agent {running}")
    if not found["enrolled"]:
        _say("enrolled    not yet, or not from this folder")
        _show_ledger(found)
        return
    where = f"{found['run']} at {found['url']} as device {found['tag']}"
    _say(f"run         {where}, weight {found['weight']:,}, since round {found['joined']}")
    working = "no" if found["working"] is None else f"yes, for round {found['working']}"
    _say(f"work on     {working}")
    if found["last_round"] is not None:
        said = {True: "yes", False: "no"}[found["participates"]]
        heard = {True: "counted", False: "not counted", None: "not acknowledged yet"}[found["acknowledged"]]
        _say(f"last round  {found['last_round']}: {said}, {heard}")
    _show_ledger(found)
    if found["stopped_at"] is not None:
        _say(f"stopped     at round {found['stopped_at']}: all reports are spent")


def _show_ledger(found: dict[str, Any]) -> None:
    if "ledger_problem" in found:
        _say(f"ledger      no total is shown: {found['ledger_problem']}")
    if "limit_reports" not in found:
        return
    left = max(0, found["limit_reports"] - found["reports_spent"])
    _say(f"ledger      {found['account']}")
    allowed = f"{left:,} more reports, each of at most epsilon {found['limit_epsilon_per_report']:g} per report"
    again = max(0, found["limit_releases"] - found["releases_made"])
    if again:
        most = f"at most epsilon {found['limit_epsilon_per_release']:g} for a lifetime"
        allowed += f"; {again} release{'' if again == 1 else 's'} of {most}"
    _say(f"allowed     {allowed}")
