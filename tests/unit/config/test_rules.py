"""Rules between options: explicit conflicts are errors, defaults are adjusted; topic options."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kprod.config import ProducerConfig
from kprod.config.topic_options import TopicOptions
from kprod.errors import ConfigError
from kprod.transport.memory import MemoryBackend

LARGEST = 2**31 - 2**24
"""The largest max_request_size: a frame also holds the headers around the records."""
WAITS = "partitioner_availability_timeout_ms"
BACK_OFFS = ("retry_backoff", "reconnect_backoff", "socket_connection_setup_timeout")
NOT_ADAPTIVE: list[dict[str, Any]] = [
    {"partitioner": "round_robin"},
    {"partitioner": hash},
    {"partitioner_adaptive_partitioning_enable": False},
]
IN_FLIGHT = "max_in_flight_requests_per_connection"
NOT_IDEMPOTENT = [
    ({"acks": 1}, "acks=1, not all"),
    ({"acks": 0}, "acks=0, not all"),
    ({"retries": 0}, "retries=0"),
    ({IN_FLIGHT: 6}, f"{IN_FLIGHT}=6, more than 5"),
]


def compressed(codec: str | None, level: int) -> dict[str, Any]:
    return {"compression_type": codec, "compression_level": level}


def delivering(delivery: int, linger: int, request: int) -> dict[str, Any]:
    times = {"delivery_timeout": delivery, "linger": linger, "request_timeout": request}
    return {f"{name}_ms": value for name, value in times.items()}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"enable_idempotence": True, "acks": 1, "retries": 0}, "acks=1, not all and retries=0"),
    # The message of kafka-python.
    ({"transactional_id": "t", "enable_idempotence": False}, "transactional_id without enable_i"),
    (delivering(30_004, 5, 30_000), "^delivery_timeout_ms=30004 .*linger_ms=5 .*timeout_ms=30000$"),
    (delivering(1000, 2000, 1), "^delivery_timeout_ms=1000 .*linger_ms=2000 .*timeout_ms=1$"),
    (delivering(1000, 0, 1001), "^delivery_timeout_ms=1000 .*linger_ms=0 .*timeout_ms=1001$"),
    # A rule does not report options that are invalid on their own.
    ({"delivery_timeout_ms": 1000, "linger_ms": "2000"}, "^linger_ms: expected"),
    ({"buffer_memory": 16383}, "batch_size=16384 must be at most buffer_memory=16383"),
    ({"max_request_size": LARGEST + 1}, f"from 1 to {LARGEST}, or 2147483647"),
    ({"batch_size": 100, "batch_max_size": 99}, "max_size=99 must be at least batch_size=100"),
    ({"batch_max_size": 1_048_577}, "must be at most max_request_size=1048576$"),
    ({"compression_level": 3}, "needs compression_type gzip, lz4 or zstd"),
    (compressed("snappy", 3), "needs compression_type gzip, lz4 or zstd"),
    (
        {"dead_letter_topic": "dead", "transport": MemoryBackend({})},
        "^dead_letter_topic='dead' .* an open backend cannot make: pass its class as transport",
    ),
]
for options, reason in NOT_IDEMPOTENT:
    REFUSED.append(
        ({"enable_idempotence": True, **options}, f"^enable_idempotence=True .* with {reason}$")
    )
for name in BACK_OFFS:
    problem = f"^{name}_max_ms=10 must be at least {name}_ms=20$"
    REFUSED.append(({f"{name}_ms": 20, f"{name}_max_ms": 10}, problem))
for partitioner in ("crc32", "fnv1a", "round_robin", hash):
    ignoring = {"partitioner": partitioner, "partitioner_ignore_keys": True}
    REFUSED.append((ignoring, "^partitioner_ignore_keys=True needs partitioner='def"))
REFUSED += [({WAITS: 5, **options}, f"^{WAITS}=5 needs partiti") for options in NOT_ADAPTIVE]
for codec, level in [("gzip", 10), ("gzip", -2), ("gzip", 22), ("lz4", 18), ("lz4", 0)]:
    problem = f"^compression_level={level} is not a level of {codec}: "
    REFUSED.append((compressed(codec, level), problem))
KEPT: list[tuple[dict[str, Any], str, Any]] = [
    ({"delivery_timeout_ms": 30_005}, "delivery_timeout_ms", 30_005),
    ({"request_timeout_ms": 200_000}, "delivery_timeout_ms", 200_005),
    ({"linger_ms": 100_000}, "delivery_timeout_ms", 130_000),
    *(({f"{name}_ms": 50_000}, f"{name}_max_ms", 50_000) for name in BACK_OFFS),
    *(({f"{name}_max_ms": 10}, f"{name}_ms", 10) for name in BACK_OFFS),
    ({"buffer_memory": 16384}, "buffer_memory", 16384),
    ({"dead_letter_topic": "t", "transport": MemoryBackend}, "transport", MemoryBackend),
    ({"max_request_size": 2**31 - 1}, "max_request_size", LARGEST),
    ({"max_request_size": LARGEST}, "max_request_size", LARGEST),
    *((compressed("gzip", level), "compression_level", level) for level in (-1, 9)),
    *((compressed("lz4", level), "compression_level", level) for level in (1, 17)),
    *((compressed("zstd", level), "compression_level", level) for level in (-131072, 22)),
    ({"partitioner": "murmur2", "partitioner_ignore_keys": True}, "partitioner_ignore_keys", True),
    *(({WAITS: 0, **options}, WAITS, 0) for options in NOT_ADAPTIVE),
    # Batches grow unless batch_size is small.
    ({}, "batch_max_size", 262_144),
    ({"batch_size": 16_384}, "batch_max_size", 262_144),
    ({"batch_size": 131_072}, "batch_max_size", 262_144),
    ({"batch_size": 16_383}, "batch_max_size", 16_383),
    ({"batch_size": 0}, "batch_max_size", 1),
    # The default of batch_max_size is adjusted, but not below batch_size.
    ({"batch_size": 500_000}, "batch_max_size", 500_000),
    ({"max_request_size": 100_000}, "batch_max_size", 100_000),
    ({"max_request_size": 1_000}, "batch_max_size", 16_384),
    ({"batch_size": 100, "batch_max_size": 200}, "batch_max_size", 200),
    ({"batch.max.size": 5_000}, "batch_max_size", 5_000),
    ({"batch.max.size": 5_000}, "batch_size", 5_000),
]


def configured(**options: Any) -> ProducerConfig:
    return ProducerConfig.from_options(options)


@pytest.mark.parametrize(("options", "reason"), NOT_IDEMPOTENT)
def test_default_idempotence_is_disabled_with_a_warning(
    options: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "kprod.config"):
        config = configured(**options)
    assert config.enable_idempotence is False
    assert f"idempotence is off because of {reason}" in caplog.text


@pytest.mark.parametrize(("options", "words"), REFUSED)
def test_inconsistent_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        configured(**options)


@pytest.mark.parametrize(("options", "name", "kept"), KEPT)
def test_defaults_adjust_to_explicit_options(options: dict[str, Any], name: str, kept: Any) -> None:
    assert getattr(configured(**options), name) == kept


def with_topics(topics: Any, **options: Any) -> ProducerConfig:
    return ProducerConfig.from_options({"topic_options": topics, "client_id": "x", **options})


def problem_of(topics: Any, **options: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        with_topics(topics, **options)
    return str(raised.value)


GZIP: dict[str, Any] = {"linger_ms": 20, "compression_type": "gzip", "compression_level": 3}


@pytest.mark.parametrize(
    ("own", "options", "found"),
    [
        ({"linger_ms": 0, "compression_type": "zstd"}, GZIP, (-1, "zstd", None, 0)),
        ({"compression_level": 9}, GZIP, (-1, "gzip", 9, 20)),
        ({}, GZIP, (-1, "gzip", 3, 20)),
        # The producer's compression level applies to its own codec only.
        ({"compression_type": "gzip"}, GZIP, (-1, "gzip", 3, 20)),
        ({"compression_type": "snappy"}, GZIP, (-1, "snappy", None, 20)),
        (
            {"linger.ms": 7, "compression.codec": "none", "request.required.acks": "1"},
            {"enable_idempotence": False, "compression_type": "lz4"},
            (1, None, None, 7),
        ),
    ],
)
def test_topic_options_override_those_of_the_producer(
    own: Any, options: dict[str, Any], found: tuple[Any, ...]
) -> None:
    (parsed, _) = with_topics({"t": own, "other": {}}, **options).topic_options
    assert parsed == TopicOptions("t", *found)


@pytest.mark.parametrize(
    ("own", "text"),
    [
        ({"acks": 2}, 'acks: expected "all" (or -1), 0 or 1; got 2 (int)'),
        ({"compression.type": "zip"}, 'compression_type (given as "compression.type"): expected '),
        ({"compression_level": 3}, "compression_level=3 needs compression_type gzip, lz4 or zstd"),
        (compressed("gzip", 22), "compression_level=22 is not a level of gzip: -1 to 9"),
        ({"linger": 3}, "unknown option 'linger'; did you mean 'linger_ms'?"),
        ({"linger_ms": 3, "linger.ms": 3}, 'linger_ms is set twice: "linger_ms" and "linger.ms"'),
        ({"batch_size": 3}, "batch_size applies to the whole producer; a topic may have acks, "),
        ({"sasl_mechanism": "PLAIN"}, "sasl_mechanism applies to the whole producer"),
    ],
)
def test_an_error_in_topic_options_names_the_topic(own: Any, text: str) -> None:
    assert problem_of({"fine": {"linger_ms": 3}, "t": own}).startswith(
        f"topic_options['t']: {text}"
    )


@pytest.mark.parametrize(
    ("topics", "reason"),
    [
        (["t"], "got ['t'] (list)"),
        ({"t": None}, "None for topic 't' is not a dict"),
        ({"..": {}}, "'..' (str) is not a valid topic name"),
        ({5: {}}, "5 (int) is not a valid topic name"),
    ],
)
def test_topic_options_of_the_wrong_type_are_refused(topics: Any, reason: str) -> None:
    assert problem_of(topics).startswith(
        "topic_options: expected a dict of topics to dicts of acks, "
    )
    assert problem_of(topics).endswith(reason)


@pytest.mark.parametrize("options", [{}, {"enable_idempotence": True}])
@pytest.mark.parametrize("acks", [0, 1])
def test_idempotence_is_not_disabled_for_one_topic(acks: int, options: dict[str, Any]) -> None:
    text = problem_of({"t": {"acks": acks}}, **options)
    assert text.startswith(f"topic_options['t']: acks={acks} cannot be used with idempotence")


def test_acks_can_differ_by_topic() -> None:
    for options in ({"enable_idempotence": False}, {"acks": 1}):
        config = with_topics({"a": {"acks": 0}, "b": {"acks": "all"}, "c": {}}, **options)
        assert [own.acks for own in config.topic_options] == [0, -1, config.acks]


def test_the_delivery_timeout_covers_the_longest_linger() -> None:
    topics = {"a": {"linger_ms": 200_000}, "b": {"linger_ms": 100_000}}
    assert with_topics(topics).delivery_timeout_ms == 230_000
    text = problem_of(topics, delivery_timeout_ms=140_000)
    assert text.startswith("topic_options['a']: delivery_timeout_ms=140000 must be at least 230000")


def test_an_error_of_the_producer_is_not_repeated_for_every_topic() -> None:
    topics = {"a": {"linger_ms": 3}, "b": {}}
    assert "topic_options" not in problem_of(topics, compression_level=3)
    assert "topic_options" not in problem_of(topics, delivery_timeout_ms=-5)
