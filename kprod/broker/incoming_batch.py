"""What a producer may send: the checks between the network and the log."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import Final

from crc32c import crc32c
from kio.schema.errors import ErrorCode

from kprod.broker.batch_header import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC_AT,
    MAGIC_V2,
    BatchHeader,
)
from kprod.broker.codecs import CODEC_NAMES
from kprod.broker.corrupt_batch import BatchTooLarge, CorruptBatch
from kprod.broker.log.log_config import LogConfig
from kprod.broker.producer_state import NO_PRODUCER
from kprod.broker.record_batch import read_batches
from kprod.errors import BrokerError
from kprod.types import BytesLike

_ZSTD: Final = CODEC_NAMES.index("zstd")
_FIRST_VERSION_WITH_ZSTD: Final = 7
_USUAL_MESSAGE_BYTES: Final = LogConfig().max_message_bytes
_MOST_TIMES_DECOMPRESSED: Final = 16


def check_batch(
    records: BytesLike | None, version: int, config: LogConfig, now_ms: int
) -> BatchHeader:
    """The header of the one batch in ``records``, once it passed (Kafka: LogValidator, in part).

    Raises ``BrokerError`` with the code for the producer. Looks at the header and the CRC and at
    no record, so that its cost does not depend on how many records there are: a batch whose
    records are not well-formed behind a right CRC is stored, and fails its readers.
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
    if config.message_timestamp_type != "CreateTime":
        return header
    oldest = now_ms - config.message_timestamp_before_max_ms
    if -1 < header.base_timestamp < oldest:
        raise BrokerError(ErrorCode.invalid_timestamp, f"{header.base_timestamp} is too old")
    if header.max_timestamp > now_ms + config.message_timestamp_after_max_ms:
        raise BrokerError(ErrorCode.invalid_timestamp, f"{header.max_timestamp} is in the future")
    return header


def check_keys(header: BatchHeader, records: BytesLike, config: LogConfig) -> None:
    """Every record of a compacted topic needs a key: ``BrokerError`` 87.

    The batch is read piece by piece, in constant memory. 10 for one that takes more than 16 times
    what a message may, decompressed: producers then send its records in smaller batches. 87 as well
    for offsets that do not count up by one, 2 for bytes that are no records.
    """
    limit = _MOST_TIMES_DECOMPRESSED * max(config.max_message_bytes, _USUAL_MESSAGE_BYTES)
    (batch,) = read_batches(records)
    try:
        for number, head in enumerate(batch.heads(limit)):
            if head.offset != header.base_offset + number:
                raise BrokerError(
                    ErrorCode.invalid_record, f"record {number} of the batch has another's offset"
                )
            if head.key_size < 0:
                raise BrokerError(
                    ErrorCode.invalid_record,
                    f"record {number} of the batch has no key, and the topic is compacted",
                )
    except BatchTooLarge as error:
        raise BrokerError(ErrorCode.message_too_large, str(error)) from error
    except CorruptBatch as error:
        raise BrokerError(ErrorCode.corrupt_message, str(error)) from error


def stamp(header: BatchHeader, records: BytesLike, now_ms: int) -> tuple[BatchHeader, bytes]:
    """The batch with the time of its arrival (``message.timestamp.type=LogAppendTime``)."""
    stamped = replace(
        header, attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=now_ms, crc=0
    )
    body = HEADER.pack(*astuple(stamped))[CRC_START:] + bytes(memoryview(records)[HEADER_BYTES:])
    stamped = replace(stamped, crc=crc32c(body))
    return stamped, HEADER.pack(*astuple(stamped))[:CRC_START] + body


def _check_shape(data: memoryview) -> None:
    """Exactly one whole batch of format v2."""
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
    """What a client may put into a header."""
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
