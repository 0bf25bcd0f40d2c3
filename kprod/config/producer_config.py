"""The configuration of one producer: every option, validated."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from kprod.config.addresses import Address
from kprod.config.reading import OptionReader, concealed
from kprod.config.rules import PRODUCER_RULES, TOPIC_RULES, apply_rules
from kprod.config.secret import Secret
from kprod.config.security_rules import check_security
from kprod.config.table import OPTIONS
from kprod.config.topic_options import PER_TOPIC, TopicOptions
from kprod.errors import ConfigError

_TOPIC_OPTIONS = "topic_options"


def settle_topics(producer: OptionReader) -> None:
    """Replace each topic's given options by a ``TopicOptions``, and collect problems.

    Call this after the producer's own options are final. A topic's longer linger may raise
    ``delivery_timeout_ms``.
    """
    given: Mapping[str, Mapping[Any, Any]] = producer.values[_TOPIC_OPTIONS]
    producer.values[_TOPIC_OPTIONS] = tuple(
        _settled(producer, topic, own) for topic, own in given.items()
    )


def _settled(producer: OptionReader, topic: str, given: Mapping[Any, Any]) -> TopicOptions:
    reader = OptionReader(given)
    own = {name: reader.values[name] for name in PER_TOPIC if name in reader.given}
    reader.problems += _misplaced(reader.given)
    reader.values = {**producer.values, **_codec_default(producer, own), **own}
    reader.given |= producer.given
    reader.refused |= producer.refused
    apply_rules([rule for rule in TOPIC_RULES if not own.keys().isdisjoint(rule[0])], reader)
    producer.values["delivery_timeout_ms"] = reader.values["delivery_timeout_ms"]
    producer.problems += [f"{_TOPIC_OPTIONS}[{topic!r}]: {problem}" for problem in reader.problems]
    return TopicOptions(topic, *(reader.values[name] for name in PER_TOPIC))


def _misplaced(given: Iterable[str]) -> list[str]:
    allowed = ", ".join(PER_TOPIC)
    return [
        f"{name} applies to the whole producer; a topic may have {allowed}"
        for name in given
        if name not in PER_TOPIC
    ]


def _codec_default(producer: OptionReader, own: Mapping[str, Any]) -> dict[str, Any]:
    """A topic with its own codec does not inherit the level, which is for the producer's codec."""
    inherited = producer.values["compression_type"]
    kept = own.get("compression_type", inherited) == inherited
    return {} if kept else {"compression_level": None}


_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProducerConfig:
    """Every option, validated. Make one with ``from_options``. Immutable, so thread-safe.

    Meanings, ranges and defaults are in ``OPTIONS``. Names end with their unit: ``_ms`` is
    milliseconds; ``_size``, ``_memory`` and ``_bytes`` are bytes. A value that is or contains a
    secret is a ``Secret``: its ``repr`` is three stars, and it cannot be pickled.
    """

    bootstrap_servers: tuple[Address, ...]
    client_id: str
    client_software_name: str | None
    client_software_version: str | None
    profile: str | None
    acks: int
    enable_idempotence: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    key_serializer: Any
    value_serializer: Any
    partitioner: Any
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    partitioner_ignore_keys: bool
    interceptors: tuple[Any, ...]
    dead_letter_topic: str | None
    compression_type: str | None
    compression_level: int | None
    linger_ms: int
    topic_options: tuple[TopicOptions, ...]
    batch_size: int
    batch_max_size: int
    buffer_memory: int
    max_block_ms: int
    max_request_size: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    retries: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    max_in_flight_requests_per_connection: int
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: int
    connections_max_idle_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    send_buffer_bytes: int | None
    receive_buffer_bytes: int | None
    busy_poll_us: int
    receive_message_max_bytes: int
    allow_auto_create_topics: bool
    metrics_num_samples: int
    metrics_sample_window_ms: int
    enable_metrics_push: bool
    transport: str | Callable[..., Any]
    close_timeout_ms_at_exit: int
    close_on_sigterm: bool
    security_protocol: str
    ssl_context: Any
    ssl_cafile: str | None
    ssl_truststore_password: Secret | None
    ssl_certfile: str | Secret | None
    ssl_keystore_password: Secret | None
    ssl_keyfile: str | Secret | None
    ssl_password: Secret | None
    ssl_crlfile: str | None
    ssl_ciphers: str | None
    ssl_minimum_version: str
    ssl_enabled_protocols: tuple[str, ...] | None
    ssl_check_hostname: bool
    enable_ssl_certificate_verification: bool
    sasl_mechanism: str | None
    sasl_plain_username: str | None
    sasl_plain_password: Secret | None
    sasl_credentials: Any
    sasl_jaas_config: Secret | None
    sasl_oauth_token_provider: Any
    sasl_oauthbearer_token_endpoint_url: str | Secret | None
    sasl_oauthbearer_client_id: str | None
    sasl_oauthbearer_client_secret: Secret | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_cafile: str | None
    sasl_oauthbearer_extensions: tuple[tuple[str, str], ...]
    sasl_msk_region: str | None
    sasl_kerberos_service_name: str | None
    sasl_kerberos_name: str | None
    sasl_kerberos_domain_name: str | None
    proxy_url: str | Secret | None
    unix_socket_path: str | None

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> ProducerConfig:
        """Make the configuration from ``options``, in any accepted spelling.

        Raises ConfigError that lists every problem. Options of other clients that have no effect
        are logged as warnings. Idempotence follows KIP-679.
        """
        options = concealed(options)
        reader = OptionReader(options)
        apply_rules(PRODUCER_RULES, reader)
        reader.problems.extend(check_security(reader))
        settle_topics(reader)
        if reader.problems:
            error = ConfigError(_report(reader.problems))
            error.unknown = tuple(reader.unknown)
            raise error
        client_id = reader.values["client_id"] or f"kprod-producer-{next(_numbers)}"
        return cls(**{**reader.values, "client_id": client_id})

    def __repr__(self) -> str:
        names = (field.name for field in fields(self))
        shown = (f"{name}={OPTIONS[name].shown(getattr(self, name))}" for name in names)
        return f"ProducerConfig({', '.join(shown)})"


def _report(problems: list[str]) -> str:
    if len(problems) == 1:
        return problems[0]
    return "\n  ".join([f"{len(problems)} problems with the options:", *problems])
