"""Broken patience: too fast, or too slow."""

from __future__ import annotations

from kprod.buffer.accumulator import RecordAccumulator
from kprod.cluster.metadata import Metadata
from kprod.errors import KprodError
from kprod.sender.connection import BrokerConnection
from kprod.sender.link import BrokerLink
from kprod.sender.rounds.produce import ProduceExchange, ProduceRound
from kprod_ext.batch import ProducerBatch


def retries_at_once(_real: type[RecordAccumulator]) -> type[RecordAccumulator]:
    class Broken(RecordAccumulator):
        def put_back(self, batch: ProducerBatch) -> None:
            super().put_back(batch)
            batch.retry_at = 0.0

    return Broken


def reconnects(_real: type[BrokerLink]) -> type[BrokerLink]:
    class Broken(BrokerLink):
        def _back_off(self, error: KprodError, now: float) -> None:
            super()._back_off(error, now)
            self._retry_at = now

    return Broken


def asks_at_once(_real: type[Metadata]) -> type[Metadata]:
    class Broken(Metadata):
        def due(self, now: float) -> float:
            wait = super().due(now)
            return 0.0 if wait < 10.0 else wait

    return Broken


def ignores_throttle(_real: type[ProduceExchange]) -> type[ProduceExchange]:
    class Broken(ProduceExchange):
        def answered(self, version: int, body: memoryview, now: float) -> int:
            super().answered(version, body, now)
            return 0

    return Broken


def floods(_real: type[BrokerConnection]) -> type[BrokerConnection]:
    class Broken(BrokerConnection):
        def can_send(self, now: float) -> bool:
            silent = now < self._throttled_until
            return self.established and not self.has_output and not silent

    return Broken


def sleeps(_real: type[ProduceRound]) -> type[ProduceRound]:
    """What is left after a request waits for the next event, whatever it is."""

    class Broken(ProduceRound):
        def run(self, now: float) -> float:
            return super().run(now) or 1000.0

    return Broken
