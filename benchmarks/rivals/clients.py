"""The same workload on four clients: keyed records, idempotent where the client can, outcomes kept.

Each function sends ``keys`` with one value to topic ``bench`` and returns when every record has its
outcome. Settings are the same as far as the clients have them: linger 5 ms, batches of
``batch_size`` bytes, acks=all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

TOPIC = "bench"
LINGER_MS = 5


def kprod(bootstrap: str, keys: Sequence[bytes], value: bytes, batch_size: int) -> None:
    """``send``, with every future kept and looked at."""
    from kprod import KafkaProducer

    with KafkaProducer(
        bootstrap_servers=bootstrap, linger_ms=LINGER_MS, batch_size=batch_size
    ) as producer:
        futures = [producer.send(TOPIC, value, key) for key in keys]
        producer.flush(timeout=120)
        assert all(future.succeeded() for future in futures)


def confluent(bootstrap: str, keys: Sequence[bytes], value: bytes, batch_size: int) -> None:
    """``produce`` with a delivery callback."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": LINGER_MS,
            "batch.size": batch_size,
            "queue.buffering.max.messages": len(keys) + 1,
            "partitioner": "murmur2",
            "log_level": 0,
        }
    )
    delivered = 0

    def on_delivery(error: Any, _message: Any) -> None:
        nonlocal delivered
        assert error is None
        delivered += 1

    for number, key in enumerate(keys):
        producer.produce(TOPIC, value, key, on_delivery=on_delivery)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush(120)
    assert delivered == len(keys)


def kafka_python(bootstrap: str, keys: Sequence[bytes], value: bytes, batch_size: int) -> None:
    """``send``, with every future kept and looked at."""
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap, linger_ms=LINGER_MS, batch_size=batch_size
    )
    futures = [producer.send(TOPIC, value, key) for key in keys]
    producer.flush(120)
    assert all(future.succeeded() for future in futures)
    producer.close()


def aiokafka(bootstrap: str, keys: Sequence[bytes], value: bytes, batch_size: int) -> None:
    """``await send``, with every future kept and awaited."""
    asyncio.run(_aiokafka(bootstrap, keys, value, batch_size))


async def _aiokafka(bootstrap: str, keys: Sequence[bytes], value: bytes, batch_size: int) -> None:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        linger_ms=LINGER_MS,
        max_batch_size=batch_size,
        enable_idempotence=True,
    )
    await producer.start()
    futures = [await producer.send(TOPIC, value, key) for key in keys]
    await producer.flush()
    await asyncio.gather(*futures)
    await producer.stop()


CLIENTS: dict[str, Callable[[str, Sequence[bytes], bytes, int], None]] = {
    "kprod": kprod,
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}
PACKAGES = {"kprod": "kprod", **{name: name for name in CLIENTS if name != "kprod"}}
SHARE = {"kprod": 1.0, "confluent-kafka": 1.0, "kafka-python": 0.1, "aiokafka": 0.2}
"""Of the records asked for, what each client sends, so that every run takes seconds."""
