"""kprod's producer with what librdkafka's can do besides: give records up, tell of any topic"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from kprod.confluent.errors import Purged
from kprod.errors import KprodError
from kprod.producer import KafkaProducer
from kprod.sender.engine import FOREVER
from kprod.sender.loop import Purge
from kprod.wire.control import MetadataReply

LONG = 10.0**9


def seconds(timeout: float | None) -> float:
    """A timeout of the application's as seconds: None, -1 and all below 0 are for no limit."""
    return LONG if timeout is None or timeout < 0 else timeout


class NativeProducer(KafkaProducer):
    """Thread-safe."""

    def purge(self, *, queued: bool, in_flight: bool, blocking: bool) -> None:
        """End records without an outcome: those that are queued, those on their way, or both.

        ``persisted`` of their error tells whether they may have been stored. ``blocking``: that is
        done, and told, when this returns. What follows is numbered under a new epoch if need be.
        """
        if self._inherited:  # by a forked child: what was queued belongs to the parent
            return
        purge = Purge(Purged("given up by purge()"), queued=queued, in_flight=in_flight)
        self._sender.purges.add(purge)
        self._wake()
        if blocking and not self._engine.is_sender:
            purge.ended.wait()
            self._callbacks.drain(FOREVER)  # they hand the reports out

    def begin_to_connect(self) -> None:
        """Look for a broker now, in the background, as librdkafka does when it is made."""
        self._metadata.request_update(brokers=True)
        self._wake()

    @property
    def no_broker_since(self) -> int | None:
        """How many connections have come up when no broker can be reached, else None.

        That is when the last attempt to connect has failed with every broker; the bootstrap
        addresses count while no broker is known. The sender's thread.
        """
        network = self._sender.network
        return network.log.come_up if network.out_of_reach else None

    def know(self, topic: str, timeout: float) -> None:
        """Wait at most ``timeout`` seconds until records of ``topic`` can be queued at once."""
        with suppress(KprodError):
            self._metadata.await_topic(topic, timeout, self._wake)

    def ask_about(self, topics: Sequence[str] | None, timeout: float) -> MetadataReply:
        """Ask a broker about the cluster and about ``topics``, None for all topics.

        Waits at most ``timeout`` seconds. Raises as ``Sender.fetch_metadata``. The producer keeps
        nothing of it.
        """
        self._ensure_usable()
        return self._sender.fetch_metadata(topics, timeout)
