# A stub may name classes of kprod; the compiled module imports none of them.
import concurrent.futures
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, Self, final

from typing_extensions import disjoint_base

from kprod.buffer.callbacks import Callback, Callbacks
from kprod.buffer.delivery import BatchDelivery
from kprod.errors import KprodError
from kprod.types import RecordMetadata, TopicPartition

def untrack(one: object) -> None:
    """Let the garbage collector ignore an object.

    Use it for objects that are made often and freed with their last reference: traversing them
    costs more than making them. CPython does the same with tuples of numbers. Until ``track`` is
    called for an object, the collector finds no reference cycle through it.
    """

def track(one: object) -> None:
    """Make the garbage collector track an object again. Idempotent."""

class _Settable(Protocol):
    """The receiver of an outcome in ``chain``, such as kafka-python's ``Future``."""

    def success(self, value: RecordMetadata, /) -> object: ...
    def failure(self, error: KprodError, /) -> object: ...

@disjoint_base
class BatchOutcome:
    """The outcome of one batch: a base offset or an error, settled exactly once. Thread-safe.

    ``base_offset`` is -1 if the broker did not return it. ``append_time`` is the broker's timestamp
    in ms if the topic uses LogAppendTime, otherwise -1. When a caller starts to wait, ``awaited``
    becomes True and ``expedite`` is called, so that the batch does not linger. ``is_watched`` is
    True if a caller waits or a callback takes errors: somebody notices an error. ``is_observed``
    also checks the batch from which this one was split. ``has_listeners`` is True once ``on_done``
    was called.

    ``callbacks`` runs the callbacks of ``on_done``. If it is None, a new ``callbacks_type`` does.
    The subclass has the attributes ``callbacks_type`` and ``metadata_type``. Threads wait by
    calling ``wait_for``; None means that they simply wait. If ``is_split``, ``parts`` contain the
    outcomes of the records, and ``locate`` finds them.

    Everything else may be read without a lock once ``done`` or ``is_split`` is True. A thread that
    changes the outcome runs no Python code while it holds the lock, so no signal handler can run in
    between.

    The garbage collector tracks an outcome only while it refers to an error (whose traceback may
    refer back to it), to waiters or to parts. ``kprod.buffer.delivery`` subclasses it, and adds the
    errors and the waiting.
    """

    awaited: bool
    is_watched: bool

    def __init__(
        self,
        tp: TopicPartition,
        expedite: Callable[[], None],
        callbacks: Callbacks | None = None,
        wait_for: Any = None,
    ) -> None: ...
    @property
    def tp(self) -> TopicPartition: ...
    @property
    def done(self) -> bool: ...
    @property
    def has_listeners(self) -> bool: ...
    @property
    def is_split(self) -> bool: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def append_time(self) -> int: ...
    @property
    def error(self) -> KprodError | None: ...
    @property
    def parts(self) -> tuple[tuple[int, BatchDelivery], ...]: ...
    @property
    def callbacks(self) -> Callbacks: ...
    @property
    def wait_for(self) -> Any: ...
    def is_observed(self) -> bool:
        """True if a caller waits or a callback takes errors, here or at the unsplit batch."""

    def succeed(self, base_offset: int, append_time: int) -> bool:
        """Set the result: the batch is stored. Returns False if it had already ended."""

    def fail(self, error: KprodError) -> bool:
        """Set ``error``, also for all parts. Returns False if the batch had already ended."""

    def end_as(self, parts: tuple[tuple[int, BatchDelivery], ...]) -> bool:
        """Set different outcomes for parts of the batch. Returns False if it had already ended.

        ``parts`` are pairs of the index of the first record and the outcome. The first index is 0.
        """

    def split_into(self, parts: Sequence[tuple[int, BatchDelivery]]) -> None:
        """Split the batch: ``parts`` are (index of the first record, new delivery), in order.

        This outcome ends with the last part; ``locate`` finds a record's own outcome. If the batch
        has already ended, its parts end in the same way. Called only by the sender thread.
        """

    def locate(self, index: int) -> tuple[BatchDelivery, int]:
        """The delivery with the outcome of the record at ``index``, and its index there."""

    def on_done(self, callback: Callback, index: int = 0, hears_errors: bool = True) -> None:
        """Queue ``callback`` once the batch has ended; immediately, if it has already ended.

        Callbacks added before the end run in the order of ``index``, the record's index.
        """

    def expedite(self) -> None:
        """End the linger of the batch, because a caller is about to wait. Never waits."""

    def latch(self, made: Any) -> tuple[Any, Any] | None:
        """The latch that opens once all waiters were called, and ``wait_for``.

        If they were already called, it returns None. The first call uses ``made`` as the latch.
        """

    def join(self, loop: Any, made: Any) -> Any:
        """The waiter shared by the tasks of ``loop``; None if the batch has ended.

        The first call for a loop uses ``made`` as the waiter.
        """

@final
class FutureRecordMetadata:
    """The outcome of one record, compatible with kafka-python's future. Thread-safe.

    Wait for it with ``get``, or with ``await`` in a task of an asyncio loop. Waiting is optional.
    If a record fails and nobody asks for its result, the logger ``kprod`` logs it.

    Callbacks get the ``RecordMetadata``, errbacks the error. They run one after the other in the
    producer's callback thread. Within a partition they run in the order of the records, except
    after failures and retries. A callback that blocks delays other callbacks, ``flush``, ``close``
    and the ``get`` of its record. Exceptions of callbacks are logged, not raised. Inside a
    callback, ``get`` of a record without an outcome raises IllegalStateError, as do ``flush`` and a
    ``close`` that waits. ``send`` works as usual.

    ``delivery`` is the outcome of the batch, ``index`` the record's index in it. ``timestamp`` is
    milliseconds since the epoch; sizes are in bytes, -1 for null or none.
    """

    def __new__(
        cls,
        delivery: BatchDelivery,
        index: int,
        timestamp: int,
        key_size: int,
        value_size: int,
        header_size: int,
    ) -> Self: ...
    @property
    def delivery(self) -> BatchDelivery: ...
    @property
    def index(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key_size(self) -> int: ...
    @property
    def value_size(self) -> int: ...
    @property
    def header_size(self) -> int: ...
    @property
    def is_done(self) -> bool:
        """True once the record is acknowledged or has failed."""

    @property
    def value(self) -> RecordMetadata | None:
        """The record's metadata; None unless the record is stored."""

    @property
    def exception(self) -> KprodError | None:
        """The record's error; None unless it has failed.

        A property, as in kafka-python; ``as_concurrent`` has the method of concurrent.futures. Each
        access returns a new copy, which may be raised or given a note.
        """

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition to which the record is sent, which is known before the outcome."""

    def done(self) -> bool:
        """The same as ``is_done``, under the name that concurrent.futures and asyncio have."""

    def succeeded(self) -> bool:
        """True once the record was acknowledged."""

    def failed(self) -> bool:
        """True once the record has failed."""

    def retriable(self) -> bool:
        """True if the record failed with a retriable error: sending it again may succeed."""

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Wait at most ``timeout`` seconds; return the metadata or raise the record's error.

        Raises KprodTimeoutError if there is no outcome yet: the record is still being sent. When
        ``get`` returns, callbacks that were added before have returned as well, unless they take
        longer than ``timeout``.
        """

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """The same as ``get``, under the name that concurrent.futures and asyncio have for it."""

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """``await future`` in any task of an asyncio loop: what ``get`` returns or raises.

        If the task is cancelled, only its wait ends: the record is still sent. Raises
        IllegalStateError if no asyncio loop is running.
        """

    def as_concurrent(self) -> concurrent.futures.Future[RecordMetadata]:
        """A ``concurrent.futures.Future`` with the same outcome, for ``wait`` and ``as_completed``.

        It is completed in the callback thread. It cannot be cancelled, because the record is
        already being sent.
        """

    def add_callback(
        self, fn: Callable[..., object], *args: Any, **kwargs: Any
    ) -> FutureRecordMetadata:
        """Call ``fn(*args, metadata, **kwargs)`` once the record was acknowledged."""

    def add_errback(
        self, fn: Callable[..., object], *args: Any, **kwargs: Any
    ) -> FutureRecordMetadata:
        """Call ``fn(*args, error, **kwargs)`` once the record has failed."""

    def add_both(
        self, fn: Callable[..., object], *args: Any, **kwargs: Any
    ) -> FutureRecordMetadata:
        """Call ``fn`` with the metadata or the error."""

    def add_done_callback(self, fn: Callable[[FutureRecordMetadata], object]) -> None:
        """Call ``fn(future)`` once the record has an outcome, as concurrent.futures does."""

    def chain(self, future: _Settable) -> FutureRecordMetadata:
        """Call ``future.success(metadata)`` or ``future.failure(error)`` with the outcome."""
