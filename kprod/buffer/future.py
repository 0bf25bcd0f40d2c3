# cython: binding=False, embedsignature=True, embedsignature.format=clinic
"""One record's way of telling how it ended, in kafka-python's shape (``FutureRecordMetadata``).

A future holds its batch's delivery and its own index, so settling a batch is one step however many
records it holds. Compiled code makes the futures; how they wait and call back is here.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from kprod.buffer.delivery import NO_OFFSET, NO_TIMESTAMP, BatchDelivery
from kprod.clock import in_seconds
from kprod.errors import InvalidRecordError, KprodError, KprodTimeoutError, RecordTypeError
from kprod.types import RecordMetadata, TopicPartition
from kprod_ext.futures import RecordFuture, untrack

if TYPE_CHECKING:
    import concurrent.futures

log = logging.getLogger(__name__)

FOREVER = 10.0**9
"""Seconds; longer than any process."""
COROUTINE = 0x80 | 0x200
"""Flags of the code of an ``async def``, with ``yield`` and without (``inspect.CO_COROUTINE``)."""


class _Settable(Protocol):
    """What ``chain`` passes an outcome to: kafka-python's ``Future``, for one."""

    def success(self, value: RecordMetadata, /) -> object: ...

    def failure(self, error: KprodError, /) -> object: ...


class FutureRecordMetadata(RecordFuture):
    """The outcome of one record, in kafka-python's shape. Thread-safe.

    ``get`` waits for it, or ``await`` in a task of an asyncio loop. Nobody need wait: a future that
    is dropped says nothing. Callbacks get the ``RecordMetadata``, errbacks the error. They run one
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
        return _outcome(self).done

    @property
    def value(self) -> RecordMetadata | None:
        """Where the record was stored; None before, and when it failed."""
        return _metadata(self) if _has_succeeded(self) else None

    @property
    def exception(self) -> KprodError | None:
        """Why the record failed; None before, and when it was stored.

        A property, as in kafka-python; ``as_concurrent`` has the method of concurrent.futures.
        Every look gives a copy of its own, which may be raised or given a note.
        """
        return _copied(_error(self))

    @property
    def topic_partition(self) -> TopicPartition:
        """Where the record is sent, known before its outcome."""
        return self.delivery.tp

    def done(self) -> bool:
        """The same as ``is_done``, under the name that concurrent.futures and asyncio have."""
        return _outcome(self).done

    def succeeded(self) -> bool:
        """True once the record was acknowledged."""
        return _has_succeeded(self)

    def failed(self) -> bool:
        """True once the record has failed."""
        return _error(self) is not None

    def retriable(self) -> bool:
        """True when the record failed for a cause that may pass: sending it again may succeed."""
        error = _error(self)
        return error is not None and error.retriable

    # Waiting --------------------------------------------------------------------------------------

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Wait at most ``timeout`` seconds; return the outcome or raise what ended the record.

        Raises KprodTimeoutError when there is none yet: the record is still on its way. Callbacks
        that were added before have returned then, unless that takes longer than ``timeout``.
        """
        if timeout is not None:
            _check_timeout(timeout)
        delivery = _outcome(self)
        if not delivery.done:
            delivery.wait(timeout)
            delivery = _outcome(self)  # it may have been split meanwhile
            if not delivery.done:
                raise KprodTimeoutError(
                    f"no outcome for a record of {delivery.tp} after {in_seconds(timeout or 0)};"
                    " it is still being sent"
                )
        if self.delivery.has_listeners and timeout != 0:
            self.delivery.wait_until_heard(FOREVER if timeout is None else timeout)
        return _metadata(self)

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """The same as ``get``, under the name that concurrent.futures and asyncio have for it."""
        return self.get(timeout)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """``await future`` in any task of an asyncio loop: what ``get`` returns or raises.

        Cancelling the task ends its wait and nothing else: the record is sent all the same. Raises
        IllegalStateError where no asyncio loop runs.
        """
        delivery = _outcome(self)
        while not delivery.done:
            yield from delivery.wait_in_loop()
            delivery = _outcome(self)
        return _metadata(self)

    def as_concurrent(self) -> concurrent.futures.Future[RecordMetadata]:
        """A ``concurrent.futures.Future`` with the same outcome, for ``wait`` and ``as_completed``.

        It is settled where callbacks run, and cannot be cancelled: the record is on its way.
        """
        from concurrent.futures import Future

        twin: Future[RecordMetadata] = Future()
        twin.set_running_or_notify_cancel()
        self.add_callback(twin.set_result).add_errback(twin.set_exception)
        return twin

    # Being told -----------------------------------------------------------------------------------

    def add_callback(
        self, fn: Callable[..., object], *args: Any, **kwargs: Any
    ) -> FutureRecordMetadata:
        """Call ``fn(*args, metadata, **kwargs)`` once the record was acknowledged."""
        call = partial(self._tell_success, _callable(fn), args, kwargs)
        self.delivery.on_done(call, self.index, False)
        return self

    def add_errback(
        self, fn: Callable[..., object], *args: Any, **kwargs: Any
    ) -> FutureRecordMetadata:
        """Call ``fn(*args, error, **kwargs)`` once the record has failed."""
        self.delivery.on_done(partial(self._tell_failure, _callable(fn), args, kwargs), self.index)
        return self

    def add_both(
        self, fn: Callable[..., object], *args: Any, **kwargs: Any
    ) -> FutureRecordMetadata:
        """Call ``fn`` with the metadata or the error, whichever it will be."""
        _callable(fn)

        def tell() -> None:
            self._tell_success(fn, args, kwargs)
            self._tell_failure(fn, args, kwargs)

        self.delivery.on_done(tell, self.index)
        return self

    def add_done_callback(self, fn: Callable[[FutureRecordMetadata], object]) -> None:
        """Call ``fn(future)`` once there is an outcome, as concurrent.futures does."""
        _callable(fn)
        self.delivery.on_done(lambda: _call_safely(fn, (self,), {}), self.index)

    def chain(self, future: _Settable) -> FutureRecordMetadata:
        """Pass the outcome on to ``future.success(metadata)`` or ``future.failure(error)``."""
        return self.add_callback(future.success).add_errback(future.failure)

    def _tell_success(
        self, fn: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if _outcome(self).error is None:
            metadata = _metadata(self)
            _call_safely(fn, (*args, metadata), kwargs)

    def _tell_failure(
        self, fn: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        error = _copied(_outcome(self).error)
        if error is not None:
            _call_safely(fn, (*args, error), kwargs)

    def __repr__(self) -> str:
        state = "failed" if self.failed() else "succeeded" if self.is_done else "pending"
        return f"<FutureRecordMetadata {self.delivery.tp} {state}>"


# Functions, not methods: compiled, a class with private methods puts a reference to a table of them
# into each of its objects.


def _outcome(future: FutureRecordMetadata) -> BatchDelivery:
    """The delivery that settles this record: another one once its batch was split."""
    delivery = future.delivery
    return delivery.locate(future.index)[0] if delivery.is_split else delivery


def _error(future: FutureRecordMetadata) -> KprodError | None:
    """Why the record failed; None before, and when it was stored."""
    outcome = _outcome(future)
    return outcome.error if outcome.done else None


def _has_succeeded(future: FutureRecordMetadata) -> bool:
    outcome = future.delivery
    # In this order: a batch whose records end differently has its parts before it is done.
    if not outcome.done or outcome.is_split:
        outcome = _outcome(future)
    return outcome.done and outcome.error is None


def _metadata(future: FutureRecordMetadata) -> RecordMetadata:
    """What ``get`` returns or raises; there is an outcome."""
    delivery, index = future.delivery, future.index
    if delivery.is_split:
        delivery, index = delivery.locate(index)
    if delivery.error is not None:
        raise copy.copy(delivery.error)  # see _copied
    tp = delivery.tp
    base, stamp = delivery.base_offset, delivery.append_time
    made = RecordMetadata(
        tp.topic,
        tp.partition,
        tp,
        base + index if base != NO_OFFSET else NO_OFFSET,
        stamp if stamp != NO_TIMESTAMP else future.timestamp,
        None,  # checksum
        future.key_size,
        future.value_size,
        future.header_size,
    )
    untrack(made)  # text and numbers: 100,000 that are kept would be walked over again and again
    return made


def _copied(error: KprodError | None) -> KprodError | None:
    """An error to hand out. That of the batch is never raised.

    All its records share it. And raised it would refer to the frames it passed, which refer to the
    future, which refers to it: a cycle that the garbage collector, which does not know futures,
    could not end.
    """
    return None if error is None else copy.copy(error)


def _check_timeout(timeout: Any) -> None:
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise RecordTypeError(f"get: timeout must be seconds or None, got {timeout!r}")
    if not timeout >= 0:
        raise InvalidRecordError(f"get: timeout must be seconds from 0 on, got {timeout!r}")


def _callable(fn: Any) -> Any:
    """``fn``, if it can be called back. Raises RecordTypeError."""
    if not callable(fn):
        raise RecordTypeError(f"a delivery callback must be callable, got {fn!r}")
    if getattr(getattr(fn, "__code__", None), "co_flags", 0) & COROUTINE:
        raise RecordTypeError(
            f"a delivery callback must not be a coroutine function, which nobody would await:"
            f" {fn!r}; await the future instead, or pass a function that schedules the coroutine"
        )
    return fn


def _call_safely(fn: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run an application's callback; whatever it raises goes no further."""
    try:
        fn(*args, **kwargs)
    except BaseException:
        log.exception("the delivery callback %r failed", fn)
