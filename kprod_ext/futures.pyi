# A stub may name classes of kprod; the compiled module imports none of them.
import concurrent.futures
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, final

from typing_extensions import disjoint_base

from kprod.buffer.callbacks import Callback, Callbacks
from kprod.buffer.delivery import BatchDelivery
from kprod.errors import KprodError
from kprod.types import RecordMetadata, TopicPartition

def untrack(one: object) -> None:
    """Let the garbage collector pass over an object of a class that it collects.

    For objects that are made often and freed by their last reference, as CPython does with tuples
    of numbers: walking over such objects costs more than making them. Until ``track`` is called for
    an object, the collector finds no reference cycle through it.
    """

def track(one: object) -> None:
    """Let the collector see an object again; nothing happens if it does."""

class _Settable(Protocol):
    """The receiver of an outcome in ``chain``, such as kafka-python's ``Future``."""

    def success(self, value: RecordMetadata, /) -> object: ...
    def failure(self, error: KprodError, /) -> object: ...

@disjoint_base
class BatchOutcome:
    """The outcome of one batch: a base offset or an error, settled exactly once. Thread-safe.

    ``base_offset`` is -1 when the broker did not tell it; ``append_time`` is the broker's
    timestamp in ms when the topic uses LogAppendTime, else -1. ``awaited`` turns True, and
    ``hurry`` is called, when a caller starts to wait: the batch's linger has no purpose any more.
    ``is_watched``: a caller waits, or a callback hears errors, so an error is not lost in silence;
    ``is_heard`` asks that also of the batch that this one is part of.
    ``has_listeners``: ``on_done`` was called.
    ``callbacks`` runs the callbacks of ``on_done``. ``wait_for`` is how threads wait; None: they do
    nothing meanwhile. ``is_split``: the records' outcomes are in ``parts``: ``locate`` says
    where.

    Everything else may be read without a lock once ``done`` or ``is_split`` says that it is there.
    A thread that changes it runs no Python code while it holds the lock, so no signal handler can
    run in between.

    The garbage collector sees an outcome only when it refers to an error (the traceback may lead
    back here), to waiters or to parts. ``kprod.buffer.delivery`` subclasses it, and adds the errors
    and the waiting.
    """

    awaited: bool
    is_watched: bool

    def __init__(
        self,
        tp: TopicPartition,
        hurry: Callable[[], None],
        callbacks: Callbacks,
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
    def is_heard(self) -> bool:
        """True when a caller waits, or a callback hears errors, here or at the whole batch."""

    def succeed(self, base_offset: int, append_time: int) -> bool:
        """The batch is stored. False when it had already ended."""

    def fail(self, error: KprodError) -> bool:
        """The batch ended in ``error``, with all its parts. False when it had already ended."""

    def end_as(self, parts: tuple[tuple[int, BatchDelivery], ...]) -> bool:
        """The batch ended as ``parts`` say: (index of the first record, its outcome), from 0.

        False when it had already ended.
        """

    def split_into(self, parts: Sequence[tuple[int, BatchDelivery]]) -> None:
        """The batch goes on as smaller ones: (index of its first record, new delivery), in order.

        This one ends with the last of them; a record's own outcome is where ``locate`` says. Parts
        of a batch that has ended meanwhile end as it did. Thread: the sender's only.
        """

    def locate(self, index: int) -> tuple[BatchDelivery, int]:
        """The delivery with the outcome of the record at ``index``, and its index there."""

    def on_done(self, tell: Callback, index: int = 0, hears_errors: bool = True) -> None:
        """Put ``tell`` to the callbacks once the batch has ended; now, if it has.

        Callbacks added before the end run in the order of ``index``, that of the record.
        """

    def hasten(self) -> None:
        """A caller is about to wait: the batch need not linger. Never waits."""

    def latch(self, made: Any) -> tuple[Any, Any] | None:
        """The latch that opens when all waiters were called, and ``wait_for``; None: all were.

        The first call makes ``made`` the latch.
        """

    def join(self, loop: Any, made: Any) -> Any:
        """The waiter shared by the tasks of ``loop``: the first ``made``. None: it has ended."""

@final
class FutureRecordMetadata:
    """The outcome of one record, in kafka-python's shape. Thread-safe.

    ``get`` waits for it, or ``await`` in a task of an asyncio loop. Waiting is optional: a future
    that is dropped reports nothing. Callbacks get the ``RecordMetadata``, errbacks the error. They
    run one after the other, those of a partition in the order of its records, in the producer's
    thread for callbacks: a callback that blocks delays the others, and nothing else. Their
    exceptions are logged and not raised. In them ``get`` of a record without an outcome raises
    IllegalStateError, as ``flush`` and a ``close`` that waits do; ``send`` works as anywhere else.

    ``delivery`` tells the outcome of the batch, ``index`` the record's place in it. ``timestamp``
    is milliseconds since the epoch, the sizes are bytes, -1 for null or none.
    """

    def __init__(
        self,
        delivery: BatchDelivery,
        index: int,
        timestamp: int,
        key_size: int,
        value_size: int,
        header_size: int,
    ) -> None: ...
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
        """True once the record was acknowledged or has failed."""

    @property
    def value(self) -> RecordMetadata | None:
        """Where the record was stored; None before, and when it failed."""

    @property
    def exception(self) -> KprodError | None:
        """Why the record failed; None before, and when it was stored.

        A property, as in kafka-python; ``as_concurrent`` has the method of concurrent.futures.
        Every look gives a copy of its own, which may be raised or given a note.
        """

    @property
    def topic_partition(self) -> TopicPartition:
        """Where the record is sent, known before its outcome."""

    def done(self) -> bool:
        """The same as ``is_done``, under the name that concurrent.futures and asyncio have."""

    def succeeded(self) -> bool:
        """True once the record was acknowledged."""

    def failed(self) -> bool:
        """True once the record has failed."""

    def retriable(self) -> bool:
        """True when the record failed for a cause that may pass: sending it again may succeed."""

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Wait at most ``timeout`` seconds; return the outcome or raise what ended the record.

        Raises KprodTimeoutError when it has no outcome yet: the record is still on its way. When
        ``get`` returns, callbacks added before have returned too, unless that takes longer than
        ``timeout``.
        """

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """The same as ``get``, under the name that concurrent.futures and asyncio have for it."""

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """``await future`` in any task of an asyncio loop: what ``get`` returns or raises.

        Cancelling the task ends its wait and nothing else: the record is sent all the same. Raises
        IllegalStateError where no asyncio loop runs.
        """

    def as_concurrent(self) -> concurrent.futures.Future[RecordMetadata]:
        """A ``concurrent.futures.Future`` with the same outcome, for ``wait`` and ``as_completed``.

        It is settled where callbacks run, and cannot be cancelled: the record is on its way.
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
        """Call ``fn`` with the metadata or the error, whichever it will be."""

    def add_done_callback(self, fn: Callable[[FutureRecordMetadata], object]) -> None:
        """Call ``fn(future)`` once the record has an outcome, as concurrent.futures does."""

    def chain(self, future: _Settable) -> FutureRecordMetadata:
        """Pass the outcome on to ``future.success(metadata)`` or ``future.failure(error)``."""
