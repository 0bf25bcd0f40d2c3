"""Attempts at shards, with rows that a test sends itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kprod.exactly_once.marker import Marker
from kprod.exactly_once.runner import Runner
from kprod.exactly_once.shard import Shard
from kprod.spark.executor_producer import JobProducer, producer_options
from kprod.spark.shard_rows import ShardTask, TaskRows


class Uncounted(ShardTask):
    """The rows of an attempt that sends them by itself: nobody knows how many are left."""

    def compare(self, marker: Marker, shard: Shard) -> None:
        """Raise RowsChanged unless what is sent is what the marker is about."""
        if self.producer is None:
            super().compare(marker, shard)


def attempt(
    shard: Shard,
    options: Mapping[str, Any],
    send_rows: Callable[[Any], None],
    rows: TaskRows | None = None,
    **clock: Any,
) -> Runner:
    """What a task runs a protocol with."""
    producer = JobProducer(options=options)
    task = (Uncounted if rows is None else ShardTask)(
        rows=rows or TaskRows(()),
        send=lambda producer, _: send_rows(producer),
        of_job=producer,
    )
    made = producer_options(options)
    return Runner(shard=shard, options=made, rows=task, lend=producer.lend_alone, **clock)
