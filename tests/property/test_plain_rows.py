"""Rows that are read without the interpreter: the same records, whatever becomes of the lists."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kprod.bulk.delivery import BulkDelivery
from kprod.bulk.rows import BLOCK_ROWS, RowChecks, Rows, send_rows
from kprod.errors import SerializationError
from kprod_ext import ObjectChunk
from tests.property.test_bulk_writing import Sending
from tests.unit.buffer.accumulating import read

Row = tuple[bytes | None, bytes | None]

CELLS = st.none() | st.binary(max_size=60)


def plain_chunk(capacity: int, largest: int) -> ObjectChunk:
    """A chunk that asks nobody about its rows."""
    return ObjectChunk(capacity, largest, RowChecks("t", lambda *_: None))


def queued(sending: Sending) -> list[Row]:
    """Key and value of every record of the one partition, in order."""
    batches = sending.around.take_all()
    for batch in batches:
        batch.close()
    return [(record.key, record.value) for batch in batches for record in read(batch).records()]


def send(
    values: list[Any],
    keys: list[Any] | None = None,
    wake: Callable[[], None] = lambda: None,
    memory: int = 1000,
) -> tuple[BulkDelivery, list[Row]]:
    sending = Sending(1, leaders=(1,), memory=memory, wake=wake)
    parts = sending.parts()
    checks = RowChecks("t", lambda *_: None)
    delivery = send_rows(parts, "t", Rows(values, keys=keys), checks)
    return delivery, queued(sending)


@given(rows=st.lists(st.tuples(CELLS, CELLS), max_size=60), paired=st.booleans())
def test_rows_are_read_as_they_are(rows: list[Row], paired: bool) -> None:
    values: list[Any] = [value for _, value in rows]
    keys: list[Any] | None = [key for key, _ in rows]
    if paired:  # a row without a key may be a value alone, too
        values = [(key, value) if key is not None else value for key, value in rows]
        keys = None
    delivery, stored = send(values, keys)
    assert (len(delivery), stored) == (len(rows), rows)


def test_the_objects_live_as_long_as_they_are_read() -> None:
    values = [bytes([n]) * 50 for n in range(200)]
    expected: list[Row] = [(None, bytes([n]) * 50) for n in range(200)]
    chunk = plain_chunk(200, 1000)
    chunk.load(values[:])
    values.clear()
    gc.collect()
    sending = Sending(1, leaders=(1,))
    writing = sending.writing()
    writing.write(chunk)
    writing.finish()
    assert queued(sending) == expected


def test_a_list_that_grows_meanwhile_is_sent_as_it_was() -> None:
    values = [bytes(400)] * 40
    delivery, rows = send(values, wake=lambda: values.append(b"later"))
    assert len(values) > 40
    assert (len(delivery), rows) == (40, [(None, bytes(400))] * 40)


def test_a_list_that_is_emptied_meanwhile_ends_there() -> None:
    values: list[Any] = [b""] * (BLOCK_ROWS + 5)
    delivery, rows = send(values, wake=values.clear)
    assert (len(delivery), len(rows)) == (BLOCK_ROWS, BLOCK_ROWS)


def test_what_is_put_into_a_list_meanwhile_is_checked() -> None:
    values: list[Any] = [b""] * (BLOCK_ROWS + 5)

    def change() -> None:
        values[BLOCK_ROWS + 1 :] = [bytearray(b"copied"), b"y", "text", b"z"]

    with pytest.raises(SerializationError, match=f"record {BLOCK_ROWS + 3}") as raised:
        send(values, wake=change)
    assert raised.value.accepted == BLOCK_ROWS + 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("more", [-1, 0, 1, 100])
def test_many_rows_are_sent_in_blocks(more: int) -> None:
    values = [b"%d" % n for n in range(BLOCK_ROWS + more)]
    delivery, rows = send(values, memory=2000)
    assert len(delivery) == len(values)
    assert [value for _, value in rows] == values
