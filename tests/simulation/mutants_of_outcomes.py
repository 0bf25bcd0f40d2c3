"""Broken verdicts, broken memory, broken promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kprod.buffer.delivery import BatchDelivery
from kprod.buffer.split import split
from kprod.errors import BrokerError, KprodError
from kprod.sender.loop import Sender
from kprod.sender.partition import Partition
from kprod.sender.partitions import PartitionSet
from kprod.sender.produce import ProduceExchange
from kprod_ext import PartitionResponse
from kprod_ext.batch import ProducerBatch


class AcksOnTimeout(Partition):
    def expire(self, batch: ProducerBatch, now: float) -> None:
        if batch.on_wire:
            self._all.metrics.acknowledged(batch)
            self._all.accumulator.incomplete.discard(batch)
            batch.delivery.succeed(-1, -1)
        else:
            super().expire(batch, now)


class FreesOnExpiry(Partition):
    """CVE-2026-35554: the next batch is written into bytes that are still being sent."""

    def expire(self, batch: ProducerBatch, now: float) -> None:
        on_wire = batch.on_wire
        super().expire(batch, now)
        if on_wire:
            batch.release()


class FreesOnce(ProducerBatch):
    freed = False

    def release(self) -> None:
        if not self.freed:
            self.freed = True
            super().release()


class FreesTwice(Partition):
    def stored(self, batch: ProducerBatch, base_offset: int, append_time: int, now: float) -> None:
        super().stored(batch, base_offset, append_time, now)
        if batch.attempts > 1:
            batch.release()


class ForgetsExpired(Partition):
    def attempt_failed(self, batch: ProducerBatch, *args: Any, **options: Any) -> None:
        if batch.delivery.done:
            self.off_wire(batch)
        else:
            super().attempt_failed(batch, *args, **options)


class ForgetsDoubt(Partition):
    """Confluent's PERSISTED status, had it been that of the last attempt only."""

    def attempt_failed(self, batch: ProducerBatch, *args: Any, **options: Any) -> None:
        batch.maybe_written = False
        super().attempt_failed(batch, *args, **options)


class Miscounts(Partition):
    def stored(self, batch: ProducerBatch, base_offset: int, append_time: int, now: float) -> None:
        off_by = 1 if batch.attempts > 1 and base_offset >= 0 else 0
        super().stored(batch, base_offset + off_by, append_time, now)


class FailsDuplicates(Partition):
    final = 46

    def _go_on_after(
        self, batch: ProducerBatch, error: KprodError, now: float, *, repeated: bool
    ) -> None:
        if _code(error) == self.final:
            self._refused(batch, error, now)
        else:
            super()._go_on_after(batch, error, now, repeated=repeated)


class FailsNotLeader(FailsDuplicates):
    final = 6


class RetriesForEver(Partition):
    """aiokafka#1017: the same refusal until somebody restarts the process."""

    def _resequence(self, batch: ProducerBatch, now: float) -> None:
        self._retry(batch, now)


class Believes(Partition):
    """A batch that is out of sequence must have been stored before."""

    def _await_proof(self, batch: ProducerBatch) -> None:
        self.stored(batch, -1, -1, batch.last_attempt_at)


def halves_without_doubt(batch: ProducerBatch, *args: Any) -> list[ProducerBatch]:
    parts = split(batch, *args)
    for part in parts:
        part.maybe_written = False
    return parts


def halves_reversed(batch: ProducerBatch, *args: Any) -> list[ProducerBatch]:
    first, second = split(batch, *args)
    first.drain_order, second.drain_order = second.drain_order, first.drain_order
    return [first, second]


def _code(error: KprodError) -> int:
    return error.code if isinstance(error, BrokerError) else 0


class TellsTwice(BatchDelivery):
    __slots__ = ()

    def on_done(
        self, tell: Callable[[], object], index: int = 0, hears_errors: bool = True
    ) -> None:
        super().on_done(tell, index, hears_errors)
        super().on_done(tell, index, hears_errors)


class LosesExpired(Partition):
    """kafka-python#2198: flush returned while batches had expired in silence."""

    def _take_late(self, now: float) -> list[ProducerBatch]:
        return [batch for batch in super()._take_late(now) if batch.on_wire]


class WithdrawsTheQueued(PartitionSet):
    def withdraw(self, now: float, **kinds: bool) -> list[ProducerBatch]:
        return [batch for batch in super().withdraw(now, **kinds) if not batch.on_wire]


class DisownsTheQueued(Sender):
    def disown(self, error: KprodError) -> None:
        queued = [one for one in self.accumulator.incomplete.copy() if not one.on_wire]
        self.disowned += sum(one.record_count for one in queued if one.delivery.fail(error))


class TrustsLeaders(ProduceExchange):
    """Whoever is not the leader has stored nothing: not true of one that was."""

    def _refused(self, batch: ProducerBatch, part: PartitionResponse, now: float) -> None:
        super()._refused(batch, _nowhere(part), now)


def _nowhere(part: PartitionResponse) -> PartitionResponse:
    """What the answer says of a batch, without the offset it was stored at."""
    return PartitionResponse(
        part.topic,
        part.topic_id,
        part.partition,
        part.error_code,
        -1,
        part.log_append_time_ms,
        part.log_start_offset,
        part.record_errors,
        part.error_message,
        part.leader_id,
        part.leader_epoch,
    )
