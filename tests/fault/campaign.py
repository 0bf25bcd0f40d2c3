"""The tests that take minutes, at full size, one after the other, and what they came to.

Run as ``python -m tests.fault.campaign [NAME...]``, or ``make campaign ARGS="NAME..."``; names are
those of ``CAMPAIGNS``. Exits with 1 when one fails. Times are promises on a machine that has
nothing else to do.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LIFECYCLE = "tests/integration/lifecycle"
LOGS = ROOT / "build" / "campaign"

CAMPAIGNS: dict[str, list[str]] = {
    "threads": [f"{LIFECYCLE}/test_mixed_storm.py"],
    "close": [f"{LIFECYCLE}/test_closing.py"],
    "processes": ["tests/integration/test_fork_and_pickle.py"],
    "exits": [f"{LIFECYCLE}/test_exits.py"],
    "leaks": [f"{LIFECYCLE}/test_leaks.py"],
    "interruptions": [f"{LIFECYCLE}/test_interruptions.py", f"{LIFECYCLE}/test_ctrl_c.py"],
    "answers": ["tests/fault/test_hostile_answers.py"],
    "bytes": ["tests/fault/test_every_byte.py"],
    "workers": [
        "tests/fault/test_killed_workers.py",
        "tests/integration/test_transactions_embedded.py",
    ],
    "spark": [
        "tests/spark/test_acceptance.py",
        "tests/spark/test_pipeline_exits.py",
    ],
    "spark-exactly-once": ["tests/spark/test_kills_exactly_once.py"],
    "shipping": ["tests/spark/test_shipping.py"],
    "types": ["tests/spark/test_type_matrix.py"],
    "cluster": ["tests/fault/test_kafka_cluster.py"],
    "security": ["tests/integration/security"],
}
"""What is run under each name."""

NOISE = re.compile(r"^[.sFE]*( +\[ *\d+%\])?$|^(=+|-+|_+) |^WARNING ")
"""Lines of pytest's own, and of logs."""


class Result(NamedTuple):
    """How a campaign ended, and the lines in which its tests say what they saw."""

    name: str
    verdict: str
    seconds: float
    said: list[str]

    @property
    def passed(self) -> bool:
        """True when every test passed, and none was skipped."""
        return re.fullmatch(r"\d+ passed", self.verdict) is not None


def run(name: str) -> Result:
    """Run one campaign; all that it says goes to a file, too."""
    command = [sys.executable, "-m", "pytest", "-q", "-s", *CAMPAIGNS[name]]
    started = time.monotonic()
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "KPROD_CAMPAIGN": "long"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    LOGS.mkdir(parents=True, exist_ok=True)
    (LOGS / f"{name}.log").write_text(ended.stdout)
    verdict = _verdict(ended.stdout)
    if ended.returncode != 0 and "passed" in verdict and "failed" not in verdict:
        verdict = f"{verdict}, and it was interrupted"
    return Result(name, verdict, time.monotonic() - started, list(_said(ended.stdout)))


def _verdict(output: str) -> str:
    found = re.findall(r"^(.*(?:passed|failed|error|skipped).*) in [\d.]+s", output, re.MULTILINE)
    return found[-1] if found else "it did not come to an end"


def _said(output: str) -> Iterator[str]:
    for line in output.splitlines()[:-1]:
        if not NOISE.match(line):
            yield line.lstrip(".")


def main(names: list[str]) -> int:
    """Run those campaigns, or all; returns the exit code."""
    unknown = [name for name in names if name not in CAMPAIGNS]
    if unknown:
        print(f"unknown: {' '.join(unknown)}; there are {' '.join(CAMPAIGNS)}", file=sys.stderr)
        return 2
    results = []
    for name in names or CAMPAIGNS:
        result = run(name)
        results.append(result)
        print(f"{name}: {result.verdict}, {result.seconds:.0f} s", flush=True)
        for line in result.said:
            print(f"    {line}", flush=True)
    failed = [result.name for result in results if not result.passed]
    print(f"{len(results) - len(failed)} campaigns passed, {len(failed)} failed {' '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
