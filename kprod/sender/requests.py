"""Requests for metadata, and for a producer id without transactions (KIP-98)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from logging import DEBUG

from kprod.cluster.metadata import MetadataListener
from kprod.cluster.snapshot import ClusterSnapshot
from kprod.errors import BrokerError, ConnectionLost, ErrorCode, KprodError
from kprod.sender.connection import ControlRequest, Failed
from kprod.sender.deadlines import FOREVER, Owner, Pending
from kprod.sender.partitions import PartitionSet
from kprod.sender.retry import FATAL
from kprod.types import ProducerId
from kprod.wire.control import (
    InitProducerIdReply,
    MetadataReply,
    decode_init_producer_id_response,
    decode_metadata_response,
    encode_init_producer_id_request,
    encode_metadata_request,
)
from kprod.wire.versions import ApiKey

FINAL = FATAL | {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
"""Error codes that a later request for a producer id would get again. Others may be temporary."""
MOST_TOLD = 5
"""Maximum number of topics in a line of the log."""


class MetadataQuery(Pending):
    """A caller's question about ``topics`` (None: all), whose answer does not change the snapshot.

    It looks for a broker when it is queued (see ``Deadlines``), until it has ended.
    """

    due = FOREVER

    def __init__(self, topics: Sequence[str] | None, requests: MetadataRequests) -> None:
        super().__init__()
        self.reply: MetadataReply | None = None
        self._topics = topics
        self._requests = requests

    def fire(self, now: float) -> None:
        """Ask a broker."""
        if not self.ended.is_open:
            self._requests.ask(self, lambda _: self._topics, self._answered, self._failed, now)

    def _answered(self, reply: MetadataReply, now: float) -> None:
        self.reply = reply
        self.end()

    def _failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        if isinstance(error, ConnectionLost):
            self._requests.deadlines.queued.append(self)  # another connection carries it
        else:
            self.end(error)


class MetadataRequests:
    """Keeps the metadata fresh. Used only by the owner of the loop.

    ``Metadata`` queues it (see ``Deadlines``) when something is to be asked.

    ``rebootstrap_after``: if no broker has answered for this many seconds, all brokers are
    forgotten and the bootstrap addresses are asked (KIP-1102). The same happens if a broker asks
    for it. With ``metadata_recovery_strategy="none"`` (``Network.goes_back``), neither happens.
    """

    def __init__(
        self, partitions: PartitionSet, *, allow_auto_create: bool, rebootstrap_after: float
    ) -> None:
        self._partitions = partitions
        self._metadata = partitions.metadata
        self._network = partitions.network
        self.deadlines = partitions.deadlines
        self.due = FOREVER  # see Deadlines
        self._metadata.subscribe(MetadataListener(due=partial(self.deadlines.queued.append, self)))
        self._allow_auto_create = allow_auto_create
        self._rebootstrap_after = rebootstrap_after if self._network.goes_back else FOREVER
        self._asking_since: float | None = None  # None: the last answer is recent enough

    def fire(self, now: float) -> None:
        """Send the request that is due, as soon as a broker can take it."""
        wait = self._metadata.due(now)
        if wait > 0:
            self.deadlines.set(self, now + wait)
            return
        self.deadlines.set(self, self._look_for_answers(now))
        self.ask(self, self._metadata.wanted, self.answered, self.failed, now)

    def ask(
        self,
        owner: Owner,
        wanted: Callable[[float], Sequence[str] | None],
        answered: Callable[[MetadataReply, float], None],
        failed: Failed,
        now: float,
    ) -> None:
        """Send a request about ``wanted``, or queue ``owner`` again when a broker may take one."""
        broker = self._network.any_usable(now)
        if broker is None:
            self._network.waiting[owner] = None
            return
        topics = wanted(now)
        encode = partial(
            encode_metadata_request, topics=topics, allow_auto_create=self._allow_auto_create
        )
        decode = partial(self._decode, topics and frozenset(topics))
        broker.send(ControlRequest(ApiKey.METADATA, encode, decode, answered, failed), now)

    def _decode(
        self, topics: Collection[str] | None, version: int, body: memoryview
    ) -> MetadataReply:
        reply = decode_metadata_response(version, body, topics)
        self._metadata.request_version = version
        return reply

    def _look_for_answers(self, now: float) -> float:
        """Forget the known brokers if none has answered for too long.

        Returns the time of the next check, or infinity.
        """
        if self._asking_since is None:
            self._asking_since = now
        if not self._metadata.snapshot.brokers:
            return FOREVER
        limit = self._asking_since + self._rebootstrap_after
        if now < limit:
            return limit
        if now > self._asking_since:
            self._rebootstrap(f"no broker has answered for {now - self._asking_since:.3g} s", now)
        return FOREVER

    def _rebootstrap(self, why: str, now: float) -> None:
        self._network.log.warning("asking the bootstrap servers about the cluster: %s", why)
        self._metadata.rebootstrap()
        self._network.rebootstrap(now)
        self._asking_since = now

    def answered(self, reply: MetadataReply, now: float) -> None:
        """Publish the new snapshot. The network adopts its brokers."""
        known = self._metadata.snapshot
        # A record may have come since the request left: the answer must not drop its topic.
        self._metadata.used(self._partitions.take_used(now))
        if self._metadata.answered(reply, now):
            if known.is_of_another(reply.cluster_id):
                self._network.log.warning(
                    "another cluster answers, %s, no longer %s: do the bootstrap servers lead to"
                    " both?",
                    *(reply.cluster_id, known.cluster_id),
                )
            self._asking_since = None
            self._tell(known, self._metadata.snapshot)
            self._network.adopt(self._metadata.snapshot.brokers)
        elif (
            reply.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and self._rebootstrap_after < FOREVER
        ):
            self._rebootstrap("a broker asks for it", now)

    def _tell(self, known: ClusterSnapshot, fresh: ClusterSnapshot) -> None:
        log = self._network.log
        if log.isEnabledFor(DEBUG) and fresh != known:
            changed = [topic.name for topic in fresh if known.topic(topic.name) != topic]
            more = ", ..." if len(changed) > MOST_TOLD else ""
            log.debug(
                "cluster %s has %s; %d topics are in use, %d of them new or changed: %s",
                *(fresh.cluster_id, ", ".join(map(str, fresh.brokers.values()))),
                *(len(fresh.topics), len(changed), ", ".join(changed[:MOST_TOLD]) + more),
            )

    def failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        """Try again after a back-off."""
        self._network.log.debug("asking about the cluster has failed: %s", error)
        self._metadata.failed(error, now)


class ProducerIdRequests:
    """Asks any broker for a producer id when there is none. Used only by the owner of the loop.

    It runs when it is queued (see ``Deadlines``): at the beginning, and when the epochs are used
    up.
    """

    def __init__(self, partitions: PartitionSet) -> None:
        self._partitions = partitions
        self._identity = partitions.identity
        self._network = partitions.network
        self._deadlines = partitions.deadlines
        self.due = FOREVER  # see Deadlines
        self._in_flight = False
        self._failures = 0
        self._retry_at = 0.0
        self._identity.used_up = partial(self._deadlines.queued.append, self)
        self._identity.used_up()  # there is none yet
        if not self._partitions.idempotent:
            self._identity.settled.open()

    def fire(self, now: float) -> None:
        """Ask for an id if one is needed, as soon as a broker can take the request."""
        if not self._partitions.needs_producer_id or self._in_flight or self._identity.fatal:
            return
        if now < self._retry_at:
            self._deadlines.set(self, self._retry_at)
            return
        # No connection is made for this request: a producer that never sends stays silent.
        broker = self._network.any_usable(now) if self._network.connected else None
        if broker is None:
            self._network.waiting[self] = None
            return
        self._in_flight = True
        request = ControlRequest(
            ApiKey.INIT_PRODUCER_ID,
            encode_init_producer_id_request,
            decode_init_producer_id_response,
            self.answered,
            self.failed,
        )
        broker.send(request, now)

    def answered(self, reply: InitProducerIdReply, now: float) -> None:
        """Take the id, or react to the error code."""
        if reply.error_code:
            error = BrokerError(reply.error_code, "asking for a producer id")
            self.failed(error, now, sent=True)
        else:
            self._in_flight, self._failures = False, 0
            self._identity.last_error = None
            self._identity.producer = ProducerId(reply.producer_id, reply.producer_epoch)
            self._identity.settled.open()
            self._network.log.debug("%s", self._identity.producer)

    def failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        """Try again after a back-off, unless the error is final. The first error is logged.

        Records wait meanwhile. If their delivery timeout passes, their error names ``error``.
        """
        self._in_flight = False
        self._failures += 1
        self._retry_at = now + self._partitions.retry_backoff.delay(self._failures)
        self._deadlines.set(self, self._retry_at)
        self._identity.last_error = error
        if isinstance(error, BrokerError) and error.code in FINAL:
            error.add_note(
                "an idempotent producer needs a producer id; with enable_idempotence=False kprod"
                " works without one, at the price of duplicates after a retry"
            )
            self._identity.fatal = error
            self._identity.settled.open()
            self._network.log.warning("this producer can send nothing: %s", error.with_number())
        elif self._failures == 1 and not isinstance(error, ConnectionLost):  # the broker logs those
            text = "records wait for a producer id, asked again: %s"
            self._network.log.warning(text, error.with_number())
