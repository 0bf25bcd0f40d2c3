"""Questions about topics that the producer need not write to, for callers that wait"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence

from kprod.clock import in_seconds
from kprod.errors import KprodError, KprodTimeoutError
from kprod.latch import Latch
from kprod.wire.control import MetadataReply
from kprod_ext import Mutex


class Question:
    """Of which ``topics`` a broker shall tell, None for all. ``answered`` or ``failed`` ends it."""

    def __init__(self, topics: Sequence[str] | None) -> None:
        self.topics = topics
        self.asked = False  # a request is on its way
        self.told = Latch()
        self.reply: MetadataReply | None = None
        self.error: KprodError | None = None

    def answered(self, reply: MetadataReply) -> None:
        """A broker has answered."""
        self.reply = reply
        self.told.open()

    def failed(self, error: KprodError) -> None:
        """There will be no answer."""
        self.error = error
        self.told.open()


class Questions:
    """Those without an end, oldest first. Thread-safe; the cluster's snapshot is left alone."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = Mutex()  # guards both
        self._open: deque[Question] = deque()
        self._ended_by: KprodError | None = None

    # Any thread -----------------------------------------------------------------------------------

    def ask(self, topics: Sequence[str] | None, timeout: float) -> MetadataReply:
        """What a broker says, waiting at most ``timeout`` seconds for it.

        The reply's error codes, of topics and of the whole, are not looked at. Raises
        KprodTimeoutError, ProducerClosedError when the producer ends, and what else the request
        failed with.
        """
        question = Question(topics)
        with self._lock:
            if self._ended_by is not None:
                raise copy.copy(self._ended_by)
            self._open.append(question)
        self._wake()
        try:
            question.told.wait(timeout)
        finally:
            with self._lock:
                if question in self._open:
                    self._open.remove(question)
        if question.error is not None:
            raise question.error
        if question.reply is None:
            raise KprodTimeoutError(f"no broker has answered within {in_seconds(timeout)}")
        return question.reply

    # The sender's thread --------------------------------------------------------------------------

    def next(self) -> Question | None:
        """The oldest that is not asked; None when all are."""
        if not self._open:  # what is added meanwhile wakes the sender
            return None
        with self._lock:
            return next((question for question in self._open if not question.asked), None)

    def close(self, error: KprodError) -> None:
        """Nobody asks any more: end all in ``error``, and refuse others."""
        with self._lock:
            self._ended_by = error
            left = list(self._open)
        for question in left:
            question.failed(error)
