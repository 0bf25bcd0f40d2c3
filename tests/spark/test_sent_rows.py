"""What rows weigh that are sent by one call, and which of their columns are sent."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kprod.broker import EmbeddedBroker
from kprod.producer import KafkaProducer
from kprod.spark.record_plan import Rows

PAYLOADS = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
]


@pytest.mark.parametrize("kind", PAYLOADS, ids=str)
def test_text_and_bytes_are_weighed(kind: Any) -> None:
    column = pa.array(["a", None, "gr\u00fcn", ""]).cast(kind)
    batch = pa.RecordBatch.from_arrays([column, column.slice(0)], ["value", "key"])
    assert Rows("t", batch).slice(1).nbytes == 2 * len("gr\u00fcn".encode())


def test_nothing_weighs_nothing() -> None:
    nothing = {"value": pa.nulls(2), "key": pa.array([None, None], pa.string())}
    rows = Rows("t", pa.RecordBatch.from_pydict(nothing))
    assert (rows.nbytes, rows.slice(0, 0).nbytes, rows.slice(0, 0).num_rows) == (0, 0, 0)


def test_rows_are_weighed_and_cut() -> None:
    payloads = {"value": [b"a", None, b"ccc"], "key": [None, b"k", b"kk"]}
    rows = Rows("t", pa.RecordBatch.from_pydict(payloads))
    assert (rows.num_rows, rows.nbytes) == (3, 7)
    assert (rows.slice(1, 1).num_rows, rows.slice(1, 1).nbytes) == (1, 1)
    assert rows.slice(1).arguments(1) == ("t", b"ccc", b"kk", None, None, None)
    unkeyed = Rows("t", pa.RecordBatch.from_pydict({"value": [b"a"]}))
    assert unkeyed.slice(0).arguments(0)[2] is None


def test_columns_without_a_type_are_left_out() -> None:
    columns = {name: pa.nulls(1) for name in ("key", "headers", "partition", "timestamp")}
    rows = Rows("t", pa.RecordBatch.from_pydict({"value": ["v"], **columns}))
    with (
        EmbeddedBroker() as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        rows.send(producer).get(timeout=30)
        (record,) = broker.records("t")
    assert (record.key, record.value, list(record.headers)) == (None, b"v", [])
