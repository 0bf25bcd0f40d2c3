"""Producer as confluent-kafka has it, over kprod's own"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Self, TypeAlias

from kprod import errors as native_errors
from kprod.clock import SystemClock
from kprod.config.reading import concealed
from kprod.confluent.cluster_metadata import ClusterMetadata, cluster_metadata
from kprod.confluent.errors import (
    KafkaError,
    KafkaException,
    KeySerializationError,
    Purged,
    ValueSerializationError,
    also_theirs,
    from_native,
    raise_unless_unassigned,
)
from kprod.confluent.events import Events, forwarding
from kprod.confluent.native import NativeProducer, seconds
from kprod.confluent.options import NO_BROKER, native_producer, settled
from kprod.confluent.transactions import ProducerTransactions
from kprod.confluent.unassigned import Unassigned, UnassignedRecords, checked
from kprod.intake.arguments import check_topic
from kprod.intake.attempts import Attempts
from kprod.intake.partitioner import CRC32
from kprod.sender.process import tell_of_forks
from kprod_ext.confluent import CLOSED, DeliveryReports, Message, Producing
from kprod_ext.futures import FutureRecordMetadata

monotonic = SystemClock.monotonic

OnDelivery: TypeAlias = Callable[[KafkaError | None, Message], object]

MOST_BYTES = 2**15 - 1
"""Of a text in a request."""
PATIENCE = 0.1
"""Seconds after which a flush looks again for batches it has to hurry."""
LAST_MOMENT = 1.0
"""Seconds that ``close`` waits for a record that is being queued: it fails once it gets a turn."""


class Producer(Producing, ProducerTransactions):
    """``confluent_kafka.Producer``: its options, calls, delivery reports and errors. Thread-safe.

    ``produce`` never waits, not for a broker either. Delivery reports and the other callbacks run
    in ``poll`` and ``flush``, in the thread that calls them, and what they raise comes out there.
    ``docs/migration.md`` has the differences that are left.
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
        attempts = partial(self._attempts, native)
        waiting = UnassignedRecords(native, attempts, self._queued, self._fail, timeout)
        self._use(native, waiting)
        tell_of_forks(self)
        self._handler = forwarding(self._settings, native.config.client_id)
        if self._options["bootstrap_servers"] != NO_BROKER:
            native.begin_to_connect()

    @property
    def _running(self) -> NativeProducer:
        if self._native is None:
            raise RuntimeError(CLOSED)
        native: NativeProducer = self._native
        return native

    # Producing ------------------------------------------------------------------------------------

    def _refuse_full(self) -> None:
        raise BufferError(KafkaError(KafkaError._QUEUE_FULL).str())

    def _refuse_unless_unassigned(self, failure: native_errors.KprodError | None) -> None:
        raise_unless_unassigned(failure)

    def _assign_later(self, given: Iterable[Any]) -> None:
        """Let a record wait until its topic is known."""
        record = checked(Unassigned._make(given))
        self._reports.expect(1)
        try:
            check_topic(record.topic)
        except native_errors.InvalidTopicError as error:
            self._fail(record, error)
        else:
            self._unassigned.add(record)

    def _attempts(self, native: NativeProducer, record: Unassigned) -> Attempts:
        """The function that queues a record after it has waited for its topic.

        Not with the producer that runs: ``close`` may have come in between.
        """
        partition = record.partition
        if partition is None:
            partition = self._partition(native, record.topic, record.key)
        content = record.topic, record.value, record.key, record.headers
        return Attempts(native, (*content, partition, record.timestamp_ms))

    def _queued(self, record: Unassigned, future: FutureRecordMetadata) -> None:
        """A record that had to wait for its topic is the producer's now."""
        entry = record.on_delivery, record.key, record.value, record.headers, record.began
        self._reports.add(future, *entry)
        self._reports.expect(-1)  # it was counted while it waited for its topic

    def _fail(self, record: Unassigned, error: native_errors.KprodError) -> None:
        if self._native is not None:  # first: a commit waits until no record waits any more
            self._native.record_lost(error)
        told = from_native(error)
        message = Message(
            record.topic,
            -1 if record.partition is None else record.partition,
            key=record.key,
            value=record.value,
            headers=record.headers,
            error=told,
            latency=monotonic() - record.began,
        )
        self._reports.call_soon(partial(self._report, record.on_delivery, told, message))

    def _report(self, callback: OnDelivery | None, error: KafkaError, message: Message) -> None:
        self._reports.expect(-1)
        if callback is not None:
            callback(error, message)

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> int:
        """Queue many records, each a dict of ``value``, ``key``, ``partition`` and ``callback``.

        Returns how many were queued; the others have their KafkaError under ``_error``.
        """
        _check_topic(topic)
        if not isinstance(messages, list):
            raise TypeError("messages must be a list")
        if not isinstance(partition, int):
            raise TypeError("partition must be int")
        for index, message in enumerate(messages):
            _check(index, message)
        report = on_delivery or callback
        return sum([self._produced(topic, message, partition, report) for message in messages])

    def _produced(
        self, topic: str, message: dict[str, Any], partition: int, report: OnDelivery | None
    ) -> bool:
        """Whether a message of a batch was queued; if not, its KafkaError is under ``_error``."""
        try:
            self.produce(
                topic,
                message.get("value"),
                message.get("key"),
                message.get("partition", partition),
                message.get("callback") or message.get("on_delivery") or report,
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

    def _wait_and_serve(self, timeout: float | None) -> int:
        native, reports = self._running, self._reports
        self._events.tell_statistics(native)
        served = reports.serve()
        deadline = monotonic() + seconds(timeout)
        while not served and (left := deadline - monotonic()) > 0:
            reports.wait(min(left, self._events.until_statistics()))
            self._events.tell_statistics(native)
            served = reports.serve()
        return served

    def flush(self, timeout: float | None = -1) -> int:
        """Serve reports until none is missing, at most ``timeout`` seconds; how many are left."""
        native, reports = self._running, self._reports
        deadline = monotonic() + seconds(timeout)
        while True:
            reports.hurry()
            self._events.tell_statistics(native)
            reports.serve()
            left = deadline - monotonic()
            if not reports.waiting or left <= 0:
                return reports.waiting
            reports.wait(min(left, PATIENCE, self._events.until_statistics()))

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Give up records: those in queues, those that requests are on their way with, or both.

        Their reports have the codes _PURGE_QUEUE and, where a record may have been stored,
        _PURGE_INFLIGHT. ``blocking``: they are there when this returns.
        """
        native = self._running
        if in_queue:
            self._unassigned.purge(Purged("given up by purge()"))
        if in_queue or in_flight:
            native.purge(queued=in_queue, in_flight=in_flight, blocking=blocking)

    # The end --------------------------------------------------------------------------------------

    def close(self, timeout: float | None = -1) -> bool:
        """Flush, and end everything: True. Every other call raises RuntimeError then."""
        if self._native is None:
            return True
        unlimited, deadline = timeout is None or timeout < 0, monotonic() + seconds(timeout)
        try:
            self.flush(timeout)
        finally:
            native, self._native = self._native, None
            self._closed = native  # without a GIL a thread may be about to count its reference
            self._unassigned.purge(Purged("given up by close()"))
            native.close(None if unlimited else max(0.0, deadline - monotonic()))
            self._unassigned.await_none(LAST_MOMENT)  # one that was being queued has failed by then
            self._reports.serve_ended()  # what a flush has left, or an exception has interrupted
            if self._handler is not None:
                logging.getLogger("kprod").removeHandler(self._handler)
            if self._settings.tokens is not None:
                self._settings.tokens.close()
        return True

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with these from the next connection on. Raises TypeError unless both are text."""
        if self._native is None:
            raise RuntimeError(CLOSED)
        self._settings.credentials.replace(username, password)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return 0 if self._native is None else self._reports.waiting

    def __bool__(self) -> bool:
        return True

    # What is known --------------------------------------------------------------------------------

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """The brokers, and every topic or one, as a broker describes them now.

        A topic that it refuses has its ``error``; replicas are not told. Raises KafkaException
        when no broker answers within ``timeout`` seconds; -1 waits for ever.
        """
        native = self._running
        if topic is not None:
            _check_topic(topic)
        deadline = monotonic() + seconds(timeout)
        try:
            native.connect(max(0.0, deadline - monotonic()))
            if topic is not None and not _fits(topic):  # others are for brokers to refuse
                check_topic(topic)
            asked = None if topic is None else [topic]
            reply = native.ask_about(asked, max(0.0, deadline - monotonic()))
            if reply.error_code:
                raise native_errors.BrokerError(reply.error_code)
            if topic is not None and not any(known.error_code for known in reply.topics):
                # What is asked about is often written to next: then nothing has to wait for it.
                native.know(topic, max(0.0, deadline - monotonic()))
        except native_errors.KprodTimeoutError as error:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, str(error))) from error
        except native_errors.KprodError as error:
            raise KafkaException(from_native(error)) from error
        return cluster_metadata(reply)

    def cluster_id(self, timeout: float = -1) -> str:
        """The id of the cluster, waiting at most ``timeout`` seconds until a broker has told it.

        -1 waits for ever. Raises KafkaException.
        """
        native = self._running
        try:
            native.connect(seconds(timeout))
        except native_errors.KprodTimeoutError as error:
            words = f"Failed to retrieve cluster id: {error}"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, words)) from error
        except native_errors.KprodError as error:
            raise KafkaException(from_native(error)) from error
        return native.cluster.cluster_id or ""


def _check_topic(topic: Any) -> None:
    if not isinstance(topic, str):
        raise TypeError(f"topic must be a str, not {type(topic).__name__}")


def _fits(topic: str) -> bool:
    """Whether a request can have the name, be it one or not."""
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
    if message.get("timestamp") is not None:
        raise NotImplementedError(
            "Message timestamps are not currently supported by produce_batch(): produce() takes one"
        )


class SerializingProducer(Producer):
    """A Producer that calls a ``key.serializer`` and a ``value.serializer`` with every record.

    They are ``f(object, SerializationContext) -> bytes``, as those of
    ``confluent_kafka.schema_registry``; the package confluent-kafka has the context they expect.
    """

    def __init__(self, conf: dict[str, Any]) -> None:
        from confluent_kafka.serialization import MessageField, SerializationContext

        self._context, self._fields = SerializationContext, MessageField
        own = dict(conf)
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
        """Queue one record. Raises KeySerializationError, ValueSerializationError, and as above."""
        if self._native is None:
            raise RuntimeError(CLOSED)
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
        super().produce(topic, value, key, partition, on_delivery, timestamp, headers)
