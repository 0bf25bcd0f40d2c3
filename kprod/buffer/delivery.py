"""How a record's fate gets back to the application: one outcome per batch, one future per record.

A future holds its batch's delivery and its own index, so settling a batch is one step however many
records it holds (Kafka's ``ProduceRequestResult`` and ``FutureRecordMetadata``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from kprod.errors import KprodError, KprodTimeoutError
from kprod.types import RecordMetadata, TopicPartition

log = logging.getLogger(__name__)

NO_OFFSET = -1
NO_TIMESTAMP = -1


class BatchDelivery:
    """The outcome of one batch: a base offset or an error, settled exactly once. Thread-safe.

    ``base_offset`` is -1 when the broker did not tell it; ``append_time`` is the broker's
    timestamp in ms when the topic uses LogAppendTime, else -1. ``awaited`` turns True, and
    ``hurry`` is called, when somebody starts to wait: the batch's linger has no purpose any more.
    """

    __slots__ = (
        "_changed",
        "_hurry",
        "_waiters",
        "append_time",
        "awaited",
        "base_offset",
        "done",
        "error",
        "tp",
    )

    def __init__(self, tp: TopicPartition, hurry: Callable[[], None]) -> None:
        self.tp = tp
        self.done = False
        self.awaited = False
        self._hurry = hurry
        self.base_offset = NO_OFFSET
        self.append_time = NO_TIMESTAMP
        self.error: KprodError | None = None
        self._changed = threading.Condition(threading.Lock())  # guards _waiters and settling
        self._waiters: list[Callable[[], None]] = []

    def succeed(self, base_offset: int, append_time: int) -> bool:
        """The batch is stored. False when it had already ended."""
        return self._settle(base_offset, append_time, None)

    def fail(self, error: KprodError) -> bool:
        """The batch ended in ``error``. False when it had already ended."""
        return self._settle(NO_OFFSET, NO_TIMESTAMP, error)

    def _settle(self, base_offset: int, append_time: int, error: KprodError | None) -> bool:
        with self._changed:
            if self.done:
                return False
            self.base_offset, self.append_time, self.error = base_offset, append_time, error
            self.done = True
            waiters, self._waiters = self._waiters, []
            self._changed.notify_all()
        for tell in waiters:
            tell()
        return True

    def on_done(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` once the batch has ended: at once, in this thread, if it has already."""
        with self._changed:
            if not self.done:
                self._waiters.append(tell)
                return
        tell()

    def wait(self, timeout: float | None) -> bool:
        """Wait at most ``timeout`` seconds (None: without limit); True once the batch has ended."""
        if self.done:
            return True
        if not self.awaited:
            self.awaited = True
            self._hurry()
        with self._changed:
            return self._changed.wait_for(lambda: self.done, timeout)


class FutureRecordMetadata:
    """The outcome of one record, in kafka-python's shape. Thread-safe.

    ``get`` waits for it; callbacks get the ``RecordMetadata``, errbacks the error. They run in the
    sender's thread (or at once, in the caller's, when the outcome is known), must not block, and
    what they raise is logged and swallowed.
    """

    __slots__ = ("_delivery", "_header_size", "_index", "_key_size", "_timestamp", "_value_size")

    def __init__(
        self,
        delivery: BatchDelivery,
        index: int,
        timestamp: int,
        key_size: int,
        value_size: int,
        header_size: int,
    ) -> None:
        self._delivery = delivery
        self._index = index
        self._timestamp = timestamp
        self._key_size = key_size
        self._value_size = value_size
        self._header_size = header_size

    @property
    def is_done(self) -> bool:
        """True once the record was acknowledged or has failed."""
        return self._delivery.done

    @property
    def value(self) -> RecordMetadata | None:
        """Where the record was stored; None before, and when it failed."""
        return self._metadata() if self.succeeded() else None

    @property
    def exception(self) -> KprodError | None:
        """Why the record failed; None before, and when it was stored."""
        return self._delivery.error

    @property
    def topic_partition(self) -> TopicPartition:
        """Where the record is sent, known before its outcome."""
        return self._delivery.tp

    def succeeded(self) -> bool:
        """True once the record was acknowledged."""
        return self._delivery.done and self._delivery.error is None

    def failed(self) -> bool:
        """True once the record has failed."""
        return self._delivery.done and self._delivery.error is not None

    def retriable(self) -> bool:
        """True when the record failed for a cause that may pass: sending it again may succeed."""
        error = self._delivery.error
        return error is not None and error.retriable

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Wait at most ``timeout`` seconds; return the outcome or raise what ended the record.

        Raises KprodTimeoutError when there is none yet: the record is still on its way.
        """
        if not self._delivery.wait(timeout):
            raise KprodTimeoutError(
                f"no outcome for a record of {self._delivery.tp} after {timeout:g} s;"
                " it is still being sent"
            )
        if self._delivery.error is not None:
            raise self._delivery.error
        return self._metadata()

    def add_callback(
        self, fn: Callable[..., object], *args: Any, **kwargs: Any
    ) -> FutureRecordMetadata:
        """Call ``fn(*args, metadata, **kwargs)`` once the record was acknowledged."""
        self._delivery.on_done(lambda: self._tell_success(fn, args, kwargs))
        return self

    def add_errback(
        self, fn: Callable[..., object], *args: Any, **kwargs: Any
    ) -> FutureRecordMetadata:
        """Call ``fn(*args, error, **kwargs)`` once the record has failed."""
        self._delivery.on_done(lambda: self._tell_failure(fn, args, kwargs))
        return self

    def add_both(
        self, fn: Callable[..., object], *args: Any, **kwargs: Any
    ) -> FutureRecordMetadata:
        """Call ``fn`` with the metadata or the error, whichever it will be."""
        return self.add_callback(fn, *args, **kwargs).add_errback(fn, *args, **kwargs)

    def _tell_success(
        self, fn: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if self._delivery.error is None:
            _call_safely(fn, (*args, self._metadata()), kwargs)

    def _tell_failure(
        self, fn: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if self._delivery.error is not None:
            _call_safely(fn, (*args, self._delivery.error), kwargs)

    def _metadata(self) -> RecordMetadata:
        delivery = self._delivery
        base = delivery.base_offset
        return RecordMetadata(
            topic=delivery.tp.topic,
            partition=delivery.tp.partition,
            topic_partition=delivery.tp,
            offset=base + self._index if base != NO_OFFSET else NO_OFFSET,
            timestamp=delivery.append_time
            if delivery.append_time != NO_TIMESTAMP
            else self._timestamp,
            checksum=None,
            serialized_key_size=self._key_size,
            serialized_value_size=self._value_size,
            serialized_header_size=self._header_size,
        )

    def __repr__(self) -> str:
        state = "failed" if self.failed() else "succeeded" if self.is_done else "pending"
        return f"<FutureRecordMetadata {self._delivery.tp} {state}>"


def _call_safely(fn: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run an application's callback; whatever it raises must not reach the sender's loop."""
    try:
        fn(*args, **kwargs)
    except BaseException:
        log.exception("the delivery callback %r failed", fn)
