"""Attempts at shards whose rows the test sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kprod.exactly_once.marker import Marker
from kprod.exactly_once.runner import Runner
from kprod.exactly_once.shard import Shard
from kprod.spark.executor_producer import JobProducer, producer_options
from kprod.spark.shard_rows import ShardTask, TaskRows


class UncountedRows(ShardTask):
    """Rows that the test sends: the number of remaining ones is unknown."""

    def compare(self, marker: Marker, shard: Shard) -> None:
        if self.producer is None:
            super().compare(marker, shard)


def attempt(
    shard: Shard,
    options: Mapping[str, Any],
    send_rows: Callable[[Any], None],
    rows: TaskRows | None = None,
    **clock: Any,
) -> Runner:
    producer = JobProducer(options=options)
    task = (UncountedRows if rows is None else ShardTask)(
        rows=rows or TaskRows(()), send=lambda producer, _: send_rows(producer), of_job=producer
    )
    made = producer_options(options)
    return Runner(shard=shard, options=made, rows=task, lend=producer.lend_alone, **clock)
