from collections.abc import Sequence

from kprod_ext.sealed_batch import SealedBatch, SealedPiece

def send_buffers(
    fd: int, buffers: Sequence[bytes | memoryview | SealedBatch | SealedPiece], /
) -> int:
    """Send the buffers in order, at most IOV_MAX of them; how many bytes were taken, maybe 0.

    One system call, which never blocks. What batches still need for their checksums is done in the
    same stretch without the GIL. Raises OSError, and what a signal handler raises.
    """

def receive(fd: int, limit: int, /) -> bytes | None:
    """At most ``limit`` bytes; None when there is nothing now, b"" when the peer has closed.

    One system call, which never blocks. Raises OSError, and what a signal handler raises.
    """
