"""Bulk calls of producers that pass each record through code of the application."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any

from kprod.bulk.delivery import BulkDelivery
from kprod.bulk.rows import BLOCK_ROWS, Block, RowChecks, Rows, check_rows
from kprod.bulk.writing import Accounted
from kprod.errors import InvalidRecordError, PartitionError, RecordTooLargeError, RecordTypeError
from kprod_ext import ObjectChunk, SentRecords
from kprod_ext.futures import FutureRecordMetadata

OF_THE_RECORD = (InvalidRecordError, RecordTypeError, PartitionError, RecordTooLargeError)
"""Errors of ``send`` about its arguments, not about the producer or the cluster."""


class OneByOne:
    """Sends each record with ``send``. Keeps one handle for all results. For one thread only."""

    def __init__(self, send: Callable[..., FutureRecordMetadata], topic: str) -> None:
        self._sent = SentRecords()
        self.delivery = BulkDelivery(self._sent)
        self._send = send
        self._topic = topic

    def send(
        self,
        value: Any,
        key: Any,
        headers: Any,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> None:
        """Queue the next record. An error about the record itself contains its number."""
        try:
            future = self._send(self._topic, value, key, headers, partition, timestamp_ms)
        except OF_THE_RECORD as error:
            error.record = self._sent.count
            error.args = (f"record {error.record}: {error}",)
            raise
        self._sent.add(future.delivery, future.index)


def send_one_by_one(
    send: Callable[..., FutureRecordMetadata],
    topic: str,
    rows: Rows,
    checks: RowChecks,
    largest: int | None,
) -> BulkDelivery:
    """Send every row with ``send``, in order.

    ``largest`` is as in ``BulkParts``; None: keys and values may change before they are queued.
    """
    if rows.sized and largest is not None:
        check_rows(rows, ObjectChunk(BLOCK_ROWS, largest, checks), checks)
    elif rows.sized:
        for block in rows.blocks():
            _check(block, checks)
    sending = OneByOne(send, topic)
    with Accounted(sending.delivery, lambda: None):
        for arguments in _arguments(rows):
            sending.send(*arguments)
    return sending.delivery


def _check(block: Block, checks: RowChecks) -> None:
    """Check all but keys and values."""
    checks.start, _, columns, _ = block
    kinds = checks.headers, checks.partition, checks.timestamp
    for check, column in zip(kinds, columns[1:], strict=True):
        if type(column) is list:
            for row, cell in enumerate(column):
                check(row, cell)


def _arguments(rows: Rows) -> Iterator[tuple[Any, Any, Any, Any, Any]]:
    """The rows as ``send`` takes them: value, key, headers, partition, timestamp."""
    for value, key, *others in _cells(rows) if rows.sized else rows.streamed():
        headers, partition, timestamp_ms, *_ = others
        if not rows.keyed and isinstance(value, tuple) and len(value) == 2:
            yield value[1], value[0], headers, partition, timestamp_ms
        else:
            yield value, key, headers, partition, timestamp_ms


def _cells(rows: Rows) -> Iterator[Iterable[Any]]:
    for _, values, columns, _ in rows.blocks():
        cells = [column if type(column) is list else repeat(column) for column in columns]
        yield from zip(values, *cells, strict=False)
