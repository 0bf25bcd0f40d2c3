"""One record's way of telling how it ended, in kafka-python's shape (``FutureRecordMetadata``).

A future holds its batch's delivery and its own index, so settling a batch is one step however many
records it holds. Compiled code makes the futures; how they wait and call back is here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kprod.buffer.delivery import NO_OFFSET, NO_TIMESTAMP, BatchDelivery
from kprod.errors import KprodError, KprodTimeoutError
from kprod.types import RecordMetadata, TopicPartition
from kprod_ext import RecordFuture

log = logging.getLogger(__name__)


class FutureRecordMetadata(RecordFuture):
    """The outcome of one record, in kafka-python's shape. Thread-safe.

    ``get`` waits for it; callbacks get the ``RecordMetadata``, errbacks the error. They run one
    after the other, those of a partition in the order of its records, in the producer's thread for
    callbacks: one that blocks delays the others, and nothing else. What they raise is logged and
    goes no further. In them ``get`` of a record without an outcome raises IllegalStateError, as
    ``flush`` and a ``close`` that waits do; ``send`` is as anywhere else.
    """

    __slots__ = ()

    delivery: BatchDelivery

    @property
    def is_done(self) -> bool:
        """True once the record was acknowledged or has failed."""
        return self._outcome().done

    @property
    def value(self) -> RecordMetadata | None:
        """Where the record was stored; None before, and when it failed."""
        return self._metadata() if self.succeeded() else None

    @property
    def exception(self) -> KprodError | None:
        """Why the record failed; None before, and when it was stored."""
        return self._outcome().error

    @property
    def topic_partition(self) -> TopicPartition:
        """Where the record is sent, known before its outcome."""
        return self.delivery.tp

    def succeeded(self) -> bool:
        """True once the record was acknowledged."""
        outcome = self._outcome()
        return outcome.done and outcome.error is None

    def failed(self) -> bool:
        """True once the record has failed."""
        return self._outcome().error is not None

    def retriable(self) -> bool:
        """True when the record failed for a cause that may pass: sending it again may succeed."""
        error = self._outcome().error
        return error is not None and error.retriable

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Wait at most ``timeout`` seconds; return the outcome or raise what ended the record.

        Raises KprodTimeoutError when there is none yet: the record is still on its way.
        """
        # The delivery of a batch that was split ends with its last part; ours may be another one.
        if not (self.is_done or self.delivery.wait(timeout) or self.is_done):
            raise KprodTimeoutError(
                f"no outcome for a record of {self.delivery.tp} after {timeout:g} s;"
                " it is still being sent"
            )
        error = self._outcome().error
        if error is not None:
            # All records of the batch share the error: it must not grow with every one that asks.
            raise error.with_traceback(None)
        return self._metadata()

    def add_callback(
        self, fn: Callable[..., object], *args: Any, **kwargs: Any
    ) -> FutureRecordMetadata:
        """Call ``fn(*args, metadata, **kwargs)`` once the record was acknowledged."""
        self.delivery.on_done(lambda: self._tell_success(fn, args, kwargs), self.index)
        return self

    def add_errback(
        self, fn: Callable[..., object], *args: Any, **kwargs: Any
    ) -> FutureRecordMetadata:
        """Call ``fn(*args, error, **kwargs)`` once the record has failed."""
        self.delivery.on_done(lambda: self._tell_failure(fn, args, kwargs), self.index)
        return self

    def add_both(
        self, fn: Callable[..., object], *args: Any, **kwargs: Any
    ) -> FutureRecordMetadata:
        """Call ``fn`` with the metadata or the error, whichever it will be."""

        def tell() -> None:
            self._tell_success(fn, args, kwargs)
            self._tell_failure(fn, args, kwargs)

        self.delivery.on_done(tell, self.index)
        return self

    def _tell_success(
        self, fn: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if self._outcome().error is None:
            _call_safely(fn, (*args, self._metadata()), kwargs)

    def _tell_failure(
        self, fn: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        error = self._outcome().error
        if error is not None:
            _call_safely(fn, (*args, error), kwargs)

    def _outcome(self) -> BatchDelivery:
        """The delivery that settles this record: another one once its batch was split."""
        return self.delivery.locate(self.index)[0]

    def _metadata(self) -> RecordMetadata:
        delivery, index = self.delivery.locate(self.index)
        base = delivery.base_offset
        return RecordMetadata(
            topic=delivery.tp.topic,
            partition=delivery.tp.partition,
            topic_partition=delivery.tp,
            offset=base + index if base != NO_OFFSET else NO_OFFSET,
            timestamp=delivery.append_time
            if delivery.append_time != NO_TIMESTAMP
            else self.timestamp,
            checksum=None,
            serialized_key_size=self.key_size,
            serialized_value_size=self.value_size,
            serialized_header_size=self.header_size,
        )

    def __repr__(self) -> str:
        state = "failed" if self.failed() else "succeeded" if self.is_done else "pending"
        return f"<FutureRecordMetadata {self.delivery.tp} {state}>"


def _call_safely(fn: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run an application's callback; whatever it raises goes no further."""
    try:
        fn(*args, **kwargs)
    except BaseException:
        log.exception("the delivery callback %r failed", fn)
