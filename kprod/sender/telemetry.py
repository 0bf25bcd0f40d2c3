"""What brokers are to be told of a producer's metrics, and when (KIP-714)

After Kafka's ``ClientTelemetryReporter``: a subscription is asked for, then metrics are pushed in
its interval; what a broker refuses tells how to go on. Nothing here reads a clock or knows a
thread.
"""

from __future__ import annotations

from collections.abc import Callable

from kprod.latch import Latch
from kprod.wire.telemetry import NO_ID, PushReply, Subscription
from kprod.wire.versions import ApiKey, ApiVersions

FOREVER = float("inf")
USUAL_INTERVAL = 300.0
"""Seconds, where a broker has told none that can be."""
SHORTEST_INTERVAL = 0.1
"""Seconds between pushes, whatever a broker asks for: less cannot be set at Apache Kafka's."""
UNANSWERED = 30.0
"""Seconds until a question is asked again whose answer was lost."""
JITTER = (0.5, 1.5)
"""Between which parts of the interval the first push is made, so that clients spread."""

UNSUPPORTED_VERSION = 35
INVALID_REQUEST = 42
UNSUPPORTED_COMPRESSION_TYPE = 76
INVALID_RECORD = 87
UNKNOWN_SUBSCRIPTION_ID = 117

FINAL = frozenset({INVALID_REQUEST, INVALID_RECORD, UNSUPPORTED_VERSION})
"""Refusals that asking again cannot change: nothing is told any more."""
OUTDATED = frozenset({UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE})
"""Refusals of a push by a subscription that has changed: the new one is asked for at once."""


class Telemetry:
    """The state of one producer's telemetry. Thread: the sender's, but for what says otherwise.

    ``jitter`` draws a number of the range it is given. Times are seconds on the sender's clock.
    """

    def __init__(self, jitter: Callable[[float, float], float]) -> None:
        self.instance_id: bytes | None = None  # any thread reads it
        self.identified = Latch()  # open when the id is known, or never will be
        self.offered = False  # some broker takes the requests
        self.over = False  # nothing is told any more
        self.ending = False  # the next push is the last
        self.subscription: Subscription | None = None  # None: to be asked for
        self._interval = USUAL_INTERVAL
        self._jitter = jitter
        self._due_at = 0.0

    def told(self, versions: ApiVersions) -> None:
        """A broker's handshake. Until one offers telemetry nothing is ever due."""
        if versions.offers(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS):
            self.offered = self.offered or versions.offers(ApiKey.PUSH_TELEMETRY)

    def due_in(self, now: float) -> float:
        """Seconds until the subscription is to be asked for, or metrics are to be pushed."""
        if self.over or not self.offered:
            return FOREVER
        return max(0.0, self._due_at - now)

    @property
    def own_id(self) -> bytes:
        """The id as requests have it."""
        return self.instance_id or NO_ID

    # Answers --------------------------------------------------------------------------------------

    def subscribed(self, reply: Subscription, now: float) -> None:
        """A broker has told what it wants, or refused to."""
        # A broker names the id only where it gives one.
        instance_id = reply.instance_id or self.instance_id
        if reply.error_code or instance_id is None:
            self._refused(reply.error_code or INVALID_REQUEST, now, of_push=False)
            return
        self.instance_id = instance_id
        self.identified.open()
        self._interval = _interval(reply)
        if reply.metrics:
            self.subscription = reply
            self._due_at = now + self._interval * self._jitter(*JITTER)
        else:
            self._due_at = now + self._interval

    def pushed(self, reply: PushReply, now: float, *, last: bool) -> bool:
        """A broker has taken a push, or refused it; True when it has taken it."""
        if reply.error_code:
            self._refused(reply.error_code, now, of_push=True)
            return False
        if last:
            self.end()
        self._due_at = now if self.ending else now + self._interval
        return True

    def _refused(self, code: int, now: float, *, of_push: bool) -> None:
        self.subscription = None
        if code in FINAL or self.ending:
            self.end()
        elif code in OUTDATED and of_push:
            self._due_at = now
        else:  # too large, throttled, or nothing we know: the broker may change its mind
            self._due_at = now + self._interval

    def lost(self, now: float) -> None:
        """There will be no answer. A push is not repeated: the next one says the same and more."""
        if self.ending:
            self.end()
        elif self.subscription is None:
            self._due_at = now + UNANSWERED
        else:
            self._due_at = now + self._interval

    # The end --------------------------------------------------------------------------------------

    def leave(self) -> None:
        """The producer ends: what is subscribed to is pushed once more, now."""
        self.ending = True
        self._due_at = 0.0
        if self.subscription is None:
            self.end()

    def end(self) -> None:
        """Nothing is told any more, and nobody waits for an id."""
        self.over = True
        self.identified.open()


def _interval(reply: Subscription) -> float:
    if reply.push_interval_ms <= 0:
        return USUAL_INTERVAL
    return max(reply.push_interval_ms / 1000, SHORTEST_INTERVAL)
