"""What is counted in the threads of the application."""

from __future__ import annotations

import pytest

from kprod.errors import BufferFullError
from kprod.wire.versions import ApiKey
from tests.support.scripted_cluster import ScriptedBroker, silence
from tests.support.scripted_producer import producer_before

LONG = 20.0


@pytest.mark.parametrize("bulk", [False, True])
def test_memory_that_was_waited_for_in_vain(broker: ScriptedBroker, bulk: bool) -> None:
    options = {"buffer_memory": 16384, "max_block_ms": 500, "max_request_size": 16000}
    with producer_before(broker.cluster, linger_ms=0, **options) as producer:
        producer.send("t", b"first").get(LONG)
        broker.next(ApiKey.PRODUCE, silence)
        if not bulk:
            producer.send("t", bytes(10000))
        with pytest.raises(BufferFullError):
            producer.send_many("t", [bytes(10000)] * 2) if bulk else producer.send(
                "t", bytes(10000)
            )
        named = producer.metrics()["producer-metrics"]
        producer.close(0)
    assert named["buffer-exhausted-total"] == 1
    assert named["bufferpool-wait-time-ns-total"] >= 400_000_000
    assert named["flush-time-ns-total"] == 0


def test_time_in_flush(broker: ScriptedBroker) -> None:
    with producer_before(broker.cluster) as producer:
        producer.send("t", b"v")
        producer.flush(LONG)
        assert producer.metrics()["producer-metrics"]["flush-time-ns-total"] > 0
