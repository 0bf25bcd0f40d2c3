"""Produce (0): check record batches and store them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from crc32c import crc32c
from kio.schema.errors import ErrorCode

from kprod.broker.handlers.transactions import verified
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.log.producer_state import NO_PRODUCER, VerificationGuard
from kprod.broker.network.connection import HangUp
from kprod.broker.node import Call, Node
from kprod.broker.protocol.messages import Message
from kprod.broker.records.batch_writer import seal
from kprod.broker.topics import Topic
from kprod.broker.transactions.transaction_rules import ProducerIdentity
from kprod.errors import BrokerError
from kprod.records.codecs import CODEC_NAMES, BatchTooLarge, CorruptBatch
from kprod.records.record_batch import (
    CRC_START,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC_AT,
    MAGIC_V2,
    BatchHeader,
    read_batches,
)
from kprod.types import BytesLike

_ZSTD: Final = CODEC_NAMES.index("zstd")
_FIRST_VERSION_WITH_ZSTD: Final = 7
_USUAL_MESSAGE_BYTES: Final = LogConfig().max_message_bytes
_MOST_TIMES_DECOMPRESSED: Final = 16


def check_batch(
    records: BytesLike | None, version: int, config: LogConfig, now_ms: int
) -> BatchHeader:
    """Check that ``records`` is one valid batch; return its header (Kafka: LogValidator, in part).

    Raises ``BrokerError`` with the code for the producer. The header and the CRC are checked, but
    not the records, which would have to be decompressed and parsed. So if the records are malformed
    and the CRC is correct, the batch is stored, and its readers fail. In compacted topics,
    ``check_keys`` prevents this.
    """
    data = memoryview(records or b"")
    _check_shape(data)
    header = BatchHeader.parse(data)
    if header.codec >= len(CODEC_NAMES):
        raise BrokerError(ErrorCode.unsupported_compression_type, f"codec {header.codec}")
    if header.codec == _ZSTD and version < _FIRST_VERSION_WITH_ZSTD:
        raise BrokerError(ErrorCode.unsupported_compression_type, "zstd takes Produce 7")
    if header.size > config.max_message_bytes:
        raise BrokerError(
            ErrorCode.message_too_large, f"{header.size} bytes > {config.max_message_bytes}"
        )
    if header.record_count > config.max_message_bytes:
        raise BrokerError(
            ErrorCode.message_too_large,
            f"{header.record_count} records > {config.max_message_bytes}, a byte for each",
        )
    if crc32c(data[CRC_START:]) != header.crc:
        raise BrokerError(ErrorCode.corrupt_message, "the CRC does not match the batch")
    _check_contents(header)
    if config.message_timestamp_type == "CreateTime":
        _check_times(header, data, config, now_ms)
    return header


def _check_times(header: BatchHeader, data: memoryview, config: LogConfig, now_ms: int) -> None:
    """Raise if a timestamp is too old or too new. The error names the records concerned."""
    oldest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    if -1 < header.base_timestamp < oldest:
        refused = BrokerError(ErrorCode.invalid_timestamp, f"{header.base_timestamp} is too old")
    elif header.max_timestamp > latest:
        refused = BrokerError(
            ErrorCode.invalid_timestamp, f"{header.max_timestamp} is in the future"
        )
    else:
        return
    (batch,) = read_batches(data)
    with suppress(BatchTooLarge, CorruptBatch):
        refused.record_errors = {
            number: f"{head.timestamp} is not from {oldest} to {latest}"
            for number, head in enumerate(batch.heads(_most_bytes(config)))
            if head.timestamp != -1 and not oldest <= head.timestamp <= latest
        }
    raise refused


def check_keys(header: BatchHeader, records: BytesLike, config: LogConfig) -> None:
    """Check the records for a compacted topic: raise ``BrokerError`` 87 if one has no key.

    The error names all records without a key. The batch is read piece by piece, so that it need not
    fit into memory.

    Also raises 87 if offsets do not increase by one, 2 for malformed records, and 10 if the batch
    is too large when decompressed. After 10, producers send the records in smaller batches.
    """
    limit = _most_bytes(config)
    (batch,) = read_batches(records)
    keyless: dict[int, str | None] = {}
    try:
        for number, head in enumerate(batch.heads(limit)):
            if head.offset != header.base_offset + number:
                raise BrokerError(
                    ErrorCode.invalid_record, f"record {number} of the batch has another's offset"
                )
            if head.key_size < 0:
                keyless[number] = "it has no key, and the topic is compacted"
    except BatchTooLarge as error:
        raise BrokerError(ErrorCode.message_too_large, str(error)) from error
    except CorruptBatch as error:
        raise BrokerError(ErrorCode.corrupt_message, str(error)) from error
    if keyless:
        refused = BrokerError(
            ErrorCode.invalid_record,
            f"{len(keyless)} of {header.record_count} records of the batch have no key, and the"
            " topic is compacted",
        )
        refused.record_errors = keyless
        raise refused


def _most_bytes(config: LogConfig) -> int:
    """Return the limit of a batch's size after decompression.

    It is 16 times ``max.message.bytes``, or 16 times the default if the default is larger.
    """
    return _MOST_TIMES_DECOMPRESSED * max(config.max_message_bytes, _USUAL_MESSAGE_BYTES)


def stamp(header: BatchHeader, records: BytesLike, now_ms: int) -> tuple[BatchHeader, bytes]:
    """Give the batch its time of arrival (for ``message.timestamp.type=LogAppendTime``)."""
    attributes = header.attributes | LOG_APPEND_TIME
    stamped = replace(header, attributes=attributes, max_timestamp=now_ms)
    batch = seal(stamped, bytes(memoryview(records)[HEADER_BYTES:]))
    return BatchHeader.parse(batch), batch


def _check_shape(data: memoryview) -> None:
    """Raise ``BrokerError`` unless ``data`` is exactly one complete batch of format v2."""
    if not data:
        raise BrokerError(ErrorCode.invalid_record, "no record batch")
    if len(data) > MAGIC_AT and data[MAGIC_AT] != MAGIC_V2:
        raise BrokerError(ErrorCode.invalid_record, f"magic {data[MAGIC_AT]}, expected 2")
    if len(data) < HEADER_BYTES:
        raise BrokerError(ErrorCode.corrupt_message, f"{len(data)} bytes are no record batch")
    size = BatchHeader.parse(data).size
    if size < HEADER_BYTES:
        raise BrokerError(ErrorCode.corrupt_message, f"a batch of {size} bytes")
    if size > len(data):
        raise BrokerError(ErrorCode.invalid_record, f"a batch of {size} bytes in {len(data)}")
    if size < len(data):
        raise BrokerError(ErrorCode.invalid_record, "more than one record batch")


def _check_contents(header: BatchHeader) -> None:
    """Raise ``BrokerError`` if the header has values that a client may not send."""
    idempotent = header.producer_id != NO_PRODUCER
    for wrong, why in (
        (header.base_offset != 0, f"base offset {header.base_offset}, expected 0"),
        (header.is_control, "a client may not send control batches"),
        (header.record_count <= 0, f"{header.record_count} records"),
        (
            header.last_offset_delta != header.record_count - 1,
            f"last offset delta {header.last_offset_delta} of {header.record_count} records",
        ),
        (header.producer_id < NO_PRODUCER, f"producer id {header.producer_id}"),
        (header.is_transactional and not idempotent, "a transaction of no producer"),
        (idempotent and header.base_sequence < 0, f"sequence {header.base_sequence}"),
        (idempotent and header.producer_epoch < 0, f"producer epoch {header.producer_epoch}"),
        (header.is_log_append_time and header.max_timestamp == -1, "append time -1"),
    ):
        if wrong:
            raise BrokerError(ErrorCode.invalid_record, why)


_ACKS: Final = (-1, 0, 1)
_FIRST_WITH_ABORTABLE: Final = 11
_FIRST_THAT_ADDS: Final = 12
"""From this version on the first batch adds its partition to the transaction (KIP-890)."""


def produce(call: Call, node: Node) -> Message | None:
    """Store one batch per partition. Each batch is stored or refused on its own.

    ``acks`` 1 and -1 are the same here: all replicas share one log, and the answer is sent when the
    batch is in it. With ``acks=0`` there is no answer, and a refused batch closes the connection.
    """
    answers = [_topic(data, call, node) for data in call.body.topic_data]
    if call.body.acks != 0:
        return {"responses": answers}
    failed = [p for answer in answers for p in answer["partition_responses"] if p["error_code"]]
    if failed:
        refused = BrokerError(failed[0]["error_code"], failed[0]["error_message"] or "")
        raise HangUp(f"a batch sent with acks=0 was refused: {refused}")
    return None


def _topic(data: Any, call: Call, node: Node) -> Message:
    name, topic_id = getattr(data, "name", None), getattr(data, "topic_id", None)
    try:
        topic = node.topic(name, topic_id)
    except BrokerError as error:
        parts = [_refused(part, error) for part in data.partition_data]
    else:
        parts = [_partition(part, topic, call, node) for part in data.partition_data]
    return {"name": name, "topic_id": topic_id, "partition_responses": parts}


def _partition(part: Any, topic: Topic, call: Call, node: Node) -> Message:
    try:
        return _append(part, topic, call, node)
    except BrokerError as error:
        return _refused(part, error)


def _refused(part: Any, error: BrokerError) -> Message:
    """Return the answer for a refused batch. It names the invalid records, if known (KIP-467)."""
    return {
        "index": part.index,
        "error_code": error.code,
        "error_message": error.detail or None,
        "base_offset": -1,
        "record_errors": [
            {"batch_index": index, "batch_index_error_message": text}
            for index, text in error.record_errors.items()
        ],
    }


def _append(part: Any, topic: Topic, call: Call, node: Node) -> Message:
    if topic.is_internal:
        raise BrokerError(ErrorCode.invalid_topic_exception, f"{topic.name} is the broker's own")
    log = node.partition(topic, part.index)
    if call.body.acks not in _ACKS:
        raise BrokerError(ErrorCode.invalid_required_acks, f"acks={call.body.acks}")
    now_ms = node.options.clock.wall_ms()
    header = check_batch(part.records, call.version, log.config, now_ms)
    records = part.records
    if log.config.compacts:
        check_keys(header, records, log.config)
    if log.config.message_timestamp_type == "LogAppendTime":
        header, records = stamp(header, records, now_ms)
    if header.is_transactional:
        guard = _guard(header, log, call, node)
        appended = log.append(header, records, guard, from_zero=call.version >= _FIRST_THAT_ADDS)
    else:
        appended = log.append(header, records)
    node.purgatory.wake(log.where)
    return {
        "index": part.index,
        "error_code": ErrorCode.none,
        "base_offset": appended.base_offset,
        "log_append_time": now_ms if header.is_log_append_time else appended.log_append_time,
        "log_start_offset": appended.log_start_offset,
    }


def _guard(
    header: BatchHeader, log: PartitionLog, call: Call, node: Node
) -> VerificationGuard | None:
    """Return the guard for the first batch of a transaction in this partition. See ``verified``."""
    name = call.body.transactional_id
    if name is None:
        raise BrokerError(
            ErrorCode.transactional_id_authorization_failed,
            "a transactional batch in a request without a transactional id",
        )
    return verified(
        node,
        log,
        name,
        ProducerIdentity(header.producer_id, header.producer_epoch),
        adds=call.version >= _FIRST_THAT_ADDS,
        knows_abortable=call.version >= _FIRST_WITH_ABORTABLE,
    )
