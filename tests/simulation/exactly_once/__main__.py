"""``python -m tests.simulation.exactly_once --seeds 100000 --workers 2``: a long run."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time

from tests.simulation.exactly_once.campaign import Tally, campaign

CHUNK = 100


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.exactly_once")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    first, last = options.first_seed, options.first_seed + options.seeds
    chunks = [range(at, min(at + CHUNK, last)) for at in range(first, last, CHUNK)]
    total, started = Tally(), time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for tally in pool.imap_unordered(campaign, chunks):
            total.merge(tally)
            for seed, violations in tally.failures.items():
                print(f"seed {seed}: {violations[0]}", flush=True)
    rate = total.seeds / (time.perf_counter() - started)
    print(f"{total}\n{rate:.0f} seeds/s with {options.workers} workers")
    print(f"{len(total.failures)} seeds failed", flush=True)
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
