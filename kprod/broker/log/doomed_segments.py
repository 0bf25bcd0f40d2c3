"""Segments that are not part of a log any more, until their files are deleted."""

from __future__ import annotations

from collections.abc import Iterable

from kprod.broker.log.segment import LogSegment


class DoomedSegments:
    """Waits for ``file.delete.delay.ms``: somebody may be reading. Under the partition's lock."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, LogSegment]] = []

    def add(self, segments: Iterable[LogSegment], when_ms: int) -> None:
        """Rename the files (``.deleted``), to be deleted at ``when_ms``. ``OSError``."""
        # Oldest first: after a crash in the middle there is no gap in what is left.
        for segment in segments:
            segment.rename(".deleted")
            self._waiting.append((when_ms, segment))

    def take_due(self, now_ms: int) -> list[LogSegment]:
        """Those whose time has come."""
        due = [segment for when, segment in self._waiting if when <= now_ms]
        self._waiting = [(when, segment) for when, segment in self._waiting if when > now_ms]
        return due

    def close(self) -> None:
        """Let go of the files; the next start deletes them."""
        for _, segment in self._waiting:
            segment.close()
