"""What kafka-python takes as options, and what becomes of it."""

from __future__ import annotations

import logging
import math
import warnings
from typing import Any

import pytest

from kprod.config import OPTIONS, ProducerConfig
from kprod.config.reading import concealed
from kprod.errors import ConfigError
from kprod.kafka.errors import KafkaConfigurationError
from kprod.kafka.options import DEFAULT_CONFIG, PROVIDERS, Config, native_options

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its own, when it is imported
    import kafka

THEIRS = kafka.KafkaProducer.DEFAULT_CONFIG
OBJECTS = {"partitioner", "selector", "kafka_client"}


def native(**options: Any) -> ProducerConfig:
    return ProducerConfig.from_options(native_options(options))


def test_the_defaults_are_theirs() -> None:
    assert DEFAULT_CONFIG.keys() == THEIRS.keys()
    same = DEFAULT_CONFIG.keys() - OBJECTS
    assert {k: DEFAULT_CONFIG[k] for k in same} == {k: THEIRS[k] for k in same}


@pytest.mark.parametrize("name", sorted(THEIRS.keys() - OBJECTS))
def test_each_default_is_taken_without_a_word(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        native(**{name: DEFAULT_CONFIG[name]})
    assert not caplog.records


@pytest.mark.parametrize(
    ("given", "name", "expected"),
    [
        ({"bootstrap_servers": {"b:1", "a:2"}}, "bootstrap_servers", (("a", 2), ("b", 1))),
        ({"bootstrap_servers": "PLAINTEXT://a:1,b"}, "bootstrap_servers", (("a", 1), ("b", 9092))),
        ({"bootstrap_servers": ["plaintext://a:1"]}, "bootstrap_servers", (("a", 1),)),
        ({"linger_ms": 0.5}, "linger_ms", 1),
        ({}, "linger_ms", 0),
        ({"retries": "3"}, "retries", 3),
        ({"delivery_timeout_ms": math.inf}, "delivery_timeout_ms", 2**31 - 1),
        ({"enable_idempotence": None}, "enable_idempotence", False),
        ({"metadata_max_age_ms": -1}, "metadata_max_age_ms", 2**31 - 1),
        ({"connections_max_idle_ms": -1}, "connections_max_idle_ms", 2**31 - 1),
        ({"reconnect_backoff_ms": 60000}, "reconnect_backoff_max_ms", 60000),
        ({"batch_size": 2**26}, "buffer_memory", 2**26),
        ({"ssl_cafile": "x", "ssl_check_hostname": False}, "security_protocol", "PLAINTEXT"),
        ({"sasl_plain_password": "x"}, "security_protocol", "PLAINTEXT"),
    ],
)
def test_what_they_take_leniently_is_taken(
    given: dict[str, Any], name: str, expected: object, caplog: pytest.LogCaptureFixture
) -> None:
    idempotence_is_dropped = given == {"enable_idempotence": None}
    with caplog.at_level(logging.WARNING):
        assert getattr(native(**given), name) == expected
    assert not caplog.records or idempotence_is_dropped


def test_what_cannot_be_is_refused_in_words() -> None:
    """An option that nobody knows, and a call that would end before its request."""
    with pytest.raises(ConfigError, match="did you mean 'linger_ms'"):
        native(lingr_ms=3)
    with pytest.raises(KafkaConfigurationError, match="default_api_timeout_ms=10 is smaller"):
        native(default_api_timeout_ms=10)
    both = native(reconnect_backoff_ms=500, reconnect_backoff_max_ms=100)
    assert both.reconnect_backoff_max_ms == 500


def test_what_config_shows_has_no_password_in_it() -> None:
    secret = "-----BEGIN https://user:hunter2@host/"  # in whichever way an option may have one
    options = {name: secret for name, option in OPTIONS.items() if option.secret}
    config = Config(concealed({**options, "client_id": "me"}), **dict.fromkeys(PROVIDERS, secret))
    shown = f"{config!r} {config}"
    assert "hunter2" not in shown
    assert "'client_id': 'me'" in shown
