"""Zstd frames, with contexts that are used again and tables that stay in a core's cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import zstandard

if TYPE_CHECKING:
    from typing_extensions import Buffer

SMALL = 128 * 1024
"""Up to so many bytes of input zstd itself takes smaller tables."""

USUAL_LEVELS = (0, 3)
"""One and the same: zstd takes 3 for 0."""

REPETITIVE = 5
"""What becomes so many times smaller consists of long repetitions, and so of few."""


class ZstdFrames:
    """Makes one frame of the records of a batch. Any thread.

    ``several``, if there is one, makes frames for several batches, each for itself; the interpreter
    is given up once for all of them.
    """

    def __init__(self, level: int) -> None:
        self.several: Callable[[list[memoryview]], Sequence[Buffer]] | None = None
        if "multi_compress_to_buffer" in zstandard.backend_features:
            self.several = self._several
        self._kinds = _kinds(level)
        # What comes next is expected to be like what came last. Where topics differ that is
        # wrong at times, and costs a little size or a little time.
        self._last_was_repetitive = False

    def __call__(self, records: memoryview) -> bytes:
        """One frame."""
        kind = self._kind(len(records))
        packer = kind.take()
        try:
            frame = packer.compress(records)
        finally:
            kind.give_back(packer)
        self._observe(len(records), len(frame))
        return frame

    def _several(self, records: list[memoryview]) -> Sequence[Buffer]:
        kind = self._kind(max(map(len, records)))
        packer = kind.take()
        try:
            frames = cast("Sequence[memoryview]", packer.multi_compress_to_buffer([*records]))
        finally:
            kind.give_back(packer)
        self._observe(sum(map(len, records)), sum(len(frame) for frame in frames))
        return frames

    def _kind(self, size: int) -> _Kind:
        small, large, repetitive = self._kinds
        if size <= SMALL:
            return small
        return repetitive if self._last_was_repetitive else large

    def _observe(self, size: int, packed: int) -> None:
        self._last_was_repetitive = packed * REPETITIVE <= size


class _Kind:
    """Contexts with the same parameters. Each takes memory and time to make, and one thread."""

    def __init__(self, make: Callable[[], zstandard.ZstdCompressor]) -> None:
        self._make = make
        self._idle: list[zstandard.ZstdCompressor] = []

    def take(self) -> zstandard.ZstdCompressor:
        """One that nobody uses."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._make()

    def give_back(self, packer: zstandard.ZstdCompressor) -> None:
        """It is not used any more."""
        self._idle.append(packer)


def _kinds(level: int) -> tuple[_Kind, _Kind, _Kind]:
    """For small inputs, for large ones, and for large ones that consist of repetitions.

    A batch that compresses well holds several hundred kilobytes. For these the double-fast strategy
    takes tables that leave no room for them in a core's cache: slower, and hardly better. With the
    tables for small inputs it is as good, and at the usual level half of those find what there is
    of long repetitions. Other strategies are left as they are.
    """
    parameters = zstandard.ZstdCompressionParameters
    usual = _Kind(lambda: zstandard.ZstdCompressor(level=level))
    if parameters.from_level(level).strategy != zstandard.STRATEGY_DFAST:
        return usual, usual, usual
    small = parameters.from_level(level, source_size=SMALL)
    chain, hashes = small.chain_log, small.hash_log
    large = _with_tables(level, chain, hashes)
    if level not in USUAL_LEVELS:
        return usual, large, large
    return usual, large, _with_tables(level, chain - 1, hashes - 1)


def _with_tables(level: int, chain: int, hashes: int) -> _Kind:
    parameters = zstandard.ZstdCompressionParameters.from_level(
        level, chain_log=chain, hash_log=hashes
    )
    return _Kind(lambda: zstandard.ZstdCompressor(compression_params=parameters))
