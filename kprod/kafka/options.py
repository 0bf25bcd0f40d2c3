"""Converts kafka-python's options to kprod's, as leniently as kafka-python reads them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kprod.config.foreign_options import IGNORED
from kprod.config.kinds import MAX_INT32
from kprod.config.reading import by_name, of_profile, with_defaults
from kprod.config.table import OPTIONS
from kprod.kafka.errors import KafkaConfigurationError
from kprod.kafka.partitioner import DefaultPartitioner

DEFAULT_CONFIG: dict[str, Any] = {
    "bootstrap_servers": "localhost",
    "client_id": None,
    "key_serializer": None,
    "value_serializer": None,
    "enable_idempotence": True,
    "transactional_id": None,
    "transaction_timeout_ms": 60000,
    "delivery_timeout_ms": 120000,
    "acks": -1,
    "compression_type": None,
    "retries": math.inf,
    "batch_size": 16384,
    "linger_ms": 0,
    "partitioner": DefaultPartitioner(),
    "connections_max_idle_ms": 540000,
    "max_block_ms": 60000,
    "max_request_size": 1048576,
    "allow_auto_create_topics": True,
    "metadata_max_age_ms": 300000,
    "client_dns_lookup": "use_all_dns_ips",
    "retry_backoff_ms": 100,
    "request_timeout_ms": 30000,
    "receive_message_max_bytes": 100_000_000,
    "receive_buffer_bytes": None,
    "send_buffer_bytes": None,
    "socket_options": [(6, 1, 1)],  # TCP_NODELAY
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 30000,
    "max_in_flight_requests_per_connection": 5,
    "security_protocol": "PLAINTEXT",
    "ssl_context": None,
    "ssl_check_hostname": True,
    "ssl_cafile": None,
    "ssl_certfile": None,
    "ssl_keyfile": None,
    "ssl_crlfile": None,
    "ssl_password": None,
    "ssl_ciphers": None,
    "api_version": None,
    "bootstrap_timeout_ms": 30000,
    "metric_reporters": [],
    "metrics_enabled": True,
    "metrics_num_samples": 2,
    "metrics_sample_window_ms": 30000,
    "selector": None,
    "sasl_mechanism": None,
    "sasl_plain_username": None,
    "sasl_plain_password": None,
    "sasl_kerberos_name": None,
    "sasl_kerberos_service_name": "kafka",
    "sasl_kerberos_domain_name": None,
    "sasl_oauth_token_provider": None,
    "proxy_url": None,
    "socks5_proxy": None,
    "kafka_client": None,
}
"""The options of kafka-python 3 with their defaults, which this package uses."""

PROVIDERS = frozenset({"sasl_oauth_token_provider", "sasl_credentials"})
HANDLED_HERE = frozenset(
    {"api_version", "api_version_auto_timeout_ms", "bootstrap_timeout_ms", "default_api_timeout_ms"}
    | {"metrics_enabled"}
)


class Config(dict[str, Any]):
    """The mapping of ``producer.config``: every option by name.

    A value that is or contains a password is a ``kprod.config.secret.Secret``, whose ``reveal()``
    returns it. The ``repr`` shows neither passwords nor objects that provide tokens or passwords.
    """

    def __repr__(self) -> str:
        hidden = {name: "***" for name in PROVIDERS if self.get(name) is not None}
        return repr({**self, **hidden})


def by_their_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options by name, whatever their spelling. Raises ConfigError for one that is set twice.

    A ``socks5_proxy`` that is None, kafka-python's default, does not count beside ``proxy_url``.
    """
    return by_name({n: v for n, v in given.items() if not (n == "socks5_proxy" and v is None)})


def lenient(named: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with the values of some converted to the types that kprod takes."""
    return {n: _LENIENT[n](value) if n in _LENIENT else value for n, value in named.items()}


def native_options(named: Mapping[str, Any]) -> dict[str, Any]:
    """Convert kafka-python's options, by name, to kprod's. Raises KafkaConfigurationError.

    Unknown names are passed on, so that kprod refuses them and suggests the nearest name.
    """
    named = lenient(named)
    _check_timeouts(named)
    unencrypted = "SSL" not in str(named.get("security_protocol", "PLAINTEXT")).upper()
    without_login = "SASL" not in str(named.get("security_protocol", "PLAINTEXT")).upper()
    defaults = {name: DEFAULT_CONFIG[name] for name in ("linger_ms", "reconnect_backoff_max_ms")}
    options = {}
    for name, value in named.items():
        unused = (
            name in HANDLED_HERE
            or (name.startswith("ssl_") and unencrypted)
            or (name.startswith("sasl_") and without_login)
            or (name in IGNORED and _is_default(name, value))
        )
        if not unused:
            options[name] = value
    options = with_defaults(options, defaults)
    _make_room(options)
    return options


def _is_default(name: str, value: Any) -> bool:
    return value is None or (name in DEFAULT_CONFIG and bool(value == DEFAULT_CONFIG[name]))


def _check_timeouts(given: Mapping[str, Any]) -> None:
    longest, request = given.get("default_api_timeout_ms"), given.get("request_timeout_ms", 30000)
    if isinstance(longest, int) and isinstance(request, int) and longest < request:
        raise KafkaConfigurationError(
            f"default_api_timeout_ms={longest} is smaller than request_timeout_ms={request}"
        )


def _make_room(options: dict[str, Any]) -> None:
    """Increase a limit that was not set if another option, valid in kafka-python, exceeds it."""
    first = options.get("reconnect_backoff_ms", OPTIONS["reconnect_backoff_ms"].default)
    if isinstance(first, int) and first > options["reconnect_backoff_max_ms"]:
        options["reconnect_backoff_max_ms"] = first
    batch, memory = options.get("batch_size"), options.get("buffer_memory")
    if memory is None:
        usual = OPTIONS["buffer_memory"].default
        memory = of_profile(options).get("buffer_memory", usual)
    if isinstance(batch, int) and isinstance(memory, int) and batch > memory:
        options["buffer_memory"] = batch


def _servers(value: Any) -> Any:
    """Also accept a set, and addresses with a scheme."""
    if isinstance(value, set | frozenset):
        value = sorted(value)
    if isinstance(value, str):
        return ",".join(_without_scheme(entry) for entry in value.split(","))
    if isinstance(value, Iterable):
        return [_without_scheme(entry) if isinstance(entry, str) else entry for entry in value]
    return value


def _without_scheme(entry: str) -> str:
    scheme, found, rest = entry.strip().partition("://")
    return rest if found and scheme.upper() in _SCHEMES else entry


_SCHEMES = {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}


def _whole(value: Any) -> Any:
    """Accept strings of digits, and round fractions up, so that half a millisecond is not 0."""
    if isinstance(value, str) and value.strip().lstrip("+-").isdecimal():
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return math.ceil(value)
    return MAX_INT32 if value == math.inf else value


def _endless(value: Any) -> Any:
    """As ``_whole``, but -1 means never."""
    whole = _whole(value)
    return MAX_INT32 if whole == -1 else whole


def _truth(value: Any) -> Any:
    return bool(value) if value is None or isinstance(value, int) else value


_LENIENT: dict[str, Callable[[Any], Any]] = {
    **{name: _whole for name in OPTIONS if name.endswith("_ms") or name in ("retries", "acks")},
    **dict.fromkeys(("metadata_max_age_ms", "connections_max_idle_ms"), _endless),
    "bootstrap_servers": _servers,
    **dict.fromkeys(("batch_size", "buffer_memory", "default_api_timeout_ms"), _whole),
    "enable_idempotence": _truth,
    "allow_auto_create_topics": _truth,
}
