"""From librdkafka's options to kprod's"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kprod.config.kinds import MAX_INT32, PARTITIONERS
from kprod.config.secret import exposed
from kprod.confluent.credentials import Credentials
from kprod.confluent.errors import KafkaError, KafkaException
from kprod.confluent.librdkafka_options import as_kind, by_name, used
from kprod.confluent.native import NativeProducer
from kprod.confluent.oauth_tokens import OAuthTokens
from kprod.errors import ConfigError

NOBODY = "no-broker-is-configured.invalid:9092"
"""Where a producer without ``bootstrap.servers`` finds no broker, as there."""

DEFAULTS: Mapping[str, Any] = {
    "acks": "all",
    "batch_size": 1_000_000,
    "bootstrap_servers": NOBODY,
    "delivery_timeout_ms": 300_000,
    "linger_ms": 5,
    "partitioner": "consistent_random",
    "queue_buffering_max_kbytes": 256 * 1024,
    "queue_buffering_max_messages": 100_000,
    "request_timeout_ms": 30_000,
}

BY_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_LOGIN = ("sasl_plain_username", "sasl_plain_password")
_OAUTH = "OAUTHBEARER"

BY_CRC32 = ("consistent_random", "crc32")
"""Partitioners of the face's own: with a partition given, ``send`` takes the compiled path."""

_REPORTS = ("on_delivery", "dr_msg_cb", "dr_cb")
CALLBACKS = ("error_cb", "stats_cb", "throttle_cb", "oauth_cb", *_REPORTS)
_HERE = frozenset(
    {*CALLBACKS, "client_software", "debug", "delivery_report_only_error", "logger"}
    | {"queue_buffering_max_kbytes", "queue_buffering_max_messages", "sasl_oauthbearer_config"}
    | {"socket_timeout_ms", "statistics_interval_ms", *_LOGIN}
)


class Settings(NamedTuple):
    """What the face does itself; the rest is the native producer's. Times in seconds."""

    on_delivery: Callable[..., object] | None
    only_errors: bool
    error_cb: Callable[..., object] | None
    stats_cb: Callable[..., object] | None
    throttle_cb: Callable[..., object] | None
    logger: Any
    debug: str
    statistics_interval: float
    most_messages: int
    message_timeout: float
    keys_by_crc32: bool
    credentials: Credentials
    tokens: OAuthTokens | None


def settled(conf: Any, named: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
    """What a configuration asks for. Raises TypeError, ValueError and KafkaException."""
    if conf is None and not named:
        raise TypeError("expected configuration dict")
    if conf is not None and not isinstance(conf, dict):
        raise TypeError("expected configuration dict")
    given = {**DEFAULTS, **used(by_name({**(conf or {}), **named}))}
    for name in CALLBACKS:
        if given.get(name) is not None and not callable(given[name]):
            raise TypeError(f"expected {name} property as a callable function")
    timeout = int(given["delivery_timeout_ms"]) or MAX_INT32
    options = _native(given, timeout)
    settings = Settings(
        given.get("on_delivery") or given.get("dr_msg_cb") or given.get("dr_cb"),
        str(given.get("delivery_report_only_error")).lower() in ("true", "1"),
        given.get("error_cb"),
        given.get("stats_cb"),
        given.get("throttle_cb"),
        given.get("logger"),
        str(given.get("debug", "")),
        int(given.get("statistics_interval_ms") or 0) / 1000,
        int(given["queue_buffering_max_messages"]) or MAX_INT32,
        timeout / 1000,
        given["partitioner"] in BY_CRC32,
        *_login(given, options),
    )
    return settings, options


def _login(
    given: Mapping[str, Any], options: dict[str, Any]
) -> tuple[Credentials, OAuthTokens | None]:
    """User and password, which may be replaced, and the tokens of ``oauth_cb``."""
    mechanism = str(options.get("sasl_mechanism", "")).upper()
    credentials = Credentials(*(str(exposed(given.get(name, ""))) for name in _LOGIN))
    tokens = None
    if mechanism in BY_PASSWORD:
        if not all(credentials()):
            words = "Failed to create producer: sasl.username and sasl.password must be set"
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, words))
        options["sasl_credentials"] = credentials
    elif mechanism == _OAUTH and "oauth_cb" in given:
        config = given.get("sasl_oauthbearer_config")
        tokens = OAuthTokens(given["oauth_cb"], lambda: exposed(config))
        options["sasl_oauth_token_provider"] = tokens
    return credentials, tokens


def _native(given: Mapping[str, Any], timeout: int) -> dict[str, Any]:
    options = {name: as_kind(name, value) for name, value in given.items() if name not in _HERE}
    options["buffer_memory"] = max(
        1024 * int(given["queue_buffering_max_kbytes"]), 2 * int(options["batch_size"])
    )
    options["max_block_ms"] = 0
    if str(options["acks"]) not in ("all", "-1"):
        options.setdefault("enable_idempotence", False)
    if options["partitioner"] not in PARTITIONERS and isinstance(options["partitioner"], str):
        wrong = f'Invalid value for configuration property "partitioner": {options["partitioner"]}'
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, wrong))
    if options["partitioner"] in BY_CRC32:
        options["partitioner"] = "default"  # for records without a key; the face sees to the others
    if options.get("compression_level") == -1 or not _takes_levels(options):
        options.pop("compression_level", None)
    _fit_into(timeout, options)
    return options


def _takes_levels(options: Mapping[str, Any]) -> bool:
    return options.get("compression_type") in ("gzip", "lz4", "zstd")


def _fit_into(timeout: int, options: dict[str, Any]) -> None:
    """librdkafka lets a message end before its request does; kprod wants both in order."""
    linger = min(int(float(options["linger_ms"])), timeout // 2)
    request = int(options["request_timeout_ms"])
    options["linger_ms"] = linger
    options["request_timeout_ms"] = max(1, min(request, timeout - linger))
    options["delivery_timeout_ms"] = max(timeout, linger + options["request_timeout_ms"])


def native_producer(options: dict[str, Any]) -> NativeProducer:
    """kprod's producer with these options. Raises KafkaException."""
    try:
        return NativeProducer(**options)
    except ConfigError as error:
        words = str(error)
        if words.startswith("unknown option "):
            name = words.split("'")[1].replace("_", ".")
            words = f'No such configuration property: "{name}"'
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, words)) from error
