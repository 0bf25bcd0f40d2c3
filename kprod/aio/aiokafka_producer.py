"""An AIOKafkaProducer that is compatible with aiokafka's, on top of kprod's producer."""

from __future__ import annotations

import _thread
import asyncio
import sys
import warnings
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kprod.aio.errors import cluster_error, for_aiokafka
from kprod.aio.loop_threads import with_tokens_of_loop
from kprod.aio.queueing import NativeProducer, Queueing, Record
from kprod.aio.record_batch import RecordBatch, first_stored
from kprod.buffer.delivery import NO_TIMESTAMP, BatchDelivery
from kprod.config import OPTIONS
from kprod.config.reading import concealed, with_defaults
from kprod.errors import IllegalStateError, KprodError, ProducerClosedError
from kprod.intake.arguments import SizeLimits
from kprod.intake.serializers import NAMED_SERIALIZERS, WouldWait, without_waiting
from kprod.kafka import partitioner as partitioners
from kprod.kafka import serializer as serializers
from kprod.kafka.options import by_their_names, lenient, native_options
from kprod.producer import KafkaProducer
from kprod.types import NextStep, TopicPartition
from kprod_ext.aio import OutcomeNotifier
from kprod_ext.futures import FutureRecordMetadata

if TYPE_CHECKING:
    from uuid import UUID


CREATE_TIME, LOG_APPEND_TIME = 0, 1


class RecordMetadata(NamedTuple):
    """The fields of aiokafka's RecordMetadata.

    ``timestamp`` is in milliseconds since the epoch. ``timestamp_type`` is 0 if it is the record's
    own timestamp, and 1 if it is the broker's append time. ``log_start_offset`` is always None, as
    in aiokafka with old brokers.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    timestamp_type: int
    log_start_offset: None = None


def stored(native: FutureRecordMetadata) -> RecordMetadata:
    """The metadata of a completed record. Raises its error."""
    placed = native.value or native.get(0)
    delivery: BatchDelivery = native.delivery
    if delivery.is_split:
        delivery, _ = delivery.locate(native.index)
    kind = CREATE_TIME if delivery.append_time == NO_TIMESTAMP else LOG_APPEND_TIME
    return RecordMetadata(*placed[:5], kind)


def nothing(native: FutureRecordMetadata) -> None:
    """Return None, the result with ``acks=0``: brokers then send no response."""


MAX_BLOCK: float = OPTIONS["max_block_ms"].default / 1000


_ACKS = (0, 1, -1, "all")


class AIOKafkaProducer:
    """Drop-in replacement for ``aiokafka.AIOKafkaProducer``, for one event loop.

    It has aiokafka's options, methods, results and errors. Its methods never block the event loop.
    ``docs/migration.md`` lists the remaining differences.
    """

    _native: NativeProducer | None = None
    _closed = True  # until __init__ has finished

    def __init__(self, *, loop: asyncio.AbstractEventLoop | None = None, **options: Any) -> None:
        options = concealed(options)
        if loop is not None:
            warnings.warn("The `loop` parameter has been deprecated", DeprecationWarning, 2)
        self._loop = loop or asyncio.get_running_loop()
        if "acks" in options and options["acks"] is _not_given():
            del options["acks"]
        options = _by_name(options)
        _check(options)
        _fill_in(options)
        if options.get("transactional_id") is not None:
            options["enable_idempotence"] = True
        options = with_defaults(options, _defaults(options))
        self._key = _serializer(options.pop("key_serializer", None))
        self._value = _serializer(options.pop("value_serializer", None))
        self._choose = None
        if not isinstance(options.get("partitioner"), str):  # a name is one of kprod's
            plugged = options.pop("partitioner", None)
            own = plugged is not None and not partitioners.is_built_in(plugged)
            self._choose = partitioners.bound(plugged) if own else None
        self._plugged = any((self._key, self._value, self._choose))
        options = with_tokens_of_loop(options, self._loop)
        try:
            self._native = NativeProducer(**native_options(options))
        except KprodError as error:
            raise for_aiokafka(error) from error
        self._stored = nothing if self._native.config.acks == 0 else stored
        notifier = partial(OutcomeNotifier, error=for_aiokafka, stored=self._stored)
        # As in aiokafka, the request time-out also limits waits for metadata and for memory.
        self._longest = self._native.config.request_timeout_ms / 1000
        self._queueing = Queueing(self._native, self._longest, notifier)
        self._send_at_once: Any = self._queueing.send_at_once
        self._closed = False

    # Life -----------------------------------------------------------------------------------------

    @property
    def __kprod_producer__(self) -> KafkaProducer | None:
        """The underlying producer; for ``kprod.observability``."""
        return self._native

    async def start(self) -> None:
        """Wait until a broker responds and, if one is needed, for the producer id.

        Raises KafkaConnectionError as soon as connecting to every bootstrap address has failed, or
        if no address has responded within ``request_timeout_ms``. Raises the cluster's error if the
        cluster rejects the request for a producer id. After an error, you can call ``start`` again.
        Call ``stop`` even on a producer that could not start. Raises ProducerClosed after ``stop``.
        """
        native = self._native
        assert native is not None
        timeout = native.config.request_timeout_ms / 1000
        try:
            await self._queueing.elsewhere(partial(native.connect_at_once, timeout), "connect")
        except ProducerClosedError as error:
            raise for_aiokafka(error) from error
        except KprodError as error:
            from kprod.aio import errors

            servers = ",".join(f"{host}:{port}" for host, port in native.config.bootstrap_servers)
            raise errors.KafkaConnectionError(
                f"Unable to bootstrap from {servers}: {error}"
            ) from error
        if native.config.transactional_id is not None:
            await self._waits("init_unless_done", MAX_BLOCK)
        else:
            await self._waits("await_producer_id", MAX_BLOCK)

    async def stop(self) -> None:
        """Send all queued records and close. A second call does nothing."""
        await self._end(None)

    async def _end(self, timeout: float | None) -> None:
        if self._closed:
            return
        if timeout is None:
            await self._queueing.rests_queued()
        self._closed = True
        await self._queueing.elsewhere(partial(self._queueing.native.close, timeout), "close")

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self._end(0)
            raise
        return self

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        await self.stop()

    def __del__(self) -> None:
        if self._closed or self._native is None:
            return
        # This may run in any thread, at any moment: another thread closes, started without a lock.
        with suppress(RuntimeError):
            _thread.start_new_thread(self._native.close, ())
        warnings.warn(f"Unclosed AIOKafkaProducer {self!r}", ResourceWarning, 2, source=self)

    # Sending --------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Any = None,
    ) -> asyncio.Future[RecordMetadata | None]:
        """Queue one record; return a future of its metadata (None with ``acks=0``)."""
        self._refuse_while_a_transaction_ends()
        future: asyncio.Future[RecordMetadata | None] | None = None
        behind = self._queueing.lines.hold(topic)
        if not (self._plugged or behind or (value is None and key is None)):
            try:
                future = self._send_at_once(topic, value, key, headers, partition, timestamp_ms)
            except KprodError as error:
                raise for_aiokafka(error) from error
        if future is None:
            record = Record(topic, value, key, headers, partition, timestamp_ms)
            future = self._sent(await self._put(record))
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Any = None,
    ) -> RecordMetadata | None:
        """Queue one record and wait until it is stored."""
        self._refuse_while_a_transaction_ends()
        future = self._put_at_once(topic, value, key, headers, partition, timestamp_ms)
        if future is None:
            record = Record(topic, value, key, headers, partition, timestamp_ms)
            future = await self._put(record)
        try:
            await future
        except KprodError as error:
            raise for_aiokafka(error) from error
        return self._stored(future)

    def _refuse_while_a_transaction_ends(self) -> None:
        if self._queueing.ends:
            words = "the transaction is being committed or aborted; begin another for this record"
            raise for_aiokafka(IllegalStateError(words))

    def _put_at_once(
        self, topic: str, value: Any, key: Any, headers: Any, partition: Any, timestamp_ms: Any
    ) -> FutureRecordMetadata | None:
        """Queue a record if no code of the application has to run, and nothing has to wait."""
        behind = self._queueing.lines.hold(topic)
        if self._plugged or behind or (value is None and key is None):
            return None
        try:
            return self._queueing.put_at_once(topic, value, key, headers, partition, timestamp_ms)
        except KprodError as error:
            raise for_aiokafka(error) from error

    async def _put(self, record: Record) -> FutureRecordMetadata:
        topic, value, key, headers, partition, timestamp_ms = record
        if value is None and key is None:
            raise TypeError("Need at least one: key or value")
        headers = list(headers or ())  # a copy: serializers may change it
        wire_key = await self._by(self._key, topic, headers, key)
        wire_value = await self._by(self._value, topic, headers, value)
        try:
            made = Record(topic, wire_value, wire_key, headers, partition, timestamp_ms)
            choose = self._choose
            if partition is not None or choose is None:
                return await self._queueing.put(made)

            def chosen() -> int | None:
                cluster = partitioners.Cluster(self._queueing.native.cluster)
                return choose(topic, key, wire_key, value, wire_value, cluster)

            return await self._queueing.put_chosen(made, chosen)
        except KprodError as error:
            raise for_aiokafka(cluster_error(error)) from error

    async def _by(
        self, serialize: serializers.Serialize | None, topic: str, headers: Any, data: Any
    ) -> Any:
        """The serializer's result. A serializer that has to wait runs in another thread."""
        if serialize is None:
            return data
        while True:
            try:
                return serialize(topic, headers, data)
            except WouldWait as serializer:
                await self._queueing.elsewhere(serializer.wait, "schema")

    def _sent(self, native: FutureRecordMetadata) -> asyncio.Future[RecordMetadata | None]:
        made: Any = self._queueing.sent(native)  # asyncio accepts it as a future
        return made  # type: ignore[no-any-return]

    def create_batch(self) -> RecordBatch:
        """A batch that the application fills, for ``send_batch``."""
        native = self._queueing.native
        serialize = self._serialized if self._key or self._value else None
        limits = SizeLimits(native.config)
        return RecordBatch(native.config.batch_size, native.record_clock, serialize, limits)

    def _serialized(self, key: Any, value: Any) -> tuple[Any, Any]:
        """Serialize without a topic, as aiokafka does, because a batch has no topic yet."""
        try:
            wire_key = key if self._key is None else self._key("", [], key)
            wire_value = value if self._value is None else self._value("", [], value)
        except WouldWait:  # a registry serializer needs the topic, and the batch has none yet
            raise TypeError(
                "a batch has no topic while it is filled, and the serializer needs one: send the"
                " records one by one, or serialize them and use a producer without serializers"
            ) from None
        return wire_key, wire_value

    async def send_batch(
        self, batch: RecordBatch, topic: str, *, partition: int
    ) -> asyncio.Future[RecordMetadata | None]:
        """Queue the records of a batch, in order; return a future of the first one's metadata.

        The future completes when all records have a result. If any record failed, the future has
        the error of the first failed record, and ``persisted`` of this error applies to the whole
        batch. If this call raises or is cancelled, no record is queued. Raises KafkaTimeoutError if
        there is not enough memory, and the errors of ``send``.
        """
        batch.close()
        if not batch.records:
            raise ValueError("the batch is empty")
        records = [
            Record(topic, value, key, headers, partition, stamp)
            for key, value, stamp, headers in batch.records
        ]
        size = max(batch.size(), self._queueing.native.config.batch_size)
        try:
            queued, rest = await self._queueing.put_batch(records, size)
        except KprodError as error:
            raise for_aiokafka(cluster_error(error)) from error
        if len(records) == 1:
            return self._sent(queued[0])
        return asyncio.ensure_future(self._all_stored(queued, rest))

    async def _all_stored(
        self, queued: list[FutureRecordMetadata], rest: asyncio.Task[None] | None
    ) -> RecordMetadata | None:
        """The metadata of the first record, once all are stored. Raises the first error."""
        broken_off: list[Exception] = []
        if rest is not None:
            await asyncio.wait([rest])  # cancelling this task does not cancel it
            try:
                rest.result()
            except KprodError as error:
                broken_off.append(for_aiokafka(cluster_error(error)))
        outcomes = [
            await self._outcomes(sent) for _, sent in groupby(queued, attrgetter("delivery"))
        ]
        first: RecordMetadata | None = first_stored([*chain(*outcomes), *broken_off])
        return first

    async def _outcomes(self, sent: Iterable[FutureRecordMetadata]) -> list[Any]:
        """The outcome of the first record of a batch, or of all records if the batch was split."""
        first, *others = sent
        outcome = await asyncio.gather(self._sent(first), return_exceptions=True)
        if not first.delivery.is_split:
            return [*outcome]
        rest = await asyncio.gather(*map(self._sent, others), return_exceptions=True)
        return [*outcome, *rest]

    async def flush(self) -> None:
        """Wait until every record queued so far has a result."""
        await self._queueing.rests_queued()
        await self._queueing.elsewhere(self._queueing.native.flush, "flush")

    async def partitions_for(self, topic: str) -> set[int]:
        """The topic's partition numbers."""
        try:
            return set(range(len(await self._queueing.topic(topic, self._longest))))
        except KprodError as error:
            raise for_aiokafka(cluster_error(error)) from error

    async def client_instance_id(self, timeout: float | None = None) -> UUID:
        """Return the id under which brokers store this producer's metrics (KIP-714).

        Not in aiokafka. Waits at most ``timeout`` seconds; None means a minute. Raises
        KafkaTimeoutError if no broker has assigned an id by then, and IllegalOperation with
        ``enable_metrics_push=False``.
        """
        longest = MAX_BLOCK if timeout is None else timeout
        ask = partial(self._queueing.native.client_instance_id, longest)
        with _translating():
            return await self._queueing.elsewhere(ask, "id")  # type: ignore[no-any-return]

    # Transactions ---------------------------------------------------------------------------------

    async def begin_transaction(self) -> None:
        """Begin a transaction. If the task is cancelled meanwhile, no transaction is open."""
        await asyncio.sleep(0)  # aiokafka's yields to the loop as well
        with _translating():
            self._queueing.native.begin_transaction()

    async def commit_transaction(self) -> None:
        """Send all queued records and commit."""
        await self._end_transaction("commit_transaction")

    async def abort_transaction(self) -> None:
        """Abort the transaction."""
        await self._end_transaction("abort_transaction")

    async def _end_transaction(self, call: str) -> None:
        """End the transaction. Meanwhile, reject batches that would be only partly in it."""
        self._queueing.ends += 1
        try:
            await self._queueing.rests_queued()
            await self._waits(call, MAX_BLOCK)
        finally:
            self._queueing.ends -= 1

    async def send_offsets_to_transaction(self, offsets: Any, group_id: str) -> None:
        """Commit a consumer group's offsets as part of the transaction.

        ``offsets`` maps TopicPartition to an offset, an OffsetAndMetadata, or a tuple of offset and
        metadata. Raises IllegalOperation outside a transaction, and ValueError for an empty
        ``group_id``.
        """
        if not group_id:
            await self._waits("send_offsets_to_transaction", {}, "none", MAX_BLOCK)  # in one?
            raise ValueError(f"group_id is not a consumer group's name: {group_id!r}")
        plain = {
            place: offset[0] if type(offset) is tuple else offset
            for place, offset in offsets.items()
        }
        await self._waits("send_offsets_to_transaction", plain, group_id, MAX_BLOCK)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Return a transaction for ``async with``. The end commits, an exception aborts.

        If the commit fails, the block raises the error of the commit. The transaction is then
        aborted if the error allows it.
        """
        await self.begin_transaction()
        try:
            yield
        except BaseException:
            if not self._queueing.native.can_only_be_closed:  # abort would raise and hide the error
                await self.abort_transaction()
            raise
        try:
            await self.commit_transaction()
        except KprodError as refused:
            if refused.next_step is NextStep.ABORT:
                await self._abort_after(refused)
            raise

    async def _abort_after(self, refused: KprodError) -> None:
        """Abort. As in ``kprod.Transaction``, raise if no other transaction can begin."""
        try:
            await self.abort_transaction()
        except KprodError as failure:
            refused.add_note(f"its coordinator has not confirmed the end: {failure}")
            if failure.next_step is not NextStep.RETRY_CALL:
                raise failure from refused

    async def _waits(self, call: str, *arguments: Any) -> None:
        made = partial(getattr(self._queueing.native, call), *arguments)
        with _translating():
            await self._queueing.elsewhere(made, call)


@contextmanager
def _translating() -> Iterator[None]:
    try:
        yield
    except KprodError as error:
        raise for_aiokafka(error) from error


def _not_given() -> object:
    """aiokafka's own default object for ``acks``, which frameworks pass on."""
    return getattr(sys.modules.get("aiokafka.producer.producer"), "_missing", ...)


def _by_name(options: dict[str, Any]) -> dict[str, Any]:
    with _translating():
        return lenient(by_their_names(options))


def _check(options: dict[str, Any]) -> None:
    """Raise ValueError with aiokafka's text for options that aiokafka refuses."""
    acks = options.get("acks", -1)
    if acks not in _ACKS:
        raise ValueError("Invalid ACKS parameter")
    if options.get("enable_idempotence") and acks not in ("all", -1):
        raise ValueError(f"acks={acks} not supported if enable_idempotence=True")
    if options.get("compression_type") not in ("gzip", "snappy", "lz4", "zstd", None):
        raise ValueError("Invalid compression type!")
    protocol = options.get("security_protocol", "PLAINTEXT")
    if protocol not in ("SSL", "PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL"):
        raise ValueError("`security_protocol` should be SSL or PLAINTEXT")
    encrypted = protocol in ("SSL", "SASL_SSL")
    if encrypted and not any(v for k, v in options.items() if k.startswith("ssl_")):
        raise ValueError("`ssl_context` is mandatory if security_protocol=='SSL'")


def _fill_in(options: dict[str, Any]) -> None:
    """Give options that are missing or None the values that aiokafka uses for them."""
    if "SASL" in options.get("security_protocol", "PLAINTEXT"):
        options.setdefault("sasl_mechanism", "PLAIN")
    if options.get("connections_max_idle_ms", 0) is None:
        options["connections_max_idle_ms"] = -1  # never


def _defaults(options: dict[str, Any]) -> dict[str, Any]:
    """aiokafka's defaults that differ from kprod's, and may depend on given options."""
    idempotent = bool(options.get("enable_idempotence"))
    defaults = {
        "acks": -1 if idempotent else 1,
        "enable_idempotence": False,
        "request_timeout_ms": 40_000,
    }
    request, linger = options.get("request_timeout_ms"), options.get("linger_ms")
    if not idempotent and isinstance(request, int):
        # aiokafka's documented limit of a record; its idempotent producer has none.
        own_linger = linger if isinstance(linger, int) else 0
        defaults["delivery_timeout_ms"] = 2 * request + own_linger
    return defaults


def _serializer(plugged: Any) -> serializers.Serialize | None:
    """The serializer. The names of kprod's own serializers are accepted, too."""
    if isinstance(plugged, str):
        plugged = None if plugged == "bytes" else NAMED_SERIALIZERS.get(plugged, plugged)
    return serializers.bound(without_waiting(plugged))
