"""Describe the conditions of a measurement: the machine, its software, and the load on it."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

PACKAGES = (
    "mxnum", "numpy", "numba", "llvmlite", "ml_dtypes", "torch", "torchao", "gfloat", "numba-cuda", "matplotlib"
)  # fmt: skip


def describe() -> dict[str, Any]:
    """Return the machine and the software, without names of hosts, users or paths."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "caches": _caches(),
        "memory_gib": _gibibytes("MemTotal"),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "blas": _blas(),
        "commit": commit(),
    }


def commit() -> str:
    """Return the commit of the sources, followed by ``+`` if files differ from the commit.

    Return "" outside a checkout.
    """
    head = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--", "mxnum", "benchmarks/*.py")
    return f"{head[:12]}+" if head and changed else head[:12]


def available_bytes() -> int | None:
    """Return the memory that is available without swapping, or None if it is unknown."""
    kibibytes = _meminfo("MemAvailable")
    return None if kibibytes is None else kibibytes * 1024


@dataclass(frozen=True)
class Clock:
    """Seconds of processor time since the machine started; `own` is the time of this program."""

    total: float
    busy: float
    stolen: float
    own: float


def clock() -> Clock | None:
    """Return the current processor times, or None if the system does not report them."""
    try:
        with open("/proc/stat") as file:
            fields = [int(field) for field in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    tick = os.sysconf("SC_CLK_TCK")
    user, nice, system, idle, iowait, irq, softirq, steal = (field / tick for field in fields)
    busy = user + nice + system + irq + softirq
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    return Clock(busy + idle + iowait + steal, busy, steal, own)


def quietness(start: Clock | None, end: Clock | None) -> dict[str, float]:
    """Return the shares of processor time that other programs and the hypervisor took."""
    if start is None or end is None or end.total <= start.total:
        return {}
    total = end.total - start.total
    others = max(0.0, (end.busy - start.busy) - (end.own - start.own))
    return {"others": round(others / total, 4), "stolen": round((end.stolen - start.stolen) / total, 4)}


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _version(package: str) -> str:
    if package == "mxnum":
        import mxnum

        return mxnum.__version__
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _caches() -> dict[str, str]:
    """Return the sizes of the first core's data caches, such as {"L2": "1024K"}."""
    found = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction":
            found[f"L{level}"] = size
    return found


def _meminfo(field: str) -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1])
    except OSError:
        pass
    return None


def _gibibytes(field: str) -> float | None:
    kibibytes = _meminfo(field)
    return None if kibibytes is None else round(kibibytes / 2**20, 1)


def _blas() -> str:
    import numpy as np

    blas = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', '?')} {blas.get('version', '?')}"
