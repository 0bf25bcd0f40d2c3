"""What the producer said of each record, held against what is in the log."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from kprod import KafkaProducer
from kprod.types import Persisted
from kprod_ext.futures import FutureRecordMetadata
from tests.support.judge import read_back


class Truth(NamedTuple):
    stored: int
    not_stored: int
    maybe_stored: int


class Account:
    """Sends numbered records to one topic and keeps every future. Thread: one."""

    def __init__(self, producer: KafkaProducer, topic: str, partitions: int) -> None:
        self.futures: list[FutureRecordMetadata] = []
        self._producer = producer
        self._topic = topic
        self._partitions = partitions

    def send(self, records: int, *, size: int = 80, **options: Any) -> None:
        for _ in range(records):
            number = len(self.futures)
            value = b"%0*d" % (size, number)
            self.futures.append(
                self._producer.send(
                    self._topic, value, partition=number % self._partitions, **options
                )
            )

    def check_against(self, bootstrap: str) -> Truth:
        """Assert that every record has an outcome, and that all outcomes are true of the log."""
        found = Counter(
            int(stored.value or b"-1")
            for stored in read_back(bootstrap, self._topic, self._partitions)
        )
        said = Counter(self._check(future, found[n]) for n, future in enumerate(self.futures))
        assert sum(found.values()) <= len(self.futures)
        return Truth(said["stored"], said["no"], said["maybe"])

    def _check(self, future: FutureRecordMetadata, found: int) -> str:
        assert future.is_done, "a record was left without an outcome"
        if future.succeeded():
            assert found == 1, "said to be stored"
            return "stored"
        assert future.exception is not None
        if future.exception.persisted is Persisted.NO:
            assert found == 0, "said not to be stored"
            return "no"
        assert found <= 1, "doubled"
        return "maybe"
