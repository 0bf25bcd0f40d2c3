"""How many Python functions a bulk call enters, and in how many files they are.

    python -m benchmarks.call_counts

counts in the caller's thread, by ``sys.setprofile``, for a call of 20,000 rows of 100 bytes to a
topic that was sent to before, with default options, against the counting receiver. Compiled
functions are not seen.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType

import pyarrow as pa

from benchmarks.sink.sink_process import SinkProcess
from kprod import KafkaProducer

ROWS = 20_000
PARTITIONS = 6


def calls_of(work: Callable[[], object]) -> Counter[tuple[str, str]]:
    """How often ``work`` enters each function, by its file and name."""
    entered: Counter[tuple[str, str]] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            entered[frame.f_code.co_filename, frame.f_code.co_qualname] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    del entered[work.__code__.co_filename, work.__code__.co_qualname]
    return entered


def main() -> None:
    """Print the counts of each kind of call, and what was called most often."""
    values = [b"%0100d" % number for number in range(ROWS)]
    keys = [b"key-%d" % (number % 1_000) for number in range(ROWS)]
    rows = pa.record_batch({"value": values, "key": keys})
    with (
        SinkProcess(PARTITIONS, None) as sink,
        KafkaProducer(bootstrap_servers=sink.bootstrap_servers) as producer,
    ):
        kinds: dict[str, Callable[[], object]] = {
            "send_arrow": lambda: producer.send_arrow("t", rows),
            "send_arrow, keyed": lambda: producer.send_arrow("t", rows, key="key"),
            "send_many": lambda: producer.send_many("t", values),
            "send_many, keyed": lambda: producer.send_many("t", values, keys=keys),
        }
        for name, work in kinds.items():
            for _ in range(3):
                work()
                producer.flush(60)
            entered = calls_of(work)
            files = {file for file, _ in entered}
            print(f"{name}: {entered.total()} calls over {len(files)} files")
            for (file, function), count in entered.most_common(5 if "-v" in sys.argv else 0):
                print(f"  {count:6} {function} ({file})")


if __name__ == "__main__":
    main()
