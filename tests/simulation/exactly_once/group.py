"""The offsets of one consumer group, and who may move them."""

from __future__ import annotations

from collections import Counter

from tests.simulation.exactly_once.marked_log import COMMIT
from tests.simulation.exactly_once.setup import Place, Who

OFFSETS: Place = ("__consumer_offsets", 0)
ILLEGAL_GENERATION, INVALID_EPOCH = 22, 47


class Group:
    """``node``: the broker that coordinates it; ``marks`` as in ``MarkedLog``."""

    def __init__(self) -> None:
        self.node = 0
        self.loaded = True
        self.generation = 1
        self.committed: dict[int, int] = {}  # by partition of what is read
        self.marks: Counter[int] = Counter()
        self._pending: dict[int, dict[int, int]] = {}
        self._epochs: dict[int, int] = {}
        self._era = -1

    def refusal(self, generation: int) -> int:
        """Why a member of that generation may not commit; 0 if it may."""
        return ILLEGAL_GENERATION if generation not in (-1, self.generation) else 0

    def is_open(self, who: Who) -> bool:
        """Whether the producer has offsets here that wait for the end of this transaction."""
        is_present = self._epochs.get(who.producer_id) == who.epoch
        return is_present and who.producer_id in self._pending

    def move(self, who: Who, offsets: dict[int, int]) -> int:
        """Offsets that hold once the transaction is committed; an error code."""
        if who.epoch < self._epochs.get(who.producer_id, -1):
            return INVALID_EPOCH
        self._epochs[who.producer_id] = who.epoch
        self._pending.setdefault(who.producer_id, {}).update(offsets)
        return 0

    def mark(self, who: Who, kind: bytes, era: int) -> bool:
        """The transaction has ended; False for a coordinator that was replaced meanwhile."""
        if era < self._era:
            return False
        self._era = era
        self.marks[who.producer_id] += 1
        if who.epoch >= self._epochs.get(who.producer_id, -1):
            self._epochs[who.producer_id] = who.epoch
            moved = self._pending.pop(who.producer_id, {})
            if kind == COMMIT:
                self.committed.update(moved)
        return True
