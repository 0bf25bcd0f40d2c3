"""``send_many`` for producers whose records each pass through code of the application."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

from kprod.buffer.future import FutureRecordMetadata
from kprod.bulk.delivery import BulkDelivery
from kprod.bulk.partial_failure import accounted
from kprod.bulk.row_checks import RowChecks
from kprod.bulk.rows import Block, Rows
from kprod.types import TopicPartition
from kprod_ext import SentRecords


def send_one_by_one(
    send: Callable[..., FutureRecordMetadata], topic: str, rows: Rows, checks: RowChecks
) -> BulkDelivery:
    """Send every row by ``send``, in order, and keep one handle instead of the futures."""
    if rows.sized:
        for block in rows.blocks():
            _check(block, checks)
    sent = SentRecords()
    places: dict[TopicPartition, int] = {}  # an interceptor may send a record elsewhere
    delivery = BulkDelivery(sent)
    with accounted(delivery, lambda: None):
        for block in rows.blocks():
            for arguments in _arguments(block):
                future = send(topic, *arguments)
                place = places.setdefault(future.topic_partition, len(places))
                sent.add(place, future.delivery, future.index)
            if block.failure is not None:
                raise block.failure
    return delivery


def _check(block: Block, checks: RowChecks) -> None:
    """Everything but keys and values, which the serializers must see first."""
    checks.start = block.start
    kinds = checks.headers, checks.partition, checks.timestamp
    for check, column in zip(kinds, block.columns[1:], strict=True):
        if type(column) is list:
            for row, cell in enumerate(column):
                check(row, cell)


def _arguments(block: Block) -> Iterator[tuple[Any, ...]]:
    """The rows as ``send`` takes them: value, key, headers, partition, timestamp."""
    keys, *others = block.columns
    columns = [column if type(column) is list else repeat(column) for column in others]
    if keys is not None:
        yield from zip(block.values, keys, *columns, strict=False)
        return
    for value, *others in zip(block.values, *columns, strict=False):
        if isinstance(value, tuple) and len(value) == 2:
            yield value[1], value[0], *others
        else:
            yield value, None, *others
