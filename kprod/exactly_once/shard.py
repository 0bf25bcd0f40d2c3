"""A shard: the rows of one task, with a name that every attempt derives from job and batch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kprod.types import TopicPartition

PREFIX = "kprod-spark"
MOST_SHARDS = 10_000
OF_ATTEMPT = re.compile(r"(?P<job>.+)\.(?P<shard>\d+)/(?P<attempt>\d+)", re.ASCII | re.DOTALL)
"""The transactional ids that ``delivery="atomic"`` uses."""


def names_of_attempts(job_name: str, *, layout: bool) -> re.Pattern[str]:
    """Matches the transactional ids of the job's shards.

    With ``layout``, it also matches the id of the job's layout.
    """
    names = r"\d+(/\d+)?|layout" if layout else r"\d+(/\d+)?"
    return re.compile(rf"{re.escape(job_name)}\.({names})")


MARKER_PARTITION = 0
"""Every topic has this partition, even after partitions are added. So markers are found again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """Shard ``number`` of ``batch`` of the job ``job``. Immutable.

    ``shards`` is the batch's number of shards. It is None if one Spark job writes the whole batch:
    a job cannot change its number of tasks. ``topic`` is the topic that markers are committed for.
    ``target`` is the topic of the rows, or "" if each row has its own topic. ``run`` identifies one
    call of kprod. All attempts of the call have the same ``run``. Another call has a different one,
    even with the same ``job_id``, and so has a call after a restart. ``start`` is as in
    ``TaskIdentity``.
    """

    prefix: str
    job: str
    number: int
    batch: int
    shards: int | None
    topic: str
    run: str = ""
    start: str = ""
    target: str = ""
    attempt: int | None = None
    """With ``delivery="atomic"`` each attempt has a transactional id of its own."""

    @property
    def transactional_id(self) -> str:
        """The id of the producer that writes the shard.

        A new attempt with this id fences the others.
        """
        attempt = "" if self.attempt is None else f"/{self.attempt}"
        return f"{self.job_name}.{self.number}{attempt}"

    @property
    def group(self) -> str:
        """The consumer group with the committed offset that is the shard's marker."""
        return self.transactional_id

    @property
    def job_name(self) -> str:
        """The common prefix of the names of the job's shards."""
        return f"{self.prefix}.{self.job}"

    @property
    def layout_id(self) -> str:
        """The group of a batch's layout, and the transactional id with which it is written.

        After the last dot, this name has a word, but the names of shards have a number. So the
        layout of the job "a.1" cannot be confused with a shard of the job "a".
        """
        return f"{self.job_name}.layout"

    @property
    def place(self) -> TopicPartition:
        """The partition for which the groups commit offsets."""
        return TopicPartition(self.topic, MARKER_PARTITION)

    def __str__(self) -> str:
        of = "" if self.shards is None else f" of {self.shards}"
        return f"shard {self.number}{of} of batch {self.batch} of {self.job_name!r}"
