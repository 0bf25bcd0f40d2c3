"""The requests by which brokers ask clients for their metrics, and are told them.

Source: KIP-714; the message schemas of Apache Kafka 4.2.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kprod.wire.framing import begin_request, framed
from kprod.wire.primitives import WireReader
from kprod.wire.versions import ApiKey, is_flexible

_INT8 = struct.Struct(">b")
_INT32 = struct.Struct(">i")
_BOOL = struct.Struct(">?")
_THROTTLE_AND_ERROR = struct.Struct(">ih")
_INTERVAL_SIZE_AND_DELTA = struct.Struct(">ii?")

NO_ID = bytes(16)
"""The id of a client until a broker gives it one."""


class Subscription(NamedTuple):
    """The metrics that brokers want of a client, and how.

    ``instance_id`` is None where the answer has none. ``codecs`` are the numbers of the
    compression codecs that are taken, the best first. ``metrics`` are prefixes of names.
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
    """A whole frame of version 0. ``instance_id`` is ``NO_ID`` to be given one."""
    out = begin_request(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, version, correlation_id, client_id)
    out.raw(instance_id)
    return framed(out)


def decode_get_subscriptions_response(version: int, body: memoryview) -> Subscription:
    """Read the body of a response of version 0. Raises ProtocolError, and nothing else."""
    reader = _body(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, version, body)
    throttle_ms, error_code = reader.unpack(_THROTTLE_AND_ERROR)
    instance_id = reader.uuid()
    subscription_id = reader.int32()
    codecs = tuple(reader.unpack(_INT8)[0] for _ in range(reader.array(1)))
    interval_ms, max_bytes, delta = reader.unpack(_INTERVAL_SIZE_AND_DELTA)
    metrics = tuple(reader.string() for _ in range(reader.array(1)))
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
    """Metrics as they are told: ``metrics`` is a ``MetricsData``, compressed by ``codec``."""

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
