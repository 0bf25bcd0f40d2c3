"""Draw mutants of kprod by a seed, and tell which share of them the tests kill.

``python -m tests.mutants --seed 1 --count 400`` works in a copy of the checkout below ``build``, so
that what is tried is never what is edited, and writes each verdict to ``build/mutants/SEED.jsonl``
at once: a run that was broken off goes on where it was. A mutant goes through the stages until one
kills it; "alive" is what no stage has noticed. A line of the report for each package, and what is
alive, are printed in the end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.mutants.sites import Site, sites

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "build" / "mutants"
PACKAGES = (
    *("sender", "buffer", "wire", "cluster", "intake", "transport"),
    *("schema", "exactly_once", "spark"),
)
TAKES_TOO_LONG = 1800
"""Seconds: a mutant that goes round in circles is noticed by this."""

STAGES: dict[str, list[str]] = {
    "unit": ["tests/unit/{package}"],
    "check": ["tests/unit", "tests/ext", "tests/golden", "tests/property", "tests/simulation"],
    "test": ["tests"],
    "full": ["tests"],
}
"""What each stage runs, the quickest first; ``full`` with the tests that only it has."""


class Mutant(NamedTuple):
    """A mistake in one file."""

    file: str
    site: Site

    @property
    def package(self) -> str:
        """Of kprod, in which it is."""
        return Path(self.file).parts[1]

    def __str__(self) -> str:
        return f"{self.file}:{self.site.line}: {self.site.old!r} -> {self.site.new!r}"


def drawn(seed: int, count: int) -> list[Mutant]:
    """As many mutants of each package, of any of its files: for a seed always the same."""
    dice = random.Random(seed)
    found: list[Mutant] = []
    for number, package in enumerate(PACKAGES):
        files = sorted((ROOT / "kprod" / package).rglob("*.py"))
        every = [
            Mutant(str(file.relative_to(ROOT)), site)
            for file in files
            for site in sites(file.read_bytes())
        ]
        share = count // len(PACKAGES) + (number < count % len(PACKAGES))
        found += dice.sample(every, min(share, len(every)))
    dice.shuffle(found)
    return found


def copied() -> Path:
    """A copy of the checkout as it is, with what was compiled in place."""
    copy = PLACE / "checkout"
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


def verdict(copy: Path, package: str, stages: list[str], jobs: int) -> str:
    """The stage that fails, or "alive"."""
    for stage in stages:
        paths = [path.format(package=package) for path in STAGES[stage]]
        if not any((copy / path).exists() for path in paths):
            continue
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", str(jobs)]
        command += ["-p", "no:cacheprovider", *paths]
        command += [] if stage == "full" else ["-m", "not full"]
        environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= {"KPROD_TESTS": "full"} if stage == "full" else {}
        try:
            ran = subprocess.run(
                command,
                cwd=copy,
                env=environment,
                capture_output=True,
                timeout=TAKES_TOO_LONG,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return stage
        if ran.returncode != 0:
            return stage
    return "alive"


def tried(mutants: list[Mutant], kept: Path, stages: list[str], jobs: int) -> Iterator[str]:
    """The verdict of each mutant; those of ``kept`` are not tried again."""
    known = {}
    if kept.exists():
        known = dict(json.loads(line) for line in kept.read_text().splitlines())
    copy = copied()
    if (
        broken := verdict(copy, "", [stage for stage in stages if stage != "unit"], jobs)
    ) != "alive":
        sys.exit(f"without a mutant the tests of stage {broken!r} fail, too")
    for mutant in mutants:
        if str(mutant) not in known:
            place = copy / mutant.file
            original = place.read_bytes()
            place.write_bytes(mutant.site.applied(original))
            try:
                known[str(mutant)] = verdict(copy, mutant.package, stages, jobs)
            finally:
                place.write_bytes(original)
            with kept.open("a") as file:
                file.write(json.dumps([str(mutant), known[str(mutant)]]) + "\n")
        yield known[str(mutant)]


def main() -> int:
    """Print each verdict, and what they come to."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--jobs", type=int, default=4, help="workers of pytest")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=["unit", "check", "test"])
    options = parser.parse_args()
    PLACE.mkdir(parents=True, exist_ok=True)
    mutants = drawn(options.seed, options.count)
    kept = PLACE / f"{options.seed}-{options.stages[-1]}.jsonl"
    by_package: dict[str, Counter[str]] = {package: Counter() for package in PACKAGES}
    alive = []
    results = tried(mutants, kept, options.stages, options.jobs)
    for mutant, result in zip(mutants, results, strict=True):
        print(f"{result:>6}  {mutant}", flush=True)
        by_package[mutant.package][result] += 1
        alive += [mutant] if result == "alive" else []
    for package, results_of in by_package.items():
        killed = results_of.total() - results_of["alive"]
        print(f"{package}: {killed} of {results_of.total()} killed, {dict(results_of)}")
    print(f"{len(mutants) - len(alive)} of {len(mutants)} killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
