"""Options of single topics: read like the producer's own, and every problem names its topic."""

from __future__ import annotations

from typing import Any

import pytest

from kprod.config import ProducerConfig
from kprod.config.topic_options import TopicOptions
from kprod.errors import ConfigError


def configured(topics: Any, **options: Any) -> ProducerConfig:
    return ProducerConfig.from_options({"topic_options": topics, "client_id": "x", **options})


def problem(topics: Any, **options: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        configured(topics, **options)
    return str(raised.value)


@pytest.mark.parametrize(
    ("topics", "options", "found"),
    [
        (
            {
                "alerts": {"linger_ms": 0, "compression_type": "zstd"},
                "logs": {"compression_level": 9},
                "plain": {},
                # The level of the producer's codec stays with that codec.
                "same": {"compression_type": "gzip"},
                "snappy": {"compression_type": "snappy"},
            },
            {"linger_ms": 20, "compression_type": "gzip", "compression_level": 3},
            (
                TopicOptions("alerts", -1, "zstd", None, 0),
                TopicOptions("logs", -1, "gzip", 9, 20),
                TopicOptions("plain", -1, "gzip", 3, 20),
                TopicOptions("same", -1, "gzip", 3, 20),
                TopicOptions("snappy", -1, "snappy", None, 20),
            ),
        ),
        (
            {"t": {"linger.ms": 7, "compression.codec": "none", "request.required.acks": "1"}},
            {"enable_idempotence": False, "compression_type": "lz4"},
            (TopicOptions("t", 1, None, None, 7),),
        ),
    ],
)
def test_a_topic_has_its_own_options_and_the_producers_where_it_has_none(
    topics: Any, options: dict[str, Any], found: tuple[TopicOptions, ...]
) -> None:
    assert configured(topics, **options).topic_options == found


@pytest.mark.parametrize(
    ("own", "text"),
    [
        ({"linger_ms": -1}, "linger_ms: expected a whole number of milliseconds from 0 to "),
        ({"acks": 2}, 'acks: expected "all" (or -1), 0 or 1; got 2 (int)'),
        ({"compression.type": "zip"}, 'compression_type (given as "compression.type"): expected '),
        ({"compression_level": 3}, "compression_level=3 needs compression_type gzip, lz4 or zstd"),
        (
            {"compression_type": "gzip", "compression_level": 22},
            "compression_level=22 is not a level of gzip: -1 to 9",
        ),
        ({"linger": 3}, "unknown option 'linger'; did you mean 'linger_ms'?"),
        ({"linger_ms": 3, "linger.ms": 3}, 'linger_ms is set twice: "linger_ms" and "linger.ms"'),
        ({"batch_size": 3}, "batch_size applies to the whole producer; a topic may have acks, "),
        ({"sasl_mechanism": "PLAIN"}, "sasl_mechanism applies to the whole producer"),
    ],
)
def test_a_problem_names_the_topic(own: Any, text: str) -> None:
    assert problem({"fine": {"linger_ms": 3}, "t": own}).startswith(f"topic_options['t']: {text}")


@pytest.mark.parametrize(
    ("topics", "reason"),
    [
        (["t"], "got ['t'] (list)"),
        ({"t": None}, "None for topic 't' is not a dict"),
        ({"..": {}}, "'..' (str) is not a valid topic name"),
        ({5: {}}, "5 (int) is not a valid topic name"),
    ],
)
def test_something_else_than_options_by_topic(topics: Any, reason: str) -> None:
    assert problem(topics).startswith("topic_options: expected a dict of topics to dicts of acks, ")
    assert problem(topics).endswith(reason)


@pytest.mark.parametrize("options", [{}, {"enable_idempotence": True}])
@pytest.mark.parametrize("acks", [0, 1])
def test_idempotence_is_not_given_up_for_one_topic(acks: int, options: dict[str, Any]) -> None:
    text = problem({"t": {"acks": acks}}, **options)
    assert text.startswith(f"topic_options['t']: acks={acks} cannot be used with idempotence")


def test_acks_of_a_topic() -> None:
    for options in ({"enable_idempotence": False}, {"acks": 1}):
        config = configured({"a": {"acks": 0}, "b": {"acks": "all"}, "c": {}}, **options)
        assert [own.acks for own in config.topic_options] == [0, -1, config.acks]


def test_the_delivery_timeout_covers_the_longest_linger() -> None:
    topics = {"a": {"linger_ms": 200_000}, "b": {"linger_ms": 100_000}}
    assert configured(topics).delivery_timeout_ms == 230_000
    text = problem(topics, delivery_timeout_ms=140_000)
    assert text.startswith("topic_options['a']: delivery_timeout_ms=140000 must be at least 230000")


def test_a_problem_of_the_producers_is_not_repeated_for_every_topic() -> None:
    topics = {"a": {"linger_ms": 3}, "b": {}}
    assert "topic_options" not in problem(topics, compression_level=3)
    assert "topic_options" not in problem(topics, delivery_timeout_ms=-5)
