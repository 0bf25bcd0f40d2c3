"""Requests for the producer id that makes retries idempotent (InitProducerId, KIP-98)."""

from __future__ import annotations

from functools import partial

from kprod.clock import ExponentialBackoff
from kprod.errors import BrokerError, ConnectionLost, ErrorCode, KprodError
from kprod.sender.connection import ControlRequest
from kprod.sender.deadlines import FOREVER, Deadlines
from kprod.sender.network import Network
from kprod.sender.partitions import PartitionSet
from kprod.sender.retry import FATAL
from kprod.types import ProducerId
from kprod.wire.control import (
    InitProducerIdReply,
    decode_init_producer_id_response,
    encode_init_producer_id_request,
)
from kprod.wire.versions import ApiKey

FINAL = FATAL | {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
"""Error codes that a later request for a producer id would get again. Others may be temporary."""


class ProducerIdRequests:
    """Asks any broker for a producer id when there is none. Used only by the sender's thread.

    It runs when it is queued (see ``Deadlines``): at the beginning, and when the epochs are used
    up.
    """

    def __init__(
        self,
        partitions: PartitionSet,
        network: Network,
        deadlines: Deadlines,
        backoff: ExponentialBackoff,
    ) -> None:
        self._identity = partitions.identity
        self._partitions = partitions
        self._network = network
        self._deadlines = deadlines
        self.due = FOREVER  # see Deadlines
        self._backoff = backoff
        self._in_flight = False
        self._failures = 0
        self._retry_at = 0.0
        self._identity.used_up = partial(deadlines.queued.append, self)
        self._identity.used_up()  # there is none yet
        if not partitions.idempotent:
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
            self._identity.trouble = None
            self._identity.producer = ProducerId(reply.producer_id, reply.producer_epoch)
            self._identity.settled.open()
            self._network.log.detail("%s", self._identity.producer)

    def failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        """Try again after a back-off, unless the error is final. The first error is logged.

        Records wait meanwhile. If their delivery timeout passes, their error names ``error``.
        """
        self._in_flight = False
        self._failures += 1
        self._retry_at = now + self._backoff.delay(self._failures)
        self._deadlines.set(self, self._retry_at)
        self._identity.trouble = error
        if isinstance(error, BrokerError) and error.code in FINAL:
            error.add_note(
                "an idempotent producer needs a producer id; with enable_idempotence=False kprod"
                " works without one, at the price of duplicates after a retry"
            )
            self._identity.fatal = error
            self._identity.settled.open()
            self._network.log.warn(f"this producer can send nothing: {error.with_number()}")
        elif self._failures == 1 and not isinstance(error, ConnectionLost):  # the broker logs those
            text = error.with_number()
            self._network.log.warn(f"records wait for a producer id, asked again: {text}")
