"""A Producer that is compatible with confluent-kafka's, on top of kprod's producer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Self, TypeAlias

from kprod import errors as native_errors
from kprod.clock import SystemClock
from kprod.cluster.snapshot import TopicInfo
from kprod.config.reading import concealed
from kprod.confluent.cluster_metadata import ClusterMetadata, cluster_metadata
from kprod.confluent.errors import (
    KafkaError,
    KafkaException,
    KeySerializationError,
    Purged,
    ValueSerializationError,
    also_theirs,
    failure_of_call,
    from_native,
    raise_unless_unassigned,
)
from kprod.confluent.events import Events, forwarding
from kprod.confluent.native import NativeProducer, seconds
from kprod.confluent.options import NO_BROKER, first_given, native_producer, settled
from kprod.confluent.transactions import ProducerTransactions
from kprod.confluent.unassigned import Unassigned, UnassignedRecords, checked
from kprod.intake.arguments import check_topic
from kprod.intake.attempts import Attempts
from kprod.intake.partitioner import CRC32
from kprod.latch import Latch
from kprod.lock import Lock
from kprod.process import after_fork, tell_of_forks
from kprod.sender.engine import LONGEST_WAIT
from kprod_ext.confluent import CLOSED, DeliveryReports, Message, Producing, frozen_headers
from kprod_ext.futures import FutureRecordMetadata

monotonic = SystemClock.monotonic

OnDelivery: TypeAlias = Callable[[KafkaError | None, Message], object]

MOST_BYTES = 2**15 - 1
"""Longest string in a request, in bytes."""
PATIENCE = 0.1
"""Seconds after which a flush checks again for batches to send immediately."""
LAST_MOMENT = 1.0
"""Seconds that ``close`` waits for a record that another thread is queueing, until it fails."""


class Producer(Producing, ProducerTransactions):
    """Drop-in replacement for ``confluent_kafka.Producer``. Thread-safe.

    It has the options, methods, delivery reports and errors of confluent-kafka. ``produce`` never
    blocks, even before a broker is connected. Delivery reports and other callbacks run in ``poll``
    and ``flush``, in the calling thread. Exceptions of callbacks propagate. ``docs/migration.md``
    lists the remaining differences.
    """

    def __init__(self, conf: Any = None, **named: Any) -> None:
        conf, named = concealed(conf) if isinstance(conf, dict) else conf, concealed(named)
        also_theirs()
        self._settings, self._options = settled(conf, named)
        reports = DeliveryReports(self._settings.only_errors, from_native)
        by_key = CRC32.partition if self._settings.keys_by_crc32 else None
        super().__init__(self._settings, reports, by_key, native_errors.KprodError)
        self._events = Events(self._settings, self._reports)
        native = native_producer(self._options)
        self._events.listen_to(native)
        timeout = self._settings.message_timeout
        attempts, fail = partial(self._attempts, native), partial(self._fail, native)
        waiting = UnassignedRecords(native, attempts, self._queued, fail, timeout)
        self._use(native, waiting)
        self._closing_lock, self._end = Lock(), Latch()
        tell_of_forks(self)
        self._handler = forwarding(self._settings, native.config.client_id)
        if self._options["bootstrap_servers"] != NO_BROKER:
            native.begin_to_connect()

    _end: Latch | None = None  # opens when it is closed; None: __init__ did not finish

    @property
    def _running(self) -> NativeProducer:
        native: NativeProducer = self._usable()
        return native

    @property
    def __kprod_producer__(self) -> NativeProducer | None:
        """The underlying producer, for ``kprod.observability``. None after ``close``."""
        native: NativeProducer | None = self._native
        return native

    def _begin_in_child(self) -> None:
        after_fork()

    def inherited_by_child(self) -> None:
        """Prepare a forked child. A thread of the parent may have been closing the producer."""
        super().inherited_by_child()
        self._events.begin_in_child()
        self._closing_lock, self._end = Lock(), Latch()
        if self._native is None:
            self._end.open()

    # Producing ------------------------------------------------------------------------------------

    def _refuse_full(self) -> None:
        raise BufferError(KafkaError(KafkaError._QUEUE_FULL).str())

    def _refuse_unless_unassigned(self, failure: native_errors.KprodError | None) -> None:
        raise_unless_unassigned(failure)

    def _assign_later(self, given: Iterable[Any]) -> None:
        """Queue a record that waits for its topic."""
        native = self._running
        record = checked(Unassigned._make(given), native)
        self._reports.expect(1)
        try:
            check_topic(record.topic)
        except native_errors.InvalidTopicError as error:
            self._fail(native, record, error)
        else:
            try:
                self._unassigned.add(record)
            except Exception as error:
                self._reports.expect(-1)
                if isinstance(error, native_errors.BufferFullError):
                    self._refuse_full()
                raise
            if self._reports.ended:  # ``close`` has ended meanwhile
                self._unassigned.purge(Purged(CLOSED))
                self._reports.serve()

    def _attempts(self, native: NativeProducer, record: Unassigned, topic: TopicInfo) -> Attempts:
        """Make the attempts to queue a record whose topic is known now.

        ``native`` is an argument, because ``close`` may have removed the current producer
        meanwhile.
        """
        partition = record.partition
        if partition is None and record.key and self._settings.keys_by_crc32 and len(topic):
            partition = CRC32.partition(record.key, len(topic))
        content = record.topic, record.value, record.key, record.headers
        return Attempts(native, (*content, partition, record.timestamp_ms))

    def _queued(self, record: Unassigned, future: FutureRecordMetadata) -> None:
        """Note that a record that had to wait for its topic is now queued in the producer."""
        entry = record.on_delivery, record.key, record.value, record.headers, record.began
        self._reports.add(future, *entry)
        self._reports.expect(-1)  # it was counted while it waited for its topic

    def _fail(
        self, native: NativeProducer, record: Unassigned, error: native_errors.KprodError
    ) -> None:
        if self._native is not None:  # first: a commit waits until no record is waiting
            native.record_lost(error)
        native.given_up(record.as_given(), error)
        translated = from_native(error)
        message = Message(
            record.topic,
            -1 if record.partition is None else record.partition,
            key=record.key,
            value=record.value,
            headers=record.headers,
            error=translated,
            latency=monotonic() - record.began,
        )
        report = partial(self._reports.report, record.on_delivery, translated, message)
        self._reports.call_soon(report)

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> int:
        """Queue many records, given as dicts with ``value``, ``key``, ``partition``, ``callback``.

        Returns how many were queued. The dict of each other record gets a KafkaError under the key
        ``_error``. Serializers are not called.
        """
        _check_topic(topic)
        if not isinstance(messages, list):
            raise TypeError("messages must be a list")
        if not isinstance(partition, int):
            raise TypeError("partition must be int")
        for index, message in enumerate(messages):
            _check(index, message)
        report = first_given(callback, on_delivery)
        return sum([self._produced(topic, message, partition, report) for message in messages])

    def _produced(
        self, topic: str, message: dict[str, Any], partition: int, report: OnDelivery | None
    ) -> bool:
        """Queue a message of a batch; if that fails, return False and set its ``_error``."""
        try:
            super().produce(  # a SerializingProducer's takes the key first, and objects
                topic,
                message.get("value"),
                message.get("key"),
                message.get("partition", partition),
                first_given(message.get("callback"), message.get("on_delivery"), report),
                headers=message.get("headers"),
            )
        except BufferError:
            message["_error"] = KafkaError(KafkaError._QUEUE_FULL)
        except KafkaException as error:
            message["_error"] = error.args[0]
        except ValueError as error:
            message["_error"] = KafkaError(KafkaError._INVALID_ARG, str(error))
        else:
            return True
        return False

    # Reports --------------------------------------------------------------------------------------

    def _refuse_inside(self, call: str) -> None:
        """Raise KafkaException if this thread is running a delivery callback.

        ``call`` waits for delivery callbacks, and so would wait for the one that called it.
        """
        if self._reports.inside():
            words = f"Local: Erroneous state: {call} inside on_delivery would wait for itself"
            raise KafkaException(KafkaError(KafkaError._STATE, words))

    def _wait_and_serve(self, timeout: float | None) -> int:
        native, reports = self._running, self._reports
        limit = seconds(timeout)
        if limit == LONGEST_WAIT:
            self._refuse_inside("poll() without a timeout")
        self._events.serve_statistics(native)
        served = reports.serve()
        deadline = monotonic() + limit
        while not (served or reports.ended) and (left := deadline - monotonic()) > 0:
            reports.wait(min(left, self._events.until_statistics()))
            self._events.serve_statistics(native)
            served = reports.serve()
        return served

    def flush(self, timeout: float | None = -1) -> int:
        """Wait at most ``timeout`` seconds for all delivery reports; return how many are left.

        Runs the callbacks; their exceptions propagate. Inside a delivery callback, raises
        KafkaException unless ``timeout`` is 0. After ``close``, raises RuntimeError.
        """
        native = self._running
        if timeout != 0:
            self._refuse_inside("flush()")
        return self._flush(native, monotonic() + seconds(timeout))

    def _flush(self, native: NativeProducer, deadline: float) -> int:
        reports = self._reports
        while True:
            reports.expedite()
            self._events.serve_statistics(native)
            reports.serve()
            left = deadline - monotonic()
            if not reports.waiting or left <= 0 or reports.ended:
                return reports.waiting
            reports.wait(min(left, PATIENCE, self._events.until_statistics()))

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Discard queued records, records in flight, or both.

        Their delivery reports have the code _PURGE_QUEUE, or _PURGE_INFLIGHT if the record may have
        been stored. With ``blocking``, the reports are available when this call returns.
        """
        native = self._running
        if in_queue:
            self._unassigned.purge(Purged("discarded by purge()"))
        if in_queue or in_flight:
            native.purge(queued=in_queue, in_flight=in_flight, blocking=blocking)

    # The end --------------------------------------------------------------------------------------

    def close(self, timeout: float | None = -1) -> bool:
        """Reject new records, flush, and close. Returns True.

        Aborts an open transaction first. Waits at most ``timeout`` seconds, and then purges the
        remaining records. From now on, calls in other threads raise RuntimeError, but callbacks
        that run during ``close`` may still produce. If another thread is already in ``close``,
        waits until that call has returned. If a callback raised, its exception is raised after
        closing. Inside a delivery callback, raises KafkaException unless ``timeout`` is 0.
        """
        if self._end is None:
            return True
        if self._inherited:
            after_fork()
        closing, limit = self._closing, seconds(timeout)
        deadline = monotonic() + limit
        if timeout != 0:
            self._refuse_inside("close()")
        with self._closing_lock:
            native, self._native = self._native, None
            if native is not None:
                self._closing = threading.get_ident(), native
        if native is None:
            if closing is None or closing[0] != threading.get_ident():  # otherwise it runs error_cb
                self._end.wait(max(0.0, deadline - monotonic()))
            return True
        try:
            if native.config.transactional_id is not None:
                aborted = native_errors.TransactionAbortedError("the producer was closed")
                self._unassigned.purge(aborted)
                # A record that is just being queued belongs to the transaction, too.
                self._unassigned.await_none(min(LAST_MOMENT, max(0.0, deadline - monotonic())))
                native.abort_open_transaction()
            self._flush(native, deadline)
        finally:
            failure = self._finish(native, None if limit == LONGEST_WAIT else deadline)
        if failure is not None:
            raise failure
        return True

    def _finish(self, native: NativeProducer, deadline: float | None) -> Exception | None:
        """Close after ``close`` has flushed, or after an exception has interrupted the flush.

        Returns the exception that a callback has raised, if any.
        """
        self._closing = None
        self._closed = native  # without a GIL another thread may be about to use it
        self._unassigned.purge(Purged("discarded by close()"))
        native.close(None if deadline is None else max(0.0, deadline - monotonic()))
        self._unassigned.await_none(LAST_MOMENT)  # a record that was being queued fails meanwhile
        if self._handler is not None:
            logging.getLogger("kprod").removeHandler(self._handler)
        if self._settings.tokens is not None:
            self._settings.tokens.close()
        try:
            return self._reports.end()
        finally:
            assert self._end is not None
            self._end.open()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these for new connections. Raises TypeError unless both are strings."""
        self._usable()
        self._settings.credentials.replace(username, password)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        if self._inherited:
            after_fork()
        return 0 if self._native is None else self._reports.waiting

    def __bool__(self) -> bool:
        return True

    # What is known --------------------------------------------------------------------------------

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Request the current metadata of the brokers and of all topics, or of one.

        If brokers refuse a topic, its ``error`` says why. Replicas are not included. Raises
        KafkaException if no broker answers within ``timeout`` seconds; -1 means no limit.
        """
        native = self._running
        if topic is not None:
            _check_topic(topic)
        deadline = monotonic() + seconds(timeout)
        try:
            native.connect(max(0.0, deadline - monotonic()))
            if topic is not None and not _fits(topic):  # brokers refuse other invalid names
                check_topic(topic)
            asked = None if topic is None else [topic]
            reply = native.ask_about(asked, max(0.0, deadline - monotonic()))
            if reply.error_code:
                raise native_errors.BrokerError(reply.error_code)
            if topic is not None and not any(known.error_code for known in reply.topics):
                # The program often produces to this topic next: its records need not wait then.
                native.know(topic, max(0.0, deadline - monotonic()))
        except native_errors.KprodTimeoutError as error:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, str(error))) from error
        except native_errors.KprodError as error:
            raise failure_of_call(error) from error
        return cluster_metadata(reply)

    def cluster_id(self, timeout: float = -1) -> str:
        """The id of the cluster. Waits for it at most ``timeout`` seconds; -1 means no limit.

        Raises KafkaException.
        """
        native = self._running
        try:
            native.connect(seconds(timeout))
        except native_errors.KprodTimeoutError as error:
            words = f"Failed to retrieve cluster id: {error}"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, words)) from error
        except native_errors.KprodError as error:
            raise failure_of_call(error) from error
        return native.cluster.cluster_id or ""


def _check_topic(topic: Any) -> None:
    if not isinstance(topic, str):
        raise TypeError(f"topic must be a str, not {type(topic).__name__}")


def _fits(topic: str) -> bool:
    """Whether the name, even if it is invalid, can be encoded in a request."""
    try:
        return len(topic.encode()) <= MOST_BYTES
    except UnicodeEncodeError:
        return False


def _check(index: int, message: Any) -> None:
    if not isinstance(message, dict):
        raise TypeError(f"Message at index {index} must be a dict")
    for name in ("value", "key"):
        if not isinstance(message.get(name), bytes | str | None):
            raise TypeError(f"Message {name} at index {index} must be bytes or str")
    if not isinstance(message.get("partition", 0), int):
        raise TypeError(f"Message partition at index {index} must be int")
    if message.get("headers") is not None:
        try:
            frozen_headers(message["headers"])
        except (TypeError, ValueError) as error:
            raise ValueError(f"Invalid headers at index {index}: {error}") from error
    if message.get("timestamp") is not None:
        raise NotImplementedError(
            "Message timestamps are not currently supported by produce_batch(): produce() takes one"
        )


class SerializingProducer(Producer):
    """A Producer that calls a ``key.serializer`` and a ``value.serializer`` with every record.

    Serializers are ``f(object, SerializationContext) -> bytes``, like those of
    ``confluent_kafka.schema_registry``. The context's class is that of confluent-kafka.
    """

    def __init__(self, conf: dict[str, Any]) -> None:
        from confluent_kafka.serialization import MessageField, SerializationContext

        self._context, self._fields = SerializationContext, MessageField
        own = conf = dict(concealed(conf))
        self._key_serializer = own.pop("key.serializer", None)
        self._value_serializer = own.pop("value.serializer", None)
        super().__init__(own)

    def produce(  # type: ignore[override]
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        partition: int = -1,
        on_delivery: Any = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """As ``Producer.produce``. Also raises KeySerializationError or ValueSerializationError."""
        self._usable()
        _check_topic(topic)
        context = self._context(topic, self._fields.KEY, headers)
        if self._key_serializer is not None:
            try:
                key = self._key_serializer(key, context)
            except Exception as error:
                raise KeySerializationError(error) from error
        context.field = self._fields.VALUE
        if self._value_serializer is not None:
            try:
                value = self._value_serializer(value, context)
            except Exception as error:
                raise ValueSerializationError(error) from error
        super().produce(topic, value, key, partition, on_delivery, None, timestamp, headers)
