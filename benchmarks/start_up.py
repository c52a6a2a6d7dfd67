"""What a user waits for before the first round: imports, the command, compiling; and whole runs, and memory."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FIRST_RUN = """
from turnout import IntegralController, PaperCoin, paper_population, simulate
simulate(paper_population().problem(600), PaperCoin(3.5), IntegralController(0.0075, 0.35), 3, engine="{engine}")
"""

COMPILES = """
import time
from turnout import IntegralController, Keep, PaperCoin, paper_population, simulate
problem = paper_population(0, {clients}).problem({clients} / 2)
def once():
    begun = time.perf_counter()
    lean = Keep(every=10**9, cost=False)
    simulate(problem, PaperCoin(3.5), IntegralController(9 / {clients}, 0.35), 5, engine="{engine}", keep=lean)
    return time.perf_counter() - begun
first = once()
print(first - once())
"""

MEMORY = """
import resource, numpy as np
from turnout import IntegralController, Keep, PaperCoin, PolynomialCosts, Problem, paper_population, simulate
simulate(paper_population(0, 1200).problem(600), PaperCoin(3.5), IntegralController(0.0075, 0.35), 10)
n = 10_000_000
problem = Problem(PolynomialCosts(np.full((n, 3), 2.0, order='F'), (2, 4, 6)), n / 2)
open('/proc/self/clear_refs', 'w').write('5')
before = int(open('/proc/self/statm').read().split()[1]) * resource.getpagesize()
simulate(problem, PaperCoin(3.5), IntegralController(9 / n, 0.35), 10, keep=Keep(every=4))
high = [line for line in open('/proc/self/status') if line.startswith('VmHWM')][0].split()[1]
print((int(high) * 1024 - before) / n)
"""


def start_up(tries, quick):
    """Seconds of whole commands, the best of some tries; a compilation in an empty cache is tried once."""
    command = shutil.which("turnout", path=str(Path(sys.executable).parent)) or shutil.which("turnout")
    help_ = [command, "--help"] if command else [sys.executable, "-m", "turnout", "--help"]
    found = {
        "python, doing nothing": _best(tries, [sys.executable, "-c", "pass"]),
        "import numpy": _best(tries, [sys.executable, "-c", "import numpy"]),
        "import turnout": _best(tries, [sys.executable, "-c", "import turnout"]),
        "turnout --help": _best(tries, help_),
    }
    if importlib.util.find_spec("numba"):
        first_run = [sys.executable, "-c", FIRST_RUN.format(engine="numba")]
        with tempfile.TemporaryDirectory() as cache:
            cold = os.environ | {"NUMBA_CACHE_DIR": cache}
            found["first run with numba, ever"] = _best(1, first_run, cold)
            found["first run with numba, compiled before"] = _best(tries, first_run, cold)
    if importlib.util.find_spec("jax") and not quick:
        found["first run with jax"] = _best(1, [sys.executable, "-c", FIRST_RUN.format(engine="jax")])
        for clients in (1_200, 1_000_000):
            found[f"jax, compiling alone, {clients:,} clients"] = _printed(
                COMPILES.format(clients=clients, engine="jax")
            )
    return found


def whole_runs(quick):
    """The paper's five settings x 1,200 clients x 10,000 rounds, and twenty replicas, as a user calls them."""
    from turnout import Classical, IntegralController, PaperCoin, paper_population, replicate, simulate

    problem, server = paper_population().problem(600), IntegralController(0.0075, 0.35)
    mechanisms = [Classical(), *(PaperCoin(beta) for beta in (3.5, 2.5, 1.5, 1.0))]
    rounds = 1_000 if quick else 10_000
    for mechanism in mechanisms:
        simulate(problem, mechanism, server, 3)
    begun = time.perf_counter()
    for mechanism in mechanisms:
        simulate(problem, mechanism, server, rounds)
    five = time.perf_counter() - begun
    begun = time.perf_counter()
    replicate(problem, mechanisms[1], server, rounds, seeds=range(20))
    return {
        f"five settings x 1,200 clients x {rounds:,} rounds": five,
        f"twenty replicas x 1,200 clients x {rounds:,} rounds": time.perf_counter() - begun,
    }


def bytes_a_client():
    """Memory beyond the coefficients, at ten million clients, in a process of its own; None where it cannot be told."""
    return _printed(MEMORY) if Path("/proc/self/clear_refs").exists() else None


def _best(tries, command, environment=None):
    best = float("inf")
    for _ in range(tries):
        begun = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env=environment)
        best = min(best, time.perf_counter() - begun)
    return best


def _printed(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else None
