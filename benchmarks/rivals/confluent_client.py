"""confluent-kafka, by each of its calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.rivals.client import Client
from benchmarks.rivals.settings import TOPIC, Settings

POLL_EVERY = 1000
"""Records between two looks for callbacks: more often is slower, much less lets them pile up."""

FULL_SECONDS = 0.01
"""How long to wait for callbacks when the queue is full."""

CALL_RECORDS = 10_000
"""Records of one ``produce_batch``; 1,000 and 100,000 are slower, if anything."""


class Confluent(Client):
    """``produce`` with a delivery callback that counts."""

    @staticmethod
    def producer_type() -> Any:
        """The class that is measured."""
        from confluent_kafka import Producer

        return Producer

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        options: dict[str, Any] = {
            "bootstrap.servers": settings.bootstrap_servers,
            "queue.buffering.max.messages": settings.records + 1,
            "log_level": 0,
        }
        if not settings.defaults:
            options |= {
                "enable.idempotence": True,
                "linger.ms": settings.linger_ms,
                "batch.size": settings.batch_size,
                "partitioner": "murmur2_random",
            }
        if settings.compression != "none":
            options["compression.type"] = settings.compression
            options["compression.level"] = -1 if settings.level is None else settings.level
        if settings.buffer_memory is not None:
            options["queue.buffering.max.kbytes"] = settings.buffer_memory // 1024
        if settings.cafile is not None:
            options |= {"security.protocol": "SSL", "ssl.ca.location": settings.cafile}
        self._producer: Any = self.producer_type()(options)
        self._delivered = 0

    def _on_delivery(self, error: Any, _message: Any) -> None:
        assert error is None, error
        self._delivered += 1

    def send(self) -> None:
        """See Client."""
        self._delivered = 0
        self._produce(on_delivery=self._on_delivery)
        assert self._producer.flush(120) == 0
        assert self._delivered == len(self.values)

    def _produce(self, **options: Any) -> None:
        produce, poll = self._producer.produce, self._producer.poll
        if self.keys is None:
            for number, value in enumerate(self.values):
                produce(TOPIC, value, **options)
                if number % POLL_EVERY == 0:
                    poll(0)
            return
        for number, (value, key) in enumerate(zip(self.values, self.keys, strict=True)):
            produce(TOPIC, value, key, **options)
            if number % POLL_EVERY == 0:
                poll(0)

    def send_and_wait(self, value: bytes) -> None:
        """See Client."""
        self._delivered = 0
        self._producer.produce(TOPIC, value, on_delivery=self._on_delivery)
        while not self._delivered:
            self._producer.poll(30)

    def close(self) -> None:
        """See Client."""
        self._producer.flush(30)


class ConfluentBounded(Confluent):
    """``produce`` with a callback; when the queue is full, wait for callbacks and try again."""

    def _produce(self, **options: Any) -> None:
        assert self.keys is not None, "measured with keys only"
        produce, poll = self._producer.produce, self._producer.poll
        for number, (value, key) in enumerate(zip(self.values, self.keys, strict=True)):
            while True:
                try:
                    produce(TOPIC, value, key, **options)
                    break
                except BufferError:
                    poll(FULL_SECONDS)
            if number % POLL_EVERY == 0:
                poll(0)


class ConfluentPlain(Confluent):
    """``produce`` without a callback: nobody learns what became of a record."""

    def send(self) -> None:
        """See Client."""
        self._produce()
        assert self._producer.flush(120) == 0


class ConfluentBatch(Confluent):
    """``produce_batch`` of dictionaries that were made beforehand, without callbacks."""

    def prepare(self, values: Sequence[bytes], keys: Sequence[bytes] | None) -> None:
        """See Client."""
        super().prepare(values, keys)
        if keys is None:
            messages: list[dict[str, bytes]] = [{"value": value} for value in values]
        else:
            pairs = zip(values, keys, strict=True)
            messages = [{"value": value, "key": key} for value, key in pairs]
        starts = range(0, len(messages), CALL_RECORDS)
        self._calls = [messages[at : at + CALL_RECORDS] for at in starts]

    def send(self) -> None:
        """See Client."""
        produce_batch, poll = self._producer.produce_batch, self._producer.poll
        for messages in self._calls:
            assert produce_batch(TOPIC, messages) == len(messages)
            poll(0)
        assert self._producer.flush(120) == 0
