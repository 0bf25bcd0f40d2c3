from collections.abc import Sequence
from typing import final

from typing_extensions import Buffer

@final
class Lz4Frames:
    """Makes LZ4 frames of independent blocks of 64 KiB, without checksums. Thread-safe.

    ``compress_frame`` and ``frame_bound`` are the addresses of ``LZ4F_compressFrame`` and
    ``LZ4F_compressFrameBound`` of the lz4 library, 1.8.2 or newer, which must stay loaded: nothing
    can check them. ``level`` is the library's. Raises ValueError for address 0.
    """

    def __new__(cls, compress_frame: int, frame_bound: int, level: int) -> Lz4Frames: ...
    def __call__(self, records: Buffer) -> bytes:
        """One frame of all the bytes. Raises RuntimeError when the library makes none."""

    def several(self, records: list[Buffer]) -> Sequence[memoryview]:
        """One frame for each; the interpreter is given up once for all of them.

        Raises as a call does, when the library fails for any of them.
        """
