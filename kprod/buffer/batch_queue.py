"""The batches of one partition, oldest first (the per-partition deque of Kafka's accumulator)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from kprod.buffer.batch import ProducerBatch
from kprod.buffer.delivery import Wait
from kprod.buffer.future import FutureRecordMetadata
from kprod.buffer.packing import Packing
from kprod.buffer.place import Post, Standing
from kprod.buffer.queue_settings import QueueSettings
from kprod.cluster.snapshot import Leadership
from kprod.types import BytesLike, Header, TopicPartition
from kprod_ext.open_batch import OpenBatch


class Appended:
    """What an append did.

    ``batch_ready``: every batch of the partition is full, so the sticky partitioner may move on.
    ``wake_sender``: a batch will not grow any more, so the sender has something to send.
    ``linger``: a batch was created, which the sender has to look at within so many seconds; None:
    none was.
    """

    __slots__ = ("batch_ready", "future", "linger", "nbytes", "wake_sender")

    def __init__(
        self,
        future: FutureRecordMetadata,
        nbytes: int,
        batch_ready: bool,
        wake_sender: bool,
        linger: float | None,
    ) -> None:
        self.future = future
        self.nbytes = nbytes
        self.batch_ready = batch_ready
        self.wake_sender = wake_sender
        self.linger = linger


def _nobody() -> None:
    """Hurry nobody."""


class BatchQueue(Standing):
    """Appends at the tail by any thread; takes and retries at the head by the sender's thread only.

    Records enter through ``open_batch``, which has a lock of its own: the fast lane appends there
    without this queue's. Only the sender's thread removes batches, so the head it has looked at
    stays the head until it takes it.

    ``hurry`` and ``wait`` are those of the deliveries of its batches. ``leader``, ``post``,
    ``found_in`` and ``look`` are for ``Attention`` to remember what it saw.
    """

    __slots__ = (
        "_batches",
        "_drained",
        "_newest",
        "acks",
        "found_in",
        "hurry",
        "leader",
        "linger",
        "lock",
        "look",
        "open_batch",
        "packing",
        "post",
        "settings",
        "tp",
        "wait",
    )

    def __init__(self, tp: TopicPartition, settings: QueueSettings) -> None:
        super().__init__()
        self.tp = tp
        self.settings = settings
        self.linger = settings.linger
        self.acks = settings.acks
        self.hurry: Callable[[], None] = _nobody
        self.wait: Wait | None = None
        self.packing: Packing | None = None
        self.leader: Leadership | None = None
        self.post: Post | None = None
        self.found_in = 0
        self.look = 0
        self.open_batch = OpenBatch(FutureRecordMetadata)
        self.lock = threading.Lock()  # guards the two below, and which batch is open
        self._batches: deque[ProducerBatch] = deque()
        self._newest: ProducerBatch | None = None
        self._drained = 0

    # Any thread -----------------------------------------------------------------------------------

    def append_at_once(
        self,
        timestamp_ms: int,
        key: BytesLike | None,
        value: BytesLike | None,
        headers: Sequence[Header],
    ) -> Appended | None:
        """As ``try_append``, for a caller that does not hold ``lock``."""
        self.lock.acquire()  # as in ``head``
        try:
            return self.try_append(timestamp_ms, key, value, headers)
        finally:
            self.lock.release()

    # Any thread, holding ``lock`` -----------------------------------------------------------------

    def try_append(
        self,
        timestamp_ms: int,
        key: BytesLike | None,
        value: BytesLike | None,
        headers: Sequence[Header],
    ) -> Appended | None:
        """Append to the open batch if there is one and it has room, else None."""
        newest = self._newest
        if newest is None or newest.builder.closed_for_append:  # as most who come here have seen
            return None
        written = self.open_batch.try_append(timestamp_ms, key, value, headers)
        if written is None:
            return None
        future, nbytes, full = written
        return Appended(future, nbytes, full, full, None)

    def push(
        self,
        batch: ProducerBatch,
        timestamp_ms: int,
        key: BytesLike | None,
        value: BytesLike | None,
        headers: Sequence[Header],
    ) -> Appended:
        """Write a record into a new batch and put it at the tail. The caller holds ``lock``.

        The record is written first: when that raises, the queue is as it was.
        """
        written = batch.write_first(timestamp_ms, key, value, headers)
        if written is None:
            raise AssertionError(f"a new batch of {self.tp} had no room for its first record")
        self._batches.append(batch)
        filled, self._newest = self._newest, batch
        self.open_batch.open(batch.builder, batch.delivery)
        if filled is not None and self.packing is not None and self.settings.compress is not None:
            self.packing.offer(filled, self.settings.compress)
        future, nbytes = written
        full = batch.builder.is_full
        complete = full or len(self._batches) > 1
        return Appended(future, nbytes, full, complete, self.linger)

    def push_filled(self, batch: ProducerBatch) -> None:
        """Put a batch that has records at the tail, and open it. The caller holds ``lock``."""
        self._batches.append(batch)
        self._newest = batch
        self.open_batch.open(batch.builder, batch.delivery)

    def shut(self) -> None:
        """Take no more records into the open batch. The caller holds ``lock``."""
        self.open_batch.shut()

    def holds(self, batch: ProducerBatch) -> bool:
        """True when ``batch`` is queued here. The caller holds ``lock``."""
        return batch in self._batches

    # The sender's thread ------------------------------------------------------------------------

    def has(self, batch: ProducerBatch) -> bool:
        """As ``holds``; waits for a caller that is about to queue it."""
        with self.lock:
            return batch in self._batches

    @property
    def depth(self) -> int:
        """How many batches wait."""
        return len(self._batches)

    @property
    def oldest(self) -> ProducerBatch | None:
        """The oldest batch: without a lock, for nobody but the sender's thread removes one."""
        return self._batches[0] if self._batches else None

    def head(self) -> tuple[ProducerBatch | None, bool]:
        """The oldest batch, and whether it will not grow any more."""
        self.lock.acquire()  # not by ``with``, which takes a compiled module three times as long
        try:
            if not self._batches:
                return None, False
            first = self._batches[0]
            return first, len(self._batches) > 1 or first.builder.is_full
        finally:
            self.lock.release()

    def close_head(self) -> bool:
        """From here on nobody appends to the oldest batch; it is about to be taken.

        False when a caller is compressing it: it is left as it is, and the sender will be woken.
        """
        self.lock.acquire()  # as in ``head``
        try:
            batch = self._batches[0]
            if self.packing is not None and not self.packing.take(batch):
                return False
            self._finish(batch)
            if batch.drain_order is None:
                self._drained += 1
                batch.drain_order = (self._drained,)
            return True
        finally:
            self.lock.release()

    def pack_head(self, batch: ProducerBatch) -> None:
        """Compress ``batch``, after ``close_head``, if it is to be: then it has its final size."""
        if self.packing is not None:
            self.packing.pack(batch, self.settings.compress)

    def take_head(self) -> ProducerBatch:
        """Remove the oldest batch, after ``close_head``, which waited for who was pushing it."""
        return self._batches.popleft()

    def _finish(self, batch: ProducerBatch) -> None:
        """Nobody appends to ``batch`` any more; ``lock`` is held."""
        if batch is self._newest:
            self.open_batch.shut()
            self._newest = None
        batch.builder.close_for_append()

    def _end(self, batch: ProducerBatch) -> None:
        """``batch`` will not be sent any more; ``lock`` is held."""
        self._finish(batch)
        if self.packing is not None:
            self.packing.forget(batch)

    def put_back(self, batch: ProducerBatch) -> None:
        """Queue a taken batch again, in the order of first taking among others that came back."""
        self.lock.acquire()  # not by ``with``: compiled, it cannot bear that memory runs out
        try:
            place = 0
            for waiting in self._batches:
                if waiting.drain_order is None or waiting.drain_order > (batch.drain_order or ()):
                    break
                place += 1
            self._batches.insert(place, batch)
        finally:
            self.lock.release()

    def remove(self, batch: ProducerBatch) -> None:
        """Take out one batch, wherever it stands, if it is queued."""
        with self.lock:
            if batch in self._batches:
                self._batches.remove(batch)

    def take_expired(self, created_before: float) -> list[ProducerBatch]:
        """Remove the batches at the head that were created before a time, oldest first."""
        with self.lock:
            gone: list[ProducerBatch] = []
            while self._batches and self._batches[0].created_at <= created_before:
                batch = self._batches.popleft()
                self._end(batch)
                gone.append(batch)
        return gone

    def take_all(self) -> list[ProducerBatch]:
        """Remove every batch."""
        with self.lock:
            gone = list(self._batches)
            self._batches.clear()
            for batch in gone:
                self._end(batch)
        return gone
