"""``send_many`` by the compiled lane: everything checked that can be, then block after block."""

from __future__ import annotations

from kprod.bulk.delivery import BulkDelivery
from kprod.bulk.partial_failure import accounted
from kprod.bulk.row_checks import RowChecks
from kprod.bulk.rows import BLOCK_ROWS, Block, Rows
from kprod.bulk.writing import BulkParts, BulkWriting
from kprod_ext import ObjectChunk


def send_rows(parts: BulkParts, topic: str, rows: Rows, checks: RowChecks) -> BulkDelivery:
    """Queue rows that need none of the application's code. See ``KafkaProducer.send_many``."""
    chunk = ObjectChunk(BLOCK_ROWS, parts.largest, checks)
    if rows.sized and not rows.all_plain(parts.largest):
        for block in rows.blocks():
            _load(chunk, block, checks)
    writing = BulkWriting(parts, topic)
    writing.await_partition(max(rows.largest_partition, chunk.largest_partition))
    delivery = BulkDelivery(writing.sent)
    with accounted(delivery, writing.finish):
        for block in rows.blocks():
            failure = block.failure
            try:
                _load(chunk, block, checks)
            except BaseException as error:
                failure = error
            if failure is None or isinstance(failure, Exception):  # not Ctrl-C: it must not wait
                writing.write(chunk)  # the rows before the one that failed
            if failure is not None:
                raise failure
    return delivery


def _load(chunk: ObjectChunk, block: Block, checks: RowChecks) -> None:
    checks.start = block.start
    chunk.load(block.values, *block.columns)
