"""Tell brokers of the producer's metrics where they ask for it (KIP-714)."""

from __future__ import annotations

from collections.abc import Callable

from kprod.buffer.compression import CODEC_IDS, Compressor, compressor
from kprod.clock import Clock
from kprod.errors import KprodError
from kprod.sender.exchange import Buffers, Exchange
from kprod.sender.network import Network
from kprod.sender.telemetry import Telemetry
from kprod.sender.telemetry_payload import Groups, TelemetryPayload, Wanted
from kprod.wire.telemetry import (
    Push,
    Subscription,
    decode_get_subscriptions_response,
    decode_push_response,
    encode_get_subscriptions_request,
    encode_push_request,
)
from kprod.wire.versions import ApiKey

FOREVER = float("inf")
LAST_WORDS = 0.5
"""Seconds that the end of a producer waits for its last push to be answered."""
NAMES = {number: name for name, number in CODEC_IDS.items()}


class TelemetryRound:
    """Asks for subscriptions and pushes metrics, by connections that are there anyway.

    Thread: the sender's only, but for ``wanted``. ``measure`` gives all metrics there are at a
    time on the sender's clock.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        payload: TelemetryPayload,
        network: Network,
        measure: Callable[[float], Groups],
        clock: Clock,
    ) -> None:
        self.telemetry = telemetry
        self.wanted = False  # somebody waits for the id: a connection is made for that
        self._payload = payload
        self._network = network
        self._measure = measure
        self._clock = clock
        self._in_flight: Exchange | None = None
        self._node_id: int | None = None  # who was asked last
        self._leave_by = FOREVER
        self._compressors: dict[int, Compressor | None] = {}

    def run(self, now: float) -> float:
        """Ask or push if that is due and a broker can take it; seconds until the next look."""
        telemetry = self.telemetry
        if not telemetry.offered:
            if self.wanted and not telemetry.over:
                self._network.any_usable(now)  # which begins a connection where there is none
            return FOREVER
        if self._in_flight is not None:
            return max(0.0, self._leave_by - now)
        wait = telemetry.due_in(now)
        if wait > 0.0:
            return wait
        api = ApiKey.PUSH_TELEMETRY
        if telemetry.subscription is None:
            api = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
        node_id = self._network.usable_for(api, now, self._node_id)
        if node_id is not None:
            self._send(node_id, now)
        return max(0.0, self._leave_by - now)

    def _send(self, node_id: int, now: float) -> None:
        exchange: Exchange
        subscription = self.telemetry.subscription
        if subscription is None:
            exchange = _SubscriptionExchange(self)
        else:
            exchange = _PushExchange(self, self._push(subscription, now))
        self._in_flight, self._node_id = exchange, node_id
        self._network.send(node_id, exchange, now)

    def _push(self, subscription: Subscription, now: float) -> Push:
        wanted = Wanted(subscription.metrics, subscription.delta, subscription.max_bytes)
        at = self._clock.wall_ms() * 1_000_000
        metrics = self._payload.write(self._measure(now), wanted, at)
        codec, compress = self._codec(subscription.codecs)
        return Push(
            self.telemetry.own_id,
            subscription.subscription_id,
            self.telemetry.ending,
            codec,
            metrics if compress is None else compress(memoryview(metrics)),
        )

    def _codec(self, accepted: tuple[int, ...]) -> tuple[int, Compressor | None]:
        """The first that brokers take and we have; 0 and None to leave it as it is."""
        for codec in accepted:
            if codec not in self._compressors and codec in NAMES:
                try:
                    self._compressors[codec] = compressor(NAMES[codec], None)
                except ImportError:
                    continue
            if codec in self._compressors:
                return codec, self._compressors[codec]
        return 0, None

    # Answers --------------------------------------------------------------------------------------

    def subscribed(self, version: int, body: memoryview, now: float) -> int:
        """Take what brokers want to be told, or why they do not."""
        reply = decode_get_subscriptions_response(version, body)
        self._in_flight = None
        known = self.telemetry.instance_id
        self.telemetry.subscribed(reply, now)
        if self.telemetry.instance_id != known:
            named = self.telemetry.own_id.hex()
            self._network.troubles.detail("client telemetry knows it by the id %s", named)
        self._tell(reply.error_code)
        return reply.throttle_ms

    def pushed(self, version: int, body: memoryview, now: float, *, last: bool) -> int:
        """Take what became of a push."""
        reply = decode_push_response(version, body)
        self._in_flight = None
        if self.telemetry.pushed(reply, now, last=last):
            self._payload.taken()
        self._tell(reply.error_code)
        return reply.throttle_ms

    def _tell(self, code: int) -> None:
        if code:
            ends = "no more of it" if self.telemetry.over else "it goes on"
            what = "client telemetry was refused with error %d; %s"
            self._network.troubles.detail(what, code, ends)

    def failed(self, error: KprodError, now: float) -> None:
        """No answer: it is for another time."""
        self._in_flight = None
        self._network.troubles.detail("client telemetry: %s", error)
        self.telemetry.lost(now)

    # The end --------------------------------------------------------------------------------------

    def leave(self, now: float) -> bool:
        """The producer ends. True when brokers were told for the last time, or need not be.

        Called again and again until then; ``run`` sends what is left to be told.
        """
        if not self.telemetry.offered:
            return True
        if not self.telemetry.ending:
            self.telemetry.leave()
            self._leave_by = now + LAST_WORDS
        if self.telemetry.over or now >= self._leave_by:
            return True
        if self._in_flight is not None:
            return False
        return self._network.usable_for(ApiKey.PUSH_TELEMETRY, now, self._node_id) is None

    def end(self) -> None:
        """The producer has ended."""
        self.telemetry.end()


class _TelemetryExchange:
    version_cap: int | None = None
    expects_response = True

    def __init__(self, owner: TelemetryRound) -> None:
        self._owner = owner

    def failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        self._owner.failed(error, now)


class _SubscriptionExchange(_TelemetryExchange):
    api = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS

    def encode(self, version: int, correlation_id: int, client_id: str) -> Buffers:
        own_id = self._owner.telemetry.own_id
        return [encode_get_subscriptions_request(version, correlation_id, client_id, own_id)]

    def answered(self, version: int, body: memoryview, now: float) -> int:
        return self._owner.subscribed(version, body, now)


class _PushExchange(_TelemetryExchange):
    api = ApiKey.PUSH_TELEMETRY

    def __init__(self, owner: TelemetryRound, push: Push) -> None:
        super().__init__(owner)
        self._push = push

    def encode(self, version: int, correlation_id: int, client_id: str) -> Buffers:
        return [encode_push_request(version, correlation_id, client_id, self._push)]

    def answered(self, version: int, body: memoryview, now: float) -> int:
        return self._owner.pushed(version, body, now, last=self._push.terminating)
