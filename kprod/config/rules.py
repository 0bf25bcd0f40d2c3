"""Rules between options: a conflicting default is adjusted, a conflicting given value refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeAlias

from kprod.config.kinds import is_open_backend
from kprod.config.reading import OptionReader
from kprod.config.table import OPTIONS

_log = logging.getLogger("kprod.config")

Rule: TypeAlias = tuple[tuple[str, ...], Callable[[OptionReader], str | None]]
"""The options that a rule reads, and a function that returns the problem, if any."""

MAX_IN_FLIGHT_IDEMPOTENT = 5

_LEVELS = {"gzip": (-1, 9), "lz4": (1, 17), "zstd": (-131072, 22)}
_CODEC_PACKAGES = {
    "snappy": ("cramjam", "kprod[snappy]"),
    "lz4": ("lz4", "lz4"),
    "zstd": ("zstandard", "zstandard"),
}
"""The module of each codec, and the package to install."""


def _idempotence(reader: OptionReader) -> str | None:
    """KIP-679: options that conflict with idempotence turn it off.

    If idempotence is set explicitly, such options are an error instead.
    """
    values = reader.values
    conflicts = [
        text
        for text, conflict in (
            (f"acks={values['acks']}, not all", values["acks"] != -1),
            ("retries=0", values["retries"] == 0),
            (
                f"max_in_flight_requests_per_connection={values['max_in_flight_requests_per_connection']},"
                f" more than {MAX_IN_FLIGHT_IDEMPOTENT}",
                values["max_in_flight_requests_per_connection"] > MAX_IN_FLIGHT_IDEMPOTENT,
            ),
        )
        if conflict
    ]
    transactional = values["transactional_id"] is not None
    if transactional and not values["enable_idempotence"]:
        return "transactional_id without enable_idempotence: leave out enable_idempotence=False"
    if not conflicts or not values["enable_idempotence"]:
        return None
    if transactional:
        return f"transactional_id cannot be used with {' and '.join(conflicts)}"
    if "enable_idempotence" in reader.given:
        return f"enable_idempotence=True cannot be used with {' and '.join(conflicts)}"
    values["enable_idempotence"] = False
    reasons = " and ".join(conflicts)
    _log.warning("idempotence is off because of %s: retries may duplicate records", reasons)
    return None


def _delivery_timeout(reader: OptionReader) -> str | None:
    values = reader.values
    least = values["linger_ms"] + values["request_timeout_ms"]
    if values["delivery_timeout_ms"] >= least:
        return None
    if "delivery_timeout_ms" in reader.given:
        return (
            f"delivery_timeout_ms={values['delivery_timeout_ms']} must be at least {least}:"
            f" linger_ms={values['linger_ms']} + request_timeout_ms={values['request_timeout_ms']}"
        )
    values["delivery_timeout_ms"] = least
    return None


def _growing(name: str) -> Rule:
    """The rule for a time that doubles from ``NAME_ms`` up to ``NAME_max_ms``."""
    first, longest = names = f"{name}_ms", f"{name}_max_ms"

    def settle(reader: OptionReader) -> str | None:
        values = reader.values
        if values[longest] >= values[first]:
            return None
        if longest not in reader.given:
            values[longest] = values[first]
        elif first not in reader.given:
            values[first] = values[longest]
        else:
            return f"{longest}={values[longest]} must be at least {first}={values[first]}"
        return None

    return names, settle


def _memory(reader: OptionReader) -> str | None:
    batch_size, buffer_memory = reader.values["batch_size"], reader.values["buffer_memory"]
    if batch_size <= buffer_memory:
        return None
    return f"batch_size={batch_size} must be at most buffer_memory={buffer_memory}"


def _growth(reader: OptionReader) -> str | None:
    values = reader.values
    size, most, request = (values[n] for n in ("batch_size", "batch_max_size", "max_request_size"))
    if "batch_max_size" not in reader.given:
        # If a smaller batch_size was requested, batches must not grow beyond it by default.
        small = size < OPTIONS["batch_size"].default
        values["batch_max_size"] = size if small else max(size, min(most, request))
    elif most < size and "batch_size" not in reader.given:
        values["batch_size"] = most
    elif most < size:
        return f"batch_max_size={most} must be at least batch_size={size}"
    elif most > max(size, request):
        return f"batch_max_size={most} must be at most max_request_size={request}"
    return None


def _compression(reader: OptionReader) -> str | None:
    codec, level = reader.values["compression_type"], reader.values["compression_level"]
    module, package = _CODEC_PACKAGES.get(codec, ("", ""))
    if module and not is_installed(module):
        return (
            f"compression_type={codec!r} needs the package {module}, which is not installed:"
            f" pip install '{package}'"
        )
    if level is None:
        return None
    if codec not in _LEVELS:
        return f"compression_level={level} needs compression_type gzip, lz4 or zstd, not {codec}"
    low, high = _LEVELS[codec]
    if not low <= level <= high:
        return f"compression_level={level} is not a level of {codec}: {low} to {high}"
    return None


def is_installed(module: str) -> bool:
    """Whether a package can be imported, without importing it."""
    from importlib.util import find_spec

    return find_spec(module) is not None


def _partitioning(reader: OptionReader) -> str | None:
    """Options that the chosen partitioner would ignore are errors."""
    values = reader.values
    partitioner, waits = values["partitioner"], values["partitioner_availability_timeout_ms"]
    named = OPTIONS["partitioner"].shown(partitioner)
    if values["partitioner_ignore_keys"] and partitioner != "default":
        return f"partitioner_ignore_keys=True needs partitioner='default', not {named}"
    if not waits:
        return None
    if not values["partitioner_adaptive_partitioning_enable"]:
        return (
            f"partitioner_availability_timeout_ms={waits} needs"
            " partitioner_adaptive_partitioning_enable=True"
        )
    if partitioner not in ("default", "crc32", "fnv1a"):
        return (
            f"partitioner_availability_timeout_ms={waits} needs partitioner 'default', 'crc32' or"
            f" 'fnv1a', not {named}"
        )
    return None


def _dead_letters(reader: OptionReader) -> str | None:
    topic = reader.values["dead_letter_topic"]
    if topic is None or not is_open_backend(reader.values["transport"]):
        return None
    return (
        f"dead_letter_topic={topic!r} needs a second connection, which an open backend cannot make:"
        " pass its class as transport, or a callable that makes a backend"
    )


def _topic_acks(reader: OptionReader) -> str | None:
    if reader.values["acks"] == -1 or not reader.values["enable_idempotence"]:
        return None
    return (
        f"acks={reader.values['acks']} cannot be used with idempotence, which applies to the whole"
        " producer; set enable_idempotence=False"
    )


_DELIVERY_TIMEOUT: Rule = (
    ("delivery_timeout_ms", "linger_ms", "request_timeout_ms"),
    _delivery_timeout,
)
_COMPRESSION: Rule = (("compression_type", "compression_level"), _compression)

PRODUCER_RULES: tuple[Rule, ...] = (
    (
        (
            "transactional_id",
            "enable_idempotence",
            "acks",
            "retries",
            "max_in_flight_requests_per_connection",
        ),
        _idempotence,
    ),
    _DELIVERY_TIMEOUT,
    _growing("retry_backoff"),
    _growing("reconnect_backoff"),
    _growing("socket_connection_setup_timeout"),
    (("batch_size", "batch_max_size", "max_request_size"), _growth),
    (("batch_size", "buffer_memory"), _memory),
    _COMPRESSION,
    (
        (
            "partitioner",
            "partitioner_adaptive_partitioning_enable",
            "partitioner_availability_timeout_ms",
            "partitioner_ignore_keys",
        ),
        _partitioning,
    ),
    (("dead_letter_topic", "transport"), _dead_letters),
)
TOPIC_RULES: tuple[Rule, ...] = (
    (("acks", "enable_idempotence"), _topic_acks),
    _DELIVERY_TIMEOUT,
    _COMPRESSION,
)


def apply_rules(rules: Iterable[Rule], reader: OptionReader) -> None:
    """Apply the rules whose options are all valid, and collect problems."""
    for names, rule in rules:
        if reader.refused.isdisjoint(names) and (problem := rule(reader)) is not None:
            reader.problems.append(problem)
