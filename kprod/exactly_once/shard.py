"""A shard: the rows of one task, under a name that every attempt derives from job and batch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kprod.types import TopicPartition

PREFIX = "kprod-spark"
MOST_SHARDS = 10_000
OF_ATTEMPT = re.compile(r"(?P<job>.+)\.(?P<shard>\d+)/(?P<attempt>\d+)", re.ASCII | re.DOTALL)
"""The transactional ids that ``delivery="atomic"`` uses."""


def names_of_attempts(job_name: str, *, layout: bool) -> re.Pattern[str]:
    """The transactional ids of attempts at the job's shards, and perhaps that of its layout."""
    names = r"\d+(/\d+)?|layout" if layout else r"\d+(/\d+)?"
    return re.compile(rf"{re.escape(job_name)}\.({names})")


MARKER_PARTITION = 0
"""Every topic has it, however many partitions are added: a marker must be found again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """``number`` of the shards of ``batch`` of the job that is called ``job``. Immutable.

    ``shards`` is how many the batch has; None where one Spark job writes all of it, as the number
    of its tasks cannot change. ``topic`` is the one that markers are committed for, ``target`` the
    one that rows go to, "" where each row says which. ``run`` is the same for all attempts of one
    call, and for nothing else: not for another call under the same ``job_id``, nor for a restart.
    ``start`` is that of ``TaskIdentity``.
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
        """The id of the producer that writes the shard: a new attempt fences the others."""
        attempt = "" if self.attempt is None else f"/{self.attempt}"
        return f"{self.job_name}.{self.number}{attempt}"

    @property
    def group(self) -> str:
        """The consumer group with the committed offset that is the shard's marker."""
        return self.transactional_id

    @property
    def job_name(self) -> str:
        """The common beginning of the names of the job's shards."""
        return f"{self.prefix}.{self.job}"

    @property
    def layout_id(self) -> str:
        """The group that says how many shards a batch has, and the id that it is written with.

        A word is behind the last dot where shards have a number: the layout of the job "a.1" is no
        shard of the job "a".
        """
        return f"{self.job_name}.layout"

    @property
    def place(self) -> TopicPartition:
        """The partition that the groups commit their offsets for."""
        return TopicPartition(self.topic, MARKER_PARTITION)

    def __str__(self) -> str:
        of = "" if self.shards is None else f" of {self.shards}"
        return f"shard {self.number}{of} of batch {self.batch} of {self.job_name!r}"
