"""`turnout join`: the agent of one device."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli import choices
from turnout.errors import invalid

if TYPE_CHECKING:
    from turnout.client import Limit
    from turnout.service import Welcome
    from turnout.service.agent import Agent, Agreement, RoundDone

DELTA = 1e-6
FOR_GOOD = 3
"""The exit status when a restart would not help: revoked, declined, refused, lost files."""
SPENT = 4
"""The exit status when all reports that the owner allows are spent: a restart helps once more are allowed."""


Url = Annotated[
    str | None, typer.Argument(help="The coordinator, like https://coordinator.example:8443.", show_default=False)
]
Folder = Annotated[Path, typer.Option(help="For this device's files alone; keep it as long as the device lives.")]
Code = Annotated[
    str | None,
    typer.Option(help="The operator's one-time code; once is enough.", envvar="TURNOUT_CODE", show_default=False),
]
CostNumber = Annotated[float | None, typer.Option("--cost", help="The cost a of a x^2.", show_default=False)]
CostFile = Annotated[
    Path | None, typer.Option(help="A TOML or JSON file with coefficients and powers.", show_default=False)
]
CostFunction = Annotated[
    str | None, typer.Option(help="module:name, called in each round; also of the current folder.", show_default=False)
]
Reports = Annotated[
    int | None,
    typer.Option(help="Reports about this cost, over all runs; then it stops.", show_default="as before, or 10000"),
]
EpsilonPerReport = Annotated[
    float | None, typer.Option(help="The largest epsilon of one report.", show_default="as before, or 1.0")
]
Releases = Annotated[
    int | None,
    typer.Option(help="How often this cost may be released, over all runs.", show_default="as before, or 1"),
]
EpsilonPerRelease = Annotated[
    float | None,
    typer.Option(
        help="The largest epsilon of one release, made once for a lifetime.",
        show_default="as before, or as per report",
    ),
]
AcceptUncertified = Annotated[
    bool,
    typer.Option(
        "--accept-uncertified",
        help="Participate, this time, also without a certificate; a mechanism that has one must still keep the limit.",
    ),
]
LedgerFile = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        help="The file that counts all reports about this cost; folders of one device that share a cost share it.",
        show_default="in the folder",
    ),
]
RaiseLimit = Annotated[
    bool, typer.Option("--raise-limit", help="Agree to higher limits than before; this is recorded.")
]
CountMissing = Annotated[
    bool,
    typer.Option(
        "--count-missing-as-spent",
        help="The ledger is lost, or older than its witness, and no copy is left: continue, and count what is missing "
        "as spent; this is recorded.",
    ),
]
Witness = Annotated[
    Path | None,
    typer.Option(
        help="The ledger's second file, best on other storage.", show_default="as before, or in your folder for state"
    ),
]
AfterStop = Annotated[
    str,
    typer.Option(
        help="When all reports are spent: leave, or follow (public data alone).",
        autocompletion=choices.one_of("leave", "follow"),
    ),
]
OnParticipate = Annotated[str | None, typer.Option(help="A command that does the work (no shell).", show_default=False)]
OnStop = Annotated[str | None, typer.Option(help="A command that ends it, whenever a lease ends.", show_default=False)]
Authority = Annotated[
    Path | None, typer.Option("--ca", help="A PEM file: trust only this authority.", show_default=False)
]
Timeout = Annotated[float, typer.Option(help="Seconds for a request; more than the coordinator's hold.")]
Rounds = Annotated[int | None, typer.Option(help="Stop after this number of rounds.", show_default=False)]
Status = Annotated[
    Path | None, typer.Option(help="Only show where the device in this folder stands.", show_default=False)
]


def join(
    url: Url = None,
    folder: Folder = Path("turnout-device"),
    code: Code = None,
    cost: CostNumber = None,
    cost_file: CostFile = None,
    cost_function: CostFunction = None,
    reports: Reports = None,
    epsilon_per_report: EpsilonPerReport = None,
    releases: Releases = None,
    epsilon_per_release: EpsilonPerRelease = None,
    accept_uncertified: AcceptUncertified = False,
    raise_limit: RaiseLimit = False,
    count_missing_as_spent: CountMissing = False,
    ledger: LedgerFile = None,
    witness: Witness = None,
    after_stop: AfterStop = "leave",
    on_participate: OnParticipate = None,
    on_stop: OnStop = None,
    ca: Authority = None,
    timeout: Timeout = 90.0,
    rounds: Rounds = None,
    status: Status = None,
    as_json: choices.AsJson = False,
) -> None:
    """Participate in a coordinator's run as one device: decide each round from a cost that stays here.

    [bold]Example:[/bold] turnout join https://coordinator.example:8443 --code CODE --cost 3.0 --folder charger
    """
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
                typer.echo(f"error: {' '.join(str(problem).split())}", err=True)
                raise typer.Exit(FOR_GOOD) from None
        screen.ended(agent, ended, spent=ended == BUDGET)
    if ended == BUDGET:
        raise typer.Exit(SPENT)


class _Screen:
    """One line for each thing that happens: for people, or JSON for machines."""

    def __init__(self, as_json: bool) -> None:
        from rich.console import Console

        self._json, self._console, self._last = as_json, Console(highlight=False, soft_wrap=True), ""

    def joined(self, url: str, folder: Path, welcome: Welcome, agreement: Agreement, agent: Agent) -> None:
        """What this device has accepted, and what its ledger holds: all runs together."""
        so_far, total, places = agent.account(DELTA), agent.at_most(DELTA), agent.places()
        assert so_far is not None and total is not None and places is not None  # noqa: PT018 (it has joined)
        left = agent.reports_left()
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
            "reports_left": None if left is None else left[0],
            "round_seconds": welcome.round_seconds,
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
            self._console.print(
                "[yellow]note[/yellow]        plain http: others on the way can read this device's token"
            )
        for name, text in (
            ("run", f"{welcome.run} at {url} as device {welcome.tag}, weight {welcome.weight:,}"),
            ("mechanism", agreement.mechanism.kind),
            ("promise", str(agreement.certificate)),
            ("so far", repr(so_far)),
            ("at most", repr(total)),
            ("budget", _budget(left, welcome.round_seconds)),
            ("files", f"{folder} (private to this device), ledger {places[0]}, its witness {places[1]}"),
        ):
            self._console.print(f"[bold]{name:<12}[/bold]", end="")
            self._console.print(text, markup=False)

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
        style = "green" if done.lease > 0.0 else "dim"
        lease = f", work for {done.lease:.1f} s" if done.lease > 0.0 else ""
        self._console.print(f"round {done.round:<8} {said}{lease} ({done.outcome})", style=style, markup=False)

    def problem(self, problem: str) -> None:
        """A failure that will be tried again; the same twice in a row is printed once."""
        if problem == self._last:
            return
        self._last = problem
        if self._json:
            self._print({"event": "problem", "message": problem})
        else:
            self._console.print(f"note: {problem}", style="yellow", markup=False)

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
        first = "the budget is spent, so this device has left the run" if spent else "ended, work is off"
        told = f"in all runs together {account!r}" if account else "the coordinator had not answered yet"
        self._console.print(f"{first}; {told}", markup=False)

    def _print(self, facts: dict[str, Any]) -> None:
        plain = {name: str(value) if value in (math.inf, -math.inf) else value for name, value in facts.items()}
        typer.echo(json.dumps(plain, default=str))


def _budget(left: tuple[int, int] | None, round_seconds: float | None) -> str:
    """How long the reports last that the owner still allows."""
    from turnout.service import lasting

    if left is None:
        return "one release for a lifetime: no reports are used up"
    return f"{lasting(left[0], round_seconds)}; then it stops (--reports)"


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
        typer.echo(json.dumps({name: str(value) if value == math.inf else value for name, value in found.items()}))
        return
    running = {True: "runs", False: "does not run", None: "may run"}[found["running"]]
    typer.echo(f"device      {folder}, its agent {running}")
    if not found["enrolled"]:
        typer.echo("enrolled    not yet, or not from this folder")
        _show_ledger(found)
        return
    where = f"{found['run']} at {found['url']} as device {found['tag']}"
    typer.echo(f"run         {where}, weight {found['weight']:,}, since round {found['joined']}")
    working = "no" if found["working"] is None else f"yes, for round {found['working']}"
    typer.echo(f"work on     {working}")
    if found["last_round"] is not None:
        said = {True: "yes", False: "no"}[found["participates"]]
        heard = {True: "counted", False: "not counted", None: "not acknowledged yet"}[found["acknowledged"]]
        typer.echo(f"last round  {found['last_round']}: {said}, {heard}")
    _show_ledger(found)
    if found["stopped_at"] is not None:
        typer.echo(f"stopped     at round {found['stopped_at']}: all reports are spent")


def _show_ledger(found: dict[str, Any]) -> None:
    from turnout.service import is_little, lasting

    if "ledger_problem" in found:
        typer.echo(f"ledger      no total is shown: {found['ledger_problem']}")
    if "limit_reports" not in found:
        return
    left = max(0, found["limit_reports"] - found["reports_spent"])
    typer.echo(f"ledger      {found['account']}")
    used = found.get("uses_reports", True)
    lasts = lasting(left, found.get("round_seconds") if used else None, "more report")
    allowed = f"{lasts}, each of at most epsilon {found['limit_epsilon_per_report']:g} per report"
    again = max(0, found["limit_releases"] - found["releases_made"])
    if again:
        most = f"at most epsilon {found['limit_epsilon_per_release']:g} for a lifetime"
        allowed += f"; {again} release{'' if again == 1 else 's'} of {most}"
    typer.echo(f"allowed     {allowed}")
    if used and is_little(left, found["limit_reports"]) is not None:
        allowed = f"{found['limit_reports']:,} reports"
        told = f"few of {allowed} are left" if left else f"all {allowed} are spent"
        typer.echo(f"warning     {told}; to allow more: turnout join … --reports NUMBER --raise-limit")
