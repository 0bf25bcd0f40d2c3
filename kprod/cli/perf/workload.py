"""What a measurement sends: how many records, of what, how fast, and with which call."""

from __future__ import annotations

import random
import string
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from kprod.producer import KafkaProducer


DISTINCT = 1000
"""Different values that are sent in turn, so that a codec has something to do."""

DISTINCT_BYTES = 16_000_000
"""Bytes of all of them at most."""

SEED = 2013
PACES_A_SECOND = 500


class Chunk(NamedTuple):
    """Records that are sent without looking at the clock in between; ``keys`` None: without.

    ``start`` is how many records of the workload come before.
    """

    start: int
    values: Sequence[bytes]
    keys: Sequence[bytes] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Records for one topic. Immutable.

    ``values`` are sent in turn, again and again. ``keys`` is the number of different keys, 0 for
    records without; key ``n`` is ``b"key-n"``. ``rate`` is records a second, None for as many as
    will go.
    """

    topic: str
    records: int
    values: Sequence[bytes]
    keys: int = 0
    rate: float | None = None

    def chunks(self, most: int) -> Iterator[Chunk]:
        """All records in turn, at most ``most`` at a time, and fewer when the rate is slow."""
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
        """Bytes of the values of the first ``records`` records."""
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
    """Each line of the file as a value. Raises ValueError when there is none."""
    lines = file.read_bytes().splitlines()
    if not lines:
        raise ValueError(f"{file} has no lines")
    return lines


def _ring(items: Sequence[bytes], size: int) -> Sequence[bytes]:
    """The items, repeated until there are at least ``size``."""
    return items if len(items) >= size or not items else list(items) * -(-size // len(items))


def _cut(ring: Sequence[bytes], start: int, count: int) -> Sequence[bytes]:
    """``count`` items from the one that is ``start`` places on, going round; at most one round."""
    at = start % len(ring)
    piece = ring[at : at + count]
    return piece if len(piece) == count else [*piece, *ring[: count - len(piece)]]


Told = Callable[[object], object]
"""Called with the outcome, KprodError or not, of what is watched, in the thread for callbacks."""


class SendingCall(ABC):
    """One way of sending the records of a workload with one producer. Thread: one.

    The first record of a chunk is watched. It goes by ``send``, whatever sends the others: then its
    latency means the same everywhere, and it waits for what is sent with it all the same.
    """

    most: ClassVar[int]
    """Records between two looks at the clock, and so between two that are watched."""

    def __init__(self, producer: KafkaProducer, workload: Workload) -> None:
        self._producer = producer
        self._topic = workload.topic

    def send(self, chunk: Chunk, told: Told) -> None:
        """Queue all records; ``told`` is called when the one that is watched has its outcome."""
        key = None if chunk.keys is None else chunk.keys[0]
        self._producer.send(self._topic, chunk.values[0], key).add_both(told)
        if len(chunk.values) > 1:
            self._send_rest(chunk)

    @abstractmethod
    def _send_rest(self, chunk: Chunk) -> None:
        """Queue all records but the first; there is one at least."""


class OneByOne(SendingCall):
    """``send`` for each record."""

    most = 200

    def _send_rest(self, chunk: Chunk) -> None:
        send, topic = self._producer.send, self._topic
        if chunk.keys is None:
            for value in chunk.values[1:]:
                send(topic, value)
        else:
            for value, key in zip(chunk.values[1:], chunk.keys[1:], strict=True):
                send(topic, value, key)


class ManyAtOnce(SendingCall):
    """``send_many`` with lists."""

    most = 5_000

    def _send_rest(self, chunk: Chunk) -> None:
        keys = None if chunk.keys is None else chunk.keys[1:]
        self._producer.send_many(self._topic, chunk.values[1:], keys=keys)


class Columns(SendingCall):
    """``send_arrow`` with record batches, which are slices of columns that are made beforehand."""

    most = 5_000

    def __init__(self, producer: KafkaProducer, workload: Workload) -> None:
        super().__init__(producer, workload)
        self._values = _column(workload.values, self.most)
        self._distinct_values = len(workload.values)
        self._keys = _column(workload.distinct_keys(), self.most) if workload.keys else None
        self._distinct_keys = workload.keys

    def _send_rest(self, chunk: Chunk) -> None:
        from pyarrow import RecordBatch

        start, count = chunk.start + 1, len(chunk.values) - 1
        columns = {"value": self._values.slice(start % self._distinct_values, count)}
        if self._keys is not None:
            columns["key"] = self._keys.slice(start % self._distinct_keys, count)
        rows = RecordBatch.from_pydict(columns)
        self._producer.send_arrow(
            self._topic, rows, value="value", key=None if self._keys is None else "key"
        )


def _column(items: Sequence[bytes], most: int) -> Any:
    """The items in an Arrow array, and from the first again, so that ``most`` follow each."""
    import pyarrow

    rounds = 1 + -(-most // len(items))
    return pyarrow.array((list(items) * rounds)[: len(items) + most], pyarrow.binary())


CALLS: dict[str, type[SendingCall]] = {
    "send": OneByOne,
    "send_many": ManyAtOnce,
    "send_arrow": Columns,
}
