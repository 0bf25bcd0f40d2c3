"""The micro-batches of a stream, each written as a DataFrame of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from kprod.spark.exactly_once.terms import Scope
from kprod.spark.spark_job import is_connect
from kprod.spark.task_identity import QUERY
from kprod.spark.write import write_named
from kprod.spark.write_result import WriteResult

_log = logging.getLogger(__name__)

OnResult = Callable[[WriteResult, int], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeachBatch:
    """For ``writeStream.foreachBatch``. Immutable."""

    topic: str | None
    on_result: OnResult | None
    options: dict[str, Any] = field(repr=False)  # may hold passwords

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one micro-batch. Raises as ``write``, and Spark ends the query then."""
        naming = partial(replace, scope=Scope.QUERY, query=_query(df), batch=batch_id)
        result = write_named(naming, df, self.topic, **{**self.options, "progress": False})
        _log.info("micro-batch %d: %s", batch_id, result)
        if self.on_result is not None:
            self.on_result(result, batch_id)


def foreach_batch(
    topic: str | None = None, *, on_result: OnResult | None = None, **options: Any
) -> ForeachBatch:
    """Make a function for ``writeStream.foreachBatch``: ``write`` with these options.

    Every output mode of Spark's is possible with it, ``update`` among them. ``on_result(result,
    batch_id)`` is called after each micro-batch, where the function runs: on the driver, or with
    Spark Connect on the server. After a failure Spark runs a micro-batch again, with the same rows
    and number: at least once; once with ``delivery="exactly_once"``, ``shards`` and a checkpoint.
    Spark Connect does not tell which query it is, so that needs a ``job_id`` there, and wherever
    one query writes to the same topic in more than one place. Raises ConfigError for a bad option
    when the first one is written.
    """
    return ForeachBatch(topic=topic, on_result=on_result, options=options)


def _query(df: DataFrame) -> str | None:
    """The id of the query, which its checkpoint has; where Spark tells."""
    if is_connect(df.sparkSession):
        return None
    found: str | None = df.sparkSession.sparkContext.getLocalProperty(QUERY)
    return found
