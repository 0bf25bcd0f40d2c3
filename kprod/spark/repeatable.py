"""Checks whether Spark will compute the same rows, and so the same shards, a second time.

The check reads the query plan, which only classic sessions have; clients of Spark Connect have
none. A plan does not show what RDDs and checkpoints contain. Of a Python function, it shows only
whether the function is marked as non-deterministic. For a micro-batch, the plan of its query is
checked, because the plan of the DataFrame that ``foreachBatch`` passes shows only an RDD.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

from kprod.errors import ConfigError

_log = logging.getLogger(__name__)

MOST_PRUNINGS = 20
ORDERED = {"AnyValue", "CollectList", "CollectSet", "First", "Last", "ListAgg"}
"""Aggregates that depend on the order of rows, which a shuffle changes."""


class MicroBatch(NamedTuple):
    """The query and batch of a DataFrame of ``foreachBatch``; ``plan`` is a Java object."""

    query: str
    batch: int
    plan: Any


def micro_batch(df: DataFrame) -> MicroBatch | None:
    """The micro-batch that ``df`` was made from, in any thread; None if it was made otherwise.

    Each query has its own session. DataFrames made from its micro-batches have the same session.
    """
    frame: Any = getattr(df, "_jdf", None)
    if frame is None:
        return None
    from py4j.protocol import Py4JError  # a client of Spark Connect may have none

    session = frame.sparkSession()
    try:
        for execution in session.sharedState().activeStreamingQueries().values():
            if execution is not None and execution.sparkSessionForStream().equals(session):
                batch = int(execution.lastExecution().currentBatchId())
                write: Any = execution.logicalPlan()
                return MicroBatch(str(execution.id().toString()), batch, write.children().apply(0))
    except Py4JError:  # no public part of Spark: another version may call it otherwise
        return None
    return None


def check_repeatable(
    df: DataFrame, columns: Sequence[str] | None, *, within_job: bool = False
) -> None:
    """Raise ConfigError if Spark may compute other rows again, or other values of ``columns``.

    None means all columns. Even if only some columns matter, the set of rows has to be the same.
    ``within_job``: only tasks of one Spark job may run again, and no later job. If kprod does not
    know the plans of this version of Spark, it logs a warning and checks nothing.
    """
    frame: Any = getattr(df, "_jdf", None)
    if frame is None:
        return
    from py4j.protocol import Py4JError  # a client of Spark Connect may not have it

    try:
        _check_frame(df, frame, columns, within_job=within_job)
    except (Py4JError, TypeError, AttributeError) as error:
        _log.warning("cannot check whether the rows of the query are repeatable: %s", error)


def _check_frame(
    df: DataFrame, frame: Any, columns: Sequence[str] | None, *, within_job: bool
) -> None:
    _check(df, columns, same_time=df.isStreaming or within_job)
    found = micro_batch(df)
    if found is not None:
        jvm: Any = df.sparkSession.sparkContext._jvm
        rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows(frame.sparkSession(), found.plan)
        of_query = DataFrame(rows, df.sparkSession)
        known = columns is not None and set(columns) <= set(of_query.columns)
        _check(of_query, columns if known else None, same_time=True)


def _check(df: DataFrame, columns: Sequence[str] | None, *, same_time: bool) -> None:
    """``same_time`` allows the current time. It is the same in all tasks of a Spark job.

    Spark also stores the time of each micro-batch.
    """
    chosen: Any = df if columns is None else df.select(*map(quoted, columns))
    jvm: Any = df.sparkSession.sparkContext._jvm
    plan = _pruned(jvm, chosen._jdf.queryExecution().analyzed())
    pattern = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    for query in (plan, *_items(plan.subqueriesAll())):
        _check_query(query, pattern, same_time=same_time)


def _check_query(plan: Any, pattern: Any, *, same_time: bool) -> None:
    if not plan.deterministic():
        _refuse("rand(), uuid(), or a UDF that is marked as non-deterministic")
    if not same_time and plan.containsPattern(pattern.CURRENT_LIKE()):
        _refuse("current_timestamp() or a similar function")
    orders = (pattern.AGGREGATE(), pattern.DISTINCT_LIKE(), pattern.LIMIT())
    if any(map(plan.containsPattern, orders)) or _may_skip_rows(plan, pattern):
        for what in filter(None, map(_depends_on_order, _nodes(plan))):
            _refuse(what)


def _may_skip_rows(plan: Any, pattern: Any) -> bool:
    """Whether the plan may have an OFFSET. Spark 4.0 has no pattern for it."""
    from py4j.protocol import Py4JError

    try:
        offset = pattern.OFFSET()
    except Py4JError:
        return True
    return bool(plan.containsPattern(offset))


def _depends_on_order(node: Any) -> str | None:
    """What in this node depends on the order of its input rows, for an error message; or None."""
    name = node.nodeName()
    if name == "Aggregate" and ORDERED & _names(node.expressions()):
        return "first(), last(), any_value(), collect_list() or a similar aggregate"
    if name in ("GlobalLimit", "Offset") and not _is_sorted(node):
        return "limit() or offset() of rows that are not sorted"
    if name.startswith("Deduplicate") and node.keys().size() < node.output().size():
        return "dropDuplicates() by some of the columns"
    return None


def _pruned(jvm: Any, plan: Any) -> Any:
    """The plan without unused columns, which Spark's optimizer would also remove."""
    rule = jvm.org.apache.spark.sql.catalyst.optimizer.ColumnPruning
    for _ in range(MOST_PRUNINGS):
        before, plan = plan, rule.apply(plan)
        if plan.fastEquals(before):
            break
    return plan


def _nodes(root: Any) -> Iterator[Any]:
    """A plan or an expression, and all that is below it."""
    yield root
    for child in _items(root.children()):
        yield from _nodes(child)


def _items(found: Any) -> Iterator[Any]:
    """The items of a Scala sequence."""
    return map(found.apply, range(found.size()))


def _names(expressions: Any) -> set[str]:
    """The class names of these expressions and of all expressions in them."""
    return {str(node.nodeName()) for root in _items(expressions) for node in _nodes(root)}


def _is_sorted(limit: Any) -> bool:
    """Whether the limited rows are sorted. Sorted rows are always the same, except for ties."""
    node = limit
    while node.nodeName() in ("GlobalLimit", "LocalLimit", "Offset", "Project", "SubqueryAlias"):
        node = node.children().apply(0)
    return bool(node.nodeName() == "Sort" and getattr(node, "global")())


def quoted(name: str) -> str:
    """Quote a column name for Spark SQL, whatever characters it contains."""
    return "`" + name.replace("`", "``") + "`"


def _refuse(what: str) -> None:
    raise ConfigError(
        f"the rows may not be the same when Spark computes them again ({what}). Rows could then"
        " move to a different shard, and be lost or duplicated. Write the rows to a table first."
        " Or, if only some columns may differ, set shards, and shard_by (in sharded(): by) to"
        " columns that stay the same"
    )
