"""kprod's faces, by the very programs that measure the clients they stand for."""

from __future__ import annotations

from typing import Any

from benchmarks.rivals.aiokafka_client import Aiokafka
from benchmarks.rivals.confluent_client import Confluent
from benchmarks.rivals.settings import TOPIC


class ConfluentFace(Confluent):
    """``produce`` of ``kprod.confluent`` with a delivery callback that counts."""

    @staticmethod
    def producer_type() -> Any:
        """See Confluent."""
        from kprod.confluent import Producer

        return Producer

    def close(self) -> None:
        """See Client."""
        self._producer.close(30)


class AiokafkaFace(Aiokafka):
    """``await send`` of ``kprod.aio.AIOKafkaProducer``."""

    @staticmethod
    def producer_type() -> Any:
        """See Aiokafka."""
        from kprod.aio import AIOKafkaProducer

        return AIOKafkaProducer


class AioNative(Aiokafka):
    """``await send`` of ``kprod.aio.Producer``."""

    async def _opened(self) -> Any:
        from kprod.aio import Producer

        return Producer(
            bootstrap_servers=self.settings.bootstrap_servers,
            linger_ms=self.settings.linger_ms,
            batch_size=self.settings.batch_size,
        )

    def close(self) -> None:
        """See Client."""
        self._runner.run(self._producer.close())
        self._runner.close()


class AioNativeAll(AioNative):
    """``send_all`` of ``kprod.aio.Producer``: everything with one call."""

    async def _send(self) -> None:
        stored = await self._producer.send_all(TOPIC, self.values, self.keys)
        assert len(stored) == len(self.values)
