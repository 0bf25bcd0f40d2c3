"""Items of an RDD, sent by the slice: what is done once for a slice is not done for every row."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Final, TypeAlias

from kprod.spark.record_shapes import RecordShapes
from kprod.spark.task_producer import TaskProducer

MOST_ROWS: Final = 1024
MOST_BYTES: Final = 1 << 20
SLOW_SECONDS: Final = 0.01
"""A slice that has more bytes, or took longer to come, is followed by one of half its rows."""
_NONE: Final = type(None)
_names = attrgetter("__fields__")

Column: TypeAlias = list[Any]
Payloads: TypeAlias = tuple[Column, Column | None]
"""Values and keys."""


class RowSlices:
    """Sends the items of one task, those that have key and value alone by bulk calls. Thread: one.

    Anything else is sent row by row, in its place, and keeps slices short. Not for serializers or
    interceptors, which look at each record.
    """

    def __init__(
        self,
        shapes: RecordShapes,
        producer: TaskProducer,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self._shapes = shapes
        self._read = shapes.reader()
        self._producer = producer

    def send_all(self, items: Iterable[Any]) -> None:
        """Send every item. Raises as ``TaskProducer.send``, and RecordTypeError."""
        remaining, size = iter(items), 1
        while True:
            started = self._now()
            rows = list(islice(remaining, size))
            if not rows:
                return
            quick = self._now() - started <= SLOW_SECONDS
            small = self._send(rows) <= MOST_BYTES
            size = min(size * 2, MOST_ROWS) if quick and small else max(1, size // 2)

    def _send(self, rows: list[Any]) -> float:
        """How many bytes they had; infinitely many if they went one by one."""
        topic = self._shapes.topic
        payloads = None if topic is None else self._payloads(rows)
        if topic is None or payloads is None:
            for arguments in map(self._read, rows):
                self._producer.send(*arguments)
            return float("inf")
        return self._producer.send_many(topic, *payloads)

    def _payloads(self, rows: list[Any]) -> Payloads | None:
        """None when an item has more than key and value, or is not like the others."""
        kind = type(rows[0])
        if len(set(map(type, rows))) > 1:
            return None
        if kind is bytes or kind is str:
            values = _as_bytes(rows)
            return None if values is None else (values, None)
        places = self._places(rows) if issubclass(kind, tuple) else None
        if places is None or len(set(map(len, rows))) > 1:
            return None
        return _chosen(list(zip(*rows, strict=True)), *places)

    def _places(self, rows: list[Any]) -> tuple[int, int] | None:
        """Where tuples that are alike have key (-1: nowhere) and value."""
        names = getattr(rows[0], "__fields__", None)  # what makes a Row of a tuple
        if names is None:
            return (0, 1) if len(rows[0]) == 2 else None
        if len(names) != len(rows[0]) or list(map(_names, rows)).count(names) < len(rows):
            return None
        return self._shapes.places(names)


def _chosen(columns: Sequence[Sequence[Any]], key_at: int, value_at: int) -> Payloads | None:
    values = _as_bytes(columns[value_at])
    if values is None or key_at < 0:
        return None if values is None else (values, None)
    keys = _as_bytes(columns[key_at])
    return None if keys is None else (values, keys)


def _as_bytes(column: Sequence[Any]) -> Column | None:
    """The column as bytes; None when it holds anything but bytes or text, of one type."""
    kinds = set(map(type, column))
    nulls = _NONE in kinds
    kinds.discard(_NONE)
    if kinds <= {bytes}:
        return list(column)
    if kinds == {str}:
        encode: Any = str.encode
    elif kinds == {bytearray}:
        encode = bytes
    else:
        return None
    return [x if x is None else encode(x) for x in column] if nulls else list(map(encode, column))
