"""Options that several commands share, and how options and a settings file become one."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.errors import invalid

if TYPE_CHECKING:
    from turnout.problem import Problem


USUAL_STORE = "turnout.db"


def one_of(*names: str) -> Callable[[str], list[str]]:
    """What the shell offers for an option that takes one of these words."""

    def complete(incomplete: str) -> list[str]:
        """The words that begin with this."""
        return [name for name in names if name.startswith(incomplete)]

    return complete


def mechanism_names(incomplete: str) -> list[str]:
    """What the shell offers for a mechanism."""
    from turnout.algorithm import MECHANISMS

    return one_of(*MECHANISMS)(incomplete)


CONTROLLERS = one_of("integral", "self-tuning", "falling-gain")

Settings = Annotated[Path | None, typer.Argument(help="A TOML file with the settings of the run.", show_default=False)]
PopulationChoice = Annotated[
    str | None,
    typer.Option(
        "--population",
        help="'paper', 'paper-drawn', or a .toml, .csv or .npz file.",
        show_default="paper",
        autocompletion=one_of("paper", "paper-drawn"),
    ),
]
Clients = Annotated[int | None, typer.Option(help="How many clients the paper's population has.", show_default="1200")]
PopulationSeed = Annotated[int | None, typer.Option(help="Seed of a randomly drawn population.", show_default="0")]
Capacity = Annotated[
    float | None,
    typer.Option(
        help="The turnout that is needed in each round.",
        show_default="half of the paper's clients; else the file's",
    ),
]


def mechanism_option(default: str) -> Any:
    """The option that names a mechanism; ours are named by their files, since help must not wait for NumPy."""
    files = sorted((Path(__file__).parents[1] / "algorithm" / "mechanisms").glob("[!_]*.py"))
    names = ", ".join(file.stem.replace("_", "-") for file in files)
    told = f"One of {names}, or an installed package's."
    return typer.Option(help=told, show_default=default, autocompletion=mechanism_names)


MechanismChoice = Annotated[str | None, mechanism_option("classical")]
Epsilon = Annotated[
    float | None,
    typer.Option(
        help="Per report, of a certified mechanism (clamp, unless another is named); of memoized and "
        "learned-memoized, in total.",
        show_default=False,
    ),
]
ControllerChoice = Annotated[
    str | None,
    typer.Option(
        help="integral (the paper's), self-tuning, or falling-gain (for sums with noise).",
        show_default="integral with a --gain or for half of the paper's clients; else self-tuning",
        autocompletion=CONTROLLERS,
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Any setting by its name, such as mechanism.center=0.1; repeatable.", show_default=False
    ),
]
Resume = Annotated[
    Path | None, typer.Option("--continue", help="Continue this saved run by --rounds.", show_default=False)
]
EngineChoice = Annotated[
    str | None,
    typer.Option(
        help="auto, numpy, numba, jax, jax32 or ray.",
        show_default="auto",
        autocompletion=one_of("auto", "numpy", "numba", "jax", "jax32", "ray"),
    ),
]
OBSERVERS = ("every-report", "sum", "noisy-sum")
"""As in turnout.privacy.observer; repeated here, since help must not wait for NumPy."""

ObserverChoice = Annotated[
    str,
    typer.Option(
        help="The observer: every-report (sees each report); if an aggregator that you trust hides single reports, "
        "sum (sees each round's total alone) or noisy-sum (sees it with noise, which the plan chooses).",
        autocompletion=one_of(*OBSERVERS),
    ),
]
Honest = Annotated[
    int | None,
    typer.Option(help="For sum: how many others certainly follow the protocol.", show_default="all but one"),
]
Aggregators = Annotated[
    int | None,
    typer.Option(
        help="For noisy-sum: 1, or 2 that do not trust each other (each adds all the noise).", show_default="1"
    ),
]
OPTIONS = {
    "capacity": "--capacity",
    "rounds": "--rounds",
    "mechanism.kind": "--mechanism",
    "mechanism.beta": "--beta",
    "mechanism.epsilon": "--epsilon",
    "controller.kind": "--controller",
    "controller.gain": "--gain",
    "controller.initial": "--initial",
}
"""The options that give a setting; any other is given with --set. For what is missing."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def operator_command(words: str, store: str) -> str:
    """A command for the operator to type next, with the store unless it is the usual one; a password is left out.

    Example:
        >>> operator_command("operate resume", "run.db")
        '`turnout operate resume --store run.db`'
    """
    place = re.sub(r"(://[^/@:]*):[^/@]*@", r"\1:PASSWORD@", store)
    return f"`turnout {words}`" if store == USUAL_STORE else f"`turnout {words} --store {shlex.quote(place)}`"


def read_changes(changes: list[str]) -> dict[str, Any]:
    """`name=value` options as names and values; a value is read as in a settings file, or else as text."""
    found: dict[str, Any] = {}
    for change in changes:
        name, equals, text = change.partition("=")
        if not equals or not name.strip():
            raise invalid("--set", "of the form name=value", f"{change!r}", "write --set mechanism.center=0.1")
        try:
            found[name.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            found[name.strip()] = text
    return found


def put(values: dict[str, Any], name: str, value: Any) -> None:
    """Set a dotted name in nested settings, where an option was given."""
    if value is None:
        return
    *tables, key = name.split(".")
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            raise invalid(name, "within a table", f"{table} = {values!r}", "correct the name or the settings")
    values[key] = value


def check_tables(values: dict[str, Any]) -> None:
    """Refuse a number or a text where a table of settings must be."""
    for name in ("population", "mechanism", "controller", "keep", "noise"):
        if not isinstance(values.get(name, {}), dict):
            raise invalid(name, "a table", repr(values[name]), f"write [{name}] and its settings below it")
    clients = values.get("population", {}).get("clients", 1)
    if not isinstance(clients, int) or isinstance(clients, bool) or not 0 < clients <= 2**40:
        raise invalid("population.clients", "a whole number from 1 up", repr(clients), "give how many")


def choose_population(
    values: dict[str, Any], population: str | None, clients: int | None, seed: int | None, capacity: float | None
) -> None:
    """Let the options about the population override the settings."""
    if population is not None:
        named = population in ("paper", "paper-drawn")
        if clients is not None and not named:
            raise invalid("--clients", "left out for a population from a file", clients, "edit the file instead")
        values["population"] = {"kind": population} if named else {"file": population}
    values.setdefault("population", {"kind": "paper"})
    put(values, "population.clients", clients)
    put(values, "population.seed", seed)
    put(values, "capacity", capacity)
    check_tables(values)
    if "capacity" not in values:
        values["capacity"] = _usual_capacity(values["population"])


def _usual_capacity(population: dict[str, Any]) -> Any:
    """The default capacity: half of the paper's clients, or what the population's file says."""
    if population.get("kind") in ("paper", "paper-drawn"):
        return population.get("clients", 1200) / 2
    from turnout.problem import population_from_table
    from turnout.settings import Table, read_toml

    population_from_table(Table(population, "population"))  # what is wrong with the clients comes first
    file = str(population.get("file", ""))
    found = read_toml(file).get("capacity") if file.endswith(".toml") else None
    if found is None:
        raise ValueError("capacity is missing: give --capacity, or capacity = … in the settings")
    return found


def check_output(path: Path | None, suffix: str, inputs: Iterable[Path] = ()) -> None:
    """Refuse an output that cannot be written, has another suffix, or would replace an input.

    Raises:
        FileProblem: it cannot be written.
        ValueError: it ends in something else, or is one of the inputs.
    """
    from turnout.files import check_writable

    if path is None:
        return
    check_writable(path)
    if path.suffix.lower() != suffix:
        raise invalid("--output", f"a {suffix} file", f"{str(path)!r}", "give it that ending")
    if path.exists() and any(one.exists() and one.samefile(path) for one in inputs):
        raise invalid("--output", "another file than those that are read", f"{str(path)!r}", "choose another name")


def problem_from(settings: Path | None, *options: Any) -> tuple[Problem, dict[str, Any]]:
    """(the clients and the capacity, all settings) of a file of `turnout simulate`, options, or both.

    Args:
        settings: the file.
        options: population, clients, seed and capacity, as `choose_population` takes them.

    Raises:
        ValueError: a setting that no run has.
    """
    from turnout.settings import read_toml

    values = read_toml(settings) if settings else {}
    choose_population(values, *options)
    return problem_from_values(values), values


def problem_from_values(values: dict[str, Any]) -> Problem:
    """The clients and the capacity of a table of settings."""
    from turnout.problem import population_from_table
    from turnout.settings import RUN_KEYS, Table

    table = Table(values)
    problem = population_from_table(table.table("population")).problem(table.number("capacity"))
    table.ignore(*RUN_KEYS)
    table.finish()
    return problem
