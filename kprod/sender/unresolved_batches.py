"""Batches that the broker refused as out of sequence although an attempt may have been stored.

Two things can have happened. The broker may lack what was acknowledged before the batch: then it
refuses everything behind it too. Or it has the batch, and no longer knows so: it recognises the
repetition of its last five batches only, and of the very last one once it was started again
(Kafka's ``ProducerStateManager`` keeps no more in its snapshots). Then it knows a later batch, or
accepts the next one; and since it takes a producer's batches only without a gap, every earlier one
is stored too. A log that was cut short in between, and knows nothing of the producer any more,
would accept any: there the offsets of the earlier ones are missing (``Sequences.leaves_room``).
"""

from __future__ import annotations

from kprod.cluster.snapshot import Leadership
from kprod.types import TopicPartition
from kprod_ext.batch import ProducerBatch


class UnresolvedBatches:
    """Holds such batches by partition, in sequence order, until a later one tells.

    They keep their memory, and are neither queued nor on the wire. Thread: the sender's only.
    """

    def __init__(self) -> None:
        self._held: dict[TopicPartition, list[ProducerBatch]] = {}

    def add(self, batch: ProducerBatch) -> None:
        """Hold ``batch``, which comes after those of its partition that are held."""
        self._held.setdefault(batch.tp, []).append(batch)

    def discard(self, batch: ProducerBatch) -> bool:
        """Let go of one batch; False when it was not held."""
        held = self._held.get(batch.tp, [])
        if batch not in held:
            return False
        held.remove(batch)
        return True

    def take(self, tp: TopicPartition) -> list[ProducerBatch]:
        """Let go of what is held of one partition."""
        return self._held.pop(tp, []) if self._held else []

    def all(self) -> list[ProducerBatch]:
        """Everything that is held."""
        return [batch for held in self._held.values() for batch in held]


def proves(acknowledged: ProducerBatch, earlier: ProducerBatch) -> bool:
    """True when the broker that refused ``earlier`` is the one that acknowledged a later batch.

    Another broker, or a topic that was created anew, may know nothing of the producer, and takes
    any batch as the first. The leader's epoch may have grown in between: a refusal that follows a
    restart often comes before the metadata that tells of it.
    """
    now: Leadership | None = acknowledged.attempted_leader
    then: Leadership | None = earlier.attempted_leader
    if now is None or then is None or now.topic_id != then.topic_id:
        return False
    return now.leader_id == then.leader_id and now.leader_epoch >= then.leader_epoch
