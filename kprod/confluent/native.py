"""kprod's producer with more abilities of librdkafka: purging, and metadata of any topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kprod.cluster.metadata import MetadataListener
from kprod.confluent.errors import Purged
from kprod.errors import KprodError, RecordTooLargeError
from kprod.intake.dead_letters import ABOUT_THE_RECORD
from kprod.producer import KafkaProducer
from kprod.sender.engine import LONGEST_WAIT
from kprod.sender.transactions import Call
from kprod.types import ProducerRecord
from kprod.wire.control import MetadataReply
from kprod_ext.batch import batch_size_upper_bound


def seconds(timeout: float | None) -> float:
    """A timeout in seconds; None and values below 0 mean no limit."""
    return LONGEST_WAIT if timeout is None or timeout < 0 else timeout


class NativeProducer(KafkaProducer):
    """kprod's producer, which can also purge records and request metadata. Thread-safe."""

    _listeners: tuple[MetadataListener, ...] = ()

    def listen(self, listener: MetadataListener) -> None:
        """Add a listener to the metadata, and in forked children to theirs."""
        self._listeners += (listener,)
        self._metadata.subscribe(listener)

    def _start(self) -> None:
        super()._start()
        for listener in self._listeners:
            self._metadata.subscribe(listener)

    def purge(self, *, queued: bool, in_flight: bool, blocking: bool) -> None:
        """Fail records without an outcome: queued records, records in flight, or both.

        ``persisted`` of a record's error says whether the record may have been stored. With
        ``blocking``, this returns after the callbacks of the records have run. Later records get a
        new epoch if necessary.
        """
        if self._inherited:  # by a forked child: what was queued belongs to the parent
            return
        reason = Purged("discarded by purge()")
        ended = self._sender.purge(reason, queued=queued, in_flight=in_flight)
        if blocking and not self._engine.is_sender:
            ended.wait()
            self._callbacks.drain(LONGEST_WAIT)  # they deliver the reports

    def check(self, *given: Any) -> ProducerRecord:
        """Raise what ``send`` raises for these arguments before it looks the topic up."""
        self._ensure_open()
        return self.checked(*given)

    def _prepare(self, record: ProducerRecord) -> None:
        # If the topic is unknown, the record waits for it, and is sent again by ``Attempts``. If
        # there is no memory, the application produces it again.
        self._metadata.await_topic(record.topic, 0.0, self._wake, record.partition)
        size = self.config.batch_size
        with suppress(TypeError, ValueError, BufferError):  # raised when the record is queued
            least = batch_size_upper_bound(record.key, record.value, record.headers)
            size = max(size, min(least, self._size_limits.largest))
        self.ensure_room(size)

    def check_size(self, record: ProducerRecord) -> None:
        """Raise RecordTooLargeError for a serialized record that ``send`` refuses for its size."""
        if self.has_interceptors:  # they may make it smaller, once its topic is known
            return
        try:
            self._size_limits.check(record, record.key, record.value)
        except RecordTooLargeError as error:
            self.refused(record, error)
            raise

    def given_up(self, record: ProducerRecord, error: KprodError) -> None:
        """Write a record that has waited for its topic in vain as a dead letter.

        If the error is about the record itself, ``refused`` has done so.
        """
        if self._dead_letters is not None and not isinstance(error, ABOUT_THE_RECORD):
            self._dead_letters.failed(record, error)

    def end_transaction(self, call: Call, timeout: float, meanwhile: Callable[[], object]) -> None:
        """Commit or abort the transaction. ``meanwhile`` is called repeatedly during the wait."""
        self._complete(call, timeout, meanwhile)

    def abort_open_transaction(self) -> None:
        """Abort an open transaction before ``close``, and end waiting calls."""
        if self._transactions is not None:
            self._transactions.close()
            self._wake()

    def begin_to_connect(self) -> None:
        """Start connecting in the background, as librdkafka does on creation."""
        self._metadata.request_update(brokers=True)
        self._wake()

    @property
    def no_broker_since(self) -> int | None:
        """If no broker can be reached, the number of connections opened so far; else None.

        No broker can be reached if the last attempt to connect has failed for every broker or,
        while no broker is known, for every bootstrap address. Only the sender's thread may use
        this.
        """
        network = self._sender.network
        return network.came_up if network.out_of_reach else None

    def know(self, topic: str, timeout: float) -> None:
        """Wait at most ``timeout`` seconds for the metadata of ``topic``."""
        with suppress(KprodError):
            self._metadata.await_topic(topic, timeout, self._wake)

    def ask_about(self, topics: Sequence[str] | None, timeout: float) -> MetadataReply:
        """Request metadata of the cluster and of ``topics``; None means all topics.

        Waits at most ``timeout`` seconds. Raises as ``Sender.fetch_metadata``. The producer does
        not keep the result.
        """
        self._ensure_usable()
        return self._sender.fetch_metadata(topics, timeout)
