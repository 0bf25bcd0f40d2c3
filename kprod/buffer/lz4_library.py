"""The lz4 library that the lz4 package contains, called without the package in between."""

from __future__ import annotations

from collections.abc import Callable

from kprod_ext.lz4_frames import Lz4Frames

SAMPLE = b"".join(b"%d bottles of beer on the wall, " % number for number in range(4_000))
"""More than a block."""


def lz4_frames(
    level: int, compress: Callable[[memoryview], bytes], library: str | None = None
) -> Lz4Frames | None:
    """Makes the frames that ``compress``, the package's own call, makes; any thread.

    ``library`` is the file with the functions, the package's by default. None when they are not
    there, or make anything else: nothing promises that a package lets others see what it contains.
    """
    try:
        from ctypes import CDLL, c_void_p, cast

        from lz4.frame import _frame

        functions = CDLL(library or _frame.__file__)
        compress_frame = cast(functions.LZ4F_compressFrame, c_void_p).value
        frame_bound = cast(functions.LZ4F_compressFrameBound, c_void_p).value
        frames = Lz4Frames(compress_frame or 0, frame_bound or 0, level)
        sample = memoryview(SAMPLE)
        return frames if frames(sample) == compress(sample) else None
    except (ImportError, AttributeError, OSError, ValueError, RuntimeError):
        return None
