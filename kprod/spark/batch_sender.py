"""Sends record batches column by column; row by row where code of the application must see them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any

from kprod.errors import KprodError
from kprod.spark.acknowledgements import BatchRows
from kprod.spark.arrow_columns import (
    FEW_ROWS,
    direct_columns,
    payload_bytes,
    read_batch,
    unreadable_rows,
)
from kprod.spark.columns.payload_format import PayloadFormat
from kprod.spark.columns.record_columns import (
    ColumnRoles,
    RecordColumns,
    beyond_partitions,
    record_columns,
)
from kprod.spark.rate_limit import RateLimiter
from kprod.spark.record_shapes import RecordShapes, SendArguments
from kprod.spark.rejected_rows import is_about_the_record
from kprod.spark.task_producer import TaskProducer


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """How the columns of a job become records. Immutable; it pickles."""

    shapes: RecordShapes
    roles: ColumnRoles
    value: PayloadFormat
    key: PayloadFormat
    by_row: bool  # a serializer or interceptor of the application looks at each record


class BatchSender:
    """Sends the record batches of one task. Thread: one."""

    def __init__(
        self, plan: BatchPlan, producer: TaskProducer, limiter: RateLimiter | None
    ) -> None:
        self._plan = plan
        self._producer = producer
        self._limiter = limiter

    def send_all(self, batches: Iterable[Any]) -> None:
        """Send every row. Raises as ``KafkaProducer.send_arrow`` and ``TaskProducer.send``."""
        for batch in batches:
            arranged = self._plan.roles.arrange(batch)
            if self._plan.by_row:
                self._send_rows(arranged, self._plan.shapes)
            elif arranged.num_rows:
                self._send_columns(arranged)

    def _send_columns(self, arranged: Any) -> None:
        plan = self._plan
        records = record_columns(arranged, plan.shapes.topic, plan.value, plan.key)
        if records.faults:
            self._reject_faults(arranged, records)
        for topic, part in records.split(plan.shapes.topic):
            self._send_part(topic, self._within_partitions(topic, part))

    def _reject_faults(self, arranged: Any, records: RecordColumns) -> None:
        """The rows that could not be made records of, as they came."""
        rejected = self._producer.rejected
        if rejected is None:
            row, error = min(records.faults.items())
            error.record = row
            error.args = (f"record {row}: {error}",)
            raise error
        for row, error in sorted(records.faults.items()):
            rejected.take(_as_it_came(arranged.slice(row, 1)), error)

    def _within_partitions(self, topic: str, part: Any) -> Any:
        """``part`` without rows for partitions that the topic does not have, if rows may go."""
        rejected = self._producer.rejected
        if rejected is None or "partition" not in part.schema.names:
            return part
        faults = beyond_partitions(part, self._producer.partition_count(topic))
        if not faults:
            return part
        rows = BatchRows(topic, part)
        for row, error in faults.items():
            rejected.take(rows.arguments(row), error)
        return _left(part, faults)

    def _send_part(self, topic: str, part: Any) -> None:
        if part.num_rows < FEW_ROWS:
            self._send_rows(part, RecordShapes(topic=topic))
            return
        columns = direct_columns(part, RecordShapes(topic=topic))
        if columns is None:  # rows that no column can be made of tell what is wrong with them
            self._send_rows(part, RecordShapes(topic=topic))
            return
        if self._limiter is None:
            self._send_direct(topic, part, columns)
            return
        for piece in self._limiter.pieces(part, payload_bytes(part, columns)):
            self._limiter.wait(piece.num_rows, payload_bytes(piece, columns))
            self._send_direct(topic, piece, columns)

    def _send_direct(self, topic: str, part: Any, columns: dict[str, str | None]) -> None:
        """Nothing of a batch is queued when one of its rows is refused: the others go without."""
        rejected = self._producer.rejected
        while part.num_rows:
            try:
                self._producer.send_batch(topic, part, columns)
            except KprodError as error:
                row = error.record
                if rejected is None or row is None or not is_about_the_record(error):
                    raise
                if row:
                    self._producer.send_batch(topic, part.slice(0, row), columns)
                rejected.take(BatchRows(topic, part).arguments(row), _unnumbered(error))
                part = part.slice(row + 1)
            else:
                return

    def _send_rows(self, batch: Any, shapes: RecordShapes) -> None:
        send = row_sender(self._producer, self._limiter)
        for arguments in read_batch(self._readable(batch, shapes), shapes):
            send(*arguments)

    def _readable(self, batch: Any, shapes: RecordShapes) -> Any:
        """``batch`` without the rows that cannot be read, if rows may go."""
        rejected = self._producer.rejected
        faults = {} if rejected is None else unreadable_rows(batch, shapes)
        if rejected is None or not faults:
            return batch
        for row, error in sorted(faults.items()):
            one = batch.slice(row, 1)
            others = one.select([name for name in one.schema.names if name != "headers"])
            has_topic = not unreadable_rows(others, shapes)
            rejected.take(
                BatchRows(shapes.topic, one).arguments(0) if has_topic else _as_it_came(one), error
            )
        return _left(batch, faults)


def row_sender(producer: TaskProducer, limiter: RateLimiter | None) -> Callable[..., Any]:
    """``producer.send``, at the limiter's pace, and with the refused rows taken care of."""
    rejected = producer.rejected
    if rejected is None and limiter is None:
        return producer.send

    def send(topic: str, value: Any, key: Any, *rest: Any) -> None:
        if limiter is not None:
            limiter.wait(1, sum(len(data) for data in (key, value) if hasattr(data, "__len__")))
        try:
            producer.send(topic, value, key, *rest)
        except KprodError as error:
            if rejected is None or not is_about_the_record(error):
                raise
            rejected.take((topic, value, key, *rest), error)

    return send


def _left(batch: Any, faults: Container[int]) -> Any:
    """The rows that have no fault."""
    import pyarrow as pa

    rows = [row for row in range(batch.num_rows) if row not in faults]
    return batch.take(pa.array(rows, pa.int64()))


def _unnumbered(error: KprodError) -> KprodError:
    """Without the row's number, which counts from wherever the rows were cut last."""
    if error.args:
        error.args = (str(error.args[0]).removeprefix(f"record {error.record}: "),)
    return error


def _as_it_came(row: Any) -> SendArguments:
    """The arguments of a row that could not be converted: what is no payload, as JSON."""
    import pyarrow as pa

    raw = PayloadFormat("json")
    columns = {
        role: raw.encode(role, column)[0] if role in ("value", "key") else column
        for role, column in zip(row.schema.names, row.columns, strict=True)
        if role not in ("topic", "partition")
    }
    return BatchRows("", pa.RecordBatch.from_pydict(columns)).arguments(0)
