"""aiokafka."""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.rivals.client import Client
from benchmarks.rivals.settings import TOPIC, Settings


class Aiokafka(Client):
    """``await send``, with every future kept and awaited, on an event loop of its own."""

    @staticmethod
    def producer_type() -> Any:
        """The class that is measured."""
        from aiokafka import AIOKafkaProducer

        return AIOKafkaProducer

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._runner = asyncio.Runner()
        self._producer: Any = self._runner.run(self._opened())

    async def _opened(self) -> Any:
        codec = self.settings.compression
        options: dict[str, Any] = {"bootstrap_servers": self.settings.bootstrap_servers}
        if not self.settings.defaults:
            options |= {
                "linger_ms": self.settings.linger_ms,
                "max_batch_size": self.settings.batch_size,
                "compression_type": None if codec == "none" else codec,
                "enable_idempotence": True,
            }
        producer = self.producer_type()(**options)
        await producer.start()
        return producer

    def send(self) -> None:
        """See Client."""
        self._runner.run(self._send())

    async def _send(self) -> None:
        send = self._producer.send
        if self.keys is None:
            futures = [await send(TOPIC, value) for value in self.values]
        else:
            pairs = zip(self.values, self.keys, strict=True)
            futures = [await send(TOPIC, value, key) for value, key in pairs]
        await self._producer.flush()
        await asyncio.gather(*futures)

    def send_and_wait(self, value: bytes) -> None:
        """See Client."""
        self._runner.run(self._producer.send_and_wait(TOPIC, value))

    def close(self) -> None:
        """See Client."""
        self._runner.run(self._producer.stop())
        self._runner.close()
