# A stub may name classes of kprod; the compiled module imports none of them.
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from typing_extensions import disjoint_base

from kprod_ext.futures import FutureRecordMetadata

CLOSED: str

_OnDelivery: TypeAlias = Callable[[Any, Message], object]

@disjoint_base
class Message:
    """A record and its outcome, compatible with confluent_kafka.Message."""

    def __init__(
        self,
        topic: Any = None,
        partition: int = -1,
        offset: int = -1001,
        key: Any = None,
        value: Any = None,
        headers: Any = None,
        error: Any = None,
        timestamp: tuple[int, int] | None = None,
        latency: float = -1.0,
        leader_epoch: int = -1,
        delivery_count: int = -1,
    ) -> None: ...
    def topic(self) -> Any:
        """The topic's name."""

    def partition(self) -> int | None:
        """The partition's number; None until the record has one."""

    def offset(self) -> int | None:
        """The offset; None if it is unknown."""

    def key(self) -> Any:
        """The key."""

    def value(self) -> Any:
        """The value."""

    def deserialized_key(self) -> Any:
        """The same as ``key``, because a producer's message was never deserialized."""

    def deserialized_value(self) -> Any:
        """The same as ``value``, because a producer's message was never deserialized."""

    def headers(self) -> Any:
        """The headers; None if there are none."""

    def error(self) -> Any:
        """The KafkaError with which the record failed, or None."""

    def timestamp(self) -> tuple[int, int]:
        """The kind of timestamp, and milliseconds since the epoch."""

    def latency(self) -> float | None:
        """Seconds from ``produce`` to the outcome."""

    def leader_epoch(self) -> int | None:
        """None in delivery reports, because brokers do not send the leader epoch to producers."""

    def delivery_count(self) -> int | None:
        """None in delivery reports: only share consumers have a delivery count."""

    def set_topic(self, value: Any) -> None:
        """Replace the topic."""

    def set_value(self, value: Any) -> None:
        """Replace the value."""

    def set_key(self, value: Any) -> None:
        """Replace the key."""

    def set_headers(self, value: Any) -> None:
        """Replace the headers."""

    def set_error(self, value: Any) -> None:
        """Replace the error."""

    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__ = None  # type: ignore[assignment]
    def __reduce__(self) -> tuple[Any, ...]: ...

@disjoint_base
class DeliveryReports:
    """Any thread adds records; ``serve`` runs their callbacks in the thread that calls it.

    There is one completion callback per batch, not one per record. ``waiting`` counts the records
    without a report; ``ready`` holds the callbacks for ``serve``. ``on_ready`` is called, in any
    thread, when a callback is added to ``ready``. ``error_for`` converts a record's error to a
    KafkaError. If ``only_errors`` is set, stored records are not reported.
    """

    on_ready: Callable[[], object] | None

    def __init__(self, only_errors: bool, error_for: Callable[[Any], Any]) -> None: ...
    @property
    def waiting(self) -> int: ...
    @property
    def ready(self) -> deque[Any]: ...
    def add(
        self,
        future: FutureRecordMetadata,
        on_delivery: _OnDelivery | None,
        key: Any,
        value: Any,
        headers: Any,
        began: float,
    ) -> None:
        """A record was queued at ``began``, in seconds."""

    def call_soon(self, event: Callable[[], object]) -> None:
        """Let ``serve`` call this function as well."""

    def begin_in_child(self) -> None:
        """In a forked child, forget the records without a report: they belong to the parent."""

    def expedite(self) -> None:
        """Send lingering batches now, because a caller waits."""

    def wait(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds until ``serve`` has a callback to run."""

    def serve(self) -> int:
        """Run the ready callbacks; return their number.

        An exception of a callback ends the call.
        """

    @property
    def ended(self) -> bool: ...
    def end(self) -> Exception | None:
        """Run the remaining callbacks after the producer has closed.

        If callbacks raise, the others still run, and the first exception is returned.
        """

    def inside(self) -> bool:
        """Whether this thread runs a delivery callback, which must not wait for reports."""

    def report(self, on_delivery: _OnDelivery | None, error: Any, message: Message) -> None:
        """Report a record that was counted as waiting but never added to a batch."""

    def expect(self, records: int) -> None:
        """Add to the number of records that wait for a report; negative numbers subtract."""

def frozen_headers(headers: Any) -> list[tuple[str, bytes | None]]:
    """Headers as pairs, with text as UTF-8. Raises TypeError."""

@disjoint_base
class Producing:
    """The work for each record of a Producer; the subclass does the rest.

    ``partition_for_key`` takes a key and the number of partitions; if it is None, the native
    producer chooses the partition. ``refusals`` are the errors that ``send`` raises. The subclass
    has ``_refuse_full``, ``_refuse_unless_unassigned``, ``_assign_later``, ``_wait_and_serve``, and
    ``_begin_in_child``, which calls ``inherited_by_child`` in a child that C code has forked.
    """

    _native: Any
    _closing: tuple[int, Any] | None
    _unassigned: Any

    def __init__(
        self,
        settings: Any,
        reports: DeliveryReports,
        partition_for_key: Callable[[Any, int], int] | None,
        refusals: type[Exception],
    ) -> None: ...
    @property
    def _reports(self) -> DeliveryReports: ...
    @property
    def _inherited(self) -> bool:
        """Whether this process was forked, and ``inherited_by_child`` has not been called yet."""

    def inherited_by_child(self) -> None:
        """Called in a forked child: records queued before belong to the parent."""

    def _usable(self) -> Any:
        """The native producer. Raises RuntimeError if it is closed or being closed."""

    def _use(self, native: Any, unassigned: Any) -> None:
        """Use this native producer from now on."""

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: _OnDelivery | None = None,
        on_delivery: _OnDelivery | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Queue one record. ``poll`` or ``flush`` calls ``callback(error, message)``.

        ``on_delivery`` is another name of ``callback``.

        Raises TypeError, KafkaException, and RuntimeError after ``close``. Raises BufferError if
        ``queue.buffering.max.messages`` records wait for their report, or if memory is used up.
        """

    def poll(self, timeout: float | None = -1) -> int:
        """Run the callbacks that are due, and return their number.

        If none is due, wait at most ``timeout`` seconds for the first. If ``timeout`` is -1 or
        None, the wait has no limit, but ends when another thread closes the producer. Raises what a
        callback raises, and RuntimeError after ``close``. Inside a delivery callback, a wait
        without limit raises KafkaException.
        """
