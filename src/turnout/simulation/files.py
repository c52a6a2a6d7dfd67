"""Runs on disk: one `.npz` file with the arrays, and `provenance.json` inside it for people."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.algorithm.client import ClientState
from turnout.errors import FileProblem
from turnout.problem.costs import PolynomialCosts
from turnout.problem.problem import Problem
from turnout.settings import Table
from turnout.simulation.keep import keep_from_settings
from turnout.simulation.trajectory import COLUMNS, Trajectory

PROVENANCE = "provenance.json"
FORMAT = 1


def check_writable(path: str | Path) -> Path:
    """Refuse an output path that cannot be written, before any work is done.

    Raises:
        FileProblem: the folder is missing, or the path is a folder or not writable.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileProblem(f"{path}: cannot be written (no folder {path.parent}): create it first")
    if path.is_dir():
        raise FileProblem(f"{path}: cannot be written (it is a folder): name a file in it")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise FileProblem(f"{path}: cannot be written (permission denied): choose another path")
    return path


@contextlib.contextmanager
def whole_file(path: Path) -> Any:
    """A temporary file that takes the name `path` only once it is complete."""
    handle = None
    try:
        descriptor, handle = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            yield file
        os.chmod(handle, 0o666 & ~_umask())  # mkstemp is stricter than an ordinary file
        os.replace(handle, path)
        handle = None
    except OSError as error:
        raise FileProblem(f"{path}: cannot be written ({error.strerror}): choose another path or free space") from error
    finally:
        if handle is not None and os.path.exists(handle):
            os.unlink(handle)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def save_trajectory(trajectory: Trajectory, path: str | Path) -> None:
    """Write a run, whole or not at all."""
    path = check_writable(path)
    arrays: dict[str, npt.NDArray[Any]] = {
        "signal": trajectory.signal,
        "participants": trajectory.participants,
        "capacity": trajectory.capacity,
        "checkpoints": trajectory.checkpoints,
    }
    arrays |= {name: values for name, values in trajectory.columns().items() if values is not None}
    if trajectory.keep.distance_to is not None:
        arrays["distance_to"] = np.asarray(trajectory.keep.distance_to)
    if trajectory.state is not None:
        arrays["state_participations"] = trajectory.state.participations
        arrays["state_rounds"] = np.asarray(trajectory.state.rounds)
    if trajectory.problem is not None and isinstance(trajectory.problem.costs, PolynomialCosts):
        arrays["coefficients"] = trajectory.problem.costs.coefficients
        arrays["powers"] = np.array(trajectory.problem.costs.powers)
        if trajectory.problem.weights is not None:
            arrays["weights"] = trajectory.problem.weights
    provenance = dict(trajectory.provenance)
    mechanism = provenance.get("mechanism", {})
    for name, value in mechanism.items():  # parameters by client are data, not text
        if isinstance(value, np.ndarray):
            arrays[f"mechanism_{name}"] = value
    text = {
        "format": FORMAT,
        "keep": trajectory.keep.settings(),
        "problem_capacity": None if trajectory.problem is None else trajectory.problem.capacity,
        "controller_state": None if trajectory.controller_state is None else trajectory.controller_state._asdict(),
        "provenance": provenance
        | {"mechanism": {name: "array" if isinstance(value, np.ndarray) else value for name, value in mechanism.items()}},
    }
    with whole_file(path) as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo(PROVENANCE), json.dumps(text, indent=1))
        for name, values in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(values), allow_pickle=False)


def load_trajectory(path: str | Path) -> Trajectory:
    """Read a run that `save_trajectory` wrote."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            if PROVENANCE not in archive.files:
                raise FileProblem(f"{path}: not a saved run (no {PROVENANCE} in it): give a file that simulate wrote")
            text = json.loads(archive[PROVENANCE])
            arrays = {name: archive[name] for name in archive.files if name != PROVENANCE}
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        why = "no such file" if isinstance(error, FileNotFoundError) else f"truncated or not a saved run: {error}"
        raise FileProblem(f"{path}: cannot be read ({why}): check the path, or run simulate again") from error
    if text.get("format") != FORMAT:
        raise FileProblem(f"{path}: of format {text.get('format')}, expected {FORMAT}: use the version that wrote it")
    return _assemble(arrays, text)


def _assemble(arrays: dict[str, npt.NDArray[Any]], text: dict[str, Any]) -> Trajectory:
    provenance = text["provenance"]
    for name, value in provenance.get("mechanism", {}).items():
        if value == "array":
            provenance["mechanism"][name] = arrays[f"mechanism_{name}"]
    problem = None
    if "coefficients" in arrays:
        powers = tuple(int(power) for power in arrays["powers"])
        costs = PolynomialCosts(arrays["coefficients"], powers)
        problem = Problem(costs, text["problem_capacity"], arrays.get("weights"))
    state = None
    if "state_participations" in arrays:
        rounds = arrays["state_rounds"]
        state = ClientState(arrays["state_participations"], float(rounds) if rounds.ndim == 0 else rounds)
    return Trajectory(
        signal=arrays["signal"],
        participants=arrays["participants"],
        capacity=arrays["capacity"],
        checkpoints=arrays["checkpoints"],
        **{name: arrays.get(name) for name in COLUMNS},  # type: ignore[arg-type]
        state=state,
        controller_state=text["controller_state"],
        problem=problem,
        keep=keep_from_settings(Table(text["keep"], "keep"), arrays.get("distance_to")),
        provenance=provenance,
    )
