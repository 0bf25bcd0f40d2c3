"""How many nanoseconds does a record take from a call to its acknowledgement?

    make bench ARGS="-k calls"

A round sends ``RECORDS`` records of 100 bytes, keyed, with default options, to a receiver that
counts and keeps nothing, and waits until all are acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from benchmarks.sink.sink_process import SinkProcess
from kprod import KafkaProducer

RECORDS, ROUNDS, WARM_UP = 100_000, 10, 2
VALUES = [b"%0100d" % number for number in range(RECORDS)]
KEYS = [b"key-%d" % (number % 1000) for number in range(RECORDS)]


@pytest.fixture
def producer() -> Iterator[KafkaProducer]:
    with SinkProcess() as sink:
        made = KafkaProducer(bootstrap_servers=sink.bootstrap_servers)
        try:
            yield made
        finally:
            made.close()


@cache
def columns() -> Any:
    """The same records in columns, made in the first round, which is not timed."""
    from pyarrow import RecordBatch

    return RecordBatch.from_pydict({"value": VALUES, "key": KEYS})


def by_send(producer: KafkaProducer) -> None:
    send = producer.send
    for value, key in zip(VALUES, KEYS, strict=True):
        send("t", value, key)


def by_send_many(producer: KafkaProducer) -> None:
    producer.send_many("t", VALUES, keys=KEYS)


def by_send_arrow(producer: KafkaProducer) -> None:
    producer.send_arrow("t", columns(), value="value", key="key")


@pytest.mark.filterwarnings("default")  # as of a kernel
@pytest.mark.benchmark(group="calls")
@pytest.mark.parametrize("call", [by_send, by_send_many, by_send_arrow], ids=lambda it: it.__name__)
def test_calls(
    benchmark: Any, producer: KafkaProducer, call: Callable[[KafkaProducer], None]
) -> None:
    def sent() -> None:
        call(producer)
        assert not producer.flush(60).pending

    before = producer.flush(60).delivered
    benchmark.pedantic(sent, rounds=ROUNDS, warmup_rounds=WARM_UP)
    assert producer.flush(60).delivered >= before + RECORDS
    benchmark.extra_info["question"] = f"{RECORDS:,} keyed records of 100 B by {call.__name__}"
    benchmark.extra_info["operations"] = RECORDS
