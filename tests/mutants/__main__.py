"""Draw mutants of kprod by a seed, and report which of them the tests kill.

``python -m tests.mutants --seed 1 --count 400`` works in a copy of the checkout, and stores each
result below ``build/mutants``: an interrupted run continues. A mutant passes the stages until one
kills it; otherwise it is "alive". Stage ``covering`` runs the unit, property and simulated tests
that execute the line, which were recorded before. Stage ``processes`` runs the tests that start
brokers or Spark. ``--store FILE`` keeps the final report by package.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.mutants.covering import RECORDED_IN, Covering
from tests.mutants.sites import Site, sites

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "mutants"
PACKAGES = (
    *("sender", "buffer", "wire", "cluster", "intake", "transport"),
    *("schema", "exactly_once", "spark"),
)
LONGEST = 1800
"""Seconds; a mutant with an endless loop is killed by this timeout."""

STAGES = "covering", "processes"
RECORDED = [f"tests/{name}" for name in ("unit", "golden", "property", "simulation")]
MANY_TESTS = 40
"""Up to so many tests run in one process."""


class Mutant(NamedTuple):
    file: str
    site: Site

    @property
    def package(self) -> str:
        return Path(self.file).parts[1]

    @property
    def processes(self) -> str:
        """The folder of ``tests`` that runs its package in other processes."""
        in_workers_of_spark = self.package in {"schema", "exactly_once", "spark"}
        return "spark" if in_workers_of_spark else "integration"

    def __str__(self) -> str:
        return f"{self.file}:{self.site.line}: {self.site.old!r} -> {self.site.new!r}"


def drawn(seed: int, count: int) -> list[Mutant]:
    """The same number of mutants for each package; determined by the seed."""
    rng = random.Random(seed)
    found: list[Mutant] = []
    for number, package in enumerate(PACKAGES):
        files = sorted((ROOT / "kprod" / package).rglob("*.py"))
        every = [
            Mutant(str(file.relative_to(ROOT)), site)
            for file in files
            for site in sites(file.read_bytes())
        ]
        share = count // len(PACKAGES) + (number < count % len(PACKAGES))
        found += rng.sample(every, min(share, len(every)))
    rng.shuffle(found)
    return found


def copied() -> Path:
    """A copy of the checkout with its compiled modules."""
    copy = FOLDER / "checkout"
    shutil.rmtree(copy, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    compiled = (str(path.relative_to(ROOT)) for path in (ROOT / "kprod_ext").glob("*.so"))
    for name in (*listed, *compiled):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    for path in (copy / "kprod_ext").glob("*.so"):
        path.touch()  # newer than its source
    return copy


def run(copy: Path, arguments: list[str], variables: dict[str, str]) -> int | None:
    """The exit code of pytest; None after a timeout."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not full"]
    environment = os.environ | {"PYTHONPATH": str(copy)} | variables
    environment.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # hundreds of processes would compile everything
    try:
        return subprocess.run(
            [*command, *arguments],
            cwd=copy,
            env=environment,
            capture_output=True,
            timeout=LONGEST,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        return None


def recorded(copy: Path, jobs: int) -> Covering:
    place = FOLDER / "covering"
    if not list(FOLDER.glob("covering.*")):
        options = ["-n", str(jobs), "-p", "tests.mutants.covering"]
        if run(copy, [*options, *RECORDED], {RECORDED_IN: str(place)}) != 0:
            sys.exit("the tests fail without a mutant")
    return Covering(place)


def result_of(copy: Path, mutant: Mutant, jobs: int, covering: Covering) -> str:
    """The stage that kills it, or "alive"."""
    for stage in STAGES:
        paths, workers = [f"tests/{mutant.processes}"], jobs
        if stage == "covering":
            paths = covering.tests(copy / mutant.file, mutant.site.lines)
            workers = jobs if len(paths) > MANY_TESTS else 0
        if not paths:
            continue
        arguments = ["-x", "-n", str(workers), "--timeout", "120", *paths]
        if run(copy, arguments, {}) != 0:
            return stage
    return "alive"


def tried(mutants: list[Mutant], kept: Path, jobs: int) -> Iterator[tuple[Mutant, str]]:
    """Each mutant with its result; those in ``kept`` are not tested again."""
    known = {}
    if kept.exists():
        known = dict(json.loads(line) for line in kept.read_text().splitlines())
    copy = copied()
    covering = recorded(copy, jobs)
    seconds = itertools.count(int(time.time()))
    for mutant in mutants:
        if str(mutant) not in known:
            place = copy / mutant.file
            original = place.read_bytes()
            write(place, mutant.site.applied(original), next(seconds))
            try:
                known[str(mutant)] = result_of(copy, mutant, jobs, covering)
            finally:
                write(place, original, next(seconds))
            with kept.open("a") as file:
                file.write(json.dumps([str(mutant), known[str(mutant)]]) + "\n")
        yield mutant, known[str(mutant)]


def write(place: Path, text: bytes, seconds: int) -> None:
    """Write a module with a new modification time, which invalidates its bytecode."""
    place.write_bytes(text)
    os.utime(place, (seconds, seconds))


def report(results: dict[Mutant, str], seed: int) -> dict[str, object]:
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    by_package: dict[str, Counter[str]] = {package: Counter() for package in PACKAGES}
    for mutant, result in results.items():
        by_package[mutant.package][result] += 1
    alive = [str(mutant) for mutant, result in results.items() if result == "alive"]
    return {
        "question": "Which share of small mistakes in kprod do the tests notice?",
        "command": f"python -m tests.mutants --seed {seed} --count {len(results)}",
        "commit": commit,
        "stages": STAGES,
        "mutants": len(results),
        "killed": len(results) - len(alive),
        "packages": {package: dict(counts) for package, counts in by_package.items()},
        "alive": sorted(alive),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--jobs", type=int, default=4, help="workers of pytest")
    parser.add_argument("--store", type=Path, metavar="FILE", help="for the report")
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = FOLDER / f"{options.seed}.jsonl"
    results = {}
    mutants = drawn(options.seed, options.count)
    for mutant, result in tried(mutants, kept, options.jobs):
        print(f"{result:>9}  {mutant}", flush=True)
        results[mutant] = result
    found = report(results, options.seed)
    text = json.dumps(found, indent=1) + "\n"
    print(text, end="")
    if options.store:
        options.store.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
