"""The arguments of ``send_many``, which are divided into blocks of rows, checked, and queued."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from itertools import chain, count, islice, repeat
from typing import Any, TypeAlias, TypeVar

from kprod.bulk.delivery import BulkDelivery
from kprod.bulk.writing import Accounted, BulkParts, BulkWriting
from kprod.config.kinds import safe_repr
from kprod.errors import InvalidRecordError, KprodError, RecordTypeError
from kprod.intake.arguments import check_partition, check_timestamp, freeze_headers
from kprod.intake.serializers import NO_SERIALIZERS
from kprod.types import BytesLike, Header, ProducerRecord
from kprod_ext import ObjectChunk, all_plain
from kprod_ext.rows import held

BLOCK_ROWS = 8192
"""Rows in a block: enough for several batches of small records, but few enough that their addresses
fit into the processor's nearer caches."""
STREAM_ROWS = 512
"""Rows in a block from an iterator. They wait until the block is complete."""

T = TypeVar("T")

Column: TypeAlias = Any
"""None, one value for all records, or a list or an iterator with one value for each record."""


Block: TypeAlias = tuple[int, list[Any], tuple[Column, ...], BaseException | None]
"""The number of the first row; the values of the rows; their other columns (keys, headers,
partitions and timestamps, each a list or one value for all rows); and the exception that the input
raised after these rows, if any."""


class Rows:
    """The arguments of one ``send_many``.

    ``sized``: the arguments can be checked before anything is sent, and ``count`` is the number of
    rows. Items that are added to a list later are not sent.
    """

    def __init__(
        self,
        values: Any,
        *,
        keys: Any = None,
        headers: Any = None,
        partitions: Any = None,
        timestamps_ms: Any = None,
    ) -> None:
        """Raise RecordTypeError or InvalidRecordError if an argument as a whole is invalid."""
        self.sized = isinstance(values, list | tuple)
        self._values = _many("values", values)
        if self.sized and type(values) is not list:
            self._values = list(values)
        self.count: int = len(self._values) if self.sized else 0
        self._columns: tuple[Column, ...] = (
            None if keys is None else self._column("keys", keys),
            self._headers(headers),
            self._places(partitions),
            self._times(timestamps_ms),
        )

    def all_plain(self, largest: int) -> bool:
        """Whether all values and keys are bytes or None, and of at most ``largest`` bytes.

        If so, the rows need not be checked one by one. False if there are headers, or lists of
        partitions or timestamps.
        """
        keys, *others = self._columns
        if not isinstance(self._values, list) or list in map(type, others):
            return False
        return others[0] is None and all_plain(self._values, keys, largest)

    @property
    def keyed(self) -> bool:
        """Whether keys were given. If not, a value may be a pair of key and value."""
        return self._columns[0] is not None

    @property
    def largest_partition(self) -> int:
        """The partition, if it was given once for all rows; otherwise -1."""
        partition = self._columns[2]
        return partition if type(partition) is int else -1

    def blocks(self) -> Iterator[Block]:
        """The rows in order. If ``sized``, every call returns all rows again."""
        return self._sized_blocks() if self.sized else self._streamed_blocks()

    def _sized_blocks(self) -> Iterator[Block]:
        values, columns = self._values, self._columns
        cut = list in map(type, columns)
        for start in range(0, self.count, BLOCK_ROWS):
            end = min(start + BLOCK_ROWS, self.count)
            if cut:
                columns = tuple(c[start:end] if type(c) is list else c for c in self._columns)
            yield start, values[start:end], columns, None

    def _streamed_blocks(self) -> Iterator[Block]:
        values = map(held, self._values)
        columns = [iter(c) if _is_many(c) else c for c in self._columns]
        if self.keyed:
            columns[0] = map(held, columns[0])
        start = 0
        while True:
            taken, failure = _take(values, STREAM_ROWS)
            cut: list[Any] = []
            for name, column in zip(_NAMES, columns, strict=True):
                if not _is_many(column):
                    cut.append(column)
                    continue
                part, why = _take(column, len(taken))
                if len(part) < len(taken):
                    failure = why or _ended(name, start + len(part))
                    del taken[len(part) :]
                cut.append(part)
            cut = [part[: len(taken)] if type(part) is list else part for part in cut]
            if taken or failure is not None:
                yield start, taken, tuple(cut), failure
            if failure is not None or len(taken) < STREAM_ROWS:
                return
            start += len(taken)

    def streamed(self) -> Iterator[tuple[Any, ...]]:
        """The rows of an iterator, as tuples of value, key, and the other columns.

        A row is taken from its iterator only when it is needed. So a generator may reuse an object
        or a buffer for its next row.
        """
        numbers = count()  # the last column: as many are taken as there were whole rows before

        def too_few(name: str) -> Iterator[Any]:
            yield from ()
            raise _ended(name, next(numbers))

        columns = [
            chain(c, too_few(name)) if _is_many(c) else repeat(c)
            for name, c in zip(_NAMES, self._columns, strict=True)
        ]
        return zip(self._values, *columns, numbers, strict=False)

    def _column(self, name: str, column: Any) -> Column:
        """A column with one item per record. It is converted to a list if the values are sized."""
        many = _many(name, column)
        if not self.sized:
            return many if type(many) is not tuple else list(many)
        # One more than there may be: an iterator may be endless.
        limited = not isinstance(many, Sized)
        items = list(islice(many, self.count + 1 if limited else None))
        if len(items) != self.count:
            got = "more" if limited and len(items) > self.count else len(items)
            raise InvalidRecordError(
                f"{name}: expected one for each of {self.count} records, got {got}"
            )
        return items

    def _headers(self, headers: Any) -> Column:
        if headers is None:
            return None
        if isinstance(headers, Mapping) or (
            isinstance(headers, list | tuple) and all(_is_pair(pair) for pair in headers)
        ):
            return freeze_headers(headers) or None
        return self._column("headers", headers)

    def _places(self, partitions: Any) -> Column:
        if partitions is None or _is_number(partitions):
            return check_partition(partitions)
        return self._column("partitions", partitions)

    def _times(self, timestamps_ms: Any) -> Column:
        if timestamps_ms is None or _is_number(timestamps_ms):
            return check_timestamp(timestamps_ms)
        return self._column("timestamps_ms", timestamps_ms)


_NAMES = ("keys", "headers", "partitions", "timestamps_ms")


def _ended(name: str, records: int) -> InvalidRecordError:
    return InvalidRecordError(f"{name}: ended after {records} records, before the values did")


def _many(name: str, column: Any) -> Any:
    if type(column) is list:
        return column
    one = isinstance(column, str | bytes | bytearray | memoryview | Mapping)
    if one or not isinstance(column, Iterable):
        raise RecordTypeError(
            f"{name}: expected a list, tuple or iterator with one item per record, got"
            f" {safe_repr(column)}"
        )
    return column


def _is_many(column: Column) -> bool:
    return column is not None and type(column) is not tuple and not _is_number(column)


def _is_number(column: Any) -> bool:
    return hasattr(column, "__index__") and not isinstance(column, Iterable)


def _is_pair(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)


def _take(column: Iterator[Any], count: int) -> tuple[list[Any], BaseException | None]:
    """At most ``count`` items, and the exception that the iterator raised after them, if any."""
    taken: list[Any] = []
    try:
        taken.extend(islice(column, count))  # items before an exception stay in the list
    except BaseException as error:
        return taken, error
    return taken, None


class RowChecks:
    """The checks of one bulk call. Their errors contain the number of the record.

    ``start`` is the number of the first record of the block that is being checked.
    ``refuse_too_large`` raises for a record that no request could hold.
    """

    def __init__(
        self,
        topic: str,
        refuse_too_large: Callable[[ProducerRecord, BytesLike | None, BytesLike | None], None],
    ) -> None:
        self.start = 0
        self._topic = topic
        self._refuse_too_large = refuse_too_large

    def payload(self, row: int, field: str, data: Any) -> bytes | None:
        """A key or value as bytes. Copies buffers, which may change before they are written."""
        record = ProducerRecord(self._topic, **{field: data})
        key, value, _ = self._numbered(row, lambda: NO_SERIALIZERS.apply(record))
        found = key if field == "key" else value
        return None if found is None else memoryview(found).tobytes()

    def partition(self, row: int, partition: Any) -> int | None:
        """A partition number of any integer type, or None."""
        return self._numbered(row, lambda: check_partition(partition))

    def timestamp(self, row: int, timestamp_ms: Any) -> int | None:
        """A timestamp of any integer type, or None."""
        return self._numbered(row, lambda: check_timestamp(timestamp_ms))

    def headers(self, row: int, headers: Any) -> tuple[Header, ...]:
        """The headers of one record, as an immutable tuple."""
        return self._numbered(row, lambda: freeze_headers(headers))

    def size(
        self,
        row: int,
        key: BytesLike | None,
        value: BytesLike | None,
        headers: tuple[Header, ...],
    ) -> None:
        """Raise if a record is too large for a request or for the buffer memory."""
        record = ProducerRecord(self._topic, headers=headers)
        self._numbered(row, lambda: self._refuse_too_large(record, key, value))

    def _numbered(self, row: int, check: Callable[[], T]) -> T:
        try:
            return check()
        except KprodError as error:
            numbered = type(error)(f"record {self.start + row}: {error}")
            numbered.record = self.start + row
            raise numbered from None


def check_rows(rows: Rows, chunk: ObjectChunk, checks: RowChecks) -> None:
    """Raise the error of ``send`` for the first row that cannot be queued."""
    for start, values, columns, _ in rows.blocks():
        checks.start = start
        chunk.load(values, *columns)


def send_rows(parts: BulkParts, topic: str, rows: Rows, checks: RowChecks) -> BulkDelivery:
    """Queue rows for a producer without serializers, interceptors or a custom partitioner.

    See ``KafkaProducer.send_many``.
    """
    chunk = ObjectChunk(BLOCK_ROWS, parts.largest, checks)
    if rows.sized and not rows.all_plain(parts.largest):
        check_rows(rows, chunk, checks)
    writing = BulkWriting(parts, topic)
    writing.await_partition(max(rows.largest_partition, chunk.largest_partition))
    delivery = BulkDelivery(writing.sent)
    with Accounted(delivery, writing.finish):
        for start, values, columns, ended_by in rows.blocks():
            checks.start, failure = start, ended_by
            try:
                chunk.load(values, *columns)
            except BaseException as error:
                failure = error
            if failure is None or isinstance(failure, Exception):  # Ctrl-C must not wait for this
                writing.write(chunk)  # the rows before the one that failed
            if failure is not None:
                raise failure
    return delivery
