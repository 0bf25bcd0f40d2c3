"""Rows that are read without the interpreter: the same records, whatever becomes of the lists."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kprod.bulk.delivery import BulkDelivery
from kprod.bulk.rows import HELD_ROWS, PLAIN_ROWS, RowChecks, Rows, send_rows
from kprod.errors import SerializationError
from kprod_ext import ObjectChunk
from tests.property.test_bulk_writing import Sending
from tests.unit.buffer.accumulating import BATCH, read

Row = tuple[bytes | None, bytes | None]

CELLS = st.none() | st.binary(max_size=60)


def plain_chunk(capacity: int, largest: int) -> ObjectChunk:
    """A chunk that asks nobody about its rows."""
    return ObjectChunk(capacity, largest, RowChecks("t", lambda *_: None))


def queued(sending: Sending) -> list[Row]:
    """Key and value of every record of the one partition, in order."""
    batches = sending.around.accumulator.take_all()
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


@given(
    rows=st.lists(st.tuples(CELLS, CELLS), max_size=60),
    paired=st.booleans(),
    capacity=st.integers(1, 70),
    cut=st.integers(0, 60),
)
def test_rows_are_read_as_they_are(rows: list[Row], paired: bool, capacity: int, cut: int) -> None:
    values: list[Any] = [value for _, value in rows]
    keys: list[Any] | None = [key for key, _ in rows]
    if paired:  # a row without a key may be a value alone, too
        values = [(key, value) if key is not None else value for key, value in rows]
        keys = None
    chunk = plain_chunk(capacity, 1000)
    sending = Sending(1, leaders=(1,))
    writing = sending.writing()
    taken = 0
    for start, end in ((0, cut), (cut, len(rows) + 5)):
        chunk.hold(values, keys, start, end)
        assert chunk.to_come == len(values[start:end])
        writing.write(chunk)
        taken += chunk.read
    writing.finish()
    assert (taken, writing.sent.count) == (len(rows), len(rows))
    assert queued(sending) == rows


@pytest.mark.parametrize(
    ("values", "keys", "read_rows"),
    [
        ([b"a", "text", b"c"], None, 1),
        ([b"a", bytearray(b"b"), b"c"], None, 1),
        ([b"a", b"x" * 11, b"c"], None, 1),
        ([None, b"x" * 11], None, 1),
        ([b"a", (b"k", "text")], None, 1),
        ([b"a", ("text", b"v")], None, 1),
        ([b"a", (b"k" * 6, b"v" * 5)], None, 1),
        ([b"a", (b"k", b"v", b"w")], None, 1),
        ([b"a", (b"k",)], None, 1),
        ([b"a", [b"k", b"v"]], None, 1),
        ([b"a", (b"k", b"v")], [b"k", b"k"], 1),
        ([b"a", b"b"], [None, 7], 1),
        ([b"a", b"b" * 9], [b"k", b"kk"], 1),
        ([b"a", b"b", b"c"], [b"k", b"k"], 2),
        ([b"a", None, (None, None), (b"k", b""), b"b" * 10], None, 5),
    ],
)
@pytest.mark.parametrize("capacity", [1, 2, 8])
def test_reading_ends_before_what_is_not_plain(
    values: list[Any], keys: list[Any] | None, read_rows: int, capacity: int
) -> None:
    chunk = plain_chunk(capacity, 10)
    chunk.hold(values, keys, 0, len(values))
    sending = Sending(1, leaders=(1,))
    writing = sending.writing()
    writing.write(chunk)
    writing.finish()
    assert (chunk.read, writing.sent.count) == (read_rows, read_rows)


def test_the_objects_live_as_long_as_they_are_read() -> None:
    values = [bytes([n]) * 50 for n in range(200)]
    expected: list[Row] = [(None, bytes([n]) * 50) for n in range(200)]
    chunk = plain_chunk(8, 1000)
    chunk.hold(values, None, 0, 200)
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
    values: list[Any] = [b""] * (HELD_ROWS + 5)
    delivery, rows = send(values, wake=values.clear)
    assert (len(delivery), len(rows)) == (HELD_ROWS, HELD_ROWS)


def test_what_is_put_into_a_list_meanwhile_is_checked() -> None:
    values: list[Any] = [b""] * (HELD_ROWS + 5)

    def change() -> None:
        values[HELD_ROWS + 1 :] = [bytearray(b"copied"), b"y", "text", b"z"]

    with pytest.raises(SerializationError, match=f"record {HELD_ROWS + 3}") as raised:
        send(values, wake=change)
    assert raised.value.accepted == HELD_ROWS + 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("more", [-1, 0, 1, PLAIN_ROWS])
def test_many_rows_are_held_some_at_a_time(more: int) -> None:
    values = [b"%d" % n for n in range(HELD_ROWS + more)]
    delivery, rows = send(values, memory=2000)
    assert len(delivery) == len(values)
    assert [value for _, value in rows] == values


def test_a_row_that_is_larger_than_a_batch_is_taken_out_by_itself() -> None:
    sending = Sending(1, leaders=(1,), batch_size=BATCH)
    writing = sending.writing()
    chunk = plain_chunk(4, BATCH * 100)
    values: list[Any] = [(b"key", bytes(BATCH * 2)), bytes(BATCH * 3), None]
    chunk.hold(values, None, 0, 3)
    writing.write(chunk)
    writing.finish()
    assert queued(sending) == [values[0], (None, values[1]), (None, None)]
