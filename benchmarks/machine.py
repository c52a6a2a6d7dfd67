"""What a benchmark ran on: processor, memory, compiler, versions."""

import importlib.metadata
import os
import platform
from pathlib import Path

import c_kernel

LIBRARIES = ("numpy", "numba", "llvmlite", "jax", "jaxlib", "ray", "flwr")


def hardware():
    """Facts by name, for people to read."""
    return {
        "processor": _first("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": _memory(),
        "caches": _caches(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "load when it began": f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown",
        "compiler": c_kernel.compiler_version() or "none",
        "C kernel": f"{c_kernel.library().instructions().decode()}, {' '.join(c_kernel.FLAGS)}"
        if c_kernel.compiler()
        else "left out",
        "Python": platform.python_version(),
        **{name: found for name in LIBRARIES if (found := _version(name))},
    }


def free_memory():
    """Bytes that are free, or None where the system does not say."""
    found = _first("/proc/meminfo", "MemAvailable")
    return int(found.split()[0]) * 1024 if found else None


def _memory():
    found = _first("/proc/meminfo", "MemTotal")
    return f"{int(found.split()[0]) / 2**20:.0f} GiB" if found else "unknown"


def _caches():
    """Of the first core: L1d 32K, L2 1024K, …"""
    found = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind, level, size = ((folder / name).read_text().strip() for name in ("type", "level", "size"))
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return ", ".join(found) or "unknown"


def _first(path, name):
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), None)


def _version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
