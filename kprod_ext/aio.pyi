# A stub may name classes of kprod; the compiled module imports none of them.
import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextvars import Context
from typing import Any, Self

from typing_extensions import disjoint_base

from kprod.errors import KprodError
from kprod.producer import KafkaProducer
from kprod.types import RecordMetadata
from kprod_ext.futures import FutureRecordMetadata

LONGEST_QUEUEING: float
LONGEST_CALLBACKS: float
MOST: int
TURN: int
NOTHING: tuple[Any, Any]

@disjoint_base
class LoopTurns:
    """Limits the callers admitted in each iteration of the loop.

    Others wait in order. For one loop. An iteration admits callers for ``LONGEST_QUEUEING``
    seconds; a record takes from 0.5 to 100 microseconds. Refused tasks wait in a queue, and an
    iteration wakes at most ``TURN`` of them. If they only slept, all of them would try again in the
    next iteration.
    """

    def admit(self) -> bool:
        """Whether the caller may continue immediately."""

    def spend(self) -> None:
        """One record has used up the time of this iteration: admit no more callers in it."""

    async def wait(self) -> None:
        """Wait to be admitted in a later iteration, after ``admit`` has refused."""

@disjoint_base
class Sending:
    """The work for each record in ``kprod.aio``; the subclass does the rest. For one loop.

    ``notifier`` makes an OutcomeNotifier for a loop. ``waits`` are the errors after which a record
    must wait. ``under_way`` contains some of the queued records, the oldest first.
    """

    def __init__(
        self,
        native: KafkaProducer,
        notifier: Callable[[asyncio.AbstractEventLoop], OutcomeNotifier],
        waits: tuple[type[Exception], ...],
    ) -> None: ...
    @property
    def native(self) -> KafkaProducer: ...
    @property
    def turns(self) -> LoopTurns: ...
    @property
    def under_way(self) -> deque[FutureRecordMetadata]: ...
    def send_at_once(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SentRecord | None:
        """Like ``put_at_once``, but returns a future for the tasks of this loop."""

    def put_at_once(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata | None:
        """Queue a record if that needs no wait.

        Otherwise return None: the caller then awaits ``put``. Raises the errors of
        ``KafkaProducer.send`` for invalid arguments.
        """

    def put_until_waiting(
        self, topic: str, values: Iterator[Any], keys: Iterator[Any] | None, queued: list[Any]
    ) -> tuple[Any, Any] | None:
        """Queue records until this iteration has queued enough, or until a record must wait.

        Returns None after the last value. Returns ``NOTHING`` if the iteration has queued enough.
        Otherwise returns the value and the key of the record that must wait, for ``put``. Raises
        ValueError if ``keys`` has fewer items.
        """

    def take_outcomes(self, queued: list[Any], stored: list[RecordMetadata]) -> None:
        """Append available results to ``stored``, in order, for as long as the iteration may take.

        Raises the error of a record that failed.
        """

    def sent(self, native: FutureRecordMetadata) -> SentRecord:
        """The future of a queued record for the tasks of the running loop."""

    def remember(self, native: FutureRecordMetadata) -> None:
        """Add a record to ``under_way``: the subclass may wait for the memory of its batch."""

@disjoint_base
class OutcomeNotifier:
    """Wakes the tasks of one loop that wait for records, with one call to the loop per batch.

    ``error`` converts a record's error to the exception to raise. With ``renews``, tasks can wait
    again after ``cancel``, and a wait ends the linger of its batch. ``stored`` makes the result of
    a stored record; None means its RecordMetadata. An iteration runs callbacks for at most
    ``LONGEST_CALLBACKS`` seconds.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        error: Callable[[KprodError], BaseException] | None = None,
        *,
        renews: bool = False,
        stored: Callable[[FutureRecordMetadata], Any] | None = None,
    ) -> None: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def error(self) -> Callable[[KprodError], BaseException] | None: ...
    @property
    def renews(self) -> bool: ...
    @property
    def stored(self) -> Callable[[FutureRecordMetadata], Any] | None: ...

@disjoint_base
class SentRecord:
    """The outcome of one record, for the tasks of the loop that has sent it: an asyncio future.

    ``await`` it, or pass it to ``gather``, ``wait``, ``wait_for`` or ``shield``. ``native`` is the
    future of ``KafkaProducer.send``, for other threads and loops. Attributes that only ``native``
    has work here as well (``get``, ``add_callback``, ``is_done``, ...). Cancelling does not
    withdraw a record.
    """

    _asyncio_future_blocking: bool

    def __new__(cls, notifier: OutcomeNotifier, native: FutureRecordMetadata) -> Self: ...
    @property
    def native(self) -> FutureRecordMetadata: ...
    @property
    def _loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def _cancel_message(self) -> Any: ...
    def _make_cancelled_error(self) -> asyncio.CancelledError: ...
    @property  # type: ignore[misc]
    def __class__(self) -> type: ...
    def done(self) -> bool:
        """True once the record has an outcome, or once the wait for it was cancelled.

        With ``renews``, a cancelled record is done only until its callbacks have been called.
        """

    def cancelled(self) -> bool:
        """True once the wait was cancelled; with ``renews``, only until there is an outcome."""

    def exception(self) -> BaseException | None:
        """The record's error, or None if it was stored.

        Raises InvalidStateError before there is an outcome, and CancelledError after ``cancel``.
        """

    def result(self) -> Any:
        """The record's metadata. Raises the record's error, and what ``exception`` raises."""

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the tasks that may wait."""

    def __await__(self) -> Generator[Any, None, Any]: ...
    def __iter__(self) -> Generator[Any, None, Any]: ...
    def add_done_callback(
        self, fn: Callable[[Any], object], *, context: Context | None = None
    ) -> None:
        """Let the loop call ``fn(self)`` once this is done; soon, if it is already done.

        Callbacks of ``native.add_done_callback`` run in the producer's callback thread instead.
        """

    def remove_done_callback(self, fn: Callable[[Any], object]) -> int:
        """Remove ``fn`` from the callbacks; return how often it was there."""

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the wait, not the sending; False if the record is done."""

    def __getattr__(self, name: str) -> Any: ...
