from typing_extensions import Buffer

def ways() -> tuple[str, ...]:
    """The ways to compute a CRC-32C that this machine has, from the fastest on.

    ``"avx512"`` is our own, named after the registers it needs; ``"package"``, which is always
    there, is the ``crc32c`` package.
    """

def crc32c(data: Buffer, way: str | None = None) -> int:
    """The CRC-32C of a C-contiguous buffer's bytes, as an unsigned 32-bit number.

    ``way`` is one of ``ways()``; None: the fastest. Raises ValueError for another one, TypeError
    for what is no buffer. Thread-safe while nobody changes the bytes.
    """

def crc32c_joined(first: int, second: int, second_size: int) -> int:
    """The CRC-32C of two pieces that follow each other, from the CRC-32C of each.

    ``second_size`` is the number of bytes of the second piece. Raises ValueError when it is
    negative, OverflowError for what is no unsigned 32-bit number. After ``crc32_combine`` of zlib,
    with the powers of x looked up.
    """
