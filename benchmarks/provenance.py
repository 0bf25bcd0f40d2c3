"""Where figures come from: commit, versions, code chosen by the processor, machine."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import crc32c

from benchmarks.rivals.clients import PACKAGES

ROOT = Path(__file__).parents[1]
CPU_INFO = Path("/proc/cpuinfo")
MEMORY_INFO = Path("/proc/meminfo")
FIGURES = ["README.md", "docs/index.md", "docs/performance.md", "docs/plots", "benchmarks/results"]
"""What a run and its report write, relative to ``ROOT``."""


def provenance() -> dict[str, Any]:
    """Taken at the start of a run: the load is that of others then. No name of the machine."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "versions": {
            "python": platform.python_version(),
            **_versions(),
            "librdkafka": _librdkafka(),
        },
        "paths": {"crc32c": "hardware" if crc32c.hardware_based else "software"},
        "machine": {
            "cpu": _first(CPU_INFO, "model name") or platform.processor(),
            "cores": os.cpu_count(),
            "memory_kb": int((_first(MEMORY_INFO, "MemTotal") or "0").split()[0]),
            "kernel": f"{platform.system()} {platform.release()}",
            "architecture": platform.machine(),
            "load_average": [round(load, 2) for load in os.getloadavg()],
        },
    }


def command_line(module: str) -> str:
    """What to type to have the same run again."""
    return " ".join(["python", "-m", module, *sys.argv[1:]])


def _commit() -> dict[str, Any]:
    """The commit, and whether there were changes on top of it, but for results and their pages.

    The runs of one sitting follow each other, and the report writes the pages after each.
    """
    try:
        head = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--", ".", *(f":!{path}" for path in FIGURES))
    except (OSError, subprocess.CalledProcessError):
        return {"id": "unknown", "dirty": True}
    return {"id": head, "dirty": bool(changed)}


def _git(*arguments: str) -> str:
    ran = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return ran.stdout.strip()


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _librdkafka() -> str:
    try:
        from confluent_kafka import libversion
    except ImportError:
        return "not installed"
    return str(libversion()[0])


def _first(file: Path, name: str) -> str | None:
    """The value of the first line ``name : value``."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    values = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(values, None)
