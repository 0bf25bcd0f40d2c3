"""Converts librdkafka's options to kprod's: values as text, aliases, consumer options."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kprod.config.addresses import Addresses
from kprod.config.foreign_options import unavailable
from kprod.config.kinds import MAX_INT32, PARTITIONERS, ProtocolText, SecretText, Text
from kprod.config.reading import of_profile
from kprod.config.secret import Secret, exposed
from kprod.config.table import OPTIONS
from kprod.confluent.credentials import Credentials, OAuthTokens
from kprod.confluent.errors import KafkaError, KafkaException
from kprod.confluent.native import NativeProducer
from kprod.errors import ConfigError
from kprod.intake.partitioner import CRC32

_log = logging.getLogger("kprod.config")

_NAMES: Mapping[str, str] = {
    spelling.replace(".", "_"): option.name
    for option in OPTIONS.values()
    for spelling in option.spellings
    if spelling != "oauth_cb"  # it is called differently: see OAuthTokens
}
_TRUE, _FALSE = ("true", "t", "1"), ("false", "f", "0")
_TOPICS = "default_topic_config"

OF_CONSUMERS = frozenset(
    {"auto_commit_enable", "auto_commit_interval_ms", "auto_offset_reset", "check_crcs"}
    | {"consume_callback_max_messages", "coordinator_query_interval_ms", "enable_auto_commit"}
    | {"enable_auto_offset_store", "enable_partition_eof", "fetch_error_backoff_ms"}
    | {"fetch_max_bytes", "fetch_message_max_bytes", "fetch_min_bytes", "fetch_queue_backoff_ms"}
    | {"fetch_wait_max_ms", "group_id", "group_instance_id", "group_protocol"}
    | {"group_protocol_type", "group_remote_assignor", "heartbeat_interval_ms", "isolation_level"}
    | {"max_partition_fetch_bytes", "max_poll_interval_ms", "max_poll_records"}
    | {"offset_store_method", "offset_store_path", "offset_store_sync_interval_ms"}
    | {"partition_assignment_strategy", "queued_max_messages_kbytes", "queued_min_messages"}
    | {"session_timeout_ms", "share_acknowledgement_mode"}
)
"""Consumer options, which librdkafka's producer ignores: programs share one configuration."""

_IGNORED: Mapping[str, str] = {
    "batch_num_messages": "kprod limits the bytes of a batch: set batch.size",
    "enabled_events": "librdkafka's bindings set it",
    "sasl_oauthbearer_sub_claim_name": "brokers read the name in a token themselves",
}
_DEFAULTS: Mapping[str, str] = {
    "enable_sasl_oauthbearer_unsecure_jwt": "false",
    "sasl_oauthbearer_grant_type": "client_credentials",
    "sasl_oauthbearer_metadata_authentication_type": "none",
}
"""Options that kprod does not have, and values with which they have no effect."""

_MAY_BE_EMPTY = (Text, ProtocolText, SecretText, Addresses)
_OF_AUTHORITIES = ("ssl_cafile", "sasl_oauthbearer_cafile")

_OF_SERIALIZING_PRODUCER = ("key_serializer", "value_serializer")

_NUMBERS = frozenset(
    {name for name, option in OPTIONS.items() if option.kind.type_name in ("int", "float")}
    | {"compression_level", "queue_buffering_max_kbytes", "queue_buffering_max_messages"}
    | {"socket_timeout_ms", "statistics_interval_ms"}
)

_SOFTWARE = ("client_software_name", "client_software_version")
_NEVER = {("metadata_max_age_ms", -1), ("connections_max_idle_ms", 0)}


def by_name(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Options by kprod's names, where kprod has the option. Topic options override others.

    Options that are None are not set. Raises KafkaException for an invalid number, and for a
    serializer, which only ``SerializingProducer`` has.
    """
    named: dict[str, Any] = {}
    for spelled, value in conf.items():
        plain = str(spelled).replace(".", "_")
        if plain in _OF_SERIALIZING_PRODUCER:
            words = f'No such configuration property: "{spelled}"'
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, words))
        if value is not None:
            name = _NAMES.get(plain, plain)
            _refuse_unless_number(name, spelled, value)
            named[name] = value
    of_topics = named.pop(_TOPICS, None)
    return {**named, **by_name(of_topics)} if of_topics else named


def _refuse_unless_number(name: str, spelled: str, value: Any) -> None:
    if name in _NUMBERS:
        try:
            int(float(value) if name == "linger_ms" else value)
        except (TypeError, ValueError, OverflowError) as error:
            words = f'Invalid value for configuration property "{spelled}": {value!r}'
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, words)) from error


def used(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options without those that librdkafka accepts for a producer and ignores."""
    protocol = str(given.get("security_protocol", "plaintext")).upper()
    kept = {}
    for name, value in given.items():
        if not protocol.startswith("SASL") and _of_logins(name):
            _log.warning("option %s is ignored: security.protocol has no SASL", name)
        elif not protocol.endswith("SSL") and _of_tls(name):
            _log.warning("option %s is ignored: security.protocol has no SSL", name)
        elif name in OF_CONSUMERS:
            _log.debug("option %s is ignored: it is a consumer option", name)
        elif name in _IGNORED:
            _log.info("option %s is ignored: %s", name, _IGNORED[name])
        elif str(exposed(value)).lower() != _DEFAULTS.get(name) and not _is_unset(name, value):
            kept[name] = value
    return kept


def _is_unset(name: str, value: Any) -> bool:
    """Whether librdkafka treats the value as "not set"."""
    text, option = exposed(value), OPTIONS.get(name)
    if name in _OF_AUTHORITIES and text == "probe":
        return True
    if option is None:
        return text == "" and unavailable(name) is not None
    return text == "" and isinstance(option.kind, _MAY_BE_EMPTY)


def _of_logins(name: str) -> bool:
    return name.startswith(("sasl_", "enable_sasl_"))


def _of_tls(name: str) -> bool:
    return name.startswith("ssl_") or name == "enable_ssl_certificate_verification"


def as_kind(name: str, value: Any) -> Any:
    """The value in the type of kprod's option. librdkafka also accepts numbers as text."""
    if name in _SOFTWARE:
        return _software(str(value))
    kind = OPTIONS[name].kind.type_name if name in OPTIONS else ""
    if kind == "bool" and str(value).lower() in (*_TRUE, *_FALSE):
        return str(value).lower() in _TRUE
    if kind.startswith("int"):
        number = _number(value)
        return MAX_INT32 if (name, number) in _NEVER else number
    plain = exposed(value)
    if kind.startswith("str") and isinstance(plain, int | float) and not isinstance(plain, bool):
        return Secret(str(plain), name) if isinstance(value, Secret) else str(plain)
    return value


def _software(text: str) -> str | None:
    """Replace invalid characters by hyphens, and remove hyphens at the ends, as librdkafka does."""
    return re.sub(r"[^a-zA-Z0-9.]", "-", text).strip("-.") or None


def _number(value: Any) -> Any:
    text = str(value).strip()
    return int(text) if text.lstrip("-").isdecimal() else value


NO_BROKER = "no-broker-is-configured.invalid:9092"
"""Address for a producer without ``bootstrap.servers``: no broker, as with librdkafka."""

DEFAULTS: Mapping[str, Any] = {
    "acks": "all",
    "batch_size": 1_000_000,
    "bootstrap_servers": NO_BROKER,
    "delivery_timeout_ms": 300_000,
    "linger_ms": 5,
    "partitioner": "consistent_random",
    "queue_buffering_max_messages": 100_000,
    "request_timeout_ms": 30_000,
}
MEMORY = 256 << 20
"""librdkafka's default of ``queue.buffering.max.kbytes``, in bytes."""
_KBYTES = "queue_buffering_max_kbytes"

BY_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_LOGIN = ("sasl_plain_username", "sasl_plain_password")
_OAUTH = "OAUTHBEARER"

BY_CRC32 = ("consistent_random", "crc32")
"""Partitioners of this package: ``send`` with a given partition uses the compiled path."""


def _consistent(key: Any, every: Sequence[int], _available: Sequence[int]) -> int:
    """Treat records without a key like records with an empty key: all go to one partition."""
    return CRC32.partition(key or b"", len(every))


def _random(_key: Any, every: Sequence[int], available: Sequence[int]) -> int:
    return random.choice(available or every)


_OTHER_PARTITIONERS: Mapping[str, Any] = {"consistent": _consistent, "random": _random}
"""Rarely used partitioners of librdkafka, implemented as application functions."""

_REPORTS = ("on_delivery", "dr_msg_cb", "dr_cb")
CALLBACKS = ("error_cb", "stats_cb", "throttle_cb", "oauth_cb", *_REPORTS)
_HERE = frozenset(
    {*CALLBACKS, "debug", "delivery_report_only_error", "logger"}
    | {_KBYTES, "queue_buffering_max_messages", "sasl_oauthbearer_config"}
    | {"socket_timeout_ms", "statistics_interval_ms", *_LOGIN}
)


class Settings(NamedTuple):
    """Options that this package implements itself. Times are in seconds."""

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


def first_given(*callbacks: Any) -> Any:
    """The first that is not None. A callback may be false, such as a list with ``__call__``."""
    return next((callback for callback in callbacks if callback is not None), None)


def settled(conf: Any, named: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
    """Parse a configuration. Raises TypeError, ValueError and KafkaException."""
    if conf is None and not named:
        raise TypeError("expected configuration dict")
    if conf is not None and not isinstance(conf, dict):
        raise TypeError("expected configuration dict")
    own = used(by_name({**(conf or {}), **named}))
    profile = of_profile(own)
    given = {name: profile.get(name, value) for name, value in DEFAULTS.items()} | own
    if "buffer_memory" not in own:
        given["buffer_memory"] = _memory(given, profile.get("buffer_memory"))
    elif _KBYTES in own:
        words = "buffer.memory and queue.buffering.max.kbytes are one limit: set only one of them"
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, words))
    for name in CALLBACKS:
        if given.get(name) is not None and not callable(given[name]):
            raise TypeError(f"expected {name} property as a callable function")
    timeout = int(given["delivery_timeout_ms"]) or MAX_INT32
    options = _native(given, timeout)
    settings = Settings(
        first_given(*map(given.get, _REPORTS)),
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


def _memory(given: Mapping[str, Any], of_profile: int | None) -> int:
    """The bytes of ``buffer_memory``, which librdkafka's option sets; at least for two batches."""
    kbytes = given.get(_KBYTES)
    memory = of_profile or MEMORY if kbytes is None else 1024 * int(kbytes)
    return max(memory, 2 * int(given["batch_size"]))


def _login(
    given: Mapping[str, Any], options: dict[str, Any]
) -> tuple[Credentials, OAuthTokens | None]:
    """The replaceable user and password, and the tokens of ``oauth_cb`` if there is one."""
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
    options["max_block_ms"] = 0
    if str(options["acks"]) not in ("all", "-1"):
        options.setdefault("enable_idempotence", False)
    options["partitioner"] = _OTHER_PARTITIONERS.get(
        str(options["partitioner"]), options["partitioner"]
    )
    if options["partitioner"] not in PARTITIONERS and isinstance(options["partitioner"], str):
        wrong = f'Invalid value for configuration property "partitioner": {options["partitioner"]}'
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, wrong))
    if options["partitioner"] in BY_CRC32:
        options["partitioner"] = (
            "default"  # for records without a key; this package partitions the others
        )
    if options.get("compression_level") == -1 or not _takes_levels(options):
        options.pop("compression_level", None)
    _fit_into(timeout, options)
    return options


def _takes_levels(options: Mapping[str, Any]) -> bool:
    return options.get("compression_type") in ("gzip", "lz4", "zstd")


def _fit_into(timeout: int, options: dict[str, Any]) -> None:
    """Lower limits that exceed the message timeout. librdkafka allows them, kprod does not."""
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
        if error.unknown:
            words = f'No such configuration property: "{error.unknown[0].replace("_", ".")}"'
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, words)) from error
