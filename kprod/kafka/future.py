"""Futures that are compatible with kafka-python's: a plain one, and the one of a record."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Self

from kprod.errors import IllegalStateError, KprodError, RecordTypeError
from kprod.kafka.errors import RetriableError, still_being_sent, translated
from kprod.lock import Lock
from kprod.types import RecordMetadata
from kprod_ext.futures import FutureRecordMetadata as NativeFuture

log = logging.getLogger(__name__)


class Future:
    """A value or an error that is set once, like ``kafka.future.Future``. Thread-safe.

    Callbacks run in the thread that completes the future, in the order in which they were added. A
    callback that is added later runs at once. Exceptions of callbacks are logged; they also
    propagate if ``error_on_callbacks`` is true.
    """

    error_on_callbacks = False

    def __init__(self) -> None:
        self.is_done = False
        self.value: Any = None
        self.exception: BaseException | None = None
        self._waiting: list[tuple[bool, Callable[[Any], object]]] = []
        self._lock = Lock()  # guards all of the above until it is done

    def succeeded(self) -> bool:
        """True once the future has a value."""
        return self.is_done and self.exception is None

    def failed(self) -> bool:
        """True once the future has an error."""
        return self.is_done and self.exception is not None

    def retriable(self) -> bool:
        """True once the future has a retriable error."""
        return self.is_done and isinstance(self.exception, RetriableError)

    def __await__(self) -> Generator[Self, None, Any]:
        """Return the value or raise the error, after yielding the future unless it is done.

        This works in kafka-python's network loop. In asyncio, use the futures of ``kprod`` or
        ``kprod.aio``.
        """
        if not self.is_done:
            yield self
        if self.exception is not None:
            raise self.exception
        return self.value

    def success(self, value: Any) -> Self:
        """Set the value, and run the callbacks."""
        return self._settle(value, None)

    def failure(self, error: BaseException | type[BaseException]) -> Self:
        """Set an error, given as an instance or a class, and run the errbacks."""
        exception = error() if isinstance(error, type) else error
        if not isinstance(exception, BaseException):
            raise TypeError("future failed without an exception")
        return self._settle(None, exception)

    def _settle(self, value: Any, error: BaseException | None) -> Self:
        with self._lock:
            self.value, self.exception, self.is_done = value, error, True
            waiting, self._waiting = self._waiting, []
        for wants_error, fn in waiting:
            if wants_error == (error is not None):
                self._call(fn, value if error is None else error)
        return self

    def _add(self, wants_error: bool, fn: Callable[[Any], object]) -> Self:
        with self._lock:
            if not self.is_done:
                self._waiting.append((wants_error, fn))
                return self
        if wants_error == (self.exception is not None):
            self._call(fn, self.exception if wants_error else self.value)
        return self

    def _call(self, fn: Callable[[Any], object], outcome: Any) -> None:
        try:
            fn(outcome)
        except Exception:
            log.exception("Error processing callback")
            if self.error_on_callbacks:
                raise

    def add_callback(self, fn: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call ``fn(*args, value, **kwargs)`` once there is a value."""
        return self._add(False, partial(fn, *args, **kwargs))

    def add_errback(self, fn: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call ``fn(*args, error, **kwargs)`` once there is an error."""
        return self._add(True, partial(fn, *args, **kwargs))

    def add_both(self, fn: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call ``fn`` with the value or the error, once there is one."""
        return self.add_callback(fn, *args, **kwargs).add_errback(fn, *args, **kwargs)

    def chain(self, future: Any) -> Self:
        """Call ``future.success(value)`` or ``future.failure(error)`` with the outcome."""
        return self.add_callback(future.success).add_errback(future.failure)


class FutureRecordMetadata:
    """The result of one record, with kafka-python's methods and errors. Thread-safe.

    Callbacks run in the producer's callback thread. A callback that is added to a completed future
    runs at once, in the calling thread. When ``get`` returns, callbacks that were added before that
    call have run.
    """

    __slots__ = ("_failure", "_native")

    def __init__(self, native: NativeFuture | None, failure: BaseException | None = None) -> None:
        self._native = native
        self._failure = failure

    @property
    def is_done(self) -> bool:
        """True once the record is acknowledged or has failed."""
        return self._native is None or self._native.is_done

    @property
    def value(self) -> RecordMetadata | None:
        """The record's metadata; None before the record is stored, and if it failed."""
        return None if self._native is None else self._native.value

    @property
    def exception(self) -> BaseException | None:
        """The record's error; None before the record has failed, and if it is stored."""
        if self._failure is None and self._native is not None:
            error = self._native.exception
            if error is not None:
                self._failure = translated(error)
        return self._failure

    def succeeded(self) -> bool:
        """True once the record is acknowledged."""
        return self._native is not None and self._native.succeeded()

    def failed(self) -> bool:
        """True once the record has failed."""
        return self._native is None or self._native.failed()

    def retriable(self) -> bool:
        """True if the record failed with a retriable error."""
        return getattr(self.exception, "retriable", False)

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Wait at most ``timeout`` seconds; return the metadata or raise the record's error.

        Raises KafkaTimeoutError if there is no result by then. Inside a callback, it raises at once
        if there is no result. Raises TypeError for a timeout that is not a number.
        """
        if self._native is None:
            raise self._failure or AssertionError
        try:
            return self._native.get(timeout)
        except RecordTypeError:  # an invalid timeout
            raise
        except IllegalStateError as error:
            if not self._native.is_done:
                raise still_being_sent(str(error)) from error
            raise (self.exception or error) from None
        except KprodError as error:
            if not self._native.is_done:
                raise still_being_sent(f"Timeout after waiting for {timeout} secs.") from error
            raise (self.exception or error) from None

    def add_callback(
        self, fn: Callable[..., object], *args: Any, **kwargs: Any
    ) -> FutureRecordMetadata:
        """Call ``fn(*args, metadata, **kwargs)`` once the record is acknowledged."""
        if not self.is_done and self._native is not None:
            self._native.add_callback(fn, *args, **kwargs)
        elif self.succeeded():
            _call(partial(fn, *args, **kwargs), self.value)
        return self

    def add_errback(
        self, fn: Callable[..., object], *args: Any, **kwargs: Any
    ) -> FutureRecordMetadata:
        """Call ``fn(*args, error, **kwargs)`` once the record has failed."""
        call = partial(fn, *args, **kwargs)
        if not self.is_done and self._native is not None:
            self._native.add_errback(lambda _: call(self.exception))
        elif self.failed():
            _call(call, self.exception)
        return self

    def add_both(
        self, fn: Callable[..., object], *args: Any, **kwargs: Any
    ) -> FutureRecordMetadata:
        """Call ``fn`` with the metadata or the error."""
        return self.add_callback(fn, *args, **kwargs).add_errback(fn, *args, **kwargs)

    def chain(self, future: Any) -> FutureRecordMetadata:
        """Call ``future.success(metadata)`` or ``future.failure(error)`` with the outcome."""
        return self.add_callback(future.success).add_errback(future.failure)

    def __repr__(self) -> str:
        return f"<kprod.kafka {self._native or self._failure!r}>"


def _call(fn: Callable[[Any], object], outcome: Any) -> None:
    try:
        fn(outcome)
    except Exception:
        log.exception("Error processing callback")
