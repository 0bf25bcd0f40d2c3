from typing_extensions import Buffer

def paths() -> tuple[str, ...]:
    """The ways to compute a CRC-32C that this processor has, from the fastest on.

    ``"sse4.2"`` and ``"armv8"`` use the crc32 instructions of x86-64 and ARM; ``"tables"``, which
    is always there, needs none.
    """

def path() -> str:
    """The path that batches take: the first of ``paths()``, or what ``KPROD_CRC32C`` named.

    The environment is read once, when this module is loaded, which raises ValueError for a path
    that this processor does not have.
    """

def crc32c(data: Buffer, path: str | None = None) -> int:
    """The CRC-32C of a C-contiguous buffer's bytes, as an unsigned 32-bit number.

    ``path`` is one of ``paths()``; None: the one that batches take. Raises ValueError for another
    one, TypeError for what is no buffer. Releases the GIL. Thread-safe while nobody changes the
    bytes.
    """

def crc32c_joined(first: int, second: int, second_size: int) -> int:
    """The CRC-32C of two pieces that follow each other, from the CRC-32C of each.

    ``second_size`` is the number of bytes of the second piece. Raises ValueError when it is
    negative, OverflowError for what is no unsigned 32-bit number. After ``crc32_combine`` of zlib,
    with the powers of x looked up.
    """
