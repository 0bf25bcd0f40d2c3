"""Which part of which batch of which job: what a task writes, named the same by every attempt."""

from __future__ import annotations

from dataclasses import dataclass

from kprod.types import TopicPartition

MARKER_PARTITION = 0
"""Every topic has it, however many partitions are added: a marker must be found again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """``number`` of the shards of ``batch`` of the job that is called ``job``. Immutable.

    ``shards`` is how many the batch has; None where one Spark job writes all of it, as the number
    of its tasks cannot change. ``topic`` is the one that markers are committed for. ``run`` tells
    one start of the job from the next.
    """

    prefix: str
    job: str
    number: int
    batch: int
    shards: int | None
    topic: str
    run: str = ""
    attempt: int | None = None
    """With ``delivery="atomic"`` each attempt has a transactional id of its own."""

    @property
    def transactional_id(self) -> str:
        """Of the producer that writes the shard: an attempt that starts fences the others."""
        attempt = "" if self.attempt is None else f"/{self.attempt}"
        return f"{self.prefix}.{self.job}.{self.number}{attempt}"

    @property
    def group(self) -> str:
        """The consumer group with the committed offset that is the shard's marker."""
        return self.transactional_id

    @property
    def layout_id(self) -> str:
        """The group that says how many shards a batch has, and the id that it is written with."""
        return f"{self.prefix}.{self.job}"

    @property
    def place(self) -> TopicPartition:
        """What the groups commit their offsets for."""
        return TopicPartition(self.topic, MARKER_PARTITION)

    def __str__(self) -> str:
        of = "" if self.shards is None else f" of {self.shards}"
        return f"shard {self.number}{of} of batch {self.batch} of {self.layout_id!r}"
