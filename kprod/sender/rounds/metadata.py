"""Ask who leads what: by age, or because something showed that the snapshot is old."""

from __future__ import annotations

from collections.abc import Sequence

from kprod.cluster.metadata import Metadata
from kprod.errors import KprodError
from kprod.sender.exchange import Buffers
from kprod.sender.network import Network
from kprod.wire.control import decode_metadata_response, encode_metadata_request
from kprod.wire.versions import ApiKey

FOREVER = float("inf")
REBOOTSTRAP_REQUIRED = 129


class MetadataRound:
    """Keeps the metadata fresh. Thread: the sender's only.

    ``rebootstrap_after``: when no broker has answered for so many seconds, they are forgotten and
    the bootstrap addresses asked (KIP-1102); infinite for never, not even when a broker asks.
    """

    def __init__(
        self,
        metadata: Metadata,
        network: Network,
        *,
        allow_auto_create: bool,
        rebootstrap_after: float = FOREVER,
    ) -> None:
        self._metadata = metadata
        self._network = network
        self._allow_auto_create = allow_auto_create
        self._rebootstrap_after = rebootstrap_after
        self._asking_since: float | None = None  # None: the last answer is recent enough

    def run(self, now: float) -> float:
        """Send a request if one is due and a broker can take it; seconds until one may be due."""
        wait = self._metadata.due(now)
        if wait > 0:
            return wait
        next_look = self._look_for_answers(now)
        node_id = self._network.any_usable(now)
        if node_id is not None:
            topics = self._metadata.wanted(now)
            exchange = _MetadataExchange(self, topics, allow_auto_create=self._allow_auto_create)
            self._network.send(node_id, exchange, now)
        return next_look  # a connection that comes up, or a back-off that ends, wakes the network

    def _look_for_answers(self, now: float) -> float:
        """Give up on known brokers if it is time; else seconds until that, if any are known."""
        if self._asking_since is None:
            self._asking_since = now
        if not self._metadata.snapshot.brokers:
            return FOREVER
        left = self._asking_since + self._rebootstrap_after - now
        if left > 0:
            return left
        if now > self._asking_since:
            self._rebootstrap(
                f"no broker has told about it for {now - self._asking_since:.3g} s", now
            )
        return FOREVER

    def _rebootstrap(self, why: str, now: float) -> None:
        self._network.troubles.warn(f"asking the bootstrap servers about the cluster: {why}")
        self._metadata.rebootstrap()
        self._network.rebootstrap(now)
        self._asking_since = now

    def answered(self, version: int, body: memoryview, now: float) -> int:
        """Publish the snapshot and tell the network who the brokers are."""
        reply = decode_metadata_response(version, body)
        known = self._metadata.snapshot
        if self._metadata.answered(reply, now):
            if known.is_of_another(reply.cluster_id):
                self._network.troubles.warn(
                    f"another cluster answers, {reply.cluster_id}, no longer {known.cluster_id}:"
                    " do the bootstrap servers lead to both?"
                )
            self._asking_since = None
            self._network.adopt(self._metadata.snapshot.brokers)
        elif reply.error_code == REBOOTSTRAP_REQUIRED and self._rebootstrap_after < FOREVER:
            self._rebootstrap("a broker asks for it", now)
        return reply.throttle_ms

    def failed(self, error: KprodError, now: float) -> None:
        """Try again after the back-off."""
        self._metadata.failed(error, now)


class _MetadataExchange:
    api = ApiKey.METADATA
    version_cap: int | None = None
    expects_response = True

    def __init__(
        self, owner: MetadataRound, topics: Sequence[str], *, allow_auto_create: bool
    ) -> None:
        self._owner = owner
        self._topics = topics
        self._allow_auto_create = allow_auto_create

    def encode(self, version: int, correlation_id: int, client_id: str) -> Buffers:
        return [
            encode_metadata_request(
                version, correlation_id, client_id, self._topics, self._allow_auto_create
            )
        ]

    def answered(self, version: int, body: memoryview, now: float) -> int:
        return self._owner.answered(version, body, now)

    def failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        self._owner.failed(error, now)
