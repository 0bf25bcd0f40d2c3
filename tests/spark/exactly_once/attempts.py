"""Attempts at shards, with rows that a test sends itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kprod.exactly_once.runner import Runner
from kprod.exactly_once.shard import Shard
from kprod.spark.executor_producer import job_producer, producer_options
from kprod.spark.shard_rows import ShardTask, TaskRows


def attempt(
    shard: Shard,
    options: Mapping[str, Any],
    send_rows: Callable[[Any], None],
    rows: TaskRows | None = None,
    **clock: Any,
) -> Runner:
    """What a task runs a protocol with."""
    task = ShardTask(
        rows=rows or TaskRows(()),
        send=lambda producer, _: send_rows(producer),
        of_job=job_producer(options),
    )
    return Runner(shard=shard, options=producer_options(options), rows=task, **clock)
