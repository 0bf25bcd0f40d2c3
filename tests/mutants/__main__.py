"""Draw mutants of kprod by a seed, and report which of them the tests kill.

``python -m tests.mutants --seed 1 --count 400`` works in copies of the checkout, and stores each
result below ``build/mutants``: an interrupted run continues. A mutant passes the stages until one
kills it; otherwise it is "alive". Stage ``cheapest`` runs tests that execute the line, which were
recorded before: those that take the least time, for at most 15 seconds. Stage ``others`` runs the
rest of these, and stage ``processes`` the tests that start brokers or Spark. ``--stages`` runs only
some of them. ``--store FILE`` keeps the final report by package.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import queue
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
LONGEST = 900
"""Seconds of one stage; a mutant with an endless loop is killed by this timeout."""
CHEAP = 15.0
"""Seconds that the tests of stage ``cheapest`` took without a mutant."""

STAGES = "cheapest", "others", "processes"
RECORDED = [
    f"tests/{name}" for name in ("unit", "golden", "property", "simulation", "integration", "spark")
]


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


def copied(number: int) -> Path:
    """A copy of the checkout with its compiled modules."""
    copy = FOLDER / f"checkout-{number}"
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
    return Covering(place, copy)


def killed_in(stage: str, copy: Path, mutant: Mutant, covering: Covering) -> bool:
    cheapest, others = covering.tests(mutant.file, mutant.site.lines, CHEAP)
    paths = {"cheapest": cheapest, "others": others, "processes": [f"tests/{mutant.processes}"]}
    arguments = ["-x", "--timeout", "60", *paths[stage]]
    return bool(paths[stage]) and run(copy, arguments, {}) != 0


def results_of(
    mutants: list[Mutant], kept: Path, jobs: int, stages: list[str]
) -> Iterator[tuple[Mutant, str]]:
    """Each mutant with the stage that kills it, or "alive"; results in ``kept`` stay."""
    known: dict[tuple[str, str], bool] = {}
    if kept.exists():
        read = map(json.loads, kept.read_text().splitlines())
        known = {(mutant, stage): killed for mutant, stage, killed in read}
    copies: queue.Queue[Path] = queue.Queue()
    for number in range(jobs):
        copies.put(copied(number))
    covering = recorded(copies.queue[0], jobs)
    seconds = itertools.count(int(time.time()))

    def result_of(mutant: Mutant) -> str:
        for stage in stages:
            if (str(mutant), stage) not in known:
                copy = copies.get()
                place = copy / mutant.file
                original = place.read_bytes()
                write(place, mutant.site.applied(original), next(seconds))
                try:
                    known[str(mutant), stage] = killed_in(stage, copy, mutant, covering)
                finally:
                    write(place, original, next(seconds))
                    copies.put(copy)
                with kept.open("a") as file:
                    file.write(json.dumps([str(mutant), stage, known[str(mutant), stage]]) + "\n")
            if known[str(mutant), stage]:
                return stage
        return "alive"

    with ThreadPoolExecutor(jobs) as pool:
        yield from zip(mutants, pool.map(result_of, mutants), strict=True)


def write(place: Path, text: bytes, seconds: int) -> None:
    """Write a module with a new modification time, which invalidates its bytecode."""
    place.write_bytes(text)
    os.utime(place, (seconds, seconds))


def report(results: dict[Mutant, str], seed: int, stages: list[str]) -> dict[str, object]:
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    by_package: dict[str, Counter[str]] = {package: Counter() for package in PACKAGES}
    for mutant, result in results.items():
        by_package[mutant.package][result] += 1
    alive = [str(mutant) for mutant, result in results.items() if result == "alive"]
    return {
        "question": "Which share of small mistakes in kprod do the tests notice?",
        "command": f"python -m tests.mutants --seed {seed} --count {len(results)}",
        "commit": commit,
        "stages": stages,
        "mutants": len(results),
        "killed": len(results) - len(alive),
        "packages": {package: dict(counts) for package, counts in by_package.items()},
        "alive": sorted(alive),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--jobs", type=int, default=2, help="mutants tested at a time")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    parser.add_argument("--store", type=Path, metavar="FILE", help="for the report")
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = FOLDER / f"{options.seed}.jsonl"
    results = {}
    mutants = drawn(options.seed, options.count)
    for mutant, result in results_of(mutants, kept, options.jobs, options.stages):
        print(f"{result:>9}  {mutant}", flush=True)
        results[mutant] = result
    found = report(results, options.seed, options.stages)
    text = json.dumps(found, indent=1) + "\n"
    print(text, end="")
    if options.store:
        options.store.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
