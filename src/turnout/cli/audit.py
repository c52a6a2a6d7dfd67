"""`turnout audit`: try to refute a privacy claim."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli import choices
from turnout.cli.show import print_table
from turnout.errors import invalid

if TYPE_CHECKING:
    from turnout.algorithm import Mechanism
    from turnout.audit import Audit, Claim, Finding, Subject
    from turnout.privacy import Observer


def audit(
    mechanism: Annotated[
        str | None, choices.mechanism_option("clamp, at epsilon 1 per report; for noisy-sum, classical")
    ] = None,
    epsilon: choices.Epsilon = None,
    beta: Annotated[float | None, typer.Option(help="The paper coin's parameter.", show_default=False)] = None,
    changes: choices.Changes = None,
    reporter: Annotated[
        str | None,
        typer.Option(help="A reporter of your own, as package.module:function.", show_default=False),
    ] = None,
    claim: Annotated[
        float | None,
        typer.Option(help="Epsilon per report; with --lifetime, or sums, in total.", show_default="the certificate"),
    ] = None,
    lifetime: Annotated[bool, typer.Option("--lifetime", help="The claim is for all rounds together.")] = False,
    rounds: Annotated[int, typer.Option(help="The number of observed rounds.")] = 4,
    delta: Annotated[float, typer.Option(help="For the totals over the rounds.")] = 1e-6,
    trials: Annotated[int, typer.Option(help="The number of trials per tested cost and signals.")] = 100_000,
    false_alarm: Annotated[float, typer.Option(help="The largest probability of refuting a true claim.")] = 1e-6,
    observer: choices.ObserverChoice = "every-report",
    honest: Annotated[
        int | None, typer.Option(help="For sum: how many honest others there are.", show_default="as by --weights")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            help="For sums: the weights of the client and of each other, in whole numbers, such as 20,1,1,1.",
            show_default="all bring 1",
        ),
    ] = None,
    sigma: Annotated[
        float | None, typer.Option(help="For noisy-sum: of one aggregator's noise.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Audit every mechanism of this package.")] = False,
    seed: Annotated[
        int | None, typer.Option(help="A seed, for repeatable trials.", show_default="the system's entropy")
    ] = None,
    as_json: choices.AsJson = False,
) -> None:
    """Look for evidence against a privacy claim: of a mechanism, of a reporter of your own, or of all in turnout.

    Exits with 0 if nothing was refuted (which proves nothing), with 1 if a claim cannot be true.

    [bold]Example:[/bold] turnout audit --mechanism clamp --epsilon 1 --rounds 4
    """
    if not rounds >= 1:
        raise invalid("--rounds", "at least 1", rounds, "give the number of observed rounds")
    seen = _observer(observer, honest, weights, sigma)
    if everything:
        if {mechanism, epsilon, beta, changes, reporter, claim, seen} != {None} or lifetime:
            raise invalid("--all", "without a mechanism, reporter or claim", "more", "leave the others out")
        subjects = _all_of_ours(delta, seed)
    elif reporter is not None:
        if {mechanism, epsilon, beta, changes} != {None} or (seen is not None and seen.noise is None):
            raise invalid("--reporter", "without a mechanism", "both", "leave one out")
        subjects = [_of_user(reporter, claim, lifetime, rounds, delta, seen)]
    else:
        usual = "paper-coin" if beta is not None else "clamp" if sigma is None or epsilon is not None else "classical"
        values: dict[str, Any] = {"kind": mechanism or usual}
        for name, value in ({"mechanism.beta": beta, "mechanism.epsilon": epsilon} | _read(changes)).items():
            choices.put({"mechanism": values}, name, value)
        subjects = [_of_mechanism(values, claim, lifetime, rounds, delta, seen, seed)]
    _go(subjects, trials, false_alarm, seed, as_json)


def _read(changes: list[str] | None) -> dict[str, Any]:
    found = choices.read_changes(changes or [])
    for name in found:
        if not name.startswith("mechanism."):
            raise invalid("--set", "a setting of the mechanism", name, "write --set mechanism.center=0.1")
    return found


def _observer(sees: str, honest: int | None, weights: str | None, sigma: float | None) -> Observer | None:
    """An observer of the sum alone, or of sums with noise; None for an observer of every report."""
    from turnout.algorithm import Averaging, SumNoise
    from turnout.privacy import EVERY_REPORT, NOISY_SUM, Observer

    if sees == EVERY_REPORT and weights is None and honest is None and sigma is None:
        return None
    if (sees == NOISY_SUM) != (sigma is not None):
        got = f"--observer {sees}, {'no --sigma' if sigma is None else f'--sigma {sigma:g}'}"
        raise invalid("--sigma", "given with --observer noisy-sum, and with no other", got, "3 to 10 show the most")
    try:
        brought = None if weights is None else [int(one) for one in weights.split(",")]
    except ValueError as error:
        raise invalid("--weights", "whole numbers with commas between", repr(weights), "write 20,1,1,1") from error
    if sigma is not None:
        return Observer(sees, honest, brought, noise=SumNoise(sigma))
    if honest is None:
        if brought is None:
            raise invalid("--honest", "given with --observer sum, or --weights", "neither", "5 to 20 show the most")
        honest = len(brought) - 1
    if not 0 <= honest <= 2000:
        raise invalid("--honest", "from 0 to 2000", honest, "5 to 20 show the most")
    return Observer(sees, honest, brought, Averaging(by="probability"))


def _all_of_ours(delta: float, seed: int | None) -> list[Subject]:
    from turnout.audit import ours

    return ours(delta, _coins(seed))


def _coins(seed: int | None) -> Any:
    """The real coins of the operating system, unless the draws must be repeatable."""
    from turnout.algorithm import SeededCoins, SystemCoins

    return SeededCoins if seed is not None else lambda _: SystemCoins()


def _claimed(claim: float | None, lifetime: bool, rounds: int, delta: float) -> tuple[Claim, ...]:
    from turnout.audit import in_total, per_report

    if claim is None:
        return ()
    return in_total(claim, rounds) if lifetime else per_report(claim, rounds, delta)


def _of_mechanism(
    values: dict[str, Any],
    claim: float | None,
    lifetime: bool,
    rounds: int,
    delta: float,
    observer: Observer | None,
    seed: int | None,
) -> Subject:
    from turnout.algorithm import MECHANISMS, Mechanism, mechanism_from_settings
    from turnout.audit import mechanism_subject, noisy_sum_subject, sum_subject
    from turnout.settings import Table

    if not (made := MECHANISMS.get(values["kind"], Mechanism)).releases_once and "epsilon" in made.needed():
        values.setdefault("epsilon", 1.0)
    mechanism = mechanism_from_settings(Table(values, "mechanism", choices.OPTIONS))
    claims = _claimed(claim, lifetime, rounds, delta)
    if observer is None:
        return mechanism_subject(mechanism, rounds, delta=delta, claims=claims, coins=_coins(seed))
    if claim is not None:
        claims = (_of_sums(claim, lifetime, rounds, delta, observer, mechanism),)
    if observer.noise is not None:
        return noisy_sum_subject(
            mechanism, observer, rounds, delta=delta, claims=claims, coins=_coins(seed), simulated=seed is not None
        )
    return sum_subject(mechanism, observer, rounds, delta=delta, claims=claims, coins=_coins(seed))


def _of_sums(
    claim: float, lifetime: bool, rounds: int, delta: float, observer: Observer, mechanism: Mechanism
) -> Claim:
    """Of sums only a total is claimed."""
    from turnout.audit import Claim

    slack, held = 0.0 if lifetime else delta, observer.assumptions(mechanism)
    return Claim(claim, rounds, slack, against=str(observer), assumptions=held)


def _of_user(
    place: str, claim: float | None, lifetime: bool, rounds: int, delta: float, observer: Observer | None
) -> Subject:
    from turnout.algorithm import Classical
    from turnout.audit import Subject, as_reporter, noisy_sum_subject
    from turnout.client import load

    if claim is None and observer is None:
        raise ValueError("--claim is missing: give the epsilon per report that your reporter promises")
    found = load(place, "--reporter")
    as_reporter(found)  # says what is wrong with it, before any work is done
    if observer is not None:
        claims = () if claim is None else (_of_sums(claim, lifetime, rounds, delta, observer, Classical()),)
        subject = noisy_sum_subject(Classical(), observer, rounds, delta=delta, claims=claims, own=found)
        return replace(subject, name=f"{place}, {subject.name.partition(', ')[2]}")
    return Subject(place, found, _claimed(claim, lifetime, rounds, delta))


def _go(subjects: list[Subject], trials: int, false_alarm: float, seed: int | None, as_json: bool) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    from turnout.audit import AuditInterrupted

    done: list[Audit] = []
    stopped = False
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=as_json or not console.is_terminal) as bar:
        try:
            for subject in subjects:
                task = bar.add_task(f"auditing {subject.name}")

                def told(now: int, of: int, task: TaskID = task) -> None:
                    bar.update(task, completed=now, total=of)

                done.append(subject.audit(trials, false_alarm / len(subjects), seed=seed, progress=told))
                bar.remove_task(task)
        except AuditInterrupted as interruption:
            done, stopped = [*done, interruption.audit], True
        except KeyboardInterrupt:
            stopped = True
    _report(done, false_alarm, as_json, stopped)
    raise typer.Exit(130 if stopped else int(any(audit.refuted for audit in done)))


def _report(audits: list[Audit], false_alarm: float, as_json: bool, stopped: bool) -> None:
    refuted = [audit.name for audit in audits if audit.refuted]
    verdict = "refuted" if refuted else "not refuted"
    if as_json:
        facts = {"verdict": verdict, "false_alarm": false_alarm, "interrupted": stopped}
        typer.echo(json.dumps(facts | {"audits": [_facts(audit) for audit in audits]}))
        return
    if len(audits) > 1:
        _print_all(audits)
    for audit in audits:
        if len(audits) == 1 or audit.refuted:
            _print(audit)
    if stopped:
        typer.echo("interrupted: only the finished audits are shown" if audits else "interrupted: nothing was tested")
    of = f"{len(audits)} audit{'' if len(audits) == 1 else 's'}, family-wise false-alarm rate {false_alarm:g}"
    typer.echo(f"{verdict}{f': {chr(44).join(refuted)}' if refuted else ''} ({of})")
    if not refuted and audits:
        typer.echo('"not refuted" proves nothing: no evidence was found with these trials, costs and signals')


def _print_all(audits: list[Audit]) -> None:
    """One line per audit: the finding closest to its claim; and below, the assumptions of the claims."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("verdict", "lower bound", "claim", "audited"):
        table.add_column(title, justify="right" if title == "lower bound" else "left")
    notes: dict[str, int] = {}
    for audit in audits:
        word = "[red]refuted[/red]" if audit.refuted else "not refuted"
        worst = audit.worst
        marks = "".join(f" [{notes.setdefault(held, len(notes) + 1)}]" for held in worst.claim.assumptions)
        table.add_row(word, worst.shown, escape(worst.claim.what), escape(f"{audit.name}{marks}"))
    console = Console(highlight=False)
    print_table(table)
    for held, number in notes.items():
        console.print(escape(f"[{number}] if {held}"))


def _print(audit: Audit) -> None:
    """All findings of one audit."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from turnout.audit import smallest_detected

    console = Console(highlight=False)
    about = f"{audit.worst.claim.circumstances}: {audit.trials:,} trials per cost"
    console.print(f"[bold]{escape(audit.name)}[/bold], {escape(about)}")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("verdict", "lower bound", "claim", "shown by"):
        table.add_column(title, justify="right" if title == "lower bound" else "left")
    for found in audit.findings:
        word = "[red]refuted[/red]" if found.refuted else "not refuted"
        table.add_row(word, found.shown, escape(found.claim.what), escape(found.event))
    print_table(table)
    for found in audit.findings:
        if found.claim.of == "report" and audit.trials and not found.exact:
            least = smallest_detected(found.claim.epsilon, audit.trials, audit.false_alarm / audit.tests)
            console.print(
                f"power: a symmetric reporter's epsilon {least:.4f} per report is detected with probability 0.99"
            )


def _facts(audit: Audit) -> dict[str, Any]:
    findings = [_finding(found) for found in audit.findings]
    facts = {"name": audit.name, "verdict": audit.verdict, "trials": audit.trials, "tests": audit.tests}
    return facts | {"false_alarm": audit.false_alarm, "worst": _finding(audit.worst), "findings": findings}


def _finding(found: Finding) -> dict[str, Any]:
    claim = found.claim
    return {
        "claim": str(claim),
        "of": claim.of,
        "claimed_epsilon": claim.epsilon,
        "delta": claim.delta,
        "rounds": claim.rounds,
        "epsilon_at_least": found.lower,
        "refuted": found.refuted,
        "event": found.event,
        "exact": found.exact,
        "hits": [found.hits, found.trials, found.other_hits, found.other_trials],
    }
