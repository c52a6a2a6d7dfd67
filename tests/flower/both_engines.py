"""One app in both engines, in a process of its own: prints turnout and signal as JSON.

python both_engines.py <rounds>
"""

import importlib.util
import json
import logging
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "flower_grid.py"


def main():
    spec = importlib.util.spec_from_file_location("flower_grid", BENCHMARK)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    print(json.dumps({name: benchmark.measure(name, 50, int(sys.argv[1]), 15) for name in ("in-process", "ray")}))


if __name__ == "__main__":
    main()
