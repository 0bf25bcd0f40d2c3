"""What a group has committed, asked by callers of a transactional producer, answered by rounds."""

from __future__ import annotations

from collections import deque

from kprod.errors import KprodError
from kprod.latch import Latch
from kprod.types import TopicPartition
from kprod.wire.transactions import CommittedOffset
from kprod_ext import Mutex


class OffsetQuestion:
    """The offsets of one group. ``ended`` opens once it is answered, or never will be.

    ``waits``: for transactions that are open, and may change one; else such an offset is none.
    """

    __slots__ = ("ended", "error", "found", "group_id", "partitions", "waits")

    def __init__(
        self, group_id: str, partitions: tuple[TopicPartition, ...], *, waits: bool = True
    ) -> None:
        self.group_id = group_id
        self.partitions = partitions
        self.waits = waits
        self.ended = Latch()
        self.found: list[CommittedOffset] = []
        self.error: KprodError | None = None


class OffsetQuestions:
    """Those without an answer, oldest first. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Mutex()  # guards the one below
        self._open: deque[OffsetQuestion] = deque()

    def __bool__(self) -> bool:
        return bool(self._open)

    def ask(self, question: OffsetQuestion) -> None:
        """The caller waits for ``question.ended``, and withdraws it if that takes too long."""
        with self._lock:
            self._open.append(question)

    def withdraw(self, question: OffsetQuestion) -> None:
        """Nobody waits for it any more."""
        with self._lock:
            if question in self._open:
                self._open.remove(question)

    def next(self) -> OffsetQuestion | None:
        """The oldest one."""
        with self._lock:
            return self._open[0] if self._open else None

    def answered(self, question: OffsetQuestion, found: list[CommittedOffset]) -> None:
        """A coordinator has told."""
        question.found = found
        self.withdraw(question)
        question.ended.open()

    def failed(self, question: OffsetQuestion, error: KprodError) -> None:
        """It will not be answered."""
        question.error = error
        self.withdraw(question)
        question.ended.open()

    def end(self, error: KprodError) -> None:
        """The producer has ended: nothing is answered any more."""
        while (question := self.next()) is not None:
            self.failed(question, error)
