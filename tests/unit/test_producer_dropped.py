"""A producer that nobody refers to any more sends what it holds, and leaves nothing behind."""

from __future__ import annotations

import gc
import threading

import pytest

from kprod import KafkaProducer
from kprod.errors import KprodTimeoutError
from kprod_ext.futures import FutureRecordMetadata
from tests.support.scripted_cluster import ScriptedBroker
from tests.support.scripted_producer import producer_before

LONG = 20.0


def lingering(broker: ScriptedBroker) -> KafkaProducer:
    return producer_before(broker.cluster, linger_ms=60_000, client_id="dropped")


def has_ended(future: FutureRecordMetadata) -> bool:
    """Whether the record ends, and every thread of its producer, with nobody waiting for it."""
    for _ in range(2000):
        running = [t.name for t in threading.enumerate() if t.name.endswith("-dropped")]
        if future.is_done and not running:
            return True
        threading.Event().wait(0.01)
    return False


def test_what_it_held_is_delivered(broker: ScriptedBroker) -> None:
    producer = lingering(broker)
    future = producer.send("t", b"v")
    with pytest.warns(ResourceWarning, match="client_id=dropped> was not closed"):
        del producer
    assert has_ended(future)
    assert future.succeeded()


def test_one_in_a_cycle_that_the_garbage_collector_finds(broker: ScriptedBroker) -> None:
    told: list[object] = []
    producer = lingering(broker)
    producer.itself = producer  # type: ignore[attr-defined]
    future = producer.send("t", b"v").add_both(told.append)
    del producer
    with pytest.warns(ResourceWarning):
        gc.collect()
    assert has_ended(future)
    assert len(told) == 1


def test_one_that_only_a_callback_knows_is_not_dropped_before_it_ran(
    broker: ScriptedBroker,
) -> None:
    sent: list[FutureRecordMetadata] = []
    producer = lingering(broker)
    future = producer.send("t", b"v").add_both(
        lambda _, known=producer: sent.append(known.send("t", b"from the callback"))
    )
    with pytest.raises(KprodTimeoutError):
        future.get(0)  # it leaves now
    del producer
    with pytest.warns(ResourceWarning):
        assert has_ended(future)
    assert has_ended(sent[0])
    assert sent[0].succeeded()


def test_one_that_a_callback_closed_goes_in_silence(broker: ScriptedBroker) -> None:
    producer = lingering(broker)
    future = producer.send("t", b"v").add_both(lambda _, known=producer: known.close(0))
    producer.flush(LONG)
    del producer
    gc.collect()
    assert has_ended(future)
