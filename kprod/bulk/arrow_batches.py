"""Arrow data for ``send_arrow``. Checks the column types, and then queues batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from kprod.bulk.delivery import BulkDelivery
from kprod.bulk.one_by_one import OneByOne
from kprod.bulk.writing import Accounted, BulkParts, BulkWriting
from kprod.config.kinds import safe_repr
from kprod.errors import (
    InvalidRecordError,
    KprodError,
    PartitionError,
    RecordTooLargeError,
    RecordTypeError,
)
from kprod.intake.arguments import SizeLimits
from kprod_ext import ArrowChunk, ArrowSource
from kprod_ext.futures import FutureRecordMetadata

CHUNK_ROWS = 1024
"""Rows that are loaded at the same time. Their addresses fit into the processor's nearest cache."""

UNLIMITED = 1 << 61
"""A limit that no record exceeds, for records whose size ``send`` checks itself."""

FAULTS: dict[str, tuple[type[KprodError], str]] = {
    "partition": (PartitionError, "its partition is not a number from 0 to 2**31 - 1"),
    "timestamp": (InvalidRecordError, "its timestamp is before 1970 or beyond 2**63 - 1 ms"),
    "headers": (
        InvalidRecordError,
        "a header or its name is null, or its name is not UTF-8",
    ),
    "broken": (InvalidRecordError, "an offset or a view of its value, key or headers is broken"),
    "null": (InvalidRecordError, "the row as a whole is null"),
}

Described = tuple[str, str, bool, list[Any]]
"""A column: name, format in the C data interface, whether it is dictionary-encoded, children."""

TEXT = ("u", "U", "vu")
BYTES = ("z", "Z", "vz", "w:")
LISTS = ("+l", "+L", "+m")
UNITS = {"tss": (1000, 1), "tsm": (1, 1), "tsu": (1, 1000), "tsn": (1, 1_000_000)}
"""Multiplier and divisor that convert each timestamp unit to milliseconds."""

NAMES = {
    "n": "null", "b": "bool", "c": "int8", "C": "uint8", "s": "int16", "S": "uint16", "i": "int32",
    "I": "uint32", "l": "int64", "L": "uint64", "e": "halffloat", "f": "float", "g": "double",
    "z": "binary", "Z": "large_binary", "u": "utf8", "U": "large_utf8", "vz": "binary_view",
    "vu": "utf8_view", "w:": "fixed_size_binary", "+l": "list", "+L": "large_list", "+s": "struct",
    "+m": "map", "ts": "timestamp", "td": "date", "d:": "decimal",
}  # fmt: skip

Chosen = str | int | None
"""A column by its name or number; None if the data has no such column."""


class ArrowColumns(NamedTuple):
    """The number of each column (-1 for none), and how to convert timestamps to milliseconds."""

    value: int
    key: int
    headers: int
    partition: int
    timestamp: int
    multiplier: int
    divisor: int


def arrow_columns(
    columns: Sequence[Described],
    *,
    value: Chosen,
    key: Chosen,
    headers: Chosen,
    partition: Chosen,
    timestamp: Chosen,
) -> ArrowColumns:
    """Find the columns. Raises RecordTypeError for a missing column or a wrong type."""
    payload = "binary or text (any width, view or fixed size)"
    chosen = {
        "value": _number("value", columns, value, (*BYTES, *TEXT, "n"), payload),
        "key": _number("key", columns, key, (*BYTES, *TEXT, "n"), payload),
        "headers": _headers(columns, headers),
        "partition": _number("partition", columns, partition, ("i", "l", "n"), "int32 or int64"),
        "timestamp": _number(
            "timestamp", columns, timestamp, ("l", "ts", "n"), "a timestamp, or int64 of ms"
        ),
    }
    form = columns[chosen["timestamp"]][1] if chosen["timestamp"] >= 0 else ""
    multiplier, divisor = UNITS.get(form[:3], (1, 1))
    return ArrowColumns(**chosen, multiplier=multiplier, divisor=divisor)


def _number(
    role: str, columns: Sequence[Described], chosen: Chosen, forms: tuple[str, ...], wanted: str
) -> int:
    if chosen is None:
        return -1
    number = _found(role, columns, chosen)
    if not _is_one_of(columns[number], forms):
        raise RecordTypeError(
            f"{role}: column {columns[number][0]!r} must be {wanted}, not {_type(columns[number])}"
        )
    return number


def _found(role: str, columns: Sequence[Described], chosen: Chosen) -> int:
    names = [name for name, *_ in columns]
    if isinstance(chosen, str):
        if names.count(chosen) == 1:
            return names.index(chosen)
        how_many = "no" if chosen not in names else "more than one"
        raise RecordTypeError(f"{role}: there is {how_many} column {chosen!r} among {names}")
    if isinstance(chosen, bool) or not isinstance(chosen, int):
        raise RecordTypeError(
            f"{role}: expected a column's name or number, got {safe_repr(chosen)}"
        )
    if not -len(columns) <= chosen < len(columns):
        raise RecordTypeError(f"{role}: there is no column {chosen} among {len(columns)}")
    return chosen % len(columns)


def _headers(columns: Sequence[Described], chosen: Chosen) -> int:
    wanted = "a list of structs, or a map, of a text and a binary or text"
    number = _number("headers", columns, chosen, LISTS, wanted)
    if number >= 0:
        item = columns[number][3][0]
        pair = item[3]
        good = item[1] == "+s" and not item[2] and len(pair) == 2 and _is_one_of(pair[0], TEXT)
        if not (good and _is_one_of(pair[1], (*BYTES, *TEXT, "n"))):
            inner = ", ".join(_type(child) for child in pair) or _type(item)
            raise RecordTypeError(
                f"headers: column {columns[number][0]!r} must be {wanted}, not"
                f" {_type(columns[number])} of {inner}"
            )
    return number


def _is_one_of(column: Described, forms: tuple[str, ...]) -> bool:
    _, form, encoded, _ = column
    return not encoded and any(form == f or (len(f) == 2 and form[:2] == f) for f in forms)


def _type(column: Described) -> str:
    _, form, encoded, _ = column
    name = NAMES.get(form) or NAMES.get(form[:2]) or f"the format {form!r}"
    return f"dictionary-encoded (indices of {name}): cast it to its values" if encoded else name


class ArrowBatches:
    """The batches of the data given to ``send_arrow``. ``chunk`` reads the current batch.

    Without ``limits``, records of any size are accepted.
    """

    def __init__(
        self,
        topic: str,
        data: Any,
        columns: dict[str, str | int | None],
        limits: SizeLimits | None = None,
    ) -> None:
        """Raises RecordTypeError for data or columns that cannot be sent."""
        try:
            source = ArrowSource(data)
        except TypeError as error:
            raise RecordTypeError(
                "data: expected Arrow data with columns (pyarrow.RecordBatch or Table, polars."
                f"DataFrame, anything with __arrow_c_array__ or __arrow_c_stream__): {error} in"
                f" {safe_repr(data)}"
            ) from None
        found = arrow_columns(source.columns(), **columns)
        self.chunk = ArrowChunk(CHUNK_ROWS, source, *found)
        self._topic = topic
        self._limits = limits
        self._batches = 0
        self._rows = 0

    def next(self) -> bool:
        """Load the next batch and check all its rows. Return False if there is no other batch."""
        found = self.chunk.next_batch(UNLIMITED if self._limits is None else self._limits.largest)
        if found is None:
            return False
        rows, fault = found
        if fault is not None:
            error = self._error(*fault)
            error.record = self._rows + fault[0]
            raise error
        self._batches += 1
        self._rows += rows
        return True

    def _error(self, row: int, why: str, size: int) -> KprodError:
        """The error for an invalid row, with its number in the whole data and in its batch."""
        place = f"record {self._rows + row}"
        if self._batches:
            place += f" (row {row} of batch {self._batches})"
        if self._limits is not None and why == "size":
            return RecordTooLargeError(f"{place}: {self._limits.error(self._topic, size)}")
        kind, said = FAULTS[why]
        return kind(f"{place}: {said}")


def send_batches(parts: BulkParts, topic: str, batches: ArrowBatches) -> BulkDelivery:
    """Queue all rows, in order, with the compiled loop. See ``KafkaProducer.send_arrow``."""
    more = batches.next()
    writing = BulkWriting(parts, topic)
    writing.await_partition(batches.chunk.largest_partition)
    delivery = BulkDelivery(writing.sent)
    with Accounted(delivery, writing.finish):
        while more:
            writing.write(batches.chunk)
            if batches.chunk.left:
                raise MemoryError("no memory for the headers of a record")
            more = batches.next()
    return delivery


def send_batches_one_by_one(
    send: Callable[..., FutureRecordMetadata], topic: str, batches: ArrowBatches
) -> BulkDelivery:
    """Send every row with ``send``. Serializers get the bytes that the columns contain."""
    sending = OneByOne(send, topic)
    more = batches.next()
    with Accounted(sending.delivery, lambda: None):
        while more:
            for partition, timestamp_ms, key, value, headers in _rows(batches.chunk):
                sending.send(value, key, headers, partition, timestamp_ms)
            if batches.chunk.left:
                raise MemoryError("no memory for the headers of a record")
            more = batches.next()
    return sending.delivery


def _rows(chunk: ArrowChunk) -> Iterator[tuple[Any, Any, Any, Any, Any]]:
    while (row := chunk.next_row()) is not None:
        yield row
