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
    """A record and its outcome, with confluent_kafka.Message's arguments and calls."""

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
        """The partition's number, None before the record has one."""

    def offset(self) -> int | None:
        """The offset, None where none is known."""

    def key(self) -> Any:
        """The key."""

    def value(self) -> Any:
        """The value."""

    def deserialized_key(self) -> Any:
        """The key, as ``key`` returns it: a producer's message was never deserialized."""

    def deserialized_value(self) -> Any:
        """The value, as ``value`` returns it."""

    def headers(self) -> Any:
        """The headers, None for none."""

    def error(self) -> Any:
        """The KafkaError that ended the record, or None."""

    def timestamp(self) -> tuple[int, int]:
        """The kind of timestamp, and milliseconds since the epoch."""

    def latency(self) -> float | None:
        """Seconds from ``produce`` to the outcome."""

    def leader_epoch(self) -> int | None:
        """The leader epoch; brokers do not send it to producers."""

    def delivery_count(self) -> int | None:
        """For share consumers."""

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
    """Records are put in by any thread; ``serve`` calls back in the thread that calls it.

    One callback for each batch tells that it has ended, not one for each record. ``waiting`` counts
    the records that have no report yet; ``ready`` is what ``serve`` will call back. ``on_ready`` is
    called, in any thread, when it becomes more. ``error_for`` makes a KafkaError of the
    record's error; ``only_errors``: stored records are not reported.
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
        """Let ``serve`` call this, among the reports."""

    def begin_in_child(self) -> None:
        """After a fork: what waits for a report belongs to the parent."""

    def hurry(self) -> None:
        """Somebody waits: no batch need linger any more."""

    def wait(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds until ``serve`` has a callback to run."""

    def serve(self) -> int:
        """Run the callbacks that are ready; return their number. An error of one ends the call."""

    def serve_ended(self) -> int:
        """As ``serve``, and at once for every batch that has ended: the producer has closed."""

    def expect(self, records: int) -> None:
        """So many more records wait for a report; fewer, if negative."""

@disjoint_base
class Producing:
    """A Producer's work for each record; its subclass does the rest.

    ``partition_for_key`` takes a key and the number of partitions; None: the native producer
    chooses. ``refusals`` are the errors that ``send`` raises. The subclass has ``_refuse_full``,
    ``_refuse_unless_unassigned``, ``_assign_later`` and ``_wait_and_serve``.
    """

    _native: Any
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
    def inherited_by_child(self) -> None:
        """This process was forked: what was queued before is the parent's, which reports it."""

    def _use(self, native: Any, unassigned: Any) -> None:
        """From now on."""

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        on_delivery: _OnDelivery | None = None,
        timestamp: int = 0,
        headers: Any = None,
        callback: _OnDelivery | None = None,
    ) -> None:
        """Queue one record. ``on_delivery(error, message)`` is called by ``poll`` or ``flush``.

        Raises BufferError when ``queue.buffering.max.messages`` wait for their report or memory is
        used up, TypeError, KafkaException, and RuntimeError after ``close``.
        """

    def _partition(self, native: Any, topic: str, key: Any) -> int | None:
        """Where a key belongs, if the face decides and knows the topic; else None."""

    def poll(self, timeout: float | None = -1) -> int:
        """Run the callbacks that are due, waiting at most ``timeout`` seconds for the first.

        -1 and None wait for ever. Returns how many callbacks that were; raises what one raises.
        """
