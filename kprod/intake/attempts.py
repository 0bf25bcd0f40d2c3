"""Attempts to send a record until there is memory for it. Interceptors are called only once."""

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
    def checked(self, *given: Any) -> ProducerRecord: ...
    def intercepted(self, *given: Any) -> ProducerRecord: ...
    def send_intercepted(self, record: ProducerRecord) -> FutureRecordMetadata: ...
    def not_queued(
        self, record: ProducerRecord, error: BaseException, chosen: TopicPartition | None
    ) -> None: ...


class Attempts:
    """One record of a package that waits for memory itself: its producer has ``max_block_ms=0``.

    ``fields`` are the arguments of ``KafkaProducer.send``. For one thread or one task at a time.
    """

    __slots__ = ("_chosen", "_fields", "_native", "_record")

    def __init__(self, native: SendsIntercepted, fields: tuple[Any, ...]) -> None:
        self._native = native
        self._fields = fields
        self._record: ProducerRecord | None = None  # once it was checked, and intercepted
        self._chosen: TopicPartition | None = None  # by the last attempt

    def record(self) -> ProducerRecord:
        """The record as the interceptors have changed it; they are called if they were not yet."""
        if self._record is None:
            native = self._native
            take = native.intercepted if native.has_interceptors else native.checked
            self._record = take(*self._fields)
        return self._record

    def send(self) -> FutureRecordMetadata:
        """Like ``KafkaProducer.send``, but interceptors are notified of errors only by ``end``."""
        if not self._native.has_interceptors:
            return self._native.send(*self._fields)
        try:
            return self._native.send_intercepted(self.record())
        except KprodError as error:
            self._chosen = error.topic_partition
            raise

    def end(self, error: BaseException) -> None:
        """Make no further attempt; notify the interceptors if they have seen the record."""
        if self._record is not None:
            self._native.not_queued(self._record, error, self._chosen)
