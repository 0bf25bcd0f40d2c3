"""A record that is sent again until there is memory for it, and passes the interceptors once"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kprod.errors import KprodError
from kprod.types import ProducerRecord, TopicPartition
from kprod_ext.futures import FutureRecordMetadata


class SendsIntercepted(Protocol):
    """What ``KafkaProducer`` offers to packages that wait for memory themselves."""

    @property
    def has_interceptors(self) -> bool: ...
    @property
    def send(self) -> Callable[..., FutureRecordMetadata]: ...
    def intercepted(self, *given: Any) -> ProducerRecord: ...
    def send_intercepted(self, record: ProducerRecord) -> FutureRecordMetadata: ...
    def not_queued(
        self, record: ProducerRecord, error: BaseException, chosen: TopicPartition | None
    ) -> None: ...


class Attempts:
    """One record of a producer that waits for memory itself: its producer has ``max_block_ms=0``.

    ``fields`` are the arguments of ``KafkaProducer.send``. One thread, or one task, at a time.
    """

    __slots__ = ("_chosen", "_fields", "_native", "_record")

    def __init__(self, native: SendsIntercepted, fields: tuple[Any, ...]) -> None:
        self._native = native
        self._fields = fields
        self._record: ProducerRecord | None = None  # once it has passed the interceptors
        self._chosen: TopicPartition | None = None  # by the last attempt

    def send(self) -> FutureRecordMetadata:
        """As ``KafkaProducer.send``; interceptors hear of what it raises by ``end`` only."""
        if not self._native.has_interceptors:
            return self._native.send(*self._fields)
        if self._record is None:
            self._record = self._native.intercepted(*self._fields)
        try:
            return self._native.send_intercepted(self._record)
        except KprodError as error:
            self._chosen = error.topic_partition
            raise

    def end(self, error: BaseException) -> None:
        """There is no further attempt: let the interceptors know, if the record has passed them."""
        if self._record is not None:
            self._native.not_queued(self._record, error, self._chosen)
