"""Populations: the paper's, a description in TOML, or a table."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from turnout.errors import FileProblem, invalid, nearest
from turnout.problem.costs import Array, PolynomialCosts
from turnout.problem.drawn import DrawnCosts, drawn_paper_costs
from turnout.problem.problem import Problem, Weights, warn_of_share
from turnout.settings import RUN_KEYS, Table, read_toml


@dataclass(frozen=True, eq=False)
class Population:
    """Clients without a capacity: their costs and weights.

    Example:
        >>> paper_population(seed=0)
        Population(1200 clients, powers=(2, 4, 6))
    """

    costs: PolynomialCosts | DrawnCosts
    weights: Weights | None = None

    def __len__(self) -> int:
        return len(self.costs)

    def __repr__(self) -> str:
        weighted = "" if self.weights is None else f", weights adding up to {int(np.sum(self.weights))}"
        return f"Population({len(self)} clients, powers={self.costs.powers}{weighted})"

    def problem(self, capacity: float) -> Problem:
        """The problem of meeting `capacity` with these clients."""
        found = Problem(self.costs, capacity, self.weights)
        warn_of_share(found.capacity, found.most)
        return found


def paper_population(seed: int = 0, clients: int = 1200) -> Population:
    """A population like the paper's: four groups of equal size, a_i and b_i uniform in (0, 40).

    a x^2;  a x^4 / 2;  a x^4 / 3 + b x^6;  b x^2, in this order. The paper's own draw is not
    known; ours is NumPy's default generator, all a_i first, then all b_i.

    Args:
        seed: of NumPy's default generator.
        clients: their number, a multiple of 4.

    Paper: Eq. (11).

    Example:
        >>> paper_population(seed=0).costs
        PolynomialCosts(1200 clients, powers=(2, 4, 6))
    """
    if not isinstance(seed, (int, np.integer)) or seed < 0:
        raise invalid("population seed", "a whole number from 0 up", seed, "choose another")
    if clients < 4 or clients % 4:
        raise invalid("clients", "a multiple of 4 (the paper's four groups)", clients, "round it to one")
    generator = np.random.default_rng(seed)
    a, b = generator.uniform(0.0, 40.0, clients), generator.uniform(0.0, 40.0, clients)
    first, second, third, fourth = np.split(np.arange(clients), 4)
    coefficients = np.zeros((clients, 3), order="F")
    coefficients[first, 0] = a[first]
    coefficients[second, 1] = a[second] / 2
    coefficients[third, 1] = a[third] / 3
    coefficients[third, 2] = b[third]
    coefficients[fourth, 0] = b[fourth]
    return Population(PolynomialCosts(coefficients, (2, 4, 6)))


def drawn_paper_population(seed: int = 0, clients: int = 1200) -> Population:
    """The paper's population of any size, never stored: each client's costs are a function of its number.

    It is drawn with other random numbers than `paper_population`, from the same distribution.

    Args:
        seed: from 0 to 2^64 - 1.
        clients: their number, a multiple of 4.

    Paper: Eq. (11).

    Example:
        >>> drawn_paper_population(clients=8_000_000_000).problem(capacity=4e9)
        Problem(8000000000 clients, capacity=4e+09)
    """
    return Population(drawn_paper_costs(clients, seed))


def read_population(source: str | Path, *, seed: int | None = None, clients: int | None = None) -> Population:
    """A population by name (`paper`, `paper-drawn`) or from a file: `.toml`, `.csv` or `.npz`.

    Args:
        source: the name or the path.
        seed: for a population that is drawn; None takes the file's own, or 0.
        clients: for the paper's population; None means 1200.

    Raises:
        FileProblem: the file is missing or cannot be understood.
        ValueError: a value in it is out of range.

    Example:
        >>> len(read_population("paper", seed=3, clients=400))
        400
    """
    named = {"paper": paper_population, "paper-drawn": drawn_paper_population}
    if str(source) in named:
        return named[str(source)](0 if seed is None else seed, 1200 if clients is None else clients)
    path = Path(source)
    if clients is not None:
        raise invalid("clients", "left out for a population from a file", clients, "edit the file instead")
    if path.suffix == ".toml":
        table = Table(read_toml(path))
        population = population_from_table(table.table("population"), seed=seed)
        table.ignore("capacity", *RUN_KEYS)  # a whole run's file will do
        table.finish()
        return population
    if seed is not None:
        raise invalid("population seed", "left out for a table, which draws nothing", seed, "remove it")
    if path.suffix == ".csv":
        return _read_csv(path)
    if path.suffix == ".npz":
        return _read_npz(path)
    allowed = "'paper-drawn', 'paper', or a .toml, .csv or .npz file"
    raise invalid("population", allowed, f"{str(source)!r}", nearest(str(source), named, "use one of these"))


def population_from_table(table: Table, *, seed: int | None = None, clients: int | None = None) -> Population:
    """A population from the `[population]` table of a settings file.

    Either `kind = "paper"` (or `"paper-drawn"`) with `seed` and `clients`, or `file = "clients.csv"`, or groups::

        [population]
        seed = 7
        [[population.groups]]
        clients = 300
        weight = 7400                                      # optional: whole units
        cost = { 2 = { uniform = [0, 40] }, 4 = 1.5 }      # power = coefficient, or its distribution

    Distributions: a number; `uniform = [low, high]`; `lognormal = [median, spread]`;
    `gamma = [shape, scale]`; `choice = [values…]`.
    """
    given: int | None = table.whole("seed", None)
    seed = given if seed is None else seed
    if "groups" in table:
        groups = table.tables("groups")
        if not groups:
            raise invalid(table.path("groups"), "one group or more", "none", "describe some clients")
        population = _draw_groups(groups, 0 if seed is None else seed)
    elif "file" in table:
        population = read_population(table.text("file"), seed=seed, clients=clients)
    else:
        if "kind" not in table:
            table.ignore("clients", "file", "groups", "kind")
            table.finish()  # a misspelt key comes first
            allowed = "give kind = 'paper' or 'paper-drawn', or describe your own clients with groups or file"
            raise ValueError(f"{table.path('kind')} is missing: {allowed}")
        kind = table.text("kind")
        if kind not in ("paper", "paper-drawn"):
            allowed = "'paper' or 'paper-drawn'"
            remedy = nearest(kind, ("paper", "paper-drawn"), "or describe your own with groups or file")
            raise invalid(table.path("kind"), allowed, f"{kind!r}", remedy)
        size = table.whole("clients", None)
        population = read_population(kind, seed=seed, clients=size if clients is None else clients)
    table.finish()
    return population


def _draw_groups(groups: list[Table], seed: int) -> Population:
    generator = np.random.default_rng(seed)
    drawn: list[dict[int, Array]] = []
    weights: list[Weights] = []
    for group in groups:
        size = group.whole("clients")
        if size < 1:
            raise invalid(group.path("clients"), "1 or more", size, "remove an empty group")
        cost = group.take("cost", dict, "a table of powers and coefficients, such as { 2 = 1.5 }")
        terms: dict[int, Array] = {}
        for power, coefficient in cost.items():
            if not power.isdigit():
                raise invalid(f"{group.path('cost')}.{power}", "a whole power, such as 2", power, "rename the key")
            terms[int(power)] = _draw(f"{group.path('cost')}.{power}", coefficient, size, generator)
        drawn.append(terms)
        weight = group.whole("weight", 1)
        weights.append(np.full(size, weight, dtype=np.int64))
        group.finish()
    powers = sorted({power for terms in drawn for power in terms})
    blocks = [
        np.column_stack([terms.get(power, np.zeros(len(weight))) for power in powers])
        for terms, weight in zip(drawn, weights, strict=True)
    ]
    all_weights = np.concatenate(weights)
    weighted = None if np.all(all_weights == 1) else all_weights
    return Population(PolynomialCosts(np.concatenate(blocks), tuple(powers)), weighted)


def _draw(name: str, spec: Any, size: int, generator: np.random.Generator) -> Array:
    """Coefficients of one group and power, from a number or a distribution."""
    if isinstance(spec, (int, float)) and not isinstance(spec, bool):
        return np.full(size, float(spec))
    draws: dict[str, Callable[..., Any]] = {
        "uniform": lambda low, high: generator.uniform(low, high, size),
        "lognormal": lambda median, spread: median * np.exp(spread * generator.standard_normal(size)),
        "gamma": lambda shape, scale: generator.gamma(shape, scale, size),
        "choice": lambda *values: generator.choice(np.array(values, dtype=np.float64), size),
    }
    shape = "a number, or one of { uniform = [low, high] }, { lognormal = [median, spread] }, "
    shape += "{ gamma = [shape, scale] }, { choice = [values…] }"
    if not isinstance(spec, dict) or len(spec) != 1 or next(iter(spec)) not in draws:
        word = str(next(iter(spec), "")) if isinstance(spec, dict) else ""
        raise invalid(name, shape, repr(spec), nearest(word, draws, "write it in one of these forms"))
    kind, arguments = next(iter(spec.items()))
    try:
        return np.asarray(draws[kind](*arguments), dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid(f"{name}.{kind}", shape, repr(arguments), f"correct the numbers ({error})") from error


def _read_csv(path: Path) -> Population:
    """A header `x^2,x^4,weight` and one row per client."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            rows, lines = [], []
            for row in reader:
                if row:
                    rows.append(row)
                    lines.append(reader.line_num)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileProblem(f"{path}: cannot be read ({error}): check the path") from error
    if len(rows) < 2:
        raise FileProblem(f"{path}: holds no clients: expected a header such as x^2,x^4,weight and one row per client")
    header = [name.strip() for name in rows[0]]
    for name in header:
        if name != "weight" and not (name.startswith("x^") and name[2:].isdigit()):
            raise FileProblem(f"{path}: unknown column {name!r}: columns are x^2, x^4, … and weight")
    values = np.empty((len(rows) - 1, len(header)))
    for number, row in enumerate(rows[1:]):
        if len(row) != len(header):
            raise FileProblem(f"{path}: line {lines[number + 1]}: {len(row)} cells: give {len(header)} numbers")
        try:
            values[number] = [float(cell) for cell in row]
        except ValueError as error:
            raise FileProblem(f"{path}: line {lines[number + 1]}: {error}: give {len(header)} numbers") from error
    if len(set(header)) < len(header):
        raise FileProblem(f"{path}: a column comes twice in {header}: keep one")
    terms = [column for column, name in enumerate(header) if name != "weight"]
    costs = PolynomialCosts(values[:, terms], tuple(int(header[column][2:]) for column in terms))
    return Population(costs, values[:, header.index("weight")] if "weight" in header else None)  # type: ignore[arg-type]


def _read_npz(path: Path) -> Population:
    """Arrays `coefficients` (clients, terms), `powers`, and optionally `weights`."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ("coefficients", "powers", "weights") if name in file.files}
    except (OSError, EOFError, ValueError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise FileProblem(f"{path}: cannot be read as .npz ({error}): check the path and write it again") from error
    if not {"coefficients", "powers"} <= set(arrays):
        raise FileProblem(f"{path}: holds no population: expected the arrays coefficients and powers")
    powers = tuple(np.atleast_1d(arrays["powers"]).tolist())
    return Population(PolynomialCosts(arrays["coefficients"], powers), arrays.get("weights"))
