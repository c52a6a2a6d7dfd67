"""`turnout status`: the state of a coordinator, from its operator's listener."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from turnout.cli import choices

HEALTHY, TROUBLED = 0, 1
"""The exit codes; like every error of a command, no answer is 2."""

STANDING = "no round closes until `turnout operate resume`"
"""What a pause means; the exit code does not tell of it, since the operator chose it."""

_SECONDS = 10.0
_LARGEST_REPLY = 4 * 2**20
_ROUNDS = 60


def status(
    url: Annotated[str, typer.Argument(help="The operator's listener, such as http://127.0.0.1:8441.")],
    password_file: Annotated[Path, typer.Option(help="The file with the operator's password.", show_default=False)],
    ca: Annotated[
        Path | None, typer.Option(help="Trust the certificates in this PEM file.", show_default="the system's")
    ] = None,
    as_json: choices.AsJson = False,
) -> None:
    """Show the state of a coordinator. Exit code 0: healthy; 1: something is wrong now; 2: no answer.

    [bold]Example:[/bold] turnout status http://127.0.0.1:8441 --password-file operator.password
    """
    from turnout.service import Unreachable
    from turnout.service.operator import read_password, troubles

    ask = _Asking(url, read_password(password_file), ca)
    snapshot = ask.object("/api/snapshot")
    found = troubles(snapshot)
    if as_json:
        typer.echo(json.dumps(snapshot | {"troubles": found}))
    else:
        try:
            print_status(snapshot, ask.object(f"/api/rounds?last={_ROUNDS}")["rounds"], found)
        except (KeyError, TypeError, ValueError) as error:
            raise Unreachable(f"{url}: the answer is of another version of turnout: update it") from error
    raise typer.Exit(TROUBLED if found else HEALTHY)


class _Asking:
    """Requests with the operator's password, by the standard library alone."""

    def __init__(self, url: str, password: str, ca: Path | None) -> None:
        from urllib.request import HTTPRedirectHandler, HTTPSHandler, build_opener

        from turnout.service import Address

        class NoRedirects(HTTPRedirectHandler):
            """The password is for this address alone."""

            def redirect_request(self, *args: Any) -> None:
                return None

        self._address = Address.of(url, ca)
        self._url = str(self._address)
        self._token = base64.b64encode(f"operator:{password}".encode()).decode()
        self._opener = build_opener(HTTPSHandler(context=self._address.tls), NoRedirects)

    def object(self, path: str) -> dict[str, Any]:
        """The JSON object at a path."""
        from http.client import HTTPException
        from urllib.error import HTTPError, URLError
        from urllib.request import Request

        from turnout.service import Unreachable, what_to_correct

        request = Request(self._url + path, headers={"Authorization": f"Basic {self._token}"})
        try:
            with self._opener.open(request, timeout=_SECONDS) as reply:
                found = json.loads(reply.read(_LARGEST_REPLY))
        except HTTPError as error:
            raise Unreachable(f"{self._url}: {_said(error)}") from error
        except (OSError, HTTPException, ValueError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            correct = what_to_correct(reason, self._address) if isinstance(reason, BaseException) else ""
            remedy = correct or "is `turnout serve` running there?"
            raise Unreachable(f"{self._url}: no answer ({reason}): {remedy}") from error
        if not isinstance(found, dict):
            raise Unreachable(f"{self._url}: this is no operator's listener: check the port")
        return found


def _said(error: Any) -> str:
    """Why a request was refused, from the listener's answer."""
    remedies = {401: "check --password-file", 429: "wait, then check --password-file"}
    try:
        said = json.loads(error.read(_LARGEST_REPLY))["message"]
    except (OSError, ValueError, KeyError, TypeError):
        said = f"answered {error.code}"
    return f"{said}: {remedies.get(error.code, 'check the address')}"


def print_status(snapshot: dict[str, Any], rounds: list[dict[str, Any]], troubles: list[str]) -> None:
    """A snapshot for people."""
    from rich.markup import escape
    from rich.table import Table

    from turnout.cli.show import print_table, sparkline
    from turnout.service.store import PAUSED, RUNNING, STOPPED

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    mode = snapshot["mode"] + (f" ({STANDING})" if snapshot["mode"] in (PAUSED, STOPPED) else "")
    told = f"{snapshot['run']}, {mode}" + (f", but: {'; '.join(troubles)}" if troubles else "")
    table.add_row("run", escape(told), style="bold yellow" if troubles or snapshot["mode"] != RUNNING else None)
    open_for = f"open for {snapshot['open_seconds']:.0f} s, deadline {snapshot['deadline']:g} s"
    table.add_row("round", f"{snapshot['round']:,} ({open_for})")
    if snapshot["waiting_for"]:
        more = "1 more device" if snapshot["waiting_for"] == 1 else f"{snapshot['waiting_for']:,} more devices"
        table.add_row("", f"waiting for {more} to enrol")
    limit = "no hard limit" if snapshot["hard_limit"] is None else f"hard limit {snapshot['hard_limit']:g}"
    last = f"{rounds[-1]['participants']:,}" if rounds else "none yet"
    table.add_row("turnout", f"{last}, capacity {snapshot['capacity']:g}, {limit}")
    if rounds:
        table.add_row("", sparkline([closed["participants"] for closed in rounds]))
    table.add_row("signal", f"{snapshot['signal']:.6g}")
    if rounds:
        table.add_row("", sparkline([closed["signal"] for closed in rounds]))
    counts = f"{snapshot['heard']:,} reported, {snapshot['late']:,} awaited, {snapshot['gone']:,} gone"
    table.add_row("devices", f"{snapshot['members']:,}: {counts}")
    if (rules := snapshot.get("rules")) and (rules["version"] > 1 or rules["next"]):
        coming = (
            f", version {rules['next']['version']} from round {rules['next']['since']:,} on" if rules["next"] else ""
        )
        table.add_row("rules", f"version {rules['version']} since round {rules['since']:,}{coming}")
    table.add_row("privacy", escape(str(snapshot["account"]["text"])))
    if "budget" in snapshot:
        table.add_row("budgets", escape(str(snapshot["budget"])))
    faults = sorted(((name, count) for name, count in snapshot["faults"].items() if count), key=lambda fault: -fault[1])
    table.add_row("faults", escape(", ".join(f"{name} {count:,}" for name, count in faults)) or "none")
    table.add_row("version", escape(f"{snapshot['version']}, up for {snapshot['uptime']:,.0f} s"))
    print_table(table)
