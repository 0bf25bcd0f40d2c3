"""``KafkaProducer``, the entry point of kprod."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, Unpack

from kprod.buffer.callbacks import Callbacks
from kprod.buffer.compiled_topics import CompiledTopics
from kprod.bulk.bulk_calls import BulkCalls
from kprod.bulk.writing import BulkParts
from kprod.clock import SystemClock
from kprod.cluster.metadata import Metadata, MetadataListener
from kprod.cluster.snapshot import ClusterSnapshot, TopicInfo
from kprod.config import ProducerConfig
from kprod.config.kinds import is_open_backend
from kprod.config.option_types import ProducerOptions
from kprod.config.reading import concealed, option_name
from kprod.errors import (
    BufferFullError,
    IllegalStateError,
    KprodError,
    ProducerClosedError,
    still_being_sent,
)
from kprod.intake.arguments import (
    SizeLimits,
    check_seconds,
    check_topic,
    checked_record,
    refuse_positions,
)
from kprod.intake.completion import call_once, check_callback
from kprod.intake.configured_partitioner import compiled_partitioner, partitioner_for
from kprod.intake.dead_letters import DeadLetters
from kprod.intake.interceptors import Interceptors, closable, close_all
from kprod.intake.partitioner import Partitioner
from kprod.intake.queue_loads import QueueLoads
from kprod.intake.serializers import NO_SERIALIZERS, Serializers
from kprod.lock import Lock
from kprod.metrics import ProducerMetrics
from kprod.process import (
    after_fork,
    exit_on_sigterm,
    forget,
    refuse_green_threads,
    watch_over,
)
from kprod.sender.assembly import assemble
from kprod.sender.engine import LONGEST_WAIT, Engine
from kprod.telemetry import Telemetry
from kprod.transactional.transaction_calls import TransactionCalls
from kprod.types import (
    DeliveryReport,
    Headers,
    OnCompletion,
    ProducerRecord,
    TopicPartition,
    owned,
)
from kprod_ext import AppendResult, CompiledSend, RecordClock
from kprod_ext.futures import FutureRecordMetadata

if TYPE_CHECKING:
    from uuid import UUID

log = logging.getLogger(__name__)

SENDS_RECORDS = frozenset(
    {"key_serializer", "value_serializer", "partitioner", "interceptors", "dead_letter_topic"}
)
"""Options of the application's records. A producer that only ends transactions has none of them:
it would close the plug-ins of another one."""
OF_RECORDS = SENDS_RECORDS | {
    *("transactional_id", "transaction_timeout_ms", "topic_options"),
    *("client_id", "max_block_ms", "close_on_sigterm"),
}
"""Options that a producer of dead letters does not share."""
SHORTEST_END = 5.0
"""Minimum seconds for dead letters when their producer is closed."""

GRACE = 1.0
"""Seconds that ``close`` allows for noticing the last record's delivery timeout."""


class KafkaProducer(CompiledSend, BulkCalls, TransactionCalls):
    """Sends records to Kafka. Thread-safe; usually one producer serves a whole process.

    Options are keyword arguments, which ``docs/configuration.md`` lists. Both spellings work:
    ``linger_ms`` and ``"linger.ms"``. By default, the producer is idempotent and uses
    ``acks="all"``: every in-sync replica gets the records of a partition in order and without
    duplicates.

    The constructor raises ConfigError for an invalid option. The producer connects in the
    background on first use.

    As a context manager, the producer closes at the end of the block. After an exception, and when
    the interpreter exits, it takes at most ``close_timeout_ms_at_exit`` to deliver queued records.
    A producer that is garbage-collected is closed in the background.

    A pickle contains only the options. Pickling raises TypeError if a secret is given as a string.
    A forked child that uses the producer opens its own connections, and a warning is logged.
    """

    def __init__(self, *misplaced: object, **options: Unpack[ProducerOptions]) -> None:
        refuse_positions(misplaced)
        options = concealed(options)
        self.config = ProducerConfig.from_options(options)
        log.debug("%s is made with %r", self.config.client_id, self.config)
        self._options = options
        self._clock = SystemClock()
        self._interceptors = Interceptors(self.config.interceptors)
        self._serializers = Serializers(self.config.key_serializer, self.config.value_serializer)
        self._serialize_by(self._serializers.apply_to if self._serializers else None)
        self._max_block = self.config.max_block_ms / 1000
        self._size_limits = SizeLimits(self.config)
        self._exit_seconds = self.config.close_timeout_ms_at_exit / 1000
        self._close_seconds = self.config.delivery_timeout_ms / 1000 + GRACE
        self._closed = False
        self._start()

    def _start(self) -> None:
        """Create everything that belongs to one process: memory, connections, the sender thread.

        Raises IllegalStateError if green threads have replaced Python's threads.
        """
        refuse_green_threads()
        config = self.config
        self._metrics = ProducerMetrics(
            config.metrics_num_samples, config.metrics_sample_window_ms / 1000
        )
        loads = QueueLoads(config.partitioner_availability_timeout_ms / 1000)
        watched = loads if config.partitioner_adaptive_partitioning_enable else None
        # New in a forked child: with the parent's state all children would draw the same numbers.
        self._partitioner = partitioner_for(
            config.partitioner,
            config.batch_size,
            ignore_keys=config.partitioner_ignore_keys,
            loads=watched,
        )
        self._compiled_partitioner = compiled_partitioner(config, self._partitioner)
        self._callbacks = Callbacks(f"kprod-callbacks-{config.client_id}")
        self.record_clock = self._record_clock()
        self._sender = assemble(
            config,
            self._metrics,
            self._clock,
            nodes_wait=None if watched is None else watched.waiting,
            callbacks=self._callbacks,
            record_clock=self.record_clock,
        )
        self._telemetry = Telemetry.of(self._sender, config, self._metrics)
        self._metadata = self._sender.metadata
        if watched is not None:
            watched.watch(self._sender.partitions)
            self._metadata.subscribe(MetadataListener(forgotten=watched.forget))
        forget = getattr(self._partitioner, "forget", None)
        if forget is not None:
            self._metadata.subscribe(MetadataListener(forgotten=forget))
        self._accumulator = self._sender.accumulator
        self._transactions = self._sender.transactions
        self._wake = self._sender.loop_owner.wake
        self._compiled_topics = CompiledTopics(
            self._topic_appenders,
            self._accumulator,
            self._metadata,
            largest=self._size_limits.largest_payload,
        )
        plugged = config.key_serializer, config.value_serializer, config.partitioner
        plugins = closable((*plugged, *config.interceptors))
        self._dead_letters = self._made_dead_letters()
        if self._dead_letters is not None:  # closed last, when no other record can fail
            plugins.append(self._dead_letters)
        last = partial(close_all, plugins) if plugins else None
        self._engine = Engine(self._sender, self._metrics, config.client_id, last)
        self._bulk = self._bulk_parts()
        watch_over(self, self._engine, at_exit=self._exit_seconds, dropped=self._close_seconds)
        if config.close_on_sigterm:
            exit_on_sigterm()

    def _made_dead_letters(self) -> DeadLetters | None:
        """Create the sender of dead letters, which uses this producer's cluster options.

        Returns None if the producer has no topic for them.
        """
        config = self.config
        if config.dead_letter_topic is None:
            return None
        name = f"{config.client_id}-dead-letters"
        kept: dict[str, Any] = {
            spelled: value
            for spelled, value in self._options.items()
            if option_name(spelled) not in OF_RECORDS
        }
        seconds = max(self._exit_seconds, SHORTEST_END)
        make = partial(KafkaProducer, client_id=name, max_block_ms=int(seconds * 1000), **kept)
        return DeadLetters(config.dead_letter_topic, make, self._metrics, f"kprod-{name}", seconds)

    def _record_clock(self) -> RecordClock:
        """The clock for records without a timestamp. A subclass may replace it."""
        return RecordClock()

    if TYPE_CHECKING:  # it is compiled: kprod_ext/send.pyx

        def send(
            self,
            topic: str,
            value: Any = None,
            key: Any = None,
            headers: Headers | None = None,
            partition: int | None = None,
            timestamp_ms: int | None = None,
            callback: OnCompletion | None = None,
        ) -> FutureRecordMetadata:
            """Queue one record. Its future gets the record's position in the log, or its error."""

    def _send_with_callback(self, callback: OnCompletion, *given: Any) -> FutureRecordMetadata:
        """Do ``send`` for a record with a callback: send it, and then add the callback."""
        check_callback(callback)
        return call_once(self.send(*given), callback)

    def _send(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
        partitioner: Partitioner | None = None,
    ) -> FutureRecordMetadata:
        """The Python path of ``send``, for records that the compiled path does not handle."""
        record = self.intercepted(topic, value, key, headers, partition, timestamp_ms)
        try:
            return self.send_intercepted(record, partitioner)
        except BaseException as error:  # including one raised by a signal handler during the wait
            self.not_queued(record, error)
            raise

    # For callers that wait for memory themselves: intake/attempts.py ------------------------------

    @property
    def has_interceptors(self) -> bool:
        """Whether interceptors see records before they are queued, or those that are not queued."""
        return self._interceptors.watch_queueing

    def checked(self, topic: Any, value: Any, key: Any, *others: Any) -> ProducerRecord:
        """Make a record of ``send``'s arguments. Raises like ``send``, except for key and value."""
        try:
            return checked_record(topic, value, key, *others)
        except KprodError as error:
            self.refused(ProducerRecord(str(topic), value, key), error)
            raise

    def intercepted(self, *given: Any) -> ProducerRecord:
        """Make a record of ``send``'s arguments, and call the interceptors.

        Raises like ``send``.
        """
        self._ensure_open()
        record = self.checked(*given)
        if self.has_interceptors:
            self._prepare(record)
        return self._interceptors.on_send(record)

    def _prepare(self, record: ProducerRecord) -> None:
        """Called before interceptors see a record.

        A subclass whose users send a refused record again raises here what it can foresee, so that
        interceptors do not see the record twice.
        """

    def send_intercepted(
        self, record: ProducerRecord, partitioner: Partitioner | None = None
    ) -> FutureRecordMetadata:
        """Queue the result of ``intercepted``.

        Raises like ``send``, without calling interceptors.
        """
        try:
            return self._queue(record, partitioner or self._partitioner, self._serializers)
        except BaseException as error:
            self.refused(record, error)
            raise

    def ensure_room(self, nbytes: int) -> None:
        """Raise BufferFullError unless ``nbytes`` of memory are free. Does not reserve them."""
        self._accumulator.ensure_room(nbytes)

    def not_queued(
        self, record: ProducerRecord, error: BaseException, chosen: TopicPartition | None = None
    ) -> None:
        """Notify the interceptors that a record is not sent. They have seen the record before.

        If the error does not name the record's partition, ``chosen`` is used.
        """
        chosen = getattr(error, "topic_partition", None) or chosen
        if chosen is not None:
            record = replace(record, partition=chosen.partition)
        self._interceptors.on_send_error(record, error)

    def refused(self, record: ProducerRecord, error: BaseException) -> None:
        """Write a rejected record as a dead letter, if the error is about the record itself.

        Also called by packages that wait for topics themselves.
        """
        if self._dead_letters is not None:
            self._dead_letters.refused(record, error)

    def _send_serialized(self, topic: str, *fields: Any) -> FutureRecordMetadata:
        """The rest of the Python path, for a record that the compiled path has serialized."""
        self._ensure_open()
        return self._queue(checked_record(topic, *fields), self._partitioner, NO_SERIALIZERS)

    def _queue(
        self, record: ProducerRecord, partitioner: Partitioner, serializers: Serializers
    ) -> FutureRecordMetadata:
        """Do the steps in the caller's thread: serialize, check, find the partition, append."""
        deadline = self._clock.monotonic() + self._engine.blocking_time(self._max_block)
        if self._callbacks.crowded:
            self._await_callbacks(deadline)
        key, value, headers = serializers.apply(record)
        if headers is not record.headers:
            record = replace(record, headers=headers)
        self._size_limits.check(record, key, value)
        if self._dead_letters is not None:  # a dead letter must contain what was sent
            key, value = owned(key), owned(value)
        topic = self._metadata.await_topic(
            record.topic, self._left(deadline), self._wake, record.partition
        )
        content = record.timestamp_ms, key, value, record.headers
        partition, appended = record.partition, None
        if partition is None:
            partition = partitioner.choose(topic, key)
            turn = getattr(partitioner, "on_new_batch", None)
            if turn is not None:
                tp = TopicPartition(record.topic, partition)
                appended = self._accumulator.append_to_open(tp, *content)
                if appended is None:
                    turn(topic, partition)
                    partition = partitioner.choose(topic, key)
        tp = TopicPartition(record.topic, partition)
        try:
            appended = appended or self._accumulator.append(tp, *content, self._left(deadline))
        except KprodError as error:
            error.topic_partition = tp
            raise
        if self._dead_letters is not None:
            stamp = appended.future.timestamp
            sent = replace(record, key=key, value=value, partition=partition, timestamp_ms=stamp)
            appended.future.add_errback(partial(self._dead_letters.failed, sent))
        if self._interceptors.watch_outcomes:
            self._interceptors.follow(replace(record, partition=partition), appended.future)
        self._learn(partitioner, topic, tp, appended)
        future: FutureRecordMetadata = appended.future
        return future

    def _learn(
        self, partitioner: Partitioner, topic: TopicInfo, tp: TopicPartition, appended: AppendResult
    ) -> None:
        """Report the record to the partitioner, and admit the partition to the compiled path."""
        partitioner.appended(topic, tp.partition, appended.nbytes, appended.batch_ready)
        if self._compiled_partitioner is not None:
            sticky = self._compiled_partitioner.sticky(tp.topic)
            self._compiled_topics.admit(tp, len(topic), sticky)

    def _bulk_parts(self) -> BulkParts | None:
        """The parts that bulk calls need. They do not keep the producer alive."""
        if self._compiled_partitioner is None or self._serializers:
            return None
        return BulkParts(
            accumulator=self._accumulator,
            compiled_topics=self._compiled_topics,
            metadata=self._metadata,
            partitioner=self._compiled_partitioner,
            wake=self._wake,
            blocking_time=partial(self._engine.blocking_time, self._max_block),
            largest=self._size_limits.largest_payload,
        )

    def _await_callbacks(self, deadline: float) -> None:
        if not self._callbacks.await_room(self._left(deadline)):
            raise BufferFullError(
                f"{self._callbacks.waiting} delivery callbacks are waiting to run: they take longer"
                " than sending does"
            )

    def _left(self, deadline: float) -> float:
        return max(0.0, deadline - self._clock.monotonic())

    def _ensure_usable(self) -> None:
        if self._closed:
            raise ProducerClosedError("the producer is closed")
        if self._inherited:
            self._restart_in_child()

    def _ensure_open(self) -> None:
        """Raise unless the producer is open and, if it is transactional, a transaction is open."""
        self._ensure_usable()
        refused = None if self._transactions is None else self._transactions.refusal()
        if refused is not None:
            raise refused

    # Waiting for everything -----------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> DeliveryReport:
        """Send all queued records immediately, and wait until each record has a result.

        The callbacks of these records have then returned, too. ``timeout`` is in seconds; None
        means no limit. Returns the counts since the producer was created. A failed record is only
        counted in ``failed``: ``flush`` does not raise its error.

        Raises KprodTimeoutError if some records have no result within ``timeout``; kprod continues
        to send them. Raises IllegalStateError inside a delivery callback.
        """
        check_seconds("flush", timeout, LONGEST_WAIT)
        if self._inherited:
            return DeliveryReport(0, 0, 0)
        began = self._clock.monotonic()
        try:
            report = self._engine.flush(timeout)
            self._flush_dead_letters(timeout, began)
            return report
        finally:
            self._metrics.flushed(self._clock.monotonic() - began)

    def _flush_dead_letters(self, timeout: float | None, began: float) -> None:
        if self._dead_letters is None:
            return
        left = None if timeout is None else max(0.0, began + timeout - self._clock.monotonic())
        if not self._dead_letters.flush(left):
            raise still_being_sent(f"dead letters have no outcome after {timeout:g} s")

    def close(self, timeout: float | None = None) -> DeliveryReport:
        """Reject new records, wait at most ``timeout`` seconds for queued ones, and close.

        None means about ``delivery_timeout_ms``, within which every record gets its result. A
        record that has no result after ``timeout`` fails with ProducerClosedError; ``persisted`` of
        this error says whether the record may have been stored. Callbacks that have not run by then
        run in the background until the interpreter exits. Returns the counts. A second call returns
        immediately.

        Raises IllegalStateError inside a delivery callback, unless ``timeout`` is 0. Serializers,
        the partitioner and interceptors that have a method ``close`` are closed once, after the
        last callback, in the callback thread.
        """
        check_seconds("close", timeout, LONGEST_WAIT)
        if self._inherited:
            self._closed = True
            return DeliveryReport(0, 0, 0)
        if timeout != 0:
            self._engine.refuse_inside("close")
        self._closed = True
        self._compiled_topics.close()
        if self._engine.stop(self._close_seconds if timeout is None else timeout):
            forget(self._engine)
        return self._engine.report()

    # One process, another process -----------------------------------------------------------------

    def inherited_by_child(self) -> None:
        """Prepare a forked child. Threads, connections and records remain in the parent."""
        self._restarting = Lock()  # guards starting once; new: no thread holds it

    def _restart_in_child(self) -> None:
        """Start a thread and connections for a forked child, without the queued records."""
        after_fork()
        with self._restarting:
            if not self._inherited:
                return
            if is_open_backend(self.config.transport):
                raise IllegalStateError(
                    f"{self!r} was made before this process was forked, and its transport is an"
                    " open backend, which only the parent may use: pass the backend's class, or a"
                    " callable that makes one, or make the producer in this process"
                )
            log.warning(
                "%r was made before this process was forked; it reconnects in this process, and the"
                " parent sends the records that it had queued",
                self,
            )
            self._start()
            self._belong_here()  # last: until then other threads would use the parent's parts

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the options. Unpickling makes a new producer, which connects on first use."""
        return partial(type(self), **self._options), ()

    # Metadata and metrics -------------------------------------------------------------------------

    def partitions_for(self, topic: str) -> set[int]:
        """Return the topic's partition numbers, after waiting at most ``max_block_ms`` for them."""
        self._ensure_usable()
        known = self._metadata.await_topic(
            check_topic(topic), self._engine.blocking_time(self._max_block), self._wake
        )
        return {info.partition for info in known.partitions}

    def connect(self, timeout: float | None = None) -> None:
        """Wait until a broker has returned metadata. Use it at the start of a program.

        Returns immediately if the producer already has metadata. ``timeout`` is in seconds; None
        means ``max_block_ms``. Raises AuthenticationError, ProducerClosedError, and
        KprodTimeoutError with the errors of up to five brokers.
        """
        check_seconds("connect", timeout, LONGEST_WAIT)
        self._ensure_usable()
        longest = self._max_block if timeout is None else timeout
        self._metadata.await_cluster(self._engine.blocking_time(longest), self._wake)

    @property
    def cluster(self) -> ClusterSnapshot:
        """The metadata of the cluster as an immutable snapshot, which may be empty."""
        return self._metadata.snapshot

    @property
    def metadata(self) -> Metadata:
        """The source of ``cluster``, for code that waits for metadata itself."""
        if self._inherited and not self._closed:
            self._restart_in_child()
        return self._metadata

    def bootstrap_connected(self) -> bool:
        """True if a broker is connected, or a connection is being opened. See also ``connect``."""
        return not self._inherited and self._sender.network.connected

    def client_instance_id(self, timeout: float | None = None) -> UUID:
        """Return the id under which brokers store this producer's metrics (KIP-714).

        Waits at most ``timeout`` seconds; None means ``max_block_ms``. Raises KprodTimeoutError if
        no broker has assigned an id by then or if none will, ProducerClosedError, and
        IllegalStateError with ``enable_metrics_push=False``.
        """
        check_seconds("client_instance_id", timeout, LONGEST_WAIT)
        self._ensure_usable()
        if self._telemetry is None:
            raise IllegalStateError("client_instance_id() needs enable_metrics_push=True")
        longest = self._max_block if timeout is None else timeout
        return self._telemetry.client_instance_id(self._engine.blocking_time(longest))

    def metrics(self) -> dict[str, dict[str, float]]:
        """Metric values by group and by Kafka's metric names, which ``docs/metrics.md`` lists."""
        return self._metrics.groups(self._clock.monotonic())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        # After an exception the caller must not wait long: as at interpreter exit, queued records
        # get a short time.
        self.close(None if error is None else self._exit_seconds)

    def __repr__(self) -> str:
        config = getattr(self, "config", None)  # a traceback may show it before __init__ ended
        return f"<KafkaProducer client_id={config and config.client_id}>"
