"""Where queues stand in line: lists that each of them may leave at once, wherever it stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Standing:
    """What stands at one place at a time, or nowhere."""

    __slots__ = ("after", "before", "place")

    def __init__(self) -> None:
        self.place: Place | None = None
        self.before: Standing | None = None  # the neighbours there
        self.after: Standing | None = None


class Place:
    """Those that stand together, in the order of their coming. Not thread-safe.

    ``passing``: what callers do, and a hurry, may let a queue go on from here. Elsewhere only the
    oldest batch counts, which they cannot change.
    """

    __slots__ = ("first", "last", "passing")

    def __init__(self, passing: bool = False) -> None:
        self.passing = passing
        self.first: Any = None  # a Standing, as the next
        self.last: Any = None

    def join(self, one: Standing) -> None:
        """``one``, which stands nowhere, comes to stand here, behind all others."""
        if self.last is None:
            self.first = one
        else:
            self.last.after = one
            one.before = self.last
        self.last = one
        one.place = self

    def leave(self, one: Standing) -> None:
        """``one``, which stands here, stands nowhere any more."""
        before, after = one.before, one.after
        if before is None:
            self.first = after
        else:
            before.after = after
        if after is None:
            self.last = before
        else:
            after.before = before
        one.place = one.before = one.after = None

    def __iter__(self) -> Iterator[Any]:
        """All of them; the one that was told of last may leave meanwhile."""
        one = self.first
        while one is not None:
            following = one.after
            yield one
            one = following


class Post:
    """What waits for requests to one node that ask for the same ``acks``."""

    __slots__ = ("acks", "due", "lingering", "node_id")

    def __init__(self, node_id: int, acks: int) -> None:
        self.node_id = node_id
        self.acks = acks
        self.due = Place()
        self.lingering = Place(passing=True)
