"""Two-phase commit: one process prepares a transaction, another one ends it. Provisional."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Self

from kprod.errors import IllegalStateError, InvalidRecordError, KprodTimeoutError
from kprod.intake.arguments import check_seconds
from kprod.quantities import in_seconds
from kprod.sender.engine import LONGEST_WAIT
from kprod.sender.transactions import Call, OffsetFetch
from kprod.transactional.group_offsets import checked_place, group_id_of
from kprod.types import TopicPartition
from kprod.wire.transactions import CommittedOffset

if TYPE_CHECKING:
    from kprod.transactional.transaction_calls import TransactionCalls

log = logging.getLogger("kprod")

LAST_ID, LAST_EPOCH = 2**63 - 1, 2**15 - 1
FORM = "v2"
"""The first part of a prepared transaction as text. The previous format begins with a number."""


class PreparedTransaction(NamedTuple):
    """Everything that another process needs to end a prepared transaction.

    The coordinator knows the producer by ``producer_id`` and ``epoch``. ``level`` is the
    ``transaction.version`` level with which the transaction was written. The transaction is also
    ended with that level, even if the cluster's level has changed since. If ``level`` is None, the
    transaction is ended with the level that the cluster then has. ``began_ms`` is the time at which
    the transaction began, in milliseconds since 1970 by the clock of the process that prepared it,
    or None if unknown.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    level: int | None = None
    began_ms: int | None = None

    def __str__(self) -> str:
        """Text for a log or a checkpoint, which ``parse`` can read."""
        level = "" if self.level is None else self.level
        began = "" if self.began_ms is None else self.began_ms
        return f"{FORM}:{self.producer_id}:{self.epoch}:{level}:{began}:{self.transactional_id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the result of ``str``, in the current or the previous format.

        The previous format has neither level nor time. Raises InvalidRecordError.
        """
        form, _, rest = text.partition(":")
        if form == FORM:
            parts = rest.split(":", 4)
        else:
            parts = text.split(":", 2)
            parts[2:2] = ["", ""]
        try:
            producer_id, epoch, level, began, transactional_id = parts
            numbers = [int(part) for part in (producer_id, epoch)]
            known = [None if part == "" else int(part) for part in (level, began)]
            if not transactional_id or min(n or 0 for n in known) < 0:
                raise ValueError(text)
        except ValueError:
            raise InvalidRecordError(f"{text!r} is not a prepared transaction") from None
        made = cls(transactional_id, numbers[0], numbers[1], known[0], known[1])
        made.check()
        return made

    def check(self) -> None:
        """Raise InvalidRecordError for an invalid producer id or epoch."""
        if not (0 <= self.producer_id <= LAST_ID and 0 <= self.epoch <= LAST_EPOCH):
            raise InvalidRecordError(f"{str(self)!r} is not a prepared transaction")


class TwoPhaseCommit:
    """Two-phase commit for ``producer``, a KafkaProducer with a ``transactional_id``. Provisional.

    ``prepare`` sends the queued records and leaves the transaction open, even when the producer is
    closed. In another process, ``resume`` takes over the transaction, and the producer's
    ``commit_transaction`` or ``abort_transaction`` ends it. Apache Kafka has no prepared
    transactions yet (KIP-939). To the coordinator, the transaction is an ordinary one: it is
    aborted when it times out, and when a producer with the same ``transactional_id`` calls
    ``init_transactions``. Thread-safe.
    """

    def __init__(self, producer: TransactionCalls) -> None:
        self._producer = producer

    def prepare(
        self, timeout: float | None = None, *, began_ms: int | None = None
    ) -> PreparedTransaction:
        """Send queued records, and leave the transaction open for a later commit or abort.

        ``began_ms`` is copied to the result. ``timeout`` is in seconds; None means
        ``max_block_ms``. Raises the errors of ``commit_transaction``.
        """
        self._producer._complete(Call.PREPARE, timeout)
        transactions = self._producer._transactional(Call.PREPARE)
        if transactions.producer is None:
            raise AssertionError("a transaction was prepared without a producer id")
        log.info("%s was prepared", transactions)
        return PreparedTransaction(
            transactions.transactional_id,
            *transactions.producer,
            level=transactions.used_level,
            began_ms=began_ms,
        )

    def resume(self, prepared: PreparedTransaction) -> None:
        """Take over a transaction that ``prepare`` has returned in another process.

        Call it instead of ``init_transactions``, which would abort the transaction. Then commit or
        abort. After that, the producer can begin its own transactions. Raises IllegalStateError if
        this is not the producer's first transactional call, or if the transactional id is
        different. Raises InvalidRecordError for an invalid producer id or epoch.
        """
        prepared.check()
        self._producer._ensure_usable()
        transactions = self._producer._transactional("resume")
        if prepared.transactional_id != transactions.transactional_id:
            raise IllegalStateError(
                f"{prepared} cannot be taken up by a producer with the transactional id"
                f" {transactions.transactional_id!r}"
            )
        transactions.resume((prepared.producer_id, prepared.epoch), prepared.level)

    def committed_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        timeout: float | None = None,
        *,
        wait: bool = True,
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group, once no open transaction can change them.

        A missing offset is -1. Without ``wait``, so is one that a transaction may still change. The
        method can be called in every state of the producer, even after the producer was fenced, and
        changes nothing. Raises KprodTimeoutError, BrokerError, UnsupportedVersionError for brokers
        before Apache Kafka 2.5, and the errors of ``send_offsets_to_transaction`` for invalid
        arguments.
        """
        check_seconds("committed_offsets", timeout, LONGEST_WAIT)
        producer = self._producer
        producer._ensure_usable()
        producer._engine.refuse_inside("committed_offsets")
        transactions = producer._transactional("committed_offsets")
        places = tuple(checked_place(*place) for place in partitions)
        fetch = OffsetFetch(group_id_of(group_id), places, waits=wait)
        transactions.fetch(fetch)
        seconds = producer._max_block if timeout is None else timeout
        try:
            ended = producer._engine.wait(fetch.ended, seconds)
        finally:
            transactions.end_fetch(fetch)
        if fetch.error is not None:
            raise fetch.error
        if not ended:
            last_error = transactions.last_error
            why = "" if last_error is None else f"; the last error was: {last_error}"
            raise KprodTimeoutError(
                f"no broker gave the offsets of the group {group_id!r} within"
                f" {in_seconds(seconds)}{why}"
            )
        return {TopicPartition(found.topic, found.partition): found for found in fetch.found}
