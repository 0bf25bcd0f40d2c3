"""One record batch as ``KafkaProducer.send_arrow`` takes it: the columns of its records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from kprod.errors import ConfigError, KprodError, PartitionError, RecordTypeError
from kprod.spark.columns.payload_format import PayloadFormat, plain_values

ROLES = ("value", "key", "topic", "partition", "timestamp", "headers")


@dataclass(frozen=True, slots=True)
class ColumnRoles:
    """The columns' names by role; a role that is not named has the column of its own name.

    With ``packs`` a frame without a value column has one all the same: a struct of its columns,
    but for those named for a role. A column that was given a role by ``named`` stays in the struct.
    Immutable.
    """

    named: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    packs: bool = False

    def __post_init__(self) -> None:
        unknown = sorted(set(self.named) - set(ROLES))
        if unknown:
            raise ConfigError(f"columns: a record has no {unknown}; it has {list(ROLES)}")

    def __reduce__(self) -> Any:  # a view of a dict does not pickle
        return type(self), (dict(self.named), self.packs)

    def find(self, columns: Sequence[str]) -> dict[str, str]:
        """The column of each role that there is one for; none for a value that is packed.

        Raises RecordTypeError for a column that is missing, or for one that no record has a place
        for and that would be lost.
        """
        missing = sorted(set(self.named.values()) - set(columns))
        if missing:
            raise RecordTypeError(f"there is no column {missing[0]!r} among {sorted(columns)}")
        found = {role: self.named.get(role, role) for role in ROLES}
        found = {role: name for role, name in found.items() if name in columns}
        for name in found.values():
            if list(columns).count(name) > 1:
                raise RecordTypeError(f"there is more than one column {name!r}")
        if "value" not in found and not (self.packs and self.packed(columns)):
            raise RecordTypeError(f"there is no column 'value' among {sorted(columns)}")
        unknown = sorted(set(columns) - set(found.values()))
        if unknown and "value" in found:
            raise RecordTypeError(
                f"a Kafka record has no place for {unknown}: select value, key, topic, partition,"
                " timestamp and headers only, or say by columns= what other names stand for"
            )
        return found

    def packed(self, columns: Iterable[str]) -> list[str]:
        """The columns that a value is made of when there is none. See ``find``."""
        own = {role for role in ROLES if role not in self.named}
        return [name for name in columns if name not in own]

    def arrange(self, batch: Any) -> Any:
        """``batch`` with its columns named for their roles, and nothing copied.

        Raises as ``find``.
        """
        import pyarrow as pa

        names = batch.schema.names
        columns = {role: batch.column(name) for role, name in self.find(names).items()}
        if "value" not in columns:
            kept = self.packed(names)
            parts = [batch.column(name) for name in kept]
            fields = [batch.schema.field(name) for name in kept]
            columns["value"] = pa.StructArray.from_arrays(parts, fields=fields)
        return pa.RecordBatch.from_pydict(columns)


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The columns of a batch, all but its topics, and the rows that no record can be made of.

    ``topics`` is a column of text, None when all rows go to one topic. Immutable.
    """

    batch: Any
    topics: Any
    faults: Mapping[int, KprodError]

    def split(self, topic: str | None) -> Iterator[tuple[str, Any]]:
        """The rows without a fault, by topic; in their order within each topic."""
        batch, topics = self.batch, self.topics
        if self.faults:
            kept = _without(batch.num_rows, self.faults)
            batch = batch.take(kept)
            topics = None if topics is None else topics.take(kept)
        if topic is not None:
            yield topic, batch
            return
        yield from _by_topic(batch, topics)


def record_columns(
    batch: Any, topic: str | None, value: PayloadFormat, key: PayloadFormat
) -> RecordColumns:
    """Convert a batch with columns named for their roles (``ColumnRoles.arrange``).

    ``topic`` wins over the column. Raises RecordTypeError for a column of a type that does not fit.
    """
    import pyarrow as pa

    columns: dict[str, Any] = {}
    faults: dict[int, KprodError] = {}
    topics = None
    for role, column in zip(batch.schema.names, batch.columns, strict=True):
        if role == "topic":
            topics = None if topic is not None else _topics(column)
        elif role in ("value", "key"):
            chosen = value if role == "value" else key
            columns[role], wrong = chosen.encode(role, column)
            faults |= wrong
        else:
            columns[role] = _CONVERSIONS[role](plain_values(column))
    if topic is None:
        faults |= _without_topic(topics, batch.num_rows)
    return RecordColumns(pa.RecordBatch.from_pydict(columns), topics, faults)


def beyond_partitions(records: Any, count: int) -> dict[int, KprodError]:
    """The rows of ``records`` for partitions that a topic of ``count`` partitions lacks."""
    from pyarrow import compute

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


def _without(rows: int, faults: Mapping[int, KprodError]) -> Any:
    import pyarrow as pa

    return pa.array([row for row in range(rows) if row not in faults], pa.int64())


def _by_topic(batch: Any, topics: Any) -> Iterator[tuple[str, Any]]:
    from pyarrow import compute

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
    from pyarrow import compute

    if topics is None:
        bad = list(range(rows))
    else:
        bad = compute.indices_nonzero(topics.is_null()).to_pylist() if topics.null_count else []
    faults: dict[int, KprodError] = {
        row: RecordTypeError("the record has no topic: name one, or fill the topic column")
        for row in bad
    }
    return faults if topics is None else faults | _not_utf8(topics)


def _not_utf8(topics: Any) -> dict[int, KprodError]:
    """Spark lets any bytes pass for text."""
    import pyarrow as pa

    try:
        topics.validate(full=True)
    except pa.ArrowInvalid:
        texts = topics.cast(pa.large_binary()).to_pylist()
        errors = {row: why for row, text in enumerate(texts) if (why := _undecodable(text))}
        return {
            row: RecordTypeError(f"its topic is no UTF-8: {why}") for row, why in errors.items()
        }
    return {}


def _undecodable(text: bytes | None) -> str | None:
    try:
        (text or b"").decode()
    except UnicodeDecodeError as error:
        return error.reason
    return None


def _topics(column: Any) -> Any:
    import pyarrow as pa

    topics = plain_values(column)
    if pa.types.is_null(topics.type):
        return topics.cast(pa.string())
    if not (pa.types.is_string(topics.type) or pa.types.is_large_string(topics.type)):
        if pa.types.is_string_view(topics.type):
            return topics.cast(pa.large_string())
        raise RecordTypeError(f"topic: the column must be text, not {topics.type}")
    return topics


def _partitions(column: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    if pa.types.is_null(column.type):
        return column
    raise RecordTypeError(f"partition: the column must hold integers, not {column.type}")


def _timestamps(column: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_timestamp(column.type) or pa.types.is_null(column.type):
        return column
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    raise RecordTypeError(
        "timestamp: the timestamp column must hold timestamps or ms since the epoch, not"
        f" {column.type}"
    )


def _headers(column: Any) -> Any:
    """A map or a list of structs with two fields, the key first."""
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return column
    pair = kind.value_type
    if not pa.types.is_struct(pair) or {field.name for field in pair} != {"key", "value"}:
        return column
    if [field.name for field in pair] == ["key", "value"]:
        return column
    pairs = column.values
    again = pa.StructArray.from_arrays(
        [pairs.field("key"), pairs.field("value")],
        names=["key", "value"],
        mask=pairs.is_null() if pairs.null_count else None,
    )
    lists = pa.LargeListArray.from_arrays(column.offsets.cast(pa.int64()), again)
    if column.null_count:
        lists = pa.compute.if_else(column.is_valid(), lists, pa.scalar(None, lists.type))
    return lists


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "partition": _partitions,
    "timestamp": _timestamps,
    "headers": _headers,
}
