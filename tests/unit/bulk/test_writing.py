"""How often a bulk call goes into compiled code and comes back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from kprod import KafkaProducer
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.scripted_producer import producer_before

LONG = 20.0
VALUES = [b"%0100d" % n for n in range(5_000)]
KEYS = [b"%d" % (n % 100) for n in range(5_000)]

Call = Callable[[KafkaProducer], Any]
CALLS: dict[str, Call] = {
    "values": lambda producer: producer.send_many("t", VALUES),
    "keys": lambda producer: producer.send_many("t", VALUES[:4_000], keys=KEYS[:4_000]),
    "few keys": lambda producer: producer.send_many("t", VALUES[:50], keys=KEYS[:50]),
    "arrow": lambda producer: producer.send_arrow("t", pa.record_batch({"value": VALUES})),
}


def crossings(call: Callable[[], Any]) -> int:
    """How often compiled code was entered to write records."""
    entered = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal entered
        entered += event == "call" and frame.f_code.co_qualname == "BulkWriting._write"

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("partitions", [1, 6])
@pytest.mark.parametrize("flushed", [True, False])
def test_a_call_enters_compiled_code_twice_at_most(
    name: str, partitions: int, flushed: bool
) -> None:
    broker = ScriptedCluster(topics={"t": [1] * partitions}).add(1)
    with producer_before(broker.cluster, linger_ms=60_000) as producer:
        CALLS[name](producer)
        if flushed:  # else batches are open in which there is room
            producer.flush(LONG)
        assert 1 <= crossings(lambda: CALLS[name](producer)) <= 2
