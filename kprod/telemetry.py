"""Client telemetry: push the producer's metrics to brokers that subscribe to them (KIP-714).

As in Kafka's ``ClientTelemetryReporter``, the client asks for a subscription, and then pushes
metrics in its interval. If a broker refuses a request, its error code decides how to continue.
Names follow Kafka's ``TelemetryMetricNamingConvention``: the metric ``connection-creation-rate`` of
the group ``producer-metrics`` is ``org.apache.kafka.producer.connection.creation.rate``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kprod.buffer.compression import CODEC_IDS, compressor
from kprod.config import ProducerConfig
from kprod.errors import BrokerError, ErrorCode, KprodError, KprodTimeoutError, ProducerClosedError
from kprod.latch import Latch
from kprod.metrics import ProducerMetrics
from kprod.metrics.table import (
    NODE_METRICS,
    PRODUCER_GAUGES,
    PRODUCER_METRICS,
    TOPIC_METRICS,
    Gauge,
    Metric,
)
from kprod.quantities import in_seconds
from kprod.sender.broker import Broker
from kprod.sender.connection import ControlRequest
from kprod.sender.deadlines import FOREVER
from kprod.sender.loop import Sender
from kprod.version import VERSION
from kprod.wire.telemetry import (
    NO_ID,
    Push,
    PushReply,
    Subscription,
    decode_get_subscriptions_response,
    decode_push_response,
    encode_get_subscriptions_request,
    encode_push_request,
    metric,
    metrics_data,
)
from kprod.wire.versions import ApiKey, ApiVersions

if TYPE_CHECKING:
    from uuid import UUID

Groups: TypeAlias = Mapping[str, Mapping[str, float]]

DOMAIN = "org.apache.kafka."
EVERYTHING = "*"
SCOPE = ("kprod", VERSION)
LENGTHS_BYTES = 12
"""Additional bytes for the lengths of the messages that enclose metrics."""
METRIC_FRAME_BYTES = 6
"""The bytes of tag and length of each metric."""


def _units(rows: Sequence[Metric | Gauge]) -> dict[str, str]:
    return {row.name: row.unit for row in rows}


# Kind of group: prefix of its names, attribute, and units. The whole producer comes first: metrics
# that do not fit are left out from the end.
_KINDS: dict[str, tuple[str, str | None, dict[str, str]]] = {
    "producer-metrics": (
        "producer.",
        None,
        {**_units(PRODUCER_METRICS), **_units(PRODUCER_GAUGES)},
    ),
    "producer-node-metrics": ("producer.node.", "node_id", _units(NODE_METRICS)),
    "producer-topic-metrics": ("producer.topic.", "topic", _units(TOPIC_METRICS)),
}


class _Found(NamedTuple):
    key: tuple[str, str]  # group and name
    name: str
    unit: str
    attributes: dict[str, str]
    value: float


class TelemetryPayload:
    """Writes metrics, and remembers the sums that brokers have accepted. Not thread-safe.

    ``began`` is when the producer was made, in nanoseconds since the epoch. ``resource`` contains
    the attributes of the producer as a whole.
    """

    def __init__(self, began: int, resource: Mapping[str, str]) -> None:
        self._began = began
        self._resource = resource
        self._frame_bytes = len(metrics_data(resource, SCOPE, ())) + LENGTHS_BYTES
        self._taken: dict[tuple[str, str], float] = {}
        self._taken_at = began
        self._written: dict[tuple[str, str], float] = {}
        self._written_at = began

    def write(self, groups: Groups, wanted: Subscription, now: int) -> bytes:
        """A ``MetricsData`` of at most ``wanted.max_bytes``; metrics that do not fit are left out.

        The metrics of the whole producer come first, then those of brokers, then those of topics.
        """
        # A topic or broker that has gone counts from 0 if it returns.
        self._taken = {key: value for key, value in self._taken.items() if key[0] in groups}
        self._written, self._written_at = {}, now
        metrics: list[bytes] = []
        left = wanted.max_bytes - self._frame_bytes
        for key, name, unit, attributes, value in _chosen(groups, wanted.metrics):
            grows = key[1].endswith("-total")
            since, shown = None, value
            if grows and wanted.delta:
                since, before = self._taken_at, self._taken.get(key, 0.0)
                # A topic that was forgotten in between counts from 0 again.
                shown = value - before if value >= before else value
            elif grows:
                since = self._began
            written = metric(name, unit, shown, now, attributes, since=since, delta=wanted.delta)
            left -= len(written) + METRIC_FRAME_BYTES
            if left < 0:
                break
            metrics.append(written)
            if grows:
                self._written[key] = value
        return metrics_data(self._resource, SCOPE, metrics)

    def taken(self) -> None:
        """A broker has accepted the last ``MetricsData``: the next differences begin there."""
        # Sums that were left out go on counting from their last value that a broker has.
        self._taken.update(self._written)
        self._taken_at = self._written_at


def _chosen(groups: Groups, prefixes: tuple[str, ...]) -> Iterator[_Found]:
    chosen = tuple("" if prefix == EVERYTHING else prefix for prefix in prefixes)
    for kind, (prefix, attribute, units) in _KINDS.items():
        for group, values in groups.items():
            found, _, of = group.partition(".")
            if found != kind:
                continue
            attributes = {} if attribute is None else {attribute: of}
            for plain, value in values.items():
                name = f"{DOMAIN}{prefix}{plain.replace('-', '.')}"
                if name.startswith(chosen):
                    yield _Found((group, plain), name, units.get(plain, ""), attributes, value)


USUAL_INTERVAL = 300.0
"""Seconds between pushes if a broker has named no valid interval."""
SHORTEST_INTERVAL = 0.1
"""Minimum seconds between pushes. Apache Kafka's brokers cannot ask for less."""
UNANSWERED = 30.0
"""Seconds until a request whose answer was lost is repeated."""
JITTER = (0.5, 1.5)
"""The first push comes after the interval times a random number between these, so that clients
spread."""


FINAL = frozenset(
    {ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_VERSION}
)
"""Error codes that a further request would get again: no metrics are pushed any more."""
OUTDATED = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
"""Error codes of a push whose subscription has changed: the client asks for the new one at once."""


FINAL_PUSH_TIMEOUT = 0.5
"""Seconds that a closing producer waits for an answer to its last push."""
NAMES = {number: name for name, number in CODEC_IDS.items()}


class Telemetry:
    """Asks for subscriptions and pushes metrics, over connections that exist anyway.

    It is the ``companion`` of ``sender``, and runs when it is queued (see ``Deadlines``).
    ``measure`` returns all metrics at a time on the sender's clock. ``jitter`` draws a number of
    the range it is given. Times are seconds on that clock. Used only by the sender's thread, unless
    said otherwise.
    """

    def __init__(
        self,
        sender: Sender,
        measure: Callable[[float], Groups],
        resource: Mapping[str, str],
        jitter: Callable[[float, float], float],
    ) -> None:
        self._network = sender.network
        self._deadlines = sender.deadlines
        self._clock = sender.clock
        self._loop_owner = sender.loop_owner
        self._measure = measure
        self._payload = TelemetryPayload(self._wall_ns(), resource)
        self._jitter = jitter
        self.instance_id = NO_ID  # any thread reads it
        self.identified = Latch()  # open when the id is known, or never will be
        self.over = False  # nothing is pushed any more
        self._refused_for_good: BrokerError | None = None  # why, unless the producer has ended
        self.subscription: Subscription | None = None  # None: to be asked for
        self.due = FOREVER  # see Deadlines
        self.due_at = FOREVER
        """When to ask for the subscription or to push metrics; infinite until a broker offers
        telemetry."""
        self._offered = False  # some broker takes the requests
        self._wanted_until = -FOREVER  # until then a caller waits for the id: it may connect
        self._ending = False  # the next push is the last
        self._leave_by = FOREVER
        self._interval = USUAL_INTERVAL
        self._in_flight = False
        self._node_id: int | None = None  # the node that was asked last

    @classmethod
    def of(
        cls,
        sender: Sender,
        config: ProducerConfig,
        metrics: ProducerMetrics,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> Telemetry | None:
        """The telemetry of a new sender, unless it is switched off."""
        if not config.enable_metrics_push:
            return None
        named = config.transactional_id
        resource = {} if named is None else {"transactional_id": named}
        made = cls(sender, metrics.groups, resource, jitter)
        sender.attend(made)
        return made

    def client_instance_id(self, timeout: float) -> UUID:
        """See ``KafkaProducer.client_instance_id``. Any thread.

        If no broker is connected, a connection is made for it.
        """
        wanted_until = self._clock.monotonic() + timeout
        self._wanted_until = max(self._wanted_until, wanted_until)
        self._deadlines.queued.append(self)
        self._loop_owner.wake()
        self._loop_owner.wait(self.identified, timeout, True)
        if self.instance_id == NO_ID:
            if not self.identified.is_open:
                what = "does a broker take client telemetry (KIP-714)?"
                raise KprodTimeoutError(f"no id was given within {in_seconds(timeout)}: {what}")
            if self._refused_for_good is None:
                raise ProducerClosedError("closed before a broker had given an id")
            raise KprodTimeoutError(f"a broker gives no id: {self._refused_for_good}")
        from uuid import UUID  # slow to import, and rarely needed

        return UUID(bytes=self.instance_id)

    def on_api_versions(self, versions: ApiVersions) -> None:
        """A broker's handshake. Telemetry begins with the first broker that offers it."""
        if self._offered or not versions.offers(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS):
            return
        if versions.offers(ApiKey.PUSH_TELEMETRY):
            self._offered = True
            if not self.over:
                self._set_due(0.0)

    def _set_due(self, when: float) -> None:
        self.due_at = when
        self._deadlines.set(self, when)

    def _wall_ns(self) -> int:
        return self._clock.wall_ms() * 1_000_000

    # Requests -------------------------------------------------------------------------------------

    def fire(self, now: float) -> None:
        """Ask or push if that is due, as soon as a broker can take the request."""
        if not self._offered:
            if now < self._wanted_until and not self.over:
                self._network.waiting[self] = None
                self._network.any_usable(now)  # which begins a connection where there is none
        elif self._in_flight:
            self._deadlines.set(self, self._leave_by)
        elif now < self.due_at:
            self._deadlines.set(self, self.due_at)
        else:
            api = ApiKey.PUSH_TELEMETRY
            if self.subscription is None:
                api = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
            broker = self._network.usable_for(api, self._node_id)
            # First: a request that fails while it is written sets the next deadline.
            self._deadlines.set(self, self._leave_by if self._leave_by > now else FOREVER)
            if broker is not None:
                self._send(broker, now)
            else:
                self._network.waiting[self] = None

    def _send(self, broker: Broker, now: float) -> None:
        request: ControlRequest[Subscription] | ControlRequest[PushReply]
        if self.subscription is None:
            request = ControlRequest(
                ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
                partial(encode_get_subscriptions_request, instance_id=self.instance_id),
                decode_get_subscriptions_response,
                self.subscribed,
                self.failed,
            )
        else:
            request = ControlRequest(
                ApiKey.PUSH_TELEMETRY,
                partial(encode_push_request, push=self._push(self.subscription, now)),
                decode_push_response,
                partial(self.pushed, last=self._ending),
                self.failed,
            )
        self._in_flight, self._node_id = True, broker.address.node_id
        broker.send(request, now)

    def _push(self, wanted: Subscription, now: float) -> Push:
        metrics = self._payload.write(self._measure(now), wanted, self._wall_ns())
        codec, metrics = _compressed(metrics, wanted.codecs)
        return Push(self.instance_id, wanted.subscription_id, self._ending, codec, metrics)

    # Answers --------------------------------------------------------------------------------------

    def subscribed(self, reply: Subscription, now: float) -> None:
        """A broker has answered with its subscription, or with an error code."""
        self._in_flight = False
        # A broker names the id only where it gives one.
        instance_id = reply.instance_id or self.instance_id
        if reply.error_code or instance_id == NO_ID:
            self._refused(reply.error_code or ErrorCode.INVALID_REQUEST, now, of_push=False)
            return
        if self.instance_id != instance_id:
            self._network.log.debug("client telemetry knows it by the id %s", instance_id.hex())
        self.instance_id = instance_id
        self.identified.open()
        self._interval = _interval(reply)
        wait = self._interval
        if reply.metrics:
            self.subscription = reply
            wait *= self._jitter(*JITTER)
        self._set_due(now + wait)

    def pushed(self, reply: PushReply, now: float, *, last: bool) -> None:
        """A broker has answered a push."""
        self._in_flight = False
        if reply.error_code:
            self._refused(reply.error_code, now, of_push=True)
            return
        self._payload.taken()
        self._set_due(now if self._ending else now + self._interval)
        if last:
            self.end()

    def _refused(self, code: int, now: float, *, of_push: bool) -> None:
        self.subscription = None
        if code in FINAL:
            self._refused_for_good = BrokerError(code, "client telemetry")
        if code in FINAL or self._ending:
            self.end()
        elif code in OUTDATED and of_push:
            self._set_due(now)
        else:  # too large, throttled, or an unknown code: a later push may succeed
            self._set_due(now + self._interval)
        ends = "no more of it" if self.over else "it goes on"
        self._network.log.debug("client telemetry was refused with error %d; %s", code, ends)

    def failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        """No answer came. A push is not repeated, because the next one has newer values."""
        self._in_flight = False
        self._network.log.debug("client telemetry: %s", error)
        if self._ending:
            self.end()
        else:
            self._set_due(now + (UNANSWERED if self.subscription is None else self._interval))

    # The end --------------------------------------------------------------------------------------

    def leave(self, now: float) -> bool:
        """The producer ends: push the subscribed metrics once more, now.

        It is called repeatedly until it returns True: the push has ended, or is not needed.
        ``fire`` sends the push.
        """
        if not self._offered:
            return True
        if not self._ending:
            self._ending = True
            self._leave_by = now + FINAL_PUSH_TIMEOUT
            self.due_at = 0.0
            if self.subscription is None:
                self.end()
            self._deadlines.queued.append(self)
        if self.over or now >= self._leave_by:
            return True
        if self._in_flight:
            return False
        return self._network.usable_for(ApiKey.PUSH_TELEMETRY, self._node_id) is None

    def end(self) -> None:
        """Push nothing more, and end the wait for an id."""
        self.over = True
        self._set_due(FOREVER)
        self.identified.open()


def _interval(reply: Subscription) -> float:
    if reply.push_interval_ms <= 0:
        return USUAL_INTERVAL
    return max(reply.push_interval_ms / 1000, SHORTEST_INTERVAL)


def _compressed(metrics: bytes, accepted: tuple[int, ...]) -> tuple[int, bytes]:
    """Compress by the first codec that brokers accept and that is installed; 0: by none."""
    for codec in accepted:
        try:
            compress = compressor(NAMES[codec], None) if codec in NAMES else None
        except ImportError:
            continue
        if compress is not None:
            return codec, compress(memoryview(metrics))
        if codec == CODEC_IDS["none"]:
            break
    return CODEC_IDS["none"], metrics
