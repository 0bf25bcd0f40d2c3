"""Zstd frames, with contexts that are used again and tables that stay in a core's cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import zstandard

if TYPE_CHECKING:
    from typing_extensions import Buffer

SMALL = 128 * 1024
"""Up to so many bytes of input zstd itself takes smaller tables."""


class ZstdFrames:
    """Makes one frame of the records of a batch. Any thread.

    ``several``, if there is one, makes frames for several batches, each for itself; the interpreter
    is given up once for all of them.
    """

    def __init__(self, level: int) -> None:
        self.several: Callable[[list[memoryview]], Sequence[Buffer]] | None = None
        if "multi_compress_to_buffer" in zstandard.backend_features:
            self.several = self._several
        self._level = level
        self._parameters = _with_small_tables(level)
        # Each takes memory and time to make, and one thread.
        self._idle: tuple[list[zstandard.ZstdCompressor], ...] = ([], [])

    def __call__(self, records: memoryview) -> bytes:
        """One frame."""
        large = len(records) > SMALL
        packer = self._take(large)
        try:
            return packer.compress(records)
        finally:
            self._idle[large].append(packer)

    def _several(self, records: list[memoryview]) -> Sequence[Buffer]:
        large = max(map(len, records)) > SMALL
        packer = self._take(large)
        try:
            return cast("Sequence[Buffer]", packer.multi_compress_to_buffer([*records]))
        finally:
            self._idle[large].append(packer)

    def _take(self, large: bool) -> zstandard.ZstdCompressor:
        try:
            return self._idle[large].pop()
        except IndexError:
            if large and self._parameters is not None:
                return zstandard.ZstdCompressor(compression_params=self._parameters)
            return zstandard.ZstdCompressor(level=self._level)


def _with_small_tables(level: int) -> zstandard.ZstdCompressionParameters | None:
    """The level's parameters for large inputs, but with its tables for small ones; None: as it is.

    A batch that compresses well holds several hundred kilobytes. For these the double-fast strategy
    takes tables that leave no room for them in a core's cache: slower, and hardly better.
    """
    parameters = zstandard.ZstdCompressionParameters
    usual = parameters.from_level(level)
    if usual.strategy != zstandard.STRATEGY_DFAST:
        return None
    small = parameters.from_level(level, source_size=SMALL)
    return parameters.from_level(level, chain_log=small.chain_log, hash_log=small.hash_log)
