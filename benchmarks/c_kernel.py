"""The hand-written C kernel (c_kernel.c), compiled on the spot, called by ctypes."""

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from turnout.algorithm import ClientState

FLAGS = ("-O3", "-march=native", "-ffp-contract=off", "-shared", "-fPIC", "-pthread")
"""No fused multiply-add: it would change bits."""

SOURCE = Path(__file__).with_name("c_kernel.c")


def compiler():
    """The C compiler of this machine, or None."""
    names = (os.environ.get("CC"), "gcc", "cc", "clang")
    return next((found for found in map(shutil.which, filter(None, names)) if found), None)


def compiler_version():
    if compiler() is None:
        return None
    done = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[0] if done.stdout else compiler()


@functools.cache
def library():
    """Compiled again in each process; takes a fraction of a second."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "c_kernel.so"
        subprocess.run([compiler(), *FLAGS, str(SOURCE), "-o", str(target)], check=True)
        loaded = ctypes.CDLL(str(target))
    pointer, whole, word, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint32, ctypes.c_double
    loaded.run.argtypes = [pointer, pointer, whole, word, word, number, number, whole, whole, number, number]
    loaded.run.argtypes += [pointer, pointer, ctypes.c_int]
    loaded.run.restype = None
    loaded.copy.argtypes = [pointer, pointer, whole, ctypes.c_int]
    loaded.copy.restype = None
    loaded.instructions.restype = ctypes.c_char_p
    return loaded


def advance(setup, stop, threads):
    """Run the rounds of a setup up to `stop`, as an engine's `advance`."""
    clients, log = setup.clients, setup.log
    first, signals, totals = log.round, log.signal.copy(), log.participants.copy()
    terms, passed, coin = clients.costs.terms, clients.state.participations, clients.mechanism.parameters()
    library().run(
        passed.ctypes.data,
        terms.ctypes.data,
        len(clients),
        *clients.coins.key,
        float(coin[0]) if coin else 0.0,
        float(clients.state.rounds),
        first,
        stop,
        log.controller.gain,
        log.capacity,
        signals.ctypes.data,
        totals.ctypes.data,
        threads,
    )
    clients.state = ClientState(passed, float(clients.state.rounds) + stop - first)
    log.close_rounds(totals[first:stop], signals[first + 1 : stop + 1])


def copy_bandwidth(threads, seconds, mebibytes=256):
    """Bytes read and written a second by a plain copy, the best of several tries."""
    source = np.ones(mebibytes << 17)
    target = np.zeros_like(source)
    return 2 * source.nbytes / min(seconds(lambda: _copy(target, source, threads)) for _ in range(5))


def _copy(target, source, threads):
    library().copy(target.ctypes.data, source.ctypes.data, source.nbytes, threads)
