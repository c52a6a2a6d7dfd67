"""What an attack recovered, as a table and as a page with a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turnout.attack import AttackErrors
from turnout.report.page import NOTHING, Page
from turnout.report.traces import INK, chart, line, look

Lines = Mapping[str, Sequence[AttackErrors]]
"""By name: the errors after each number of rounds; 0 rounds is the prior alone."""

PRIOR = "knowing the prior alone"


def attack_rows(lines: Lines) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of errors; what is known without any report comes first.

    Example:
        >>> found = [AttackErrors(0, 0.33, 0.33, 0.33), AttackErrors(100, 0.072, 0.07, 0.08)]
        >>> attack_rows({"classical": found})[1]
        [['knowing the prior alone', '33 %'], ['classical', '7.2 %']]
    """
    rounds = sorted({errors.rounds for found in lines.values() for errors in found} - {0})
    rows = [[name, *[error_percent(value)] * len(rounds)] for name, value in priors(lines).items()]
    for name, found in lines.items():
        known = {errors.rounds: error_percent(errors.cost) for errors in found}
        rows.append([name, *(known.get(number, NOTHING[1]) for number in rounds)])
    return ["", *(f"{number:,}" for number in rounds)], rows


def priors(lines: Lines) -> dict[str, float]:
    """The error of guessing without any report: one for all, or one per run where they differ by a twentieth."""
    found = {name: errors.cost for name, each in lines.items() for errors in each if errors.rounds == 0}
    if found and max(found.values()) < 1.05 * min(found.values()):
        return {PRIOR: next(iter(found.values()))}
    return {f"{PRIOR}: {name}": cost for name, cost in found.items()}


def error_percent(value: float) -> str:
    """A percentage with two digits.

    Example:
        >>> error_percent(0.00783), error_percent(0.0154), error_percent(0.198)
        ('0.78 %', '1.5 %', '20 %')
    """
    number = 100.0 * value
    return f"{number:.2f} %" if number < 0.995 else f"{number:.1f} %" if number < 9.95 else f"{number:.0f} %"


def attack_page(lines: Lines) -> Page:
    """The errors against the rounds, one line per mechanism, and the table below."""
    page = Page(
        "What reports give away",
        "An observer of every signal and every report, who knows the family of the costs, estimates each client's "
        "cost. Where a line says so, it sees the sums with noise instead, and knows all other clients' reports. Shown "
        "is the median relative error over the clients.",
    )
    traces = []
    for index, (name, found) in enumerate(lines.items()):
        seen = [errors for errors in found if errors.rounds]
        error = [100 * errors.cost for errors in seen]
        traces.append(line([errors.rounds for errors in seen], error, name, **look(index)))
    rounds = sorted({errors.rounds for found in lines.values() for errors in found} - {0})
    for name, cost in priors(lines).items():
        traces.append(line(rounds, [100 * cost] * len(rounds), name, colour=INK, dash="dash"))
    ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]
    figure = chart(
        traces,
        x="Rounds seen",
        y="Median relative error, %",
        xaxis={"type": "log", "tickvals": rounds, "ticktext": [f"{number:,}" for number in rounds]},
        yaxis={"type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]},
    )
    page.heading("Error by number of rounds")
    page.figure(figure, "How well costs are recovered, by the number of observed rounds and the mechanism.", height=440)
    header, rows = attack_rows(lines)
    page.table(["Mechanism", *header[1:]], rows, "Median relative error of the recovered costs, by observed rounds.")
    page.text(
        "The error is that of the slope of a client's cost at its own average: where a cost has one term, that is the "
        "error of its coefficient."
    )
    return page
