"""``send_many`` by the compiled path: everything is checked that can be, then written in blocks."""

from __future__ import annotations

from kprod.bulk.delivery import BulkDelivery
from kprod.bulk.partial_failure import accounted
from kprod.bulk.row_checks import RowChecks
from kprod.bulk.rows import BLOCK_ROWS, Block, Rows
from kprod.bulk.writing import BulkParts, BulkWriting
from kprod_ext import ObjectChunk

PLAIN_ROWS = 1024
"""Plain rows whose addresses are known at the same time: in the processor's nearest cache."""
HELD_ROWS = 32 * 1024
"""Plain rows that are kept alive at the same time, by a list with eight bytes for each."""


def send_rows(parts: BulkParts, topic: str, rows: Rows, checks: RowChecks) -> BulkDelivery:
    """Queue rows that need none of the application's code. See ``KafkaProducer.send_many``."""
    chunk = ObjectChunk(BLOCK_ROWS, parts.largest, checks)
    plain = rows.sized and rows.all_plain(parts.largest)
    if rows.sized and not plain:
        for block in rows.blocks():
            _load(chunk, block, checks)
    writing = BulkWriting(parts, topic)
    writing.await_partition(max(rows.largest_partition, chunk.largest_partition))
    delivery = BulkDelivery(writing.sent)
    with accounted(delivery, writing.finish):
        written = _write_plain(writing, rows, parts.largest, checks) if plain else 0
        for block in rows.blocks(written):
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


def _write_plain(writing: BulkWriting, rows: Rows, largest: int, checks: RowChecks) -> int:
    """Queue rows that are nothing but plain keys and values; how many: all, as a rule.

    It ends where somebody has changed a list meanwhile, and put in something that must be checked.
    """
    lists, written = rows.only_payloads, 0
    if lists is None:
        return 0
    chunk = ObjectChunk(PLAIN_ROWS, largest, checks)
    while written < rows.count:
        held = min(HELD_ROWS, rows.count - written)
        chunk.hold(*lists, written, written + held)
        writing.write(chunk)
        written += chunk.read
        if chunk.read < held:
            break
    return written


def _load(chunk: ObjectChunk, block: Block, checks: RowChecks) -> None:
    checks.start = block.start
    chunk.load(block.values, *block.columns)
