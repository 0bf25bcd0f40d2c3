"""kafka-python."""

from __future__ import annotations

from typing import Any

from benchmarks.rivals.client import Client
from benchmarks.rivals.settings import TOPIC, Settings


class KafkaPython(Client):
    """``send``, with every future kept and looked at."""

    def __init__(self, settings: Settings) -> None:
        from kafka import KafkaProducer

        super().__init__(settings)
        options: dict[str, Any] = {"bootstrap_servers": settings.bootstrap_servers}
        if not settings.defaults:
            options |= {
                "enable_idempotence": True,
                "acks": "all",
                "linger_ms": settings.linger_ms,
                "batch_size": settings.batch_size,
            }
        if settings.compression != "none":
            options["compression_type"] = settings.compression
        if settings.buffer_memory is not None:
            options["buffer_memory"] = settings.buffer_memory
        self._producer = KafkaProducer(**options)

    def send(self) -> None:
        """See Client."""
        send = self._producer.send
        if self.keys is None:
            futures = [send(TOPIC, value) for value in self.values]
        else:
            pairs = zip(self.values, self.keys, strict=True)
            futures = [send(TOPIC, value, key) for value, key in pairs]
        self._producer.flush(120)
        assert all(future.succeeded() for future in futures)

    def send_and_wait(self, value: bytes) -> None:
        """See Client."""
        self._producer.send(TOPIC, value).get(timeout=30)

    def close(self) -> None:
        """See Client."""
        self._producer.close()
