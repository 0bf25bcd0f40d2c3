"""Broken patience: too fast, or too slow."""

from __future__ import annotations

from kprod.cluster.metadata import Metadata
from kprod.errors import KprodError
from kprod.sender.broker import Broker
from kprod.sender.connection import BrokerConnection
from kprod.sender.partition import Partition, Place
from kprod.sender.produce import ProduceExchange
from kprod_ext.batch import ProducerBatch


class RetriesAtOnce(Partition):
    def put_back(self, batch: ProducerBatch, now: float) -> None:
        super().put_back(batch, now)
        batch.retry_at = 0.0
        self.find_place(now)


class Reconnects(Broker):
    def _back_off(self, error: KprodError, now: float) -> None:
        super()._back_off(error, now)
        self._retry_at = now


class AsksAtOnce(Metadata):
    def due(self, now: float) -> float:
        wait = super().due(now)
        return 0.0 if wait < 10.0 else wait


class IgnoresThrottle(ProduceExchange):
    def answered(self, version: int, body: memoryview, now: float) -> int:
        super().answered(version, body, now)
        return 0


class Floods(BrokerConnection):
    def open(self, now: float, *version: int) -> None:
        self._max_in_flight = 1000
        super().open(now, *version)


class ForgetsWhoWaits(Partition):
    """No answer, epoch or transaction lets a partition go on that has to wait for one."""

    def move(self, place: Place) -> None:
        if not (self.place is Place.WAITING and place is Place.READY):
            super().move(place)
