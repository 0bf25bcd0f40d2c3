"""A transaction coordinator, the logs it marks and the offsets it moves, after Apache Kafka 4.2.

Shares no code with the producer. Both protocols: one that is told of partitions, one (``implicit``)
that adds them itself and gives each transaction an epoch.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

UNKNOWN_EPOCH, BAD_STATE, FENCED, OUT_OF_ORDER = 47, 48, 90, 45
PRODUCER_ID = 4000


@dataclass
class Log:
    """One partition: records and markers in order, and what it expects of the producer."""

    items: list[tuple[str, bytes]] = field(default_factory=list)
    epoch: int = -1
    expected: int = 0

    def append(self, epoch: int, sequence: int, value: bytes) -> int:
        """Store a record, once; the error code otherwise."""
        if epoch < self.epoch:
            return UNKNOWN_EPOCH
        if epoch > self.epoch:
            if sequence:
                return OUT_OF_ORDER
            self.epoch, self.expected = epoch, 0
        if sequence < self.expected:
            return 0
        if sequence > self.expected:
            return OUT_OF_ORDER
        self.expected += 1
        self.items.append(("record", value))
        return 0

    def mark(self, epoch: int, kind: str) -> None:
        """End what is open. With a newer epoch nothing of an older one is taken any more."""
        self.items.append((kind, b""))
        if epoch > self.epoch:
            self.epoch, self.expected = epoch, 0

    def committed(self) -> Counter[bytes]:
        """What a reader of committed records sees."""
        seen: Counter[bytes] = Counter()
        pending: list[bytes] = []
        for kind, value in self.items:
            if kind == "record":
                pending.append(value)
                continue
            if kind == "commit":
                seen.update(pending)
            pending.clear()
        return seen


class Coordinator:
    """Of one transactional id. Every method answers with an error code, 0 for none.

    ``fences_late_commits``: a commit that comes after a time-out is answered as one of a fenced
    producer (KAFKA-20785).
    """

    def __init__(self, partitions: int, *, fences_late_commits: bool = False) -> None:
        self.logs = [Log() for _ in range(partitions)]
        self.offsets: dict[int, int] = {}
        self.epoch = -1
        self._fences_late_commits = fences_late_commits
        self.state = "empty"  # "open", "commit", "abort"
        self._former = -1  # the epoch that the last bump was asked for with
        self._added: set[int] = set()
        self._moving: dict[int, int] = {}

    def initialize(self, epoch: int | None) -> int:
        """Give an epoch; what is open is aborted. ``epoch``: of a producer that has one."""
        if epoch is not None and epoch != self.epoch:
            return 0 if epoch == self._former else FENCED
        self._former = -1 if epoch is None else epoch
        self.epoch += 1
        if self.state == "open":
            self._end("abort")
        self.state = "empty"
        return 0

    def add(self, epoch: int, partitions: list[int]) -> int:
        """Partitions are about to be written to; none, for offsets."""
        if epoch != self.epoch:
            return FENCED
        self.state = "open"
        self._added.update(partitions)
        return 0

    def produce(
        self, partition: int, epoch: int, sequence: int, value: bytes, *, implicit: bool
    ) -> int:
        """A record for the open transaction."""
        if epoch != self.epoch:
            return UNKNOWN_EPOCH
        if implicit:
            code = self.logs[partition].append(epoch, sequence, value)
            if not code:
                self.add(epoch, [partition])
            return code
        if self.state != "open" or partition not in self._added:
            return BAD_STATE
        return self.logs[partition].append(epoch, sequence, value)

    def move(self, epoch: int, offsets: dict[int, int], *, implicit: bool) -> int:
        """Offsets for the open transaction."""
        if epoch != self.epoch:
            return UNKNOWN_EPOCH
        if implicit:
            self.add(epoch, [])
        elif self.state != "open":
            return BAD_STATE
        self._moving.update(offsets)
        return 0

    def end(self, epoch: int, kind: str, *, implicit: bool) -> int:
        """Commit or abort; once more is answered as the first time."""
        if implicit and epoch == self.epoch - 1 and self.state in ("commit", "abort"):
            if kind == self.state:
                return 0
            late = kind == "commit"
            return FENCED if late and self._fences_late_commits else BAD_STATE
        if epoch != self.epoch:
            return FENCED
        if self.state != "open":
            if implicit and kind == "abort":
                self.epoch += 1
                self.state = "abort"
                return 0
            return 0 if not implicit and kind == self.state else BAD_STATE
        if implicit:
            self.epoch += 1
        self._end(kind)
        self.state = kind
        return 0

    def takes_abort(self, epoch: int) -> bool:
        """Whether a producer with this epoch may go on, though its transaction was aborted."""
        return epoch == self.epoch - 1 and self.state == "abort"

    def time_out(self) -> None:
        """What is open has lasted too long."""
        if self.state == "open":
            self.epoch += 1
            self._former = -1
            self._end("abort")
            self.state = "abort"

    def _end(self, kind: str) -> None:
        for partition in self._added:
            self.logs[partition].mark(self.epoch, kind)
        if kind == "commit":
            self.offsets.update(self._moving)
        self._added.clear()
        self._moving.clear()
