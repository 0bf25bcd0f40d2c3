"""The micro-batches of a stream, each written as a DataFrame of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from kprod.spark.write import write
from kprod.spark.write_result import WriteResult

OnResult = Callable[[WriteResult, int], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeachBatch:
    """For ``writeStream.foreachBatch``. Immutable."""

    topic: str | None
    on_result: OnResult | None
    options: dict[str, Any] = field(repr=False)  # may hold passwords

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one micro-batch. Raises as ``write``, and Spark ends the query then."""
        result = write(df, self.topic, **{**self.options, "progress": False})
        if self.on_result is not None:
            self.on_result(result, batch_id)


def foreach_batch(
    topic: str | None = None, *, on_result: OnResult | None = None, **options: Any
) -> ForeachBatch:
    """Make a function for ``writeStream.foreachBatch``: ``write`` with these options.

    Every output mode of Spark's is possible with it, ``update`` among them. ``on_result(result,
    batch_id)`` is called after each micro-batch, where the function runs: on the driver, or with
    Spark Connect on the server. After a failure Spark runs a micro-batch again, with the same rows
    and number: at least once. Raises ConfigError for a bad option when the first one is written.
    """
    return ForeachBatch(topic=topic, on_result=on_result, options=options)
