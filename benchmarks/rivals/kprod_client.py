"""kprod, by each of its calls."""

from __future__ import annotations

from typing import Any

from benchmarks.rivals.client import Client
from benchmarks.rivals.settings import TOPIC, Settings


class Kprod(Client):
    """``send``, with every future kept and looked at."""

    def __init__(self, settings: Settings) -> None:
        from kprod import KafkaProducer

        super().__init__(settings)
        options: dict[str, Any] = {
            "bootstrap_servers": settings.bootstrap_servers,
            "linger_ms": settings.linger_ms,
            "batch_size": settings.batch_size,
        }
        if settings.compression != "none":
            options["compression_type"] = settings.compression
            options["compression_level"] = settings.level
        if settings.buffer_memory is not None:
            options["buffer_memory"] = settings.buffer_memory
        self._producer: Any = KafkaProducer(**options)

    def send(self) -> None:
        """See Client."""
        send = self._producer.send
        if self.keys is None:
            futures = [send(TOPIC, value) for value in self.values]
        else:
            pairs = zip(self.values, self.keys, strict=True)
            futures = [send(TOPIC, value, key) for value, key in pairs]
        self._producer.flush(timeout=120)
        assert all(future.succeeded() for future in futures)

    def send_and_wait(self, value: bytes) -> None:
        """See Client."""
        self._producer.send(TOPIC, value).get(timeout=30)

    def close(self) -> None:
        """See Client."""
        self._producer.close()


class KprodForgetting(Kprod):
    """``send``, with nothing kept: what failed is counted by the producer."""

    def send(self) -> None:
        """See Client."""
        send = self._producer.send
        if self.keys is None:
            for value in self.values:
                send(TOPIC, value)
        else:
            for value, key in zip(self.values, self.keys, strict=False):
                send(TOPIC, value, key)
        assert self._producer.flush(timeout=120).failed == 0
