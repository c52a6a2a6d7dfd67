"""What a simulation gives back: the record, the final state, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.algorithm.client import ClientState
from turnout.errors import MissingExtra
from turnout.problem.costs import Array
from turnout.problem.problem import Problem
from turnout.simulation.keep import Keep

COLUMNS = ("cost", "mean_distance", "largest_distance", "histogram", "averages")
"""What is recorded at checkpoints, if `Keep` says so."""


@dataclass(frozen=True, eq=False)
class Trajectory:
    """A run, from round 0 on.

    Attributes:
        signal: Theta(k), shape (rounds,).
        participants: the total of each round (of weights, where clients have them), shape (rounds,).
        capacity: what was needed in each round, shape (rounds,).
        checkpoints: the rounds after which the following were recorded, shape (checkpoints,).
        cost: the total cost of the averages, shape (checkpoints,).
        mean_distance, largest_distance: of |x_i - reference_i|, shape (checkpoints,).
        histogram: clients by average, shape (checkpoints, bins).
        averages: of the chosen clients, shape (checkpoints, chosen).
        state: the clients' final histories, for going on.
        controller_state: the server's final state.
        problem: what was solved, where it can be saved (polynomial costs).
        keep: what was recorded.
        provenance: version, settings, seed and engine.

    What was not kept is None.
    """

    signal: Array
    participants: npt.NDArray[np.int64]
    capacity: Array
    checkpoints: npt.NDArray[np.int64]
    cost: Array | None
    mean_distance: Array | None
    largest_distance: Array | None
    histogram: npt.NDArray[np.int64] | None
    averages: Array | None
    state: ClientState | None
    controller_state: Any
    problem: Problem | None
    keep: Keep
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """How many rounds were run."""
        return len(self.participants)

    @property
    def average(self) -> Array:
        """The clients' averages at the end, shape (clients,)."""
        if self.state is None:
            raise ValueError("average must be recorded to be read, got keep.state=False: run again with keep.state=True")
        return self.state.average

    def last(self, rounds: int = 400) -> npt.NDArray[np.int64]:
        """The turnout of the last rounds."""
        return self.participants[-rounds:]

    def __repr__(self) -> str:
        tail = self.last()
        clients = self.provenance.get("clients", "?")
        return (
            f"Trajectory({self.rounds} rounds of {clients} clients, "
            f"turnout {tail.mean():.1f} ± {tail.std():.1f} over the last {len(tail)}, "
            f"signal {self.signal[-1]:.4g}, engine {self.provenance.get('engine_reason', '?')})"
        )

    def columns(self) -> dict[str, npt.NDArray[Any] | None]:
        """What was recorded at checkpoints, by name."""
        return {name: getattr(self, name) for name in COLUMNS}

    def save(self, path: Any) -> None:
        """Write the run to one `.npz` file (arrays, and `provenance.json` inside), whole or not at all.

        Raises:
            FileProblem: the file cannot be written.
        """
        from turnout.simulation.files import save_trajectory

        save_trajectory(self, path)

    @staticmethod
    def load(path: Any) -> Trajectory:
        """Read a run that `save` wrote.

        Raises:
            FileProblem: the file is missing, truncated, or not a saved run.
        """
        from turnout.simulation.files import load_trajectory

        return load_trajectory(path)

    def to_pandas(self) -> Any:
        """The rounds as a pandas DataFrame: signal, participants, capacity."""
        try:
            import pandas
        except ImportError:
            raise MissingExtra("to_pandas()", library="pandas", extra="lab") from None
        columns = {"signal": self.signal, "participants": self.participants, "capacity": self.capacity}
        return pandas.DataFrame(columns, index=pandas.RangeIndex(self.rounds, name="round"))

    def to_xarray(self) -> Any:
        """The whole record as an xarray Dataset, provenance as attributes."""
        try:
            import xarray
        except ImportError:
            raise MissingExtra("to_xarray()", library="xarray", extra="lab") from None
        variables: dict[str, Any] = {name: ("round", getattr(self, name)) for name in ("signal", "participants", "capacity")}
        second = {"histogram": "bin", "averages": "client"}
        for name, values in self.columns().items():
            if values is not None:
                variables[name] = (("checkpoint", second[name]) if name in second else "checkpoint", values)
        coordinates = {"round": np.arange(self.rounds), "checkpoint": self.checkpoints}
        return xarray.Dataset(variables, coordinates, {"provenance": str(self.provenance)})
