"""Run the long tests at full size, one after the other, and print the results.

Run as ``python -m tests.fault.campaign [NAME...]``, or ``make campaign ARGS="NAME..."``; names are
those of ``CAMPAIGNS``. Exits with 1 if one fails. Time limits assume an idle machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIFECYCLE = "tests/integration/lifecycle"
LOGS = ROOT / "build" / "campaign"

CAMPAIGNS: dict[str, list[str]] = {
    "threads": [f"{LIFECYCLE}/test_mixed_storm.py"],
    "close": [f"{LIFECYCLE}/test_closing.py"],
    "processes": ["tests/integration/test_forks.py"],
    "exits": [f"{LIFECYCLE}/test_exits.py"],
    "leaks": [f"{LIFECYCLE}/test_leaks.py"],
    "interruptions": [f"{LIFECYCLE}/test_interruptions.py", f"{LIFECYCLE}/test_ctrl_c.py"],
    "answers": ["tests/fault/test_hostile_answers.py"],
    "bytes": ["tests/fault/test_every_byte.py"],
    "workers": [
        "tests/fault/test_killed_workers.py",
        "tests/integration/test_transactions_embedded.py",
    ],
    "spark": ["tests/spark/test_acceptance.py"],
    "spark-exactly-once": ["tests/spark/test_kills_exactly_once.py"],
    "shipping": ["tests/spark/test_shipping.py"],
    "types": ["tests/spark/test_type_matrix.py"],
    "cluster": ["tests/fault/test_kafka_cluster.py"],
    "security": ["tests/integration/security"],
}
"""The test files of each campaign."""


def run(name: str) -> int:
    """Run one campaign, print and log its output; returns the exit code of pytest."""
    LOGS.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-s", *CAMPAIGNS[name]]
    with (
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "KPROD_CAMPAIGN": "long", "CI": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as running,
        (LOGS / f"{name}.log").open("w") as log,
    ):
        assert running.stdout is not None
        for line in running.stdout:
            print(line, end="", flush=True)
            log.write(line)
    return running.returncode


def main(names: list[str]) -> int:
    """Run these campaigns, or all; returns the exit code."""
    unknown = [name for name in names if name not in CAMPAIGNS]
    if unknown:
        print(f"unknown: {' '.join(unknown)}; there are {' '.join(CAMPAIGNS)}", file=sys.stderr)
        return 2
    failed = [name for name in names or CAMPAIGNS if run(name) != 0]
    print(f"failed: {' '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
