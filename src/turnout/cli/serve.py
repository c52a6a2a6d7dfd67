"""`turnout serve`: the coordinator of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli import choices
from turnout.errors import MissingExtra, invalid

if TYPE_CHECKING:
    from turnout.service.coordinator import Place
    from turnout.service.http import Bound
    from turnout.service.store import Store as OpenStore


Store = Annotated[str, typer.Option(envvar="TURNOUT_STORE", help="The store of the run: a file, or postgresql://…")]
Capacity = Annotated[float | None, typer.Option(help="The turnout needed in each round.", show_default="as set")]
Missing = Annotated[
    str | None,
    typer.Option(
        help="What a device that does not report counts as: absent (taking part uses something scarce), or last "
        "(taking part saves it).",
        show_default=False,
        autocompletion=choices.one_of("absent", "last"),
    ),
]
HardLimit = Annotated[
    str | None,
    typer.Option(
        help="The largest turnout ever acknowledged, or none; a new run needs one of the two.", show_default=False
    ),
]
Devices = Annotated[
    int | None,
    typer.Option(
        help="How many devices the fleet will have: if the default mechanism cannot bring the capacity from so many, "
        "its box is centred on capacity / devices.",
        show_default="not known",
    ),
]
Weight = Annotated[float | None, typer.Option(help="The mean weight of these devices.", show_default="1")]
RunName = Annotated[str | None, typer.Option(help="The run's name.", show_default="from the time")]
RoundSeconds = Annotated[float | None, typer.Option(help="Seconds between rounds, at least.", show_default="10")]
Deadline = Annotated[
    float | None,
    typer.Option(help="Seconds until a round closes anyway.", show_default="3/2 of --round-seconds, at least 5"),
]
Lease = Annotated[float | None, typer.Option(help="Seconds that work lasts unrenewed.", show_default="deadline")]
WaitFor = Annotated[int | None, typer.Option(help="Close no round with fewer enrolled devices.", show_default="1")]
Host = Annotated[str, typer.Option(help="Where to listen.")]
Port = Annotated[int, typer.Option(help="0 takes any free port.")]
Certificate = Annotated[Path | None, typer.Option(help="PEM, for TLS.", show_default="no TLS")]
Key = Annotated[Path | None, typer.Option(help="Its key, PEM.", show_default=False)]
MechanismChoice = Annotated[
    str | None,
    typer.Option(
        help="The mechanism that devices are asked to use.",
        show_default="clamp, epsilon 1 per report",
        autocompletion=choices.mechanism_names,
    ),
]
ControllerChoice = Annotated[
    str | None,
    typer.Option(
        help="self-tuning, or integral (the paper's).",
        show_default="self-tuning",
        autocompletion=choices.one_of("integral", "self-tuning"),
    ),
]
Names = Annotated[
    list[str] | None, typer.Option(help="A host name of the page, for browsers.", show_default="the host")
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(help="The operator's password file; made if it is missing.", show_default="<store>.password"),
]
TrustedProxies = Annotated[
    list[str] | None,
    typer.Option(
        "--trusted-proxy",
        help="The address, or network, of a proxy in front: believe what it says of clients' addresses. Repeatable.",
        show_default="none",
    ),
]
MostConnections = Annotated[int, typer.Option(help="The largest number of device connections.")]
LogFormat = Annotated[
    str, typer.Option(help="json, human, or auto.", autocompletion=choices.one_of("json", "human", "auto"))
]


def serve(
    settings: choices.Settings = None,
    store: Store = "turnout.db",
    capacity: Capacity = None,
    missing: Missing = None,
    hard_limit: HardLimit = None,
    devices: Devices = None,
    weight: Weight = None,
    run: RunName = None,
    mechanism: MechanismChoice = None,
    epsilon: choices.Epsilon = None,
    controller: ControllerChoice = None,
    round_seconds: RoundSeconds = None,
    deadline: Deadline = None,
    lease: Lease = None,
    wait_for: WaitFor = None,
    changes: choices.Changes = None,
    host: Host = "127.0.0.1",
    port: Port = 8440,
    certificate: Certificate = None,
    key: Key = None,
    operator_host: Host = "127.0.0.1",
    operator_port: Port = 8441,
    operator_certificate: Certificate = None,
    operator_key: Key = None,
    operator_name: Names = None,
    password_file: PasswordFile = None,
    trusted_proxy: TrustedProxies = None,
    most_connections: MostConnections = 12_000,
    log_format: LogFormat = "auto",
) -> None:
    """Run the coordinator: it needs a number of devices in each round, and broadcasts one signal.

    A new run needs --capacity, --missing and --hard-limit; an existing store, also one that `turnout operate init` has
    made, is continued where it stopped, and needs none of them.

    [bold]Example:[/bold] turnout serve --capacity 5 --missing absent --hard-limit 8 --devices 12
    """
    _needs_extra()
    from turnout.service import json_line, start_logging
    from turnout.service.coordinator import Place

    start_logging(log_format)
    rules: dict[str, Any] = {"safety.missing": missing, "safety.hard_limit": limit_of(hard_limit), "wait_for": wait_for}
    rules |= {"capacity": capacity, "devices": devices, "weight": weight}
    rules |= {"timing.round": round_seconds, "timing.deadline": deadline, "timing.lease": lease}
    rules |= {"mechanism.kind": mechanism, "mechanism.epsilon": epsilon, "controller.kind": controller}
    proxies, names = tuple(trusted_proxy or _usual_proxies()), tuple(operator_name or ())
    listener = Place(host, port, certificate, key, (), most_connections, proxies)
    operator = Place(operator_host, operator_port, operator_certificate, operator_key, names, 1000, proxies)

    def told(line: str) -> None:
        typer.echo(json_line("serve", line) if log_format == "json" else line)

    _serve(store, run, rules_given(settings, rules, changes or []), listener, operator, password_file, told)


def limit_of(given: str | None) -> float | str | None:
    """A number, or none at all by that word."""
    try:
        return given if given in (None, "none") else float(str(given))
    except ValueError:
        raise invalid(
            "--hard-limit", "a number, or none", repr(given), "give the largest turnout that does no harm"
        ) from None


def _usual_proxies() -> list[str]:
    """Those of the variable that uvicorn has for it."""
    found = [one.strip() for one in os.environ.get("FORWARDED_ALLOW_IPS", "").split(",") if one.strip()]
    for proxy in found:
        try:
            ip_network(proxy)
        except ValueError:
            allowed, remedy = "IP addresses or networks, with commas between them", "name the proxies, or unset it"
            raise invalid("the variable FORWARDED_ALLOW_IPS", allowed, repr(proxy), remedy) from None
    return found


def _needs_extra() -> None:
    for library in ("starlette", "uvicorn", "plotly", "prometheus_client"):
        if find_spec(library) is None:
            raise MissingExtra("turnout serve", library=library, extra="server")


def _serve(
    store: str,
    run: str | None,
    given: dict[str, Any],
    devices: Place,
    operator: Place,
    password_file: Path | None,
    told: Callable[[str], None],
) -> None:
    from turnout.service import run_in_loop
    from turnout.service.coordinator import begin_or_continue
    from turnout.service.coordinator import serve as go
    from turnout.service.http import check
    from turnout.service.store import RUNNING, TAKEN, AlreadyBegun, StoreProblem, open_store

    for place in (devices, operator):  # do not begin a run that could not be served
        check(place.listener(None))
    opened = open_store(store, create="capacity" in given)
    try:
        if not opened.shared and not opened.lead():
            raise StoreProblem(TAKEN)
        try:
            made = begin_or_continue(opened, run, given)
        except AlreadyBegun:  # another coordinator has begun it just now
            made = begin_or_continue(opened, run, given)
        secret, checked = _password(store, password_file)
        mode, expected = opened.control().mode, _what_to_expect(opened)
    except BaseException:
        opened.close()  # a store that was made for a run that is refused is removed
        raise

    def bound(listeners: Mapping[str, Bound]) -> None:
        told(f"run {made.name}, stored in {store.rpartition('@')[2]}")
        if mode != RUNNING:
            resume = choices.operator_command("operate resume", store)
            told(f"mode {mode}: no round closes until {resume}")
        told(f"devices connect to {listeners['devices'].url}")
        told(f"operator's page {listeners['operator'].url} (user operator, password file {secret})")
        for line in expected:
            told(line)

    run_in_loop(go(opened, devices, operator, checked, bound=bound))
    told("stopped: the open round stays open; start it again to continue")


def _what_to_expect(store: OpenStore) -> list[str]:
    """Which fleets the run is for, and how long their budgets last, by the rules that are in force."""
    from turnout.service import RulesVersions, budget_of
    from turnout.service.coordinator import fitting_fleet

    rules, capacity = RulesVersions(store.rules()).at(store.position().round).rules, store.control().capacity
    limit = rules.safety.hard_limit
    stops = "no hard limit: nothing bounds the turnout" if limit is None else f"hard limit {limit:g}"
    return [
        f"mechanism {rules.mechanism.in_words()}: {fitting_fleet(rules.mechanism, capacity)}; {stops}",
        f"budgets {budget_of(rules)}",
    ]


def rules_given(settings: Path | None, options: dict[str, Any], changes: list[str]) -> dict[str, Any]:
    """The settings of the file and the options."""
    from turnout.settings import read_toml

    values = read_toml(settings) if settings else {}
    for name, value in (options | choices.read_changes(changes)).items():
        choices.put(values, name, value)
    if options["mechanism.epsilon"] is not None:
        values["mechanism"].setdefault("kind", "clamp")
    return values


def _password(store: str, path: Path | None) -> tuple[Path, str]:
    """(the password's file, made if it is missing; the hash to check against)."""
    from turnout.service.operator import new_password_file, password_hash

    if path is None:
        path = Path("turnout.password" if "://" in store else f"{store}.password")
    if not path.exists():
        new_password_file(path)
    return path, password_hash(path)
