"""Client telemetry (KIP-714): the requests, and metrics in the protobuf of OpenTelemetry.

Source: the message schemas of Apache Kafka 4.2; the Protocol Buffers documentation, "Encoding";
opentelemetry/proto/metrics/v1/metrics.proto, common.proto and resource.proto. From their release
1.0, the numbers of fields do not change. A field with its default value may be left out (proto3).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kprod.wire.framing import begin_request, framed
from kprod.wire.primitives import WireReader
from kprod.wire.versions import ApiKey, is_flexible

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_DOUBLE = struct.Struct("<d")
_UINT64 = struct.Struct("<Q")


def uvarint(value: int) -> bytes:
    """A non-negative varint: groups of 7 bits, lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A field of the types uint32, uint64, bool or enum; not below 0."""
    return uvarint(field << 3 | _VARINT) + uvarint(value)


def fixed64(field: int, value: int) -> bytes:
    """A field of the type fixed64."""
    return uvarint(field << 3 | _FIXED64) + _UINT64.pack(value)


def double(field: int, value: float) -> bytes:
    """A field of the type double."""
    return uvarint(field << 3 | _FIXED64) + _DOUBLE.pack(value)


def message(field: int, content: bytes) -> bytes:
    """A field that is a message, or bytes."""
    return uvarint(field << 3 | _BYTES) + uvarint(len(content)) + content


def string(field: int, text: str) -> bytes:
    """A field of the type string."""
    return message(field, text.encode())


def metric(
    name: str,
    unit: str,
    value: float,
    at: int,
    attributes: Mapping[str, str],
    *,
    since: int | None = None,
    delta: bool = False,
) -> bytes:
    """A ``Metric`` with one value. Times are in nanoseconds since the epoch.

    Without ``since``, it is a gauge: it may rise and fall. Otherwise it is a sum that only grows,
    counted from ``since``: the last push if ``delta``, else the start.
    """
    point = b"" if since is None else fixed64(_SINCE, since)
    point += fixed64(_AT, at) + double(_AS_DOUBLE, value)
    points = message(_POINTS, point + _attributes(_POINT_ATTRIBUTES, attributes))
    head = string(_NAME, name) + (string(_UNIT, unit) if unit else b"")
    if since is None:
        return head + message(_GAUGE, points)
    temporality = number(_TEMPORALITY, _DELTA if delta else _CUMULATIVE)
    return head + message(_SUM, points + temporality + number(_MONOTONIC, 1))


def metrics_data(
    resource: Mapping[str, str], scope: tuple[str, str], metrics: Iterable[bytes]
) -> bytes:
    """A complete ``MetricsData`` with one resource, one scope (name, version), and its metrics."""
    name, version = scope
    head = message(_SCOPE, string(_SCOPE_NAME, name) + string(_SCOPE_VERSION, version))
    of_scope = head + b"".join(message(_METRICS, metric) for metric in metrics)
    described = message(_RESOURCE, _attributes(_RESOURCE_ATTRIBUTES, resource))
    return message(_RESOURCE_METRICS, described + message(_SCOPE_METRICS, of_scope))


# Field numbers, by message.
_RESOURCE_METRICS = 1  # MetricsData
_RESOURCE, _SCOPE_METRICS = 1, 2  # ResourceMetrics
_RESOURCE_ATTRIBUTES = 1  # Resource
_SCOPE, _METRICS = 1, 2  # ScopeMetrics
_SCOPE_NAME, _SCOPE_VERSION = 1, 2  # InstrumentationScope
_NAME, _UNIT, _GAUGE, _SUM = 1, 3, 5, 7  # Metric
_POINTS, _TEMPORALITY, _MONOTONIC = 1, 2, 3  # Gauge and Sum
_DELTA, _CUMULATIVE = 1, 2  # AggregationTemporality
_SINCE, _AT, _AS_DOUBLE, _POINT_ATTRIBUTES = 2, 3, 4, 7  # NumberDataPoint
_KEY, _VALUE, _STRING_VALUE = 1, 2, 1  # KeyValue, AnyValue


def _attributes(field: int, values: Mapping[str, str]) -> bytes:
    pairs = (
        string(_KEY, key) + message(_VALUE, string(_STRING_VALUE, value))
        for key, value in values.items()
    )
    return b"".join(message(field, pair) for pair in pairs)


_INT8 = struct.Struct(">b")
_INT32 = struct.Struct(">i")
_BOOL = struct.Struct(">?")
_THROTTLE_AND_ERROR = struct.Struct(">ih")
_INTERVAL_SIZE_AND_DELTA = struct.Struct(">ii?")

NO_ID = bytes(16)
"""The id of a client until a broker assigns one."""
MOST_CODECS = 128
"""Limit of codecs in a subscription; Kafka has five."""
MOST_METRICS = 10_000
"""Limit of name prefixes in a subscription; no client has so many metrics."""


class Subscription(NamedTuple):
    """The metrics that brokers subscribe to, and how to push them.

    ``instance_id`` is None if the response has none. ``codecs`` are the numbers of the accepted
    compression codecs, the preferred one first. ``metrics`` are prefixes of names.
    """

    error_code: int
    instance_id: bytes | None
    subscription_id: int
    codecs: tuple[int, ...]
    push_interval_ms: int
    max_bytes: int
    delta: bool
    metrics: tuple[str, ...]
    throttle_ms: int


def encode_get_subscriptions_request(
    version: int, correlation_id: int, client_id: str, instance_id: bytes
) -> bytes:
    """A whole frame of version 0. ``instance_id`` is ``NO_ID`` to get a new one."""
    out = begin_request(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, version, correlation_id, client_id)
    out.raw(instance_id)
    return framed(out)


def decode_get_subscriptions_response(version: int, body: memoryview) -> Subscription:
    """Read the body of a response of version 0. Raises ProtocolError, and nothing else."""
    reader = _body(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, version, body)
    throttle_ms, error_code = reader.unpack(_THROTTLE_AND_ERROR)
    instance_id = reader.uuid()
    subscription_id = reader.int32()
    codecs = tuple(reader.unpack(_INT8)[0] for _ in range(reader.array(1, MOST_CODECS)))
    interval_ms, max_bytes, delta = reader.unpack(_INTERVAL_SIZE_AND_DELTA)
    metrics = tuple(reader.string() for _ in range(reader.array(1, MOST_METRICS)))
    reader.skip_tags()
    return Subscription(
        error_code,
        instance_id,
        subscription_id,
        codecs,
        interval_ms,
        max_bytes,
        delta,
        metrics,
        throttle_ms,
    )


class Push(NamedTuple):
    """A push of metrics: ``metrics`` is a ``MetricsData``, compressed with ``codec``."""

    instance_id: bytes
    subscription_id: int
    terminating: bool
    codec: int
    metrics: bytes


class PushReply(NamedTuple):
    """The answer to a push."""

    error_code: int
    throttle_ms: int


def encode_push_request(version: int, correlation_id: int, client_id: str, push: Push) -> bytes:
    """A whole frame of version 0."""
    out = begin_request(ApiKey.PUSH_TELEMETRY, version, correlation_id, client_id)
    out.raw(push.instance_id)
    out.pack(_INT32, push.subscription_id)
    out.raw(_BOOL.pack(push.terminating))
    out.pack(_INT8, push.codec)
    out.records(len(push.metrics))
    out.raw(push.metrics)
    return framed(out)


def decode_push_response(version: int, body: memoryview) -> PushReply:
    """Read the body of a response of version 0. Raises ProtocolError, and nothing else."""
    reader = _body(ApiKey.PUSH_TELEMETRY, version, body)
    throttle_ms, error_code = reader.unpack(_THROTTLE_AND_ERROR)
    reader.skip_tags()
    return PushReply(error_code, throttle_ms)


def _body(api: ApiKey, version: int, body: memoryview) -> WireReader:
    flexible = is_flexible(api, version)
    return WireReader(body, f"{api.name} v{version} response", flexible=flexible)
