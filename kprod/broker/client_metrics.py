"""Metrics that clients push to the broker (KIP-714), and the subscription that asks for them."""

from __future__ import annotations

import threading
import uuid
import zlib
from dataclasses import dataclass
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from kprod.clock import Clock
from kprod.errors import BrokerError
from kprod.records.codecs import CorruptBatch, decompress

ALL_METRICS: Final = "*"
_NEVER: Final = float("-inf")
_ZSTD_LZ4_GZIP_SNAPPY: Final = (4, 3, 1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetricsSubscription:
    """The metrics that clients are asked to push.

    ``metrics`` are prefixes of metric names; ``*`` stands for all metrics. ``codecs`` are the
    numbers of the accepted compression codecs, the preferred one first. With ``delta``, clients
    push how much a sum has grown since their last push; otherwise they push the whole sum.
    ``max_bytes`` limits a push.
    """

    metrics: tuple[str, ...] = (ALL_METRICS,)
    push_interval_ms: int = 300_000
    delta: bool = True
    max_bytes: int = 1024 * 1024
    codecs: tuple[int, ...] = _ZSTD_LZ4_GZIP_SNAPPY

    @property
    def subscription_id(self) -> int:
        """A number that is computed from the subscription, and so changes with it."""
        return zlib.crc32(repr(self).encode()) >> 1


class ClientMetricsPush(NamedTuple):
    """One push of a client.

    ``metrics`` is OpenTelemetry's ``MetricsData`` in serialized form. Accepted pushes have it
    decompressed.
    """

    instance_id: uuid.UUID
    client_id: str | None
    terminating: bool
    codec: int
    metrics: bytes


class _Instance:
    def __init__(self) -> None:
        self.asked_at = _NEVER
        self.pushed_at = _NEVER
        self.is_first = True  # its next push is the first since it got the subscription
        self.outdated = False  # its last push was refused, and it must get the subscription again
        self.terminated = False


class ClientMetrics:
    """What clients have pushed, and the subscription that asks them for metrics. Thread-safe.

    Unlike in Kafka's ``ClientMetricsManager``, there is at most one subscription, for all clients.
    While there is none, the broker does not offer telemetry to clients that connect. Subscription
    and pushes are kept when an ``EmbeddedBroker`` is stopped and started again.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards the rest
        self._subscription: ClientMetricsSubscription | None = None
        self._instances: dict[uuid.UUID, _Instance] = {}
        self._pushes: list[ClientMetricsPush] = []

    def subscribe(self, subscription: ClientMetricsSubscription) -> None:
        """Set the subscription, or replace it.

        Clients learn of the first subscription when they next connect. They learn of a later one
        when their next push is refused as outdated.
        """
        with self._changed:
            self._subscription = subscription

    @property
    def offered(self) -> bool:
        """Whether there is a subscription for clients."""
        return self._subscription is not None

    @property
    def pushes(self) -> list[ClientMetricsPush]:
        """All accepted pushes so far, oldest first."""
        with self._changed:
            return list(self._pushes)

    def await_pushes(self, count: int, timeout: float = 10.0) -> list[ClientMetricsPush]:
        """Wait at most ``timeout`` seconds until there are ``count`` pushes; return all so far."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._pushes) >= count, timeout)
            return list(self._pushes)

    # Clients --------------------------------------------------------------------------------------

    def ask(
        self, instance_id: uuid.UUID | None, clock: Clock
    ) -> tuple[uuid.UUID, ClientMetricsSubscription]:
        """Return the client's instance id and the subscription.

        A client that has no instance id yet (None) gets a new one. Raises ``BrokerError`` 35 if
        there is no subscription, and 89 if the client asks too often.
        """
        with self._changed:
            subscription = self._asked_for()
            instance_id = instance_id or uuid.uuid4()
            instance = self._instances.setdefault(instance_id, _Instance())
            now = clock.monotonic()
            last_request_at = max(instance.asked_at, instance.pushed_at)
            if not instance.outdated and _too_early(last_request_at, subscription, now):
                raise BrokerError(ErrorCode.throttling_quota_exceeded)
            instance.asked_at, instance.outdated, instance.is_first = now, False, True
            return instance_id, subscription

    def push(self, push: ClientMetricsPush, subscription_id: int, clock: Clock) -> None:
        """Accept a client's push.

        Raises ``BrokerError`` 35 (no subscription), 42 (unknown or terminated client), 76 (codec
        not accepted), 87 (too large or invalid when decompressed), 89 (too early), 117 (outdated
        subscription) or 118 (too large).
        """
        with self._changed:
            subscription = self._asked_for()
            instance = self._instances.get(push.instance_id)
            if instance is None or instance.terminated:
                raise BrokerError(ErrorCode.invalid_request)
            self._check(instance, push, subscription, subscription_id, clock.monotonic())
            taken = push._replace(metrics=_read(push, subscription.max_bytes))
            instance.terminated = push.terminating
            self._pushes.append(taken)
            self._changed.notify_all()

    def _check(
        self,
        instance: _Instance,
        push: ClientMetricsPush,
        subscription: ClientMetricsSubscription,
        subscription_id: int,
        now: float,
    ) -> None:
        if not (push.terminating or instance.is_first) and _too_early(
            instance.pushed_at, subscription, now
        ):
            raise BrokerError(ErrorCode.throttling_quota_exceeded)
        instance.pushed_at, instance.is_first = now, False
        refused: ErrorCode | None = None
        if subscription_id != subscription.subscription_id:
            refused = ErrorCode.unknown_subscription_id
        elif push.codec and push.codec not in subscription.codecs:
            refused = ErrorCode.unsupported_compression_type
        if refused is not None:
            instance.outdated = True
            raise BrokerError(refused)
        if len(push.metrics) > subscription.max_bytes:
            raise BrokerError(ErrorCode.telemetry_too_large)

    def _asked_for(self) -> ClientMetricsSubscription:
        if self._subscription is None:
            raise BrokerError(ErrorCode.unsupported_version)
        return self._subscription


def _too_early(before: float, subscription: ClientMetricsSubscription, now: float) -> bool:
    """Whether less than the push interval has passed since ``before``."""
    return now - before < subscription.push_interval_ms / 1000


def _read(push: ClientMetricsPush, limit: int) -> bytes:
    try:
        return decompress(push.codec, push.metrics, limit)
    except CorruptBatch as error:
        raise BrokerError(ErrorCode.invalid_record, str(error)) from error
