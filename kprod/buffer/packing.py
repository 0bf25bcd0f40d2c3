"""Who compresses which batch: the sender, or a caller that is ahead of it.

Compressing takes longer than all else that is done to a batch. As a rule the sender does it, when
it takes a batch from its queue. But a caller that has filled one while others already wait for that
compresses it first, as the sender has enough to do, and it is still in the caller's cache. So both
are busy, the interpreter is free for the sender meanwhile, and no other thread is made for it.

After each call of a codec the sender needs the interpreter, and waits until a caller that fills the
next batch lets go of it. So where a codec takes several batches at once, the sender gives it some.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from kprod.buffer.batch import ProducerBatch
from kprod.buffer.compression import Compressor, Several, several
from kprod_ext import MemoryRecordsBuilder, hold_signals, pack_several

log = logging.getLogger(__name__)

LEFT_TO_THE_SENDER = 1
"""So many batches may wait before callers begin to help: what the sender takes next."""

IN_A_ROW = 3
"""As many batches the sender gives to a codec at once, and then as many are left to it."""

LARGEST_ROW = 4 * 1024 * 1024
"""Bytes of records after which no other batch joins, as brokers are not heard meanwhile."""


class Packing:
    """Full batches that are still to be compressed, each by one thread. Any thread.

    ``wake`` lets the sender look, also when a caller has compressed what it wanted meanwhile.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()  # guards all below
        self._waiting: dict[ProducerBatch, Compressor] = {}  # in the order of filling
        self._at_work: dict[ProducerBatch, bool] = {}  # by callers; True: the sender wants it
        self._left = LEFT_TO_THE_SENDER  # with the codec that was used last

    def offer(self, batch: ProducerBatch, compress: Compressor) -> None:
        """``batch`` takes no more records. The caller holds the lock of its queue."""
        with self._lock:
            self._waiting[batch] = compress
            self._left = LEFT_TO_THE_SENDER if several(compress) is None else IN_A_ROW

    def take(self, batch: ProducerBatch) -> bool:
        """Whether the sender may have ``batch``; if not, it will be woken when it may.

        The sender holds the lock of the queue, so that the batch is not offered afterwards.
        """
        with self._lock:
            if batch in self._at_work:
                self._at_work[batch] = True
                return False
            self._waiting.pop(batch, None)
            return True

    def pack(self, batch: ProducerBatch, compress: Compressor | None) -> None:
        """Compress ``batch``, which the sender takes, with others that wait if the codec can."""
        if batch.builder.is_packed:
            return
        at_once = several(compress)
        if at_once is not None:
            self._pack_row(batch, compress, at_once)
        try:
            batch.builder.pack(compress)
        except Exception:  # of the codec: a batch that is never sent would never have an outcome
            log.exception("a batch of %s could not be compressed; it is sent as it is", batch.tp)
            batch.builder.pack(bytes)

    def _pack_row(
        self, batch: ProducerBatch, compress: Compressor | None, at_once: Several
    ) -> None:
        """Compress ``batch`` and others. What is not compressed afterwards is still to be."""
        # Out of those that wait: callers leave them alone, and the sender is here.
        builders = [batch.builder, *self._others(compress, batch.builder.uncompressed_bytes)]
        if len(builders) > 1:
            # What goes wrong the sender meets again with each of them, and tells of it.
            with suppress(Exception):
                pack_several(builders, at_once)

    def _others(self, compress: Compressor | None, size: int) -> list[MemoryRecordsBuilder]:
        """The oldest that wait for ``compress`` as well, besides ``size`` bytes of records."""
        others: list[ProducerBatch] = []
        with self._lock:
            for waiting, its in self._waiting.items():
                size += waiting.builder.uncompressed_bytes
                if its is not compress or size > LARGEST_ROW:
                    break
                others.append(waiting)
                if len(others) == IN_A_ROW - 1:
                    break
            for other in others:
                del self._waiting[other]
        return [other.builder for other in others]

    def forget(self, batch: ProducerBatch) -> None:
        """``batch`` has left its queue. Who compresses it goes on, in memory that stays its own."""
        with self._lock:
            self._waiting.pop(batch, None)

    def help(self) -> None:
        """Compress the youngest batch if the sender has others to do. For callers; no lock held.

        Raises what signal handlers raise.
        """
        if len(self._waiting) > self._left:
            self._wake()
            hold_signals(self._pack_one)

    def _pack_one(self) -> None:
        with self._lock:
            if len(self._waiting) <= self._left:
                return
            batch, compress = self._waiting.popitem()
            self._at_work[batch] = False
        try:
            batch.builder.pack(compress)
        except Exception:
            pass  # the sender, whose turn it is again, meets it, too, and tells of it
        finally:
            # Not by ``with``, which takes memory: without, the batch would stay here for ever.
            self._lock.acquire()
            wanted = self._at_work.pop(batch)
            self._lock.release()
            if wanted:
                self._wake()
