"""The transactional calls as confluent-kafka has them, over kprod's own"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from kprod import errors as native
from kprod.clock import SystemClock
from kprod.confluent.errors import KafkaError, KafkaException, from_native
from kprod.confluent.native import seconds
from kprod.confluent.unassigned import UnassignedRecords
from kprod.errors import RecordTypeError
from kprod.producer import KafkaProducer
from kprod.transactional.group_offsets import GroupMetadata

_VERSION_2 = b"CGMDv2:"
_GENERATION = struct.Struct("=i")


def read_group_metadata(found: Any) -> Any:
    """``GroupMetadata`` of what ``Consumer.consumer_group_metadata()`` returns; others as they are.

    confluent-kafka has bytes, which librdkafka has made for the bindings to carry from a consumer
    to a producer; the first of them say how the rest is laid out. That is, as in
    ``rd_kafka_consumer_group_metadata_write``: the generation, the group and the member, each text
    ended by a zero, then a byte that is 0 if a group instance id follows, and that. Raises
    RecordTypeError for bytes of a librdkafka that lays them out otherwise.
    """
    if not isinstance(found, bytes):
        return found
    group_id, _, rest = found[len(_VERSION_2) + _GENERATION.size :].partition(b"\0")
    member_id, ended, instance = rest.partition(b"\0")
    if not found.startswith(_VERSION_2) or not ended or not instance:
        raise RecordTypeError(
            f"group_metadata: bytes that begin with {found[:8]!r}, where kprod knows"
            f" {_VERSION_2!r}, of librdkafka 2: give kprod.GroupMetadata, or the id of the group"
        )
    (generation,) = _GENERATION.unpack_from(found, len(_VERSION_2))
    instance_id = None if instance[0] else instance[1:].partition(b"\0")[0].decode()
    return GroupMetadata(group_id.decode(), generation, member_id.decode(), instance_id)


monotonic = SystemClock.monotonic


class ProducerTransactions:
    """Part of ``Producer``. ``timeout`` is seconds, -1 for no limit.

    Each raises KafkaException. Its KafkaError says what to do: ``retriable()``, call it again;
    ``txn_requires_abort()``, abort; ``fatal()``, make a new producer. Delivery reports are served
    by ``poll`` and ``flush``, not by these.
    """

    _unassigned: UnassignedRecords

    @property
    def _running(self) -> KafkaProducer:
        raise AssertionError("the producer has its own")

    @property
    def _transactional(self) -> KafkaProducer:
        """The native producer, once it is known to have a transactional id."""
        if self._running.config.transactional_id is None:
            words = "Local: Functionality not configured: transactions need transactional.id"
            raise KafkaException(KafkaError(KafkaError._NOT_CONFIGURED, words))
        return self._running

    def init_transactions(self, timeout: float | None = -1) -> None:
        """Ask the coordinator for a producer id, which fences older producers of the same name."""
        _raising(self._transactional.init_transactions, seconds(timeout))

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        _raising(self._transactional.begin_transaction)

    def send_offsets_to_transaction(
        self, positions: list[Any], group_metadata: Any, timeout: float | None = -1
    ) -> None:
        """Let a group's offsets move with the transaction.

        ``positions`` are TopicPartitions with offsets; those without one, below 0, are left out.
        ``group_metadata`` is what ``Consumer.consumer_group_metadata()`` returns, or
        ``kprod.GroupMetadata``, or a group id.
        """
        known = [position for position in positions if position.offset >= 0]
        call = self._transactional.send_offsets_to_transaction
        member = read_group_metadata(group_metadata)
        _raising(call, known, member, seconds(timeout))

    def commit_transaction(self, timeout: float | None = -1) -> None:
        """Send what was produced, and commit. Nothing has begun while a topic is unknown."""
        running, longest = self._transactional, seconds(timeout)
        began = monotonic()
        if not self._unassigned.await_none(longest):
            words = "Local: Timed out: records wait for their topic; call it again"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, words, retriable=True))
        _raising(running.commit_transaction, max(0.0, longest - (monotonic() - began)))

    def abort_transaction(self, timeout: float | None = -1) -> None:
        """Give up the transaction; what was not sent has a report with ``_PURGE_QUEUE``."""
        running = self._transactional
        self._unassigned.purge(native.TransactionAbortedError("the transaction was aborted"))
        _raising(running.abort_transaction, seconds(timeout))


def _raising(call: Callable[..., None], *arguments: Any) -> None:
    try:
        call(*arguments)
    except native.RecordTypeError:
        raise
    except native.KprodError as error:
        raise KafkaException(from_native(error)) from error
