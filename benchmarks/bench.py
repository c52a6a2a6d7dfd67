"""Client-rounds a second: our engines, what people write, and the practical limit, interleaved in one run.

    python benchmarks/bench.py [--quick] [--output FOLDER] [--snapshot]

Writes benchmarks.json and benchmarks.html into the folder; --snapshot also writes docs/benchmarks.md and its picture.
"""

import argparse
import datetime
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

from rich.console import Console

import bench_page
import bench_snapshot
import comparison
import machine
import race
import start_up

HERE = Path(__file__).parent
GPU = HERE / "results" / "gpu.json"
FULL = {"sizes": (1_200, 100_000, 10_000_000), "turns": 7, "target": 0.3, "work": 1e8}
QUICK = {"sizes": (1_200, 20_000), "turns": 1, "target": 0.01, "work": 1e6}
GROWING = (1_200, 12_000, 120_000, 1_200_000, 12_000_000)
LENGTHS = (100, 1_000, 10_000, 100_000)
ROOM = 1_200
"""Bytes a client that all contenders together need at the most."""


def other_script(name, library, *arguments):
    """What a benchmark that needs other libraries prints, as a table of its own; or why it is left out."""
    if importlib.util.find_spec(library) is None:
        return {"left out": f"{library} is not installed"}
    if not (HERE / name).exists():
        return {"left out": f"there is no {name}"}
    command = [sys.executable, str(HERE / name), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    except subprocess.TimeoutExpired:
        return {"left out": f"{name} took longer than 15 minutes"}
    lines = done.stdout.splitlines()
    for number in range(len(lines)):  # anything may be printed before the JSON
        if lines[number].startswith("{"):
            try:
                return json.loads("\n".join(lines[number:]))
            except ValueError:
                continue
    reason = (done.stderr.strip().splitlines() or ["no result"])[-1]
    return {"left out": f"{name} failed: {reason}"}


def with_room(sizes):
    """The sizes that this machine's memory can hold for all contenders."""
    free = machine.free_memory()
    return [clients for clients in sizes if free is None or clients * ROOM < free]


def measure(found, quick):
    """Measure everything, part by part, into one table of tables; yields what comes next, before each part."""
    how, left_out = QUICK if quick else FULL, {"left out": "with --quick"}
    found |= {"date": datetime.date.today().isoformat(), "quick": quick, "turns": how["turns"]}
    found["machine"] = machine.hardware()
    with race.Homes() as homes:
        yield "rates, in turns"
        found["rates"], found["identical"] = race.race(homes, with_room(how["sizes"]), how["turns"], how["target"])
        yield "bandwidth and growth"
        found["bandwidth"] = race.bandwidth(homes, found["rates"], 2 if quick else 5)
        lengths, growing = (LENGTHS[:2], GROWING[:2]) if quick else (LENGTHS, with_room(GROWING))
        found["growth"] = race.growth(homes, growing, lengths, 1 if quick else 5, how["work"])
    yield "start-up, whole runs and memory"
    found["start_up"] = start_up.start_up(1 if quick else 5, quick)
    found["whole_runs"] = start_up.whole_runs(quick)
    found["bytes_a_client"] = None if quick else start_up.bytes_a_client()
    yield "Flower"
    found["flower"] = left_out if quick else other_script("flower_grid.py", "flwr", "--nodes", "50", "--rounds", "20")
    yield "Ray"
    found["ray"] = left_out if quick else other_script("ray_overhead.py", "ray")
    yield "the coordinator"
    found["service"] = left_out if quick else other_script("service.py", "uvloop")
    yield "what people use now"
    found["comparison"] = comparison.measure(quick, comparison.load())
    found["gpu"] = json.loads(GPU.read_text()) if GPU.exists() else {"left out": "not measured"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="less than a minute, to see that everything works")
    parser.add_argument("--output", type=Path, default=Path("results/bench"), help="the folder for JSON and page")
    parser.add_argument("--snapshot", action="store_true", help="also write docs/benchmarks.md and its picture")
    parser.add_argument("--docs", type=Path, default=HERE.parent / "docs", help="where the snapshot goes")
    parser.add_argument("--again", type=Path, help="make the pages again from this JSON, and measure nothing")
    options = parser.parse_args()
    console = Console(width=110)
    options.output.mkdir(parents=True, exist_ok=True)
    found, kept = {}, options.output / "benchmarks.json"
    try:
        if options.again:
            found = json.loads(options.again.read_text())
            found["gpu"] = json.loads(GPU.read_text()) if GPU.exists() else found["gpu"]
        else:
            for part in measure(found, options.quick):
                console.print(f"measuring {part} …")
    except KeyboardInterrupt:
        raise SystemExit(f"stopped; what was measured is in {kept}") from None
    finally:
        if found:
            kept.write_text(json.dumps(found, indent=1) + "\n")
    bench_page.page(found).save(options.output / "benchmarks.html")
    bench_snapshot.show(console, found)
    console.print(options.output / "benchmarks.html")
    if options.snapshot:
        console.print(bench_snapshot.write(found, options.docs))


if __name__ == "__main__":
    main()
