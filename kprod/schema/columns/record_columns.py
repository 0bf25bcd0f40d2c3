"""Converts the columns of a record batch to those that ``KafkaProducer.send_arrow`` takes."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyarrow import compute

from kprod.errors import KprodError, PartitionError, RecordTypeError
from kprod.schema.columns.arrow_types import (
    is_bytes,
    is_list,
    is_text,
    not_utf8,
    of_lists,
    plain_kind,
    plain_values,
)
from kprod.schema.columns.encoded_columns import Convert
from kprod.schema.columns.payload_format import PayloadFormat

ROLES = ("value", "key", "topic", "partition", "timestamp", "headers")


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The converted columns of a batch, and the errors of its invalid rows.

    ``batch`` has all columns except the topics. ``topics`` is a column of text, or None if there is
    no such column or all rows go to one topic. Immutable.
    """

    batch: Any
    topics: Any
    faults: Mapping[int, KprodError]

    def split(self, topic: str | None) -> Iterator[tuple[str, Any]]:
        """The valid rows, grouped by topic. Rows of one topic keep their order."""
        batch, topics = self.batch, self.topics
        if self.faults:
            topics = None if topics is None else without(topics, self.faults)
            batch = without(batch, self.faults)
        if topic is not None:
            yield topic, batch
            return
        yield from _by_topic(batch, topics)


def converters(
    kinds: Mapping[str, Any],
    topic: str | None,
    value: PayloadFormat,
    key: PayloadFormat,
    shown: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Convert]:
    """Return the functions that convert the columns of a record batch for ``send_arrow``.

    ``kinds`` has the Arrow type of each column, by what the column is used for: "key", "value",
    "topic" and so on. The result has the same keys, without "topic" if ``topic`` is given. Raises
    RecordTypeError if a type cannot be converted. The message names the column as in ``shown``.
    """
    made: dict[str, Convert] = {}
    for role, kind in kinds.items():
        what = f"{role}: {shown.get(role, 'the column')}"
        if role in ("value", "key"):
            made[role] = (value if role == "value" else key).converter(what, kind)
        elif role != "topic" or topic is None:
            made[role] = _of_type(_OTHERS[role](what, plain_kind(kind)))
    return made


def _of_type(convert: Callable[[Any], Any]) -> Convert:
    return lambda column: (convert(plain_values(column)), {})


def record_columns(
    batch: Any, topic: str | None, value: PayloadFormat, key: PayloadFormat
) -> RecordColumns:
    """Convert a batch whose columns are named after ``ROLES``.

    Raises the same exceptions as ``converters``.
    """
    columns: dict[str, Any] = {}
    faults: dict[int, KprodError] = {}
    kinds = {field.name: field.type for field in batch.schema}
    for role, convert in converters(kinds, topic, value, key).items():
        columns[role], wrong = convert(batch.column(role))
        faults |= wrong
    topics = columns.pop("topic", None)
    if topic is None:
        faults |= _without_topic(topics, batch.num_rows)
    return RecordColumns(pa.RecordBatch.from_pydict(columns), topics, faults)


def beyond_partitions(records: Any, count: int) -> dict[int, KprodError]:
    """The errors of rows whose partition does not exist in a topic with ``count`` partitions."""
    if "partition" not in records.schema.names:
        return {}
    column = records.column("partition")
    if column.null_count == len(column) or compute.max(column).as_py() < count:
        return {}
    rows = compute.indices_nonzero(compute.greater_equal(column, count)).to_pylist()
    return {
        row: PartitionError(f"partition {column[row]}: the topic has {count} (0 to {count - 1})")
        for row in rows
    }


def without(rows: Any, faults: Container[int]) -> Any:
    """The rows of a batch or a column without those in ``faults``."""
    return rows.take(pa.array([row for row in range(len(rows)) if row not in faults], pa.int64()))


def _by_topic(batch: Any, topics: Any) -> Iterator[tuple[str, Any]]:
    encoded = topics.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], batch
        return
    order = compute.sort_indices(encoded.indices)  # a stable sort: rows keep their order
    counts = compute.value_counts(encoded.indices)
    sizes = {pair["values"]: pair["counts"] for pair in counts.to_pylist()}
    start = 0
    for number, name in enumerate(names):
        size = sizes.get(number, 0)
        yield name, batch.take(order.slice(start, size))
        start += size


def _without_topic(topics: Any, rows: int) -> dict[int, KprodError]:
    if topics is None:
        bad = list(range(rows))
    else:
        bad = compute.indices_nonzero(topics.is_null()).to_pylist() if topics.null_count else []
    faults: dict[int, KprodError] = {
        row: RecordTypeError(
            "the record has no topic: set the option topic, or fill the topic column"
        )
        for row in bad
    }
    if topics is not None:
        for row, why in not_utf8(topics).items():
            faults[row] = RecordTypeError(f"its topic is not valid UTF-8: {why}")
    return faults


def _topics(what: str, kind: Any) -> Callable[[Any], Any]:
    if not (is_text(kind) or pa.types.is_null(kind)):
        raise RecordTypeError(f"{what} must be a string, not {kind}")
    return lambda column: column.cast(pa.large_string())


def _partitions(what: str, kind: Any) -> Callable[[Any], Any]:
    if not (pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise RecordTypeError(f"{what} must be an integer, not {kind}")
    return lambda column: column.cast(pa.int64())


def _timestamps(what: str, kind: Any) -> Callable[[Any], Any]:
    if pa.types.is_timestamp(kind):
        return lambda column: column
    if not (pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise RecordTypeError(
            f"{what} must be a timestamp, or an integer of ms since 1970, not {kind}"
        )
    return lambda column: column.cast(pa.int64())


def _headers(what: str, kind: Any) -> Callable[[Any], Any]:
    """Accepts a map, or a list of structs with key and value. In the result, the key is first."""
    names, pair = ["key", "value"], []
    if pa.types.is_map(kind):
        pair = [kind.key_type, kind.item_type]
    elif is_list(kind) and pa.types.is_struct(kind.value_type):
        names = [field.name for field in kind.value_type]
        pair = [kind.value_type.field(name).type for name in sorted(names)]
    fits = sorted(names) == ["key", "value"] and len(pair) == 2 and is_text(pair[0])
    if fits and (is_text(pair[1]) or is_bytes(pair[1]) or pa.types.is_null(pair[1])):
        return (lambda column: column) if names[0] == "key" else _swapped
    if pa.types.is_null(kind):
        return lambda column: column
    raise RecordTypeError(
        f"{what} must be a map of string to binary, or an array of structs of key: string and"
        f" value: binary, not {kind}"
    )


def _swapped(column: Any) -> Any:
    """The same headers, with the key as the first field of the structs."""
    offsets, (pairs,) = of_lists(column, column.values)
    swapped = pa.StructArray.from_arrays(
        [pairs.field("key"), pairs.field("value")],
        names=["key", "value"],
        mask=pairs.is_null() if pairs.null_count else None,
    )
    lists = pa.LargeListArray.from_arrays(offsets, swapped)
    if column.null_count:
        lists = pa.compute.if_else(column.is_valid(), lists, pa.scalar(None, lists.type))
    return lists


_OTHERS: dict[str, Callable[[str, Any], Callable[[Any], Any]]] = {
    "topic": _topics,
    "partition": _partitions,
    "timestamp": _timestamps,
    "headers": _headers,
}
