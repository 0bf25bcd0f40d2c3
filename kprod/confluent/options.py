"""From librdkafka's options to kprod's"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kprod.config.kinds import MAX_INT32
from kprod.config.plugins import PARTITIONERS
from kprod.config.secret import exposed
from kprod.confluent.credentials import Credentials
from kprod.confluent.errors import KafkaError, KafkaException
from kprod.confluent.native import NativeProducer
from kprod.errors import ConfigError

DEFAULTS: Mapping[str, Any] = {
    "batch_size": 1_000_000,
    "message_timeout_ms": 300_000,
    "partitioner": "consistent_random",
    "queue_buffering_max_kbytes": 256 * 1024,
    "queue_buffering_max_messages": 100_000,
}
NOBODY = "no-broker-is-configured.invalid:9092"
"""Where a producer without ``bootstrap.servers`` finds no broker, as there."""

BY_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_LOGIN = ("username", "password")

BY_CRC32 = ("consistent_random", "crc32")
"""Partitioners of the face's own: with a partition given, ``send`` takes the compiled path."""

CALLBACKS = ("error_cb", "stats_cb", "throttle_cb", "on_delivery", "dr_cb", "dr_msg_cb")
_HERE = frozenset(
    {*CALLBACKS, "logger", "statistics_interval_ms", "queue_buffering_max_messages"}
    | {"queue_buffering_max_kbytes", "socket_timeout_ms", "default_topic_config", "client_software"}
    | {"message_timeout_ms", "delivery_timeout_ms", "oauth_cb", "group_id"}
)


class Settings(NamedTuple):
    """What the face does itself; the rest is the native producer's. Times in seconds."""

    on_delivery: Callable[..., object] | None
    error_cb: Callable[..., object] | None
    stats_cb: Callable[..., object] | None
    throttle_cb: Callable[..., object] | None
    logger: Any
    statistics_interval: float
    most_messages: int
    message_timeout: float
    keys_by_crc32: bool
    credentials: Credentials


def settled(conf: Any, named: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
    """What a configuration asks for. Raises TypeError, ValueError and KafkaException."""
    if conf is None and not named:
        raise TypeError("expected configuration dict")
    if conf is not None and not isinstance(conf, dict):
        raise TypeError("expected configuration dict")
    given = {**DEFAULTS, **_flat({**(conf or {}), **named})}
    for name in CALLBACKS:
        if given.get(name) is not None and not callable(given[name]):
            raise ValueError(f"{name} must be callable")
    timeout = int(given.get("delivery_timeout_ms", given["message_timeout_ms"])) or MAX_INT32
    settings = Settings(
        given.get("on_delivery") or given.get("dr_msg_cb") or given.get("dr_cb"),
        given.get("error_cb"),
        given.get("stats_cb"),
        given.get("throttle_cb"),
        given.get("logger"),
        int(given.get("statistics_interval_ms") or 0) / 1000,
        int(given["queue_buffering_max_messages"]) or MAX_INT32,
        timeout / 1000,
        given["partitioner"] in BY_CRC32,
        _credentials(given),
    )
    options = _native(given, timeout)
    if str(options.get("sasl_mechanism", "")).upper() in BY_PASSWORD:
        options["sasl_credentials"] = settings.credentials
    return settings, options


def _credentials(given: dict[str, Any]) -> Credentials:
    """Take user and password out of the options: they may be replaced."""
    pair = [given.pop(f"sasl_{name}", given.pop(f"sasl_plain_{name}", "")) for name in _LOGIN]
    return Credentials(*map(exposed, pair))


def _flat(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Names with underscores; those of topics, which librdkafka keeps apart, override the rest.

    None is for what is not set.
    """
    named = {str(n).replace(".", "_"): value for n, value in conf.items() if value is not None}
    of_topics = named.pop("default_topic_config", None)
    return {**named, **_flat(of_topics)} if of_topics else named


def _native(given: Mapping[str, Any], timeout: int) -> dict[str, Any]:
    options = {name: _parsed(value) for name, value in given.items() if name not in _HERE}
    options.setdefault("bootstrap_servers", options.pop("metadata_broker_list", NOBODY))
    options["buffer_memory"] = max(
        1024 * int(given["queue_buffering_max_kbytes"]), 2 * int(options["batch_size"])
    )
    options["max_block_ms"] = 0
    acks = options.get("acks", options.get("request_required_acks", "all"))
    if str(acks) not in ("all", "-1"):
        options.setdefault("enable_idempotence", False)
    if options["partitioner"] not in PARTITIONERS and isinstance(options["partitioner"], str):
        wrong = f'Invalid value for configuration property "partitioner": {options["partitioner"]}'
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, wrong))
    if options["partitioner"] in BY_CRC32:
        options["partitioner"] = "default"  # for records without a key; the face sees to the others
    _fit_into(timeout, options, given)
    return options


def _fit_into(timeout: int, options: dict[str, Any], given: Mapping[str, Any]) -> None:
    """librdkafka lets a message end before its request does; kprod wants both in order."""
    name = "queue_buffering_max_ms" if "queue_buffering_max_ms" in options else "linger_ms"
    linger = min(int(float(options.get(name, 5))), timeout // 2)
    options[name] = linger
    request = int(given.get("request_timeout_ms", 30_000))
    options["request_timeout_ms"] = max(1, min(request, timeout - linger))
    options["delivery_timeout_ms"] = max(timeout, linger + options["request_timeout_ms"])


def _parsed(value: Any) -> Any:
    """Values may be text, whatever the option's type."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if text.lstrip("-").isdecimal() else value


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
