"""A bulk call runs Python code for each batch, and not for each record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from kprod import KafkaProducer
from tests.support.entered import entered
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.scripted_producer import producer_before

LONG = 20.0
VALUES = [b"%0100d" % n for n in range(20_000)]
KEYS = [b"%d" % (n % 100) for n in range(20_000)]
ROWS = {"value": VALUES, "key": KEYS}

Call = Callable[[KafkaProducer], Any]
CALLS: dict[str, Call] = {
    "values": lambda producer: producer.send_many("t", VALUES),
    "keys": lambda producer: producer.send_many("t", VALUES, keys=KEYS),
    "few keys": lambda producer: producer.send_many("t", VALUES[:50], keys=KEYS[:50]),
    "arrow": lambda producer: producer.send_arrow("t", pa.record_batch(ROWS)),
    "arrow keys": lambda producer: producer.send_arrow("t", pa.record_batch(ROWS), key="key"),
}

CALLS_OF_A_BATCH = 10
"""To create its delivery, and to notify the sender."""
OTHER_CALLS = 250
"""To check the arguments and the topic, and to draw partitions."""


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("partitions", [1, 6])
@pytest.mark.parametrize("flushed", [True, False])
def test_python_is_called_for_batches_only(name: str, partitions: int, flushed: bool) -> None:
    broker = ScriptedCluster(topics={"t": [1] * partitions}).add(1)
    with producer_before(broker.cluster, linger_ms=60_000) as producer:
        CALLS[name](producer)
        if flushed:  # else batches with room are open
            producer.flush(LONG)
        before = producer.metrics()["producer-metrics"]["batch-total"]
        calls = entered(lambda: CALLS[name](producer))
        producer.flush(LONG)
        batches = producer.metrics()["producer-metrics"]["batch-total"] - before
    assert calls <= OTHER_CALLS + CALLS_OF_A_BATCH * (batches + partitions)
