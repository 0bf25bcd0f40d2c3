"""What is varied, one thing at a time, around 100 B, keyed, 6 partitions, no codec."""

from __future__ import annotations

from pathlib import Path

from benchmarks.pipeline.case import EMBEDDED, Case
from kprod.cli.perf.workload import CALLS

KEYED = ("--keys", "1000")
MILLION = 1_000_000
LEAST_RECORDS = 2_000
RECORDS_BY_SIZE = {10: 2 * MILLION, 100: 2 * MILLION, 1_000: MILLION // 2, 10_000: 50_000}
CODECS = {"none": 300_000, "gzip": 50_000, "snappy": 200_000, "lz4": 200_000, "zstd": 200_000}
PARTITIONS = {1: MILLION, 6: MILLION, 100: MILLION, 10_000: 200_000}
RATES = (1_000, 10_000, 100_000)
PACED_SECONDS = 3
BUFFER_FOR_MANY = ("-X", "buffer_memory=536870912")


def cases(flights: Path, scale: float) -> list[Case]:
    """All of them; ``flights`` is a file of JSON lines."""
    return [
        *_sizes(scale),
        *_codecs(flights, scale),
        *_partitions(scale),
        *_calls(scale),
        *_rates(scale),
        *_embedded(scale),
    ]


def _count(records: float, scale: float) -> int:
    return max(LEAST_RECORDS, int(records * scale))


def _sizes(scale: float) -> list[Case]:
    return [
        Case(
            "value size",
            f"{size:,} B, {'keyed' if keyed else 'no key'}",
            _count(records, scale),
            ("--size", str(size), *(KEYED if keyed else ())),
        )
        for size, records in RECORDS_BY_SIZE.items()
        for keyed in (True, False)
    ]


def _codecs(flights: Path, scale: float) -> list[Case]:
    payload = ("--payload-file", str(flights), *KEYED)
    return [
        Case("codec", codec, _count(records, scale), ("--compression", codec, *payload))
        for codec, records in CODECS.items()
    ]


def _partitions(scale: float) -> list[Case]:
    """Ten keys a partition, so that all are in use; memory for a batch in each."""
    return [
        Case(
            "partitions",
            f"{partitions:,}",
            _count(records, scale),
            ("--keys", str(10 * max(partitions, 100)), *BUFFER_FOR_MANY),
            partitions=partitions,
            warm_up=10 * max(partitions, 100),
        )
        for partitions, records in PARTITIONS.items()
    ]


def _calls(scale: float) -> list[Case]:
    return [Case("call", call, _count(3 * MILLION, scale), ("--call", call)) for call in CALLS]


def _rates(scale: float) -> list[Case]:
    """Latency without a queue: at these rates the producer mostly waits."""
    return [
        Case(
            "rate",
            f"{rate:,} records/s",
            _count(rate * PACED_SECONDS, scale),
            ("--rate", str(rate), *KEYED),
        )
        for rate in RATES
    ]


def _embedded(scale: float) -> list[Case]:
    """It parses, checks and stores every batch, in Python: it is the slower side."""
    return [
        Case(
            "embedded broker",
            codec,
            _count(300_000, scale),
            ("--compression", codec, *KEYED),
            broker=EMBEDDED,
        )
        for codec in ("none", "lz4")
    ]
