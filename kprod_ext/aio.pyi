# A stub may name classes of kprod; the compiled module imports none of them.
import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextvars import Context
from typing import Any

from typing_extensions import disjoint_base

from kprod.errors import KprodError
from kprod.producer import KafkaProducer
from kprod.types import RecordMetadata
from kprod_ext.futures import FutureRecordMetadata

LONGEST_QUEUEING: float
LONGEST_TELLING: float
MOST: int
TURN: int
NOTHING: tuple[Any, Any]

@disjoint_base
class LoopTurns:
    """Lets callers through in each turn of the loop that calls, in the order of asking.

    As many as take ``LONGEST_QUEUEING``, for records take between half a microsecond and a hundred.
    Tasks that each only slept until the next turn would all look at once there, however many they
    are: so they wait in a row, and a turn wakes at most ``TURN`` of them. For one loop.
    """

    def admit(self) -> bool:
        """Whether the caller may go on at once."""

    def spend(self) -> None:
        """Admit no more callers in this turn: one record has used up its time."""

    async def wait(self) -> None:
        """Wait for one's place in a later turn, after ``admit`` has refused."""

@disjoint_base
class Sending:
    """The work for each record; its subclass does the rest. For the tasks of one loop.

    ``notifier`` makes the loop's part of waiting for outcomes, anew for another loop. ``waits`` are
    the errors of a record that has to wait. ``under_way`` are some records, the oldest first.
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
        """As ``put_at_once``, with a future for the tasks of this loop."""

    def put_at_once(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata | None:
        """Queue a record if that needs no wait; else return None: the caller awaits ``put``.

        Raises what ``KafkaProducer.send`` raises for a bad argument.
        """

    def put_until_waiting(
        self, topic: str, values: Iterator[Any], keys: Iterator[Any] | None, queued: list[Any]
    ) -> tuple[Any, Any] | None:
        """Queue records until one turn of the loop has queued enough, or something is waited for.

        Returns None after the last value; ``NOTHING`` when the turn is over; else the value and the
        key to pass to ``put``, which waits. Raises ValueError when ``keys`` has fewer items.
        """

    def take_outcomes(self, queued: list[Any], stored: list[RecordMetadata]) -> None:
        """Add the outcomes that are there, in order, as many as a turn of the loop has time for.

        Raises why a record failed.
        """

    def sent(self, native: FutureRecordMetadata) -> SentRecord:
        """The future of a queued record for the tasks of the running loop."""

    def remember(self, native: FutureRecordMetadata) -> None:
        """Remember a record in ``under_way``: the subclass later waits for its batch's memory."""

@disjoint_base
class OutcomeNotifier:
    """Wakes the tasks of one loop that wait for records, with one call into the loop per batch.

    ``error`` makes the exception to raise from the error that ended a record. ``renews``: a wait
    begins anew after ``cancel``, and ends the linger of its batch. ``stored`` makes the result of a
    stored record; None: its RecordMetadata. A turn calls back for ``LONGEST_TELLING``.
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

    ``await`` it, or give it to ``gather``, ``wait``, ``wait_for`` or ``shield``. ``native`` is the
    future of ``KafkaProducer.send``, for other threads and loops; its names that asyncio's futures
    do not have are found here, too (``get``, ``add_callback``, ``is_done``, ...). Cancelling never
    calls a record back.
    """

    _asyncio_future_blocking: bool

    def __init__(self, notifier: OutcomeNotifier, native: FutureRecordMetadata) -> None: ...
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
        """True once the record has an outcome, or the waiting for it was cancelled.

        With ``renews`` the latter until the callbacks have been told.
        """

    def cancelled(self) -> bool:
        """True once the waiting was cancelled; with ``renews``, until there is an outcome."""

    def exception(self) -> BaseException | None:
        """Why the record failed. Raises InvalidStateError before the outcome, CancelledError."""

    def result(self) -> Any:
        """Where the record was stored; raises why it failed, and what ``exception`` raises."""

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the tasks that may wait."""

    def __await__(self) -> Generator[Any, None, Any]: ...
    def __iter__(self) -> Generator[Any, None, Any]: ...
    def add_done_callback(
        self, fn: Callable[[Any], object], *, context: Context | None = None
    ) -> None:
        """Let the loop call ``fn(self)`` once it is done, soon if it is, as asyncio's futures do.

        ``native.add_done_callback`` calls in the producer's thread for callbacks.
        """

    def remove_done_callback(self, fn: Callable[[Any], object]) -> int:
        """Do not call ``fn``; how often it was to be called."""

    def cancel(self, msg: Any = None) -> bool:
        """End the waiting, not the sending; False when it is done."""

    def __getattr__(self, name: str) -> Any: ...
