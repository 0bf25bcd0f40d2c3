"""Converts the rows of a Spark partition to arguments of ``KafkaProducer.send``."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyarrow import compute

from kprod.errors import ConfigError, RecordTypeError
from kprod.schema.columns.arrow_types import in_unit, is_bytes, is_text, python_values
from kprod.schema.columns.payload_format import PayloadFormat
from kprod.schema.columns.record_columns import ROLES
from kprod.types import Header

if TYPE_CHECKING:
    from kprod.bulk.delivery import BulkDelivery
    from kprod.producer import KafkaProducer

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)


def read_headers(headers: Any) -> list[Header]:
    """Headers from a mapping, or a sequence of pairs or of structs with ``key`` and ``value``."""
    try:
        pairs = (
            headers.items()
            if isinstance(headers, Mapping)
            else [(h["key"], h["value"]) if isinstance(h, Mapping) else h for h in headers]
        )
        return [(key, value.encode() if isinstance(value, str) else value) for key, value in pairs]
    except (TypeError, ValueError, KeyError) as error:
        raise RecordTypeError(
            "headers must be a map, or an array of (key, value) pairs or structs; "
            f"got {type(headers).__name__}"
        ) from error


def read_timestamp(timestamp: Any) -> int:
    """Milliseconds since the epoch. A datetime without a zone is local time, as in Spark's rows."""
    if isinstance(timestamp, datetime.datetime):
        try:
            return (timestamp.astimezone(datetime.UTC) - EPOCH) // MILLISECOND
        except (OverflowError, ValueError) as error:  # near the years 1 and 9999
            raise RecordTypeError(f"its timestamp {timestamp} has no UTC: {error}") from None
    if isinstance(timestamp, int):
        return timestamp
    raise RecordTypeError(
        f"a timestamp must be a datetime or ms since the epoch, not {type(timestamp).__name__}"
    )


def _encoded(role: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise RecordTypeError(f"its {role} is not Unicode text: {error.reason}") from None


SendArguments: TypeAlias = tuple[str, Any, Any, list[Header] | None, int | None, int | None]
"""topic, value, key, headers, partition, timestamp in ms: in the order of ``send``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPlan:
    """How the rows of a job are converted to records. Immutable; can be pickled.

    ``columns`` has the names of columns by role. A role that is not in it uses the column with its
    own name. ``topic``, if given, overrides the column. Text is encoded as UTF-8, unless a
    serializer or a format needs it as text.

    Unless values are binary, a frame without a value column gets one: a struct of the frame's
    columns. The struct omits a column that has a role because of the column's own name, and columns
    that kprod has ``added``. It includes other columns that ``columns`` assigns to a role.
    """

    topic: str | None
    columns: Mapping[str, str] = field(default_factory=dict)
    added: frozenset[str] = frozenset()
    value: PayloadFormat = field(default_factory=PayloadFormat)
    key: PayloadFormat = field(default_factory=PayloadFormat)
    encode_key: bool = True
    encode_value: bool = True
    by_row: bool = False  # a serializer or interceptor of the application looks at each record

    def __post_init__(self) -> None:
        unknown = sorted(set(self.columns) - set(ROLES))
        if unknown:
            raise ConfigError(f"columns: expected parts of a record, {list(ROLES)}; got {unknown}")

    def find(self, columns: Sequence[str]) -> dict[str, str]:
        """The column of each role that has one. The value has none if it is packed.

        Raises RecordTypeError for a missing column, and for a column that would be lost because no
        part of a record corresponds to it.
        """
        missing = sorted(set(self.columns.values()) - set(columns))
        if missing:
            raise RecordTypeError(f"there is no column {missing[0]!r} among {sorted(columns)}")
        named = ((role, self.columns.get(role, role)) for role in ROLES)
        found = {role: name for role, name in named if name in columns}
        for name in (*found.values(), *(() if "value" in found else self.packed(columns))):
            if list(columns).count(name) > 1:
                raise RecordTypeError(f"there is more than one column {name!r}")
        if "value" not in found and (self.value.kind == "binary" or not self.packed(columns)):
            raise RecordTypeError(f"there is no column 'value' among {sorted(columns)}")
        unknown = sorted(set(columns) - set(found.values()))
        if unknown and "value" in found:
            raise RecordTypeError(
                f"columns {unknown} are not part of a Kafka record: select only value, key, topic,"
                " partition, timestamp and headers, or map other names with columns="
            )
        return found

    def packed(self, columns: Iterable[str]) -> list[str]:
        """The columns that a packed value consists of."""
        own = {role for role in ROLES if role not in self.columns} | self.added
        return [name for name in columns if name not in own]

    def arrange(self, batch: Any) -> Any:
        """``batch`` with its columns renamed to their roles, without copying data.

        Raises as ``find``.
        """
        names = batch.schema.names
        columns = {role: batch.column(name) for role, name in self.find(names).items()}
        if "value" not in columns:
            kept = self.packed(names)
            parts = [batch.column(name) for name in kept]
            fields = [batch.schema.field(name) for name in kept]
            columns["value"] = pa.StructArray.from_arrays(parts, fields=fields)
        return pa.RecordBatch.from_pydict(columns)

    def read(self, item: Any) -> SendArguments:
        """The arguments of ``send`` for a Row, dict, tuple, bytes or str.

        A timestamp is a datetime, or a number of milliseconds since the epoch. A packed value is a
        dict of its columns. Tuples are (key, value[, headers[, timestamp[, partition]]]). Raises
        RecordTypeError for other types.
        """
        if isinstance(item, bytes | bytearray | memoryview | str):
            return self._arguments(None, item)
        if isinstance(item, Mapping):
            return self._read_columns(list(item), item)
        if isinstance(item, tuple):
            names = getattr(item, "__fields__", None)  # what makes a Row of a tuple
            if names and len(names) == len(item):
                return self._read_columns(names, dict(zip(names, item, strict=True)))
            if not names and 2 <= len(item) <= 5:
                return self._arguments(*item)
        found = f"a tuple of {len(item)}" if isinstance(item, tuple) else type(item).__name__
        raise RecordTypeError(
            "a partition must hold Rows, dicts, bytes, str or tuples of "
            f"(key, value[, headers[, timestamp[, partition]]]); got {found}"
        )

    def _read_columns(self, names: Sequence[str], row: Mapping[str, Any]) -> SendArguments:
        parts = {role: row[name] for role, name in self.find(names).items()}
        if "value" not in parts:
            parts["value"] = {name: row[name] for name in self.packed(names)}
        return self._arguments(parts.pop("key", None), **parts)

    def _arguments(
        self,
        key: Any,
        value: Any,
        headers: Any = None,
        timestamp: Any = None,
        partition: int | None = None,
        topic: str | None = None,
    ) -> SendArguments:
        topic = self.topic or topic
        if topic is None:
            raise RecordTypeError(
                "a record has no topic: set the option topic, or add a topic column"
            )
        if self.encode_key and isinstance(key, str):
            key = _encoded("key", key)
        if self.encode_value and isinstance(value, str):
            value = _encoded("value", value)
        return (
            topic,
            value,
            key,
            None if headers is None else read_headers(headers),
            partition,
            None if timestamp is None else read_timestamp(timestamp),
        )


def as_it_came(item: Any) -> SendArguments:
    """Arguments of ``send`` for an invalid item: only a value, which may be the item's repr."""
    fields = getattr(item, "__fields__", None)
    row = dict(zip(fields, item, strict=False)) if fields else item
    value = row.get("value") if isinstance(row, Mapping) else item
    if isinstance(value, str):
        value = value.encode(errors="replace")
    if not isinstance(value, bytes | bytearray | memoryview):
        value = repr(item).encode()
    return "", bytes(value), None, None, None, None


def size_of(value: Any, key: Any) -> int:
    """The size in bytes of a value and a key; 0 for objects without a length."""
    return sum(len(data) for data in (key, value) if hasattr(data, "__len__"))


class Rows:
    """Rows of one topic that are sent with one call.

    ``batch`` has columns named by their roles, as ``record_columns`` makes it. ``nbytes`` is the
    size of keys and values.
    """

    def __init__(self, topic: str, batch: Any) -> None:
        self.topic, self.batch = topic, batch
        # Of a column without a type every cell is null.
        self._present = [each.name for each in batch.schema if not pa.types.is_null(each.type)]
        self.num_rows: int = batch.num_rows
        payloads = [batch.column(name) for name in ("value", "key") if name in self._present]
        self.nbytes = sum(map(_bytes_of, payloads))

    def send(self, producer: KafkaProducer) -> BulkDelivery:
        """Queue the rows. Raises as ``KafkaProducer.send_arrow``."""
        roles = ("value", "key", "headers", "partition", "timestamp")
        columns = {role: role if role in self._present else None for role in roles}
        return producer.send_arrow(self.topic, self.batch, **columns)

    def slice(self, start: int, length: int | None = None) -> Rows:
        """``length`` rows, or all, from ``start`` on."""
        return Rows(self.topic, self.batch.slice(start, length))

    def arguments(self, number: int) -> SendArguments:
        """The arguments of ``KafkaProducer.send``. Headers that cannot be read are omitted."""
        return next(read_batch(self.batch.slice(number, 1), RecordPlan(topic=self.topic), {}))


def _bytes_of(column: Any) -> int:
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        column = column.cast(pa.large_binary())  # pyarrow measures no views
    return int(compute.sum(compute.binary_length(column)).as_py() or 0)


def read_batch(
    batch: Any, plan: RecordPlan, faults: dict[int, RecordTypeError] | None = None
) -> Iterator[SendArguments]:
    """The rows of ``batch``, which has one topic and columns named by their roles.

    Raises RecordTypeError before the first row if a record cannot contain the type of a column, or
    if a cell cannot be read. With ``faults``, a cell that cannot be read becomes None instead, and
    its error is added to ``faults`` with the number of the row.
    """

    def cells(name: str, read: Callable[[Any], list[Any]] = python_values) -> Iterable[Any]:
        if name in batch.schema.names:
            return _cells(batch.column(name), read, faults)
        return repeat(None)

    return zip(
        repeat(str(plan.topic)),
        cells("value", bytes_of if plan.encode_value else python_values),
        cells("key", bytes_of if plan.encode_key else python_values),
        cells("headers", _headers),
        cells("partition"),
        cells("timestamp", _milliseconds),
        strict=False,  # the constant ones have no end
    )


def _cells(
    column: Any, read: Callable[[Any], list[Any]], faults: dict[int, RecordTypeError] | None
) -> list[Any]:
    try:
        return read(column)
    except RecordTypeError:
        if faults is None:
            raise
    found: list[Any] = []
    for row in range(len(column)):
        try:
            found += read(column.slice(row, 1))
        except RecordTypeError as error:
            faults[row] = error
            found.append(None)
    return found


def bytes_of(column: Any) -> list[Any]:
    """Text and binary columns as bytes; other columns as they are, because ``send`` checks them."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if is_text(kind) or is_bytes(kind):
        column = column.cast(pa.large_binary())
    return python_values(column)


def _headers(column: Any) -> list[Any]:
    try:
        cells = column.to_pylist()
    except UnicodeDecodeError as error:  # Spark lets any bytes pass for text
        raise RecordTypeError(f"a string is not valid UTF-8: {error.reason}") from error
    return [None if cell is None else read_headers(cell) for cell in cells]


def _milliseconds(column: Any) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = in_unit(column, column.type.unit, "ms")
    return python_values(column)
