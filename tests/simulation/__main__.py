"""``python -m tests.simulation --seeds 10000 --workers 2``: a long run, with a report."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from functools import partial

from tests.simulation.campaign import Tally, attempt, campaign
from tests.simulation.exactly_once.world import attempt as attempt_transactions
from tests.simulation.shrink import explain

CHUNK = 100
MOST_EXPLAINED = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--transactions", action="store_true", help="those of exactly_once")
    options = parser.parse_args()
    first, last = options.first_seed, options.first_seed + options.seeds
    chunks = [range(at, min(at + CHUNK, last)) for at in range(first, last, CHUNK)]
    run = partial(campaign, attempt=attempt_transactions if options.transactions else attempt)
    total, started = Tally(), time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for tally in pool.imap_unordered(run, chunks):
            total.counts += tally.counts
            total.failures |= tally.failures
            for seed, violations in tally.failures.items():
                print(f"seed {seed}: {violations[0]}", flush=True)
            if sys.stderr.isatty():
                print(f"{total.counts['seeds']} seeds, {len(total.failures)} failed", end="\r")
    rate = options.seeds / (time.perf_counter() - started)
    counts = ", ".join(f"{count} {what}" for what, count in sorted(total.counts.items()))
    print(f"{counts}\n{rate:.0f} seeds/s with {options.workers} workers")
    print(f"INVARIANTS BROKE with {sorted(total.failures)}" if total.failures else "none broke")
    if not options.transactions:
        for seed in list(total.failures)[:MOST_EXPLAINED]:
            print(f"\n{explain(seed)}")
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
