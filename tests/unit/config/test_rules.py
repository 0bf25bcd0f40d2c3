"""What must hold between options: what was set explicitly is an error, a default gives in."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kprod.config import ProducerConfig
from kprod.errors import ConfigError

NOT_IDEMPOTENT = [
    ({"acks": 1}, "acks=1, not all"),
    ({"acks": 0}, "acks=0, not all"),
    ({"retries": 0}, "retries=0"),
    (
        {"max_in_flight_requests_per_connection": 6},
        "max_in_flight_requests_per_connection=6, more than 5",
    ),
]


def configured(**options: Any) -> ProducerConfig:
    return ProducerConfig.from_options(options)


@pytest.mark.parametrize(("options", "reason"), NOT_IDEMPOTENT)
def test_idempotence_asked_for_but_impossible(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(
        ConfigError, match=f"^enable_idempotence=True cannot be used with {reason}$"
    ):
        configured(enable_idempotence=True, **options)


@pytest.mark.parametrize(("options", "reason"), NOT_IDEMPOTENT)
def test_idempotence_by_default_gives_in_with_a_warning(
    options: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "kprod.config"):
        config = configured(**options)
    assert config.enable_idempotence is False
    assert f"idempotence is off because of {reason}" in caplog.text


def test_every_conflict_with_idempotence_is_named() -> None:
    with pytest.raises(ConfigError, match="acks=1, not all and retries=0"):
        configured(enable_idempotence=True, acks=1, retries=0)


def test_transactions_without_idempotence() -> None:
    """The words are those of kafka-python."""
    with pytest.raises(ConfigError, match="transactional_id without enable_idempotence"):
        configured(transactional_id="t", enable_idempotence=False)


@pytest.mark.parametrize(
    "options",
    [
        {"delivery_timeout_ms": 30_004},
        {"delivery_timeout_ms": 1000, "linger_ms": 2000, "request_timeout_ms": 1},
        {"delivery_timeout_ms": 1000, "request_timeout_ms": 1001, "linger_ms": 0},
    ],
)
def test_delivery_timeout_set_too_short(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        configured(**options)
    text = str(raised.value)
    for name in ("delivery_timeout_ms=", "linger_ms=", "request_timeout_ms="):
        assert name in text


def test_delivery_timeout_just_long_enough() -> None:
    assert configured(delivery_timeout_ms=30_005).delivery_timeout_ms == 30_005


def test_delivery_timeout_is_raised_when_not_set() -> None:
    assert configured(request_timeout_ms=200_000).delivery_timeout_ms == 200_005
    assert configured(linger_ms=100_000).delivery_timeout_ms == 130_000


@pytest.mark.parametrize(
    "name", ["retry_backoff", "reconnect_backoff", "socket_connection_setup_timeout"]
)
def test_longest_back_off(name: str) -> None:
    first, longest = f"{name}_ms", f"{name}_max_ms"
    assert getattr(configured(**{first: 50_000}), longest) == 50_000
    assert getattr(configured(**{longest: 10}), first) == 10
    with pytest.raises(ConfigError, match=f"^{longest}=10 must be at least {first}=20$"):
        configured(**{first: 20, longest: 10})


def test_a_batch_fits_the_memory() -> None:
    with pytest.raises(ConfigError, match="batch_size=16384 must be at most buffer_memory=16383"):
        configured(buffer_memory=16383)
    assert configured(buffer_memory=16384).buffer_memory == 16384


@pytest.mark.parametrize(
    ("codec", "level"),
    [("gzip", -1), ("gzip", 9), ("lz4", 1), ("lz4", 17), ("zstd", -131072), ("zstd", 22)],
)
def test_compression_levels(codec: str, level: int) -> None:
    assert configured(compression_type=codec, compression_level=level).compression_level == level


@pytest.mark.parametrize("partitioner", ["crc32", "fnv1a", "round_robin", hash])
def test_only_the_default_partitioner_can_ignore_keys(partitioner: Any) -> None:
    with pytest.raises(ConfigError, match=r"^partitioner_ignore_keys=True needs partitioner='def"):
        configured(partitioner=partitioner, partitioner_ignore_keys=True)
    assert configured(partitioner="murmur2", partitioner_ignore_keys=True).partitioner_ignore_keys


@pytest.mark.parametrize(
    "options",
    [
        {"partitioner": "round_robin"},
        {"partitioner": hash},
        {"partitioner_adaptive_partitioning_enable": False},
    ],
)
def test_brokers_are_avoided_by_adaptive_partitioning_only(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^partitioner_availability_timeout_ms=5 needs partiti"):
        configured(partitioner_availability_timeout_ms=5, **options)
    allowed = configured(partitioner_availability_timeout_ms=0, **options)
    assert allowed.partitioner_availability_timeout_ms == 0


def test_a_rule_is_silent_about_an_option_that_is_wrong_in_itself() -> None:
    with pytest.raises(ConfigError) as raised:
        configured(delivery_timeout_ms=1000, linger_ms="2000")
    assert str(raised.value).startswith("linger_ms: expected")


def test_batches_grow_by_default() -> None:
    assert configured().batch_max_size == 262_144
    assert configured(batch_size=16_384).batch_max_size == 262_144
    assert configured(batch_size=131_072).batch_max_size == 262_144


def test_batches_that_were_asked_to_be_small_do_not_grow() -> None:
    assert configured(batch_size=16_383).batch_max_size == 16_383
    assert configured(batch_size=0).batch_max_size == 1


def test_the_largest_size_by_default_gives_in() -> None:
    assert configured(batch_size=500_000).batch_max_size == 500_000
    assert configured(max_request_size=100_000).batch_max_size == 100_000
    assert configured(max_request_size=1_000).batch_max_size == 16_384, "as large as batch_size"


def test_the_largest_size_is_what_was_set() -> None:
    assert configured(batch_size=100, batch_max_size=200).batch_max_size == 200
    config = configured(**{"batch.max.size": 5_000})
    assert (config.batch_size, config.batch_max_size) == (5_000, 5_000)


def test_a_largest_size_out_of_range() -> None:
    with pytest.raises(ConfigError, match="batch_max_size=99 must be at least batch_size=100"):
        configured(batch_size=100, batch_max_size=99)
    with pytest.raises(ConfigError, match=r"must be at most max_request_size=1048576$"):
        configured(batch_max_size=1_048_577)
