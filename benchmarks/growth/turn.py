"""One producer with default options and one bound of growth, in a process of its own.

    python -m benchmarks.growth.turn '{"workload": "uneven", ...}' 127.0.0.1:41234

prints what was measured as a line of JSON. ``GrowthTurn`` says what can be asked for.
"""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import asdict, dataclass
from itertools import chain, cycle, islice, repeat
from typing import Any

from kprod import KafkaProducer
from kprod.cli.figures import CostMeter

TOPIC = "growth"
SLICE = 10_000
DRAWN_KEYS = 1_000_000
MEGA = 1e6
OPEN_SECONDS = 60
"""The linger of batches that shall all be open at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthTurn:
    """``batch_max_size`` None: the default. ``workload`` is one of these:

    * "plain": records without keys, futures dropped;
    * "one-each": a record to each partition, all of them open at once;
    * "uneven": keys of which few are frequent, over all partitions.
    """

    workload: str
    records: int
    partitions: int
    size: int = 100
    batch_max_size: int | None = None
    buffer_memory: int | None = None

    def as_json(self) -> dict[str, Any]:
        """As a mapping of names to values."""
        return asdict(self)


def run(turn: GrowthTurn, bootstrap_servers: str) -> dict[str, float]:
    """Send it all; the figures by name."""
    options: dict[str, Any] = {
        name: value
        for name, value in (
            ("batch_max_size", turn.batch_max_size),
            ("buffer_memory", turn.buffer_memory),
        )
        if value is not None
    }
    if turn.workload == "one-each":
        options["linger_ms"] = 1000 * OPEN_SECONDS
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, **options)
    try:
        return _sent(producer, turn)
    finally:
        producer.close()


def _sent(producer: KafkaProducer, turn: GrowthTurn) -> dict[str, float]:
    value = b"v" * turn.size
    producer.send(TOPIC, value, partition=0)
    producer.flush(timeout=60)
    keys, partitions = _places(turn)
    pauses = []
    started = CostMeter()
    last = time.perf_counter()
    places = islice(zip(keys, partitions, strict=False), turn.records)
    for _ in range(0, turn.records, SLICE):
        for key, partition in islice(places, SLICE):
            producer.send(TOPIC, value, key, partition=partition)
        now = time.perf_counter()
        pauses.append(now - last)
        last = now
    failed = producer.flush(timeout=120).failed
    cost = started.read()
    assert not failed, f"{failed} records failed"
    return {
        "seconds": cost.seconds,
        "records_per_second": turn.records / cost.seconds,
        "megabytes_per_second": turn.records * turn.size / cost.seconds / MEGA,
        "cpu_us_per_record": cost.cpu_seconds / turn.records * MEGA,
        "peak_rss_mb": cost.peak_rss_bytes / MEGA,
        "longest_slice_ms": 1000 * max(pauses),
    }


def _places(turn: GrowthTurn) -> tuple[Any, Any]:
    """Keys and partitions, one of each for a record."""
    if turn.workload == "one-each":
        return repeat(None), chain(range(turn.partitions))
    if turn.workload == "uneven":
        rng = random.Random(18)
        # Key number n has a share of about 1/n: the first of 100,000 gets a twelfth of all.
        keys = [b"key-%d" % int(100_000 ** rng.random()) for _ in range(DRAWN_KEYS)]
        return cycle(keys), repeat(None)
    return repeat(None), repeat(None)


if __name__ == "__main__":
    print(json.dumps(run(GrowthTurn(**json.loads(sys.argv[1])), sys.argv[2])))
