"""Who compresses which batch: the sender, or a caller that is ahead of it.

Compressing takes longer than all else that is done to a batch. As a rule the sender does it, when
it takes a batch from its queue. But a caller that has filled one while others already wait for that
compresses it first, as the sender has enough to do, and it is still in the caller's cache. So both
are busy, the interpreter is free for the sender meanwhile, and no other thread is made for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kprod.buffer.compression import Compressor
from kprod.sender_log import SenderLog
from kprod_ext import hold_signals
from kprod_ext.batch import ProducerBatch

log = SenderLog(__name__)

LEFT_TO_THE_SENDER = 1
"""So many batches may wait before callers begin to help: what the sender takes next."""


class BatchCompression:
    """Full batches that are still to be compressed, each by one thread. Any thread.

    ``wake`` lets the sender look, also when a caller has compressed what it wanted meanwhile.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()  # guards all below
        self._waiting: dict[ProducerBatch, Compressor] = {}  # in the order of filling
        self._at_work: dict[ProducerBatch, bool] = {}  # by callers; True: the sender wants it

    def offer(self, batch: ProducerBatch, compress: Compressor) -> None:
        """``batch`` takes no more records."""
        with self._lock:
            if not batch.is_taken:
                self._waiting[batch] = compress

    def take(self, batch: ProducerBatch) -> bool:
        """Whether the sender may have ``batch``; if not, it will be woken when it may.

        ``batch.is_taken`` was set before, so that the batch is not offered afterwards.
        """
        with self._lock:
            if batch in self._at_work:
                self._at_work[batch] = True
                return False
            self._waiting.pop(batch, None)
            return True

    def compress(self, batch: ProducerBatch, compress: Compressor | None) -> None:
        """Compress ``batch``, which the sender takes, unless a caller did."""
        try:
            batch.compress(compress)
        except Exception:  # of the codec: a batch that is never sent would never have an outcome
            log.exception("a batch of %s could not be compressed; it is sent as it is", batch.tp)
            batch.compress(bytes)

    def forget(self, batch: ProducerBatch) -> None:
        """``batch`` has left its queue. Who compresses it goes on, in memory that stays its own."""
        with self._lock:
            self._waiting.pop(batch, None)

    def help(self) -> None:
        """Compress the youngest batch if the sender has others to do. For callers; no lock held.

        Raises what signal handlers raise.
        """
        if len(self._waiting) > LEFT_TO_THE_SENDER:
            self._wake()
            hold_signals(self._compress_one)

    def _compress_one(self) -> None:
        with self._lock:
            if len(self._waiting) <= LEFT_TO_THE_SENDER:
                return
            batch, compress = self._waiting.popitem()
            self._at_work[batch] = False
        try:
            batch.compress(compress)
        except Exception:
            pass  # the sender, whose turn it is again, meets it, too, and tells of it
        finally:
            with self._lock:
                wanted = self._at_work.pop(batch)
            if wanted:
                self._wake()
