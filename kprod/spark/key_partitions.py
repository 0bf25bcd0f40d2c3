"""The Kafka partitions of a column of keys, chosen by compiled code in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import functions

from kprod_ext import ArrowChunk, ArrowSource, partitions_for_keys

CHUNK_ROWS = 1_024
UNLIMITED = 2**62
HAS_ARROW = hasattr(functions, "arrow_udf")  # since Spark 4.1

Made = Callable[[Any], Any]
"""From a column of keys to one of partitions."""


def key_partitions(count: int, *, arrow: bool = HAS_ARROW) -> Made:
    """A function of a key column, text or binary, for a topic of ``count`` partitions.

    It makes an integer column: the partition that the producer would choose, -1 for a null. Only
    keys travel to the Python worker and only integers back: as Arrow, or, with ``arrow`` False, as
    pandas Series.
    """
    import pyarrow as pa

    def of_array(keys: Any) -> Any:
        return chosen_partitions(keys, count)

    if arrow:
        of_array.__annotations__ = {"keys": pa.Array, "return": pa.Array}
        return _made("arrow_udf", of_array)
    import pandas as pd

    def of_series(keys: Any) -> Any:
        return of_array(pa.array(keys, pa.large_binary(), from_pandas=True)).to_pandas()

    of_series.__annotations__ = {"keys": pd.Series, "return": pd.Series}
    return _made("pandas_udf", of_series)


def _made(kind: str, function: Made) -> Made:
    made: Made = getattr(functions, kind)(function, "int")  # by name: it is not in Spark's types
    return made


def chosen_partitions(keys: Any, count: int) -> Any:
    """The partition for each key of a ``pyarrow.Array`` as an array of int32; -1 for a null."""
    import pyarrow as pa

    source = ArrowSource(pa.RecordBatch.from_arrays([keys], ["key"]))
    chunk = ArrowChunk(CHUNK_ROWS, source, -1, 0, -1, -1, -1, 1, 1)
    chunk.next_batch(UNLIMITED)
    found = partitions_for_keys(chunk, len(keys), count)
    return pa.Array.from_buffers(pa.int32(), len(keys), [None, pa.py_buffer(found)])
