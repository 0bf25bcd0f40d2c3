"""The worker process's shared producer, as one task sees it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kprod.errors import KprodError, KprodTimeoutError
from kprod.spark.acknowledgements import Acknowledgements
from kprod.spark.direct_columns import payload_bytes

if TYPE_CHECKING:
    from kprod.buffer.future import FutureRecordMetadata
    from kprod.producer import KafkaProducer
    from kprod.types import Header

MARGIN_SECONDS = 10.0  # what a flush may take beyond the time a record may take


class TaskProducer:
    """Sends the records of one task and answers for each of them. Thread: one (the task's)."""

    def __init__(self, producer: KafkaProducer, timeout: float | None) -> None:
        """``timeout`` bounds ``finish``, in seconds; None: ``delivery_timeout_ms`` and a margin."""
        if timeout is None:
            timeout = producer.config.delivery_timeout_ms / 1000 + MARGIN_SECONDS
        self.outcomes = Acknowledgements(timeout)
        self._producer = producer
        self._timeout = timeout
        self._retries_before = self._retry_total()

    @property
    def retries(self) -> int:
        """Record retries of the shared producer since this task began."""
        return self._retry_total() - self._retries_before

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
        self.outcomes.expect(future)
        return future

    def send_batch(self, topic: str, batch: Any, columns: dict[str, str | None]) -> None:
        """Send the rows of a ``pyarrow.RecordBatch`` by ``KafkaProducer.send_arrow``.

        ``columns`` are from ``direct_columns``. Raises what that raises, and DeliveryError when an
        earlier record has failed.
        """
        nbytes = payload_bytes(batch, columns)  # first: what it raises, it raises with nothing sent
        try:
            delivery = self._producer.send_arrow(topic, batch, **columns)
        except KprodError as error:
            if self.outcomes.sent:
                error.add_note(f"record 0 of this call is record {self.outcomes.sent} of the task")
            raise
        self.outcomes.expect_call(delivery, nbytes)

    def finish(self) -> None:
        """Wait until every record of the task is acknowledged.

        Raises DeliveryError when one has failed, or has no outcome after ``timeout`` seconds.
        """
        with suppress(KprodTimeoutError):  # the outcomes below say more than "it took too long"
            self._producer.flush(self._timeout)
        self.outcomes.finish()

    def _retry_total(self) -> int:
        return int(self._producer.metrics()["producer-metrics"]["record-retry-total"])
