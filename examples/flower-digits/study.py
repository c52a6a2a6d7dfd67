"""What self-selection does to learning, in one command: a table, a page and pictures.

    python study.py                 # shows what is in results.json, and computes what is missing there
    python study.py --fresh         # computes everything again: some 30 minutes on two cores
    python study.py --quick         # a small one, to see that it works

The same strategy and ClientApp as with `flwr run`, each run in one process. Ctrl-C leaves what there is, and the next
call resumes there.
"""

import os

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the matrices are small, and there are several processes

import argparse
import json
import logging
import multiprocessing
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import study_report
from flower_digits.client_app import app as client_app
from flower_digits.server_app import SELECTIONS
from flower_digits.server_app import app as server_app
from flower_digits.task import CLASSES, COSTLY, population
from flwr.app import Message
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from turnout.files import whole_file
from turnout.flower import run_in_process
from turnout.problem import Problem, optimum

FOLDER = Path(__file__).parent
WEIGHTS = ("plain", "inverse-participation", "stored-updates")
FAMILIES = ("paper", "quadratic")
TARGET = 0.9
"""Accuracy to reach, as a mean over `WINDOW` rounds."""

WINDOW = 10
"""Rounds of one point of a curve."""

Run = dict[str, Any]
Settings = dict[str, Any]
Job = tuple[Settings, int, str, str, str]
"""Settings, seed, selection, weights, family of costs."""


def one_run(job: Job) -> list[Run]:
    """One run of the app; random selection does not look at costs, so that one run of it serves all families."""
    settings, seed, selection, weights, family = job
    logging.getLogger("flwr").setLevel(logging.ERROR)
    clients, rounds = settings["clients"], settings["rounds"]
    participations = np.zeros(clients)

    def count(client: int, message: Message) -> None:
        participations[client] += bool(message.content.array_records)  # the model is sent to participants alone

    config = {"selection": selection, "weights": weights, "costs": family, "seed": seed}
    config |= {key: settings[key] for key in ("clients", "capacity", "local-steps", "learning-rate")}
    config["num-server-rounds"] = rounds
    context = run_in_process(server_app, client_app, clients, run_config=config, seed=seed, interfere=count)
    told = context.state["history"]
    families = FAMILIES if selection == "random" else (family,)
    return [measured(config | {"costs": one}, participations / rounds, told) for one in families]


def measured(config: Settings, average: np.ndarray, told: Any) -> Run:
    """What is kept of a run: `average` is how often each client took part, shape (clients,)."""
    clients, capacity, rounds = config["clients"], config["capacity"], config["num-server-rounds"]
    problem = Problem(population(config["costs"], config["seed"], clients, capacity / clients), capacity)
    run = {key: config[key] for key in ("costs", "selection", "weights", "seed")}
    right, costly = np.array(told["accuracy"]), np.array(told["costly-accuracy"])
    last = max(1, rounds // 6)
    smooth = np.convolve(right, np.full(WINDOW, 1.0 / WINDOW), mode="valid")
    reached = np.flatnonzero(smooth >= TARGET)
    in_group = np.isin(np.arange(clients) % CLASSES, COSTLY)
    return run | {
        "client_cost": problem.cost(average),
        "optimum_cost": optimum(problem).cost,
        "accuracy": right[-last:].mean(),
        "costly_accuracy": costly[-last:].mean(),
        "rounds_to_target": int(reached[0]) + WINDOW if len(reached) else None,
        "turnout": average.sum(),
        "costly_participation": average[in_group].mean(),
        "epsilon_per_report": told.get("turnout-epsilon-per-report-against-server"),
        "epsilon_total": told.get("turnout-epsilon-total-against-server"),
        "curve": blocks(right),
        "costly_curve": blocks(costly),
    }


def blocks(series: np.ndarray) -> list[float]:
    """Means over `WINDOW` rounds each."""
    whole = len(series) // WINDOW * WINDOW
    return series[:whole].reshape(-1, WINDOW).mean(axis=1).tolist()


def jobs_to_do(settings: Settings, seeds: int, runs: Iterable[Run]) -> list[Job]:
    """Every run that is not there yet, one seed after the other."""
    there = {(run["seed"], run["selection"], run["weights"], run["costs"]) for run in runs}
    return [
        (settings, seed, selection, weights, family)
        for seed in range(seeds)
        for selection in SELECTIONS
        for weights in WEIGHTS
        for family in (FAMILIES[:1] if selection == "random" else FAMILIES)
        if (seed, selection, weights, family) not in there
    ]


def rounded(value: Any) -> Any:
    """Six digits are plenty, and infinity is no JSON."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if np.isfinite(value) else None
    if isinstance(value, list):
        return [round(number, 4) for number in value]
    return value


def write(path: Path, settings: Settings, runs: list[Run]) -> None:
    """All runs, one per line, written as a whole or not at all."""
    ordered = sorted(
        runs, key=lambda run: (run["costs"], SELECTIONS.index(run["selection"]), run["weights"], run["seed"])
    )
    lines = ",\n".join(json.dumps({key: rounded(value) for key, value in run.items()}) for run in ordered)
    with whole_file(path) as file:
        file.write(f'{{"settings": {json.dumps(settings)},\n"runs": [\n{lines}\n]}}\n'.encode())


def read(path: Path, settings: Settings) -> list[Run]:
    """The runs of an earlier call, if they are of the same study."""
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    if found["settings"] != settings:
        raise SystemExit(f"{path} holds a study with other settings: use --fresh, or another --output")
    return list(found["runs"])


def compute(path: Path, settings: Settings, seeds: int, processes: int, runs: list[Run], console: Console) -> bool:
    """Run what is missing and write it down after each run; whether all is there."""
    todo = jobs_to_do(settings, seeds, runs)
    if not todo:
        return True
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
            bar = progress.add_task("runs", total=len(todo))
            for found in in_processes(todo, processes):
                runs += found
                write(path, settings, runs)
                progress.advance(bar)
    except KeyboardInterrupt:
        console.print("stopped: the same command resumes")
        return False
    return True


def in_processes(todo: list[Job], processes: int) -> Iterator[list[Run]]:
    """The runs as they are done, in this process or in several."""
    if processes == 1:
        yield from map(one_run, todo)
        return
    with multiprocessing.get_context("spawn").Pool(processes, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        yield from pool.imap_unordered(one_run, todo)


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, help="how many (5)")
    parser.add_argument("--rounds", type=int, help="of each run (300)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--output", type=Path, help="a folder (this one; quick/ for a quick study)")
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs")
    parser.add_argument("--quick", action="store_true", help="20 clients, 12 rounds, one seed")
    parser.add_argument("--table", action="store_true", help="print the table for the documentation, and stop")
    given = parser.parse_args()
    for name in ("seeds", "rounds", "jobs"):
        if (value := getattr(given, name)) is not None and value < (WINDOW if name == "rounds" else 1):
            parser.error(f"--{name} must be {WINDOW if name == 'rounds' else 1} or more, got {value}")
    return given


def main() -> int:
    """Compute, then show."""
    given, console = options(), Console()
    clients, capacity, rounds, seeds = (20, 4, 12, 1) if given.quick else (100, 20, 300, 5)
    settings = {"clients": clients, "capacity": capacity, "rounds": given.rounds or rounds}
    settings |= {"local-steps": 10, "learning-rate": 0.1, "target": TARGET}
    output = given.output or (FOLDER / "quick" if given.quick else FOLDER)
    output.mkdir(parents=True, exist_ok=True)
    path = output / "results.json"
    runs = [] if given.fresh else read(path, settings)
    if given.table:
        print(study_report.markdown(runs, settings))
        return 0
    complete = compute(path, settings, given.seeds or seeds, given.jobs, runs, console)
    if runs:
        console.print(study_report.terminal_table(runs))
        for made in (path, *study_report.pictures(runs, settings, output), study_report.page(runs, settings, output)):
            console.print(made)
    return 0 if complete else 130


if __name__ == "__main__":
    raise SystemExit(main())
