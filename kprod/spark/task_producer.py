"""The worker process's shared producer, as one task sees it, and one that only counts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kprod.errors import KprodError, KprodTimeoutError, SerializationError
from kprod.spark.acknowledgements import Acknowledgements, BatchRows, OneRow
from kprod.spark.arrow_columns import payload_bytes
from kprod.spark.rejected_rows import BrokerRefusals, RejectedRows, RowPolicy, letter_bytes

if TYPE_CHECKING:
    from kprod.producer import KafkaProducer
    from kprod.types import Header
    from kprod_ext.futures import FutureRecordMetadata

MARGIN_SECONDS = 10.0  # what a flush may take beyond the time a record may take


class Offered:
    """Rows that were given to a producer, and the bytes of their keys and values."""

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0

    def row(self, value: Any, key: Any) -> None:
        """One row."""
        self.rows += 1
        self.bytes += sum(len(data) for data in (key, value) if hasattr(data, "__len__"))

    def several(self, rows: int, nbytes: int) -> None:
        """Rows that go together."""
        self.rows += rows
        self.bytes += nbytes


class TaskProducer:
    """Sends the records of one task and answers for each of them. Thread: one (the task's).

    ``rejected`` takes the rows that no topic takes; None: such a row fails the task.
    """

    def __init__(
        self,
        producer: KafkaProducer,
        timeout: float | None,
        policy: RowPolicy | None = None,
        *,
        in_transaction: bool = False,
    ) -> None:
        """``timeout`` bounds ``finish``, in seconds; None: ``delivery_timeout_ms`` and a margin.

        ``in_transaction``: one record that the broker refuses fails all of them, whatever
        ``policy`` says.
        """
        if timeout is None:
            timeout = producer.config.delivery_timeout_ms / 1000 + MARGIN_SECONDS
        self.rejected: RejectedRows | None = None
        self.flush_seconds = 0.0
        self.offered = Offered()
        """Told in a transaction only: it takes time for each row."""
        self._offer = self.offered.row if in_transaction else None
        self._dead_letters = Acknowledgements(timeout)
        refusals = None
        if policy is not None and policy.on_row_error != "fail":
            self.rejected = RejectedRows(policy, self._send_dead_letter)
            if not in_transaction:
                refusals = BrokerRefusals(self.rejected, self.send)
        self.outcomes = Acknowledgements(timeout, refusals)
        self._producer = producer
        self._timeout = timeout
        self._retries_before = self._retry_total()

    @property
    def retries(self) -> int:
        """Record retries of the shared producer since this task began."""
        return self._retry_total() - self._retries_before

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has. Raises as ``KafkaProducer.partitions_for``."""
        return len(self._producer.partitions_for(topic))

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Sequence[Header] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """As ``KafkaProducer.send``; and raises DeliveryError when an earlier record has failed."""
        future = self._producer.send(topic, value, key, headers, partition, timestamp_ms)
        if self._offer is not None:
            self._offer(value, key)
        row = None
        if self.rejected is not None:
            copied = None if headers is None else list(headers)
            row = OneRow((topic, value, key, copied, partition, timestamp_ms))
        self.outcomes.expect(future, row)
        return future

    def send_many(self, topic: str, values: list[Any], keys: list[Any] | None) -> int:
        """Send records by ``KafkaProducer.send_many``, in a task without a policy; their bytes.

        ``values`` and ``keys`` are bytes or None. Raises what that raises, and DeliveryError when
        an earlier record has failed.
        """
        nbytes = sum(map(len, filter(None, values)))
        if keys is not None:
            nbytes += sum(map(len, filter(None, keys)))
        try:
            delivery = self._producer.send_many(topic, values, keys=keys)
        except KprodError as error:
            self._place(error)
            raise
        self.offered.several(len(values), nbytes)
        self.outcomes.expect_call(delivery, nbytes)
        return nbytes

    def _place(self, error: KprodError) -> None:
        """Tell which record of the task was the first one of a call."""
        if self.outcomes.sent:
            error.add_note(f"record 0 of this call is record {self.outcomes.sent} of the task")

    def send_batch(self, topic: str, batch: Any, columns: dict[str, str | None]) -> None:
        """Send the rows of a ``pyarrow.RecordBatch`` by ``KafkaProducer.send_arrow``.

        ``columns`` are from ``direct_columns``. Raises what that raises, and DeliveryError when an
        earlier record has failed.
        """
        nbytes = payload_bytes(batch, columns)  # first: what it raises, it raises with nothing sent
        try:
            delivery = self._producer.send_arrow(topic, batch, **columns)
        except KprodError as error:
            self._place(error)
            raise
        self.offered.several(batch.num_rows, nbytes)
        rows = None if self.rejected is None else BatchRows(topic, batch)
        self.outcomes.expect_call(delivery, nbytes, rows)

    def finish(self) -> None:
        """Wait until every record of the task is acknowledged.

        Raises DeliveryError when one has failed, or has no outcome after ``timeout`` seconds.
        """
        started = time.monotonic()
        self.outcomes.finish(self._flush)
        self._dead_letters.finish(self._flush)
        self.flush_seconds = time.monotonic() - started

    @property
    def dead_letters(self) -> Acknowledgements:
        """The outcomes of records that went to the dead-letter topic."""
        return self._dead_letters

    def _flush(self) -> None:
        with suppress(KprodTimeoutError):  # the outcomes say more than "it took too long"
            self._producer.flush(self._timeout)

    def _send_dead_letter(self, topic: str, value: Any, key: Any, *rest: Any) -> None:
        """With the bytes that the record would have; with its own where no serializer makes any."""
        try:
            future = self._producer.send(topic, value, key, *rest)
        except SerializationError:
            future = self._producer.send(topic, letter_bytes(value), letter_bytes(key), *rest)
        self._dead_letters.expect(future)

    def _retry_total(self) -> int:
        return int(self._producer.metrics()["producer-metrics"]["record-retry-total"])


class MeasuringProducer:
    """Takes what a ``TaskProducer`` takes, and counts it. Thread: one."""

    rejected = None

    def __init__(self) -> None:
        self.offered = Offered()

    def partition_count(self, topic: str) -> int:
        """As many as a topic can have: the task that writes the rows checks their partitions."""
        return 1 << 31

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Sequence[Header] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """One row."""
        self.offered.row(value, key)

    def send_many(self, topic: str, values: list[Any], keys: list[Any] | None) -> int:
        """A slice of rows; their bytes."""
        nbytes = sum(map(len, filter(None, values)))
        if keys is not None:
            nbytes += sum(map(len, filter(None, keys)))
        self.offered.several(len(values), nbytes)
        return nbytes

    def send_batch(self, topic: str, batch: Any, columns: dict[str, str | None]) -> None:
        """The rows of a ``pyarrow.RecordBatch``."""
        self.offered.several(batch.num_rows, payload_bytes(batch, columns))
