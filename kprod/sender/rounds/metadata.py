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


class MetadataRound:
    """Keeps the metadata fresh. Thread: the sender's only."""

    def __init__(self, metadata: Metadata, network: Network, *, allow_auto_create: bool) -> None:
        self._metadata = metadata
        self._network = network
        self._allow_auto_create = allow_auto_create

    def run(self, now: float) -> float:
        """Send a request if one is due and a broker can take it; seconds until one may be due."""
        wait = self._metadata.due(now)
        if wait > 0:
            return wait
        node_id = self._network.any_usable(now)
        if node_id is not None:
            topics = self._metadata.wanted(now)
            exchange = _MetadataExchange(self, topics, allow_auto_create=self._allow_auto_create)
            self._network.send(node_id, exchange, now)
        return FOREVER  # a connection that comes up, or a back-off that ends, wakes the network

    def answered(self, version: int, body: memoryview, now: float) -> int:
        """Publish the snapshot and tell the network who the brokers are."""
        reply = decode_metadata_response(version, body)
        if self._metadata.answered(reply, now):
            self._network.adopt(self._metadata.snapshot.brokers)
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
