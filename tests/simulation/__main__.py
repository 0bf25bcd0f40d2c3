"""``python -m tests.simulation --seeds 10000 --workers 2``: a long run, with a report."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator

from tests.simulation.campaign import Tally, campaign, explain

CHUNK = 100
MOST_EXPLAINED = 3


def main() -> int:
    options = _options()
    last = options.first_seed + options.seeds
    chunks = [
        range(first, min(first + CHUNK, last)) for first in range(options.first_seed, last, CHUNK)
    ]
    total = Tally()
    started = time.perf_counter()
    for tally in _tallies(chunks, options.workers):
        total.merge(tally)
        rate = total.seeds / (time.perf_counter() - started)
        for seed, violations in tally.failures.items():
            print(f"seed {seed}: {violations[0]}", flush=True)
        if options.progress:
            print(
                f"{total.seeds} seeds, {rate:.0f} seeds/s, {len(total.failures)} failed",
                file=sys.stderr,
                flush=True,
            )
    elapsed = time.perf_counter() - started
    print(f"{total}\n{total.seeds / elapsed:.0f} seeds/s with {options.workers} workers")
    print(_verdict(total), flush=True)
    for seed in list(total.failures)[:MOST_EXPLAINED]:
        print(f"\n{explain(seed)}")
    return 1 if total.failures else 0


def _verdict(total: Tally) -> str:
    if not total.failures:
        return "no invariant broke"
    seeds = ", ".join(map(str, sorted(total.failures)))
    return f"INVARIANTS BROKE with {len(total.failures)} seeds: {seeds}"


def _tallies(chunks: list[range], workers: int) -> Iterator[Tally]:
    if workers <= 1:
        yield from map(campaign, chunks)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(campaign, chunks)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=sys.stderr.isatty(),
        help="tell how it goes on stderr; a terminal is told unless --no-progress",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
