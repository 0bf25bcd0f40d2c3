"""What a producer may send, and the code it is told otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kprod.broker.handlers.produce import check_batch
from kprod.broker.log.log_config import LogConfig
from kprod.errors import BrokerError
from tests.support.raw_batch import raw_batch, raw_record

NOW = 1_000_000_000
CONFIG = LogConfig(max_message_bytes=2_000)


def refusal(records: bytes | None, version: int = 9) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        check_batch(records, version, CONFIG, NOW)
    return ErrorCode(caught.value.code)


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_as_producers_send_it(codec: int) -> None:
    header = check_batch(raw_batch([b"a", b"b"], attributes=codec), 7, CONFIG, NOW)
    assert (header.record_count, header.codec) == (2, codec)


@pytest.mark.parametrize(
    "changes",
    [
        {"base_offset": 1},
        {"attributes": 0x20},
        {"record_count": 0, "last_offset_delta": -1},
        {"record_count": -1},
        {"last_offset_delta": 1},
        {"producer_id": -2},
        {"producer_id": 5, "producer_epoch": 0},
        {"producer_id": 5, "base_sequence": 0},
        {"attributes": 0x08, "max_timestamp": -1},
        {"magic": 0},
        {"magic": 1},
        {"magic": 3},
    ],
)
def test_invalid_records(changes: dict[str, Any]) -> None:
    assert refusal(raw_batch(**changes)) is ErrorCode.invalid_record


@pytest.mark.parametrize("records", [None, b"", raw_batch() * 2, raw_batch() + b"x"])
def test_anything_but_one_batch_is_invalid(records: bytes | None) -> None:
    assert refusal(records) is ErrorCode.invalid_record


@pytest.mark.parametrize(
    "records", [raw_batch()[:-1], raw_batch()[:61], raw_batch(batch_length=2**31 - 1)]
)
def test_a_batch_that_is_cut_off_is_none(records: bytes) -> None:
    assert refusal(records) is ErrorCode.invalid_record


@pytest.mark.parametrize(
    "records",
    [
        raw_batch(crc=1),
        raw_batch()[:60],
        raw_batch()[:10],
        raw_batch(batch_length=48),
        raw_batch(batch_length=-1),
    ],
)
def test_damage_is_corrupt(records: bytes) -> None:
    assert refusal(records) is ErrorCode.corrupt_message


def test_too_large() -> None:
    exact = 2_000 - len(raw_batch([b"x" * 1_000])) + 1_000
    check_batch(raw_batch([b"x" * exact]), 9, CONFIG, NOW)
    assert refusal(raw_batch([b"x" * (exact + 1)])) is ErrorCode.message_too_large


def test_codecs() -> None:
    assert refusal(raw_batch(attributes=4), version=6) is ErrorCode.unsupported_compression_type
    for codec in (5, 6, 7):
        batch = raw_batch(attributes=codec)
        assert refusal(batch, version=13) is ErrorCode.unsupported_compression_type


def test_times_in_the_future() -> None:
    latest = NOW + CONFIG.message_timestamp_after_max_ms
    check_batch(raw_batch(max_timestamp=latest), 9, CONFIG, NOW)
    assert refusal(raw_batch(max_timestamp=latest + 1)) is ErrorCode.invalid_timestamp


def test_records_of_the_future_are_named_all_of_them() -> None:
    latest = NOW + CONFIG.message_timestamp_after_max_ms
    times = [0, 1, latest + 1, 2, latest + 2]
    payload = b"".join(raw_record(n, b"v", None, time - times[0]) for n, time in enumerate(times))
    batch = raw_batch(
        payload=payload,
        record_count=len(times),
        last_offset_delta=len(times) - 1,
        base_timestamp=times[0],
        max_timestamp=times[-1],
    )
    with pytest.raises(BrokerError) as refused:
        check_batch(batch, 9, CONFIG, NOW)
    assert list(refused.value.record_errors) == [2, 4]


def test_a_transaction_is_of_a_producer() -> None:
    check_batch(
        raw_batch(attributes=0x10, producer_id=1, producer_epoch=0, base_sequence=0), 9, CONFIG, NOW
    )
    assert refusal(raw_batch(attributes=0x10)) is ErrorCode.invalid_record
