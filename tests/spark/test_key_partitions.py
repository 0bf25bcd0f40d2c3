"""Partitions for Arrow columns of keys, compared with those of single keys."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from kprod.spark.sharded import CHUNK_ROWS, chosen_partitions
from kprod_ext import ArrowChunk, ArrowSource, partition_for_key, partitions_for_keys

KINDS = [pa.binary(), pa.large_binary(), pa.binary_view()]


def random_keys(count: int) -> list[bytes | None]:
    rng = random.Random(20)
    return [None if row % 7 == 0 else rng.randbytes(row % 23) for row in range(count)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("count", [1, 12, 2**31 - 1])
def test_a_column_gets_the_partitions_of_its_keys(kind: Any, count: int) -> None:
    keys = random_keys(3 * CHUNK_ROWS + 5)
    column = pa.array(keys, kind).slice(13)
    found = chosen_partitions(column, count)
    assert found.type == pa.int32()
    assert found.to_pylist() == [
        -1 if key is None else partition_for_key(key, count) for key in keys[13:]
    ]


def test_text_gets_the_partition_of_its_utf_8_bytes() -> None:
    found = chosen_partitions(pa.array(["ключ", "", None]), 12)
    assert found.to_pylist() == [
        partition_for_key("ключ".encode(), 12),
        partition_for_key(b"", 12),
        -1,
    ]


@pytest.mark.parametrize("column", [pa.nulls(3), pa.array([], pa.string())], ids=["null", "none"])
def test_null_and_empty_columns_have_no_keys(column: Any) -> None:
    assert chosen_partitions(column, 12).to_pylist() == [-1] * len(column)


def chunk_of(rows: int) -> ArrowChunk:
    source = ArrowSource(pa.RecordBatch.from_pydict({"key": [b"key"] * rows}))
    chunk = ArrowChunk(2, source, -1, 0, -1, -1, -1, 1, 1)
    chunk.next_batch(1_000)
    return chunk


def test_the_chunk_advances_by_the_rows_read() -> None:
    chunk = chunk_of(5)
    sizes = [len(partitions_for_keys(chunk, rows, 12)) for rows in (3, 0, 2)]
    assert (sizes, chunk.at, chunk.left) == ([12, 0, 8], chunk.count, 0)


@pytest.mark.parametrize(("rows", "partitions"), [(6, 12), (-1, 12), (1, 0), (1, 2**31)])
def test_invalid_row_and_partition_counts_are_refused(rows: int, partitions: int) -> None:
    with pytest.raises(ValueError, match=r"there are|a topic has"):
        partitions_for_keys(chunk_of(5), rows, partitions)
