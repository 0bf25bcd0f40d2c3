from typing_extensions import Buffer

def murmur2(data: Buffer, /) -> int:
    """Hash bytes as Kafka's default partitioner does (``Utils.murmur2``).

    Returns the hash as an unsigned 32-bit number; the partition of a key is
    ``(murmur2(key) & 0x7FFFFFFF) % partitions``. Any C-contiguous buffer is read as its raw
    bytes. Raises TypeError for anything else. Thread-safe.
    """

def fnv1a(data: Buffer, /) -> int:
    """Hash bytes with FNV-1a by Fowler, Noll and Vo, as Sarama's partitioner begins with.

    Returns the hash as an unsigned 32-bit number. Any C-contiguous buffer is read as its raw bytes.
    Raises TypeError for anything else. Thread-safe.
    """
