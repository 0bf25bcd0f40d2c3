"""The workload of a measurement: the number, content and rate of records, and the call."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kprod.cli.record_lines import LINE, pieces

if TYPE_CHECKING:
    from kprod.producer import KafkaProducer


DISTINCT = 1000
"""Number of different values, which are sent in rotation: a codec needs some variety."""

DISTINCT_BYTES = 16_000_000
"""Limit of the bytes of all these values together."""

SEED = 2013
MOST_AT_ONCE = 5_000
PACES_A_SECOND = 500


class Chunk(NamedTuple):
    """Records that are sent without reading the clock in between. Without keys, ``keys`` is None.

    ``start`` is the number of records of the workload before this chunk.
    """

    start: int
    values: Sequence[bytes]
    keys: Sequence[bytes] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Records for one topic. Immutable.

    ``values`` are sent in rotation. ``keys`` is the number of different keys; 0 means records
    without keys. Key number ``n`` is ``b"key-n"``. ``rate`` is the number of records per second;
    None means as many as possible.
    """

    topic: str
    records: int
    values: Sequence[bytes]
    keys: int = 0
    rate: float | None = None

    def chunks(self, most: int) -> Iterator[Chunk]:
        """All records in order: at most ``most`` at a time, and fewer if the rate is low."""
        size = most
        if self.rate is not None:
            size = max(1, min(most, int(self.rate / PACES_A_SECOND)))
        values = _ring(self.values, size)
        keys = _ring(self.distinct_keys(), size)
        for start in range(0, self.records, size):
            count = min(size, self.records - start)
            cut = _cut(keys, start, count) if keys else None
            yield Chunk(start, _cut(values, start, count), cut)

    def distinct_keys(self) -> list[bytes]:
        """Every key, in the order in which they are used."""
        return [b"key-%d" % number for number in range(self.keys)]

    def payload_bytes(self, records: int) -> int:
        """The bytes of the values of the first ``records`` records."""
        rounds, rest = divmod(records, len(self.values))
        sizes = [len(value) for value in self.values]
        return rounds * sum(sizes) + sum(sizes[:rest])


def letters(size: int) -> list[bytes]:
    """Values of ``size`` random capital letters, the same in every run."""
    dice = random.Random(SEED)
    alphabet = string.ascii_uppercase
    count = max(1, min(DISTINCT, DISTINCT_BYTES // max(size, 1)))
    return ["".join(dice.choices(alphabet, k=size)).encode() for _ in range(count)]


def lines_of(file: Path) -> list[bytes]:
    """Each line of the file as a value. Raises ValueError for an empty file."""
    lines = [line for line in pieces([file.read_bytes()], LINE) if line is not None]
    if not lines:
        raise ValueError(f"{file} has no lines")
    return lines


def _ring(items: Sequence[bytes], size: int) -> Sequence[bytes]:
    """The items, repeated until there are at least ``size`` of them."""
    return items if len(items) >= size or not items else list(items) * -(-size // len(items))


def _cut(ring: Sequence[bytes], start: int, count: int) -> Sequence[bytes]:
    """``count`` items of the cyclic sequence from position ``start``, at most one cycle."""
    at = start % len(ring)
    piece = ring[at : at + count]
    return piece if len(piece) == count else [*piece, *ring[: count - len(piece)]]


SendChunk: TypeAlias = Callable[[Chunk], object]
"""Queues all records of a chunk but the first; a chunk has at least two."""


def _one_by_one(producer: KafkaProducer, workload: Workload) -> SendChunk:
    send, topic = producer.send, workload.topic

    def rest(chunk: Chunk) -> None:
        if chunk.keys is None:
            for value in chunk.values[1:]:
                send(topic, value)
        else:
            for value, key in zip(chunk.values[1:], chunk.keys[1:], strict=True):
                send(topic, value, key)

    return rest


def _many_at_once(producer: KafkaProducer, workload: Workload) -> SendChunk:
    def rest(chunk: Chunk) -> None:
        keys = None if chunk.keys is None else chunk.keys[1:]
        producer.send_many(workload.topic, chunk.values[1:], keys=keys)

    return rest


def _columns(producer: KafkaProducer, workload: Workload) -> SendChunk:
    """Send record batches that are slices of columns prepared beforehand."""
    from pyarrow import RecordBatch

    values = _column(workload.values)
    keys = _column(workload.distinct_keys()) if workload.keys else None

    def rest(chunk: Chunk) -> None:
        start, count = chunk.start + 1, len(chunk.values) - 1
        columns = {"value": values.slice(start % len(workload.values), count)}
        if keys is not None:
            columns["key"] = keys.slice(start % workload.keys, count)
        rows = RecordBatch.from_pydict(columns)
        key = None if keys is None else "key"
        producer.send_arrow(workload.topic, rows, value="value", key=key)

    return rest


def _column(items: Sequence[bytes]) -> Any:
    """The items in an Arrow array, repeated so that ``MOST_AT_ONCE`` follow each original one."""
    import pyarrow

    rounds = 1 + -(-MOST_AT_ONCE // len(items))
    return pyarrow.array((list(items) * rounds)[: len(items) + MOST_AT_ONCE], pyarrow.binary())


class SendingCall(NamedTuple):
    """A way of sending a workload with one producer. For one thread only.

    Up to ``most`` records are sent between two readings of the clock, and the latency of the first
    of these is measured.
    """

    most: int
    bind: Callable[[KafkaProducer, Workload], SendChunk]


CALLS = {
    "send": SendingCall(200, _one_by_one),
    "send_many": SendingCall(MOST_AT_ONCE, _many_at_once),
    "send_arrow": SendingCall(MOST_AT_ONCE, _columns),
}
