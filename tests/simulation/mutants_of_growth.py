"""Broken growth of batches that cannot leave yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kprod.sender.broker import Window
from kprod.sender.connection import Buffers
from kprod.sender.partition import LAST_SEQUENCE, Partition
from kprod.wire.produce import encode_produce_request
from kprod_ext import AppendContext
from kprod_ext.batch import ProducerBatch

AT_ONCE = 1 << 30
"""Bytes that were answered: more than any window has."""


class Outgrows(AppendContext):
    """A batch knows no end while it waits."""

    def __init__(self, pool: Any, *, batch_size: int, batch_max_size: int, **parts: Any) -> None:
        most = batch_max_size if batch_max_size == batch_size else 2 * batch_max_size
        super().__init__(pool, batch_size=batch_size, batch_max_size=most, **parts)


class KeepsChunks(ProducerBatch):
    """What a batch grew into is not given back."""

    def release(self) -> None:
        if not self.buffer.chunk_bytes:
            super().release()


def _changed(request: Iterable[Any], change: Callable[[list[Any]], Sequence[Any]]) -> Buffers:
    changed: list[Any] = []
    pieces: list[Any] = []
    for buffer in (*encode_produce_request(*request), b""):
        if isinstance(buffer, memoryview):
            pieces.append(buffer)
            continue
        changed += [*change(pieces), buffer]
        pieces = []
    return changed


def swaps_pieces(*request: Any) -> Buffers:
    """A batch lies in several pieces, which are sent in the wrong order."""
    return _changed(request, lambda pieces: pieces[::-1])


def repeats_a_piece(*request: Any) -> Buffers:
    """Where one piece of a batch ends, the same one begins again."""
    return _changed(request, lambda pieces: [pieces[0]] * len(pieces) if pieces else [])


class CountsEarly(Partition):
    """The records that joined a batch after it was to wait get no numbers."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._counted: dict[ProducerBatch, int] = {}

    def may_send(self, batch: ProducerBatch, now: float) -> bool:
        admitted = super().may_send(batch, now)
        if batch not in self._counted:
            self._counted[batch] = batch.record_count
        return admitted

    def _number(self, batch: ProducerBatch) -> None:
        first = self.next_sequence
        super()._number(batch)
        counted = self._counted.get(batch, batch.record_count)
        self.next_sequence = (first + counted) & LAST_SEQUENCE


class StaysWide(Window):
    """A lost connection says nothing about how much the next one carries."""

    def failed(self, nbytes: int, sent_at: float, now: float, *, lost: bool) -> None:
        super().failed(nbytes, sent_at, now, lost=False)


class StartsWide(Window):
    """Growing is not earned: from the start, and after each loss, as much as there may be."""

    def __init__(self, *limits: Any) -> None:
        super().__init__(*limits)
        self.in_flight += AT_ONCE
        self.answered(AT_ONCE, 0.0)

    def failed(self, nbytes: int, sent_at: float, now: float, *, lost: bool) -> None:
        super().failed(nbytes, sent_at, now, lost=False)
