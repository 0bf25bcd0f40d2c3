from collections.abc import Callable
from typing import Any, final

from typing_extensions import Buffer

@final
class RecordClock:
    """The time of records that were sent without one. Thread-safe.

    ``source`` tells milliseconds since the epoch; None is the system's clock, as of its last tick
    (``CLOCK_REALTIME_COARSE``: 1 to 10 ms). A step back of at most a minute is not followed: the
    clock stands still until its source has caught up. A longer one is: that source was wrong, and
    was set right. Raises TypeError for a source that cannot be called.
    """

    def __new__(cls, source: Callable[[], int] | None = None) -> RecordClock: ...
    def wall_ms(self) -> int:
        """Milliseconds since the epoch. Raises what ``source`` raises."""

def is_timestamp(number: Any, /) -> bool:
    """Whether ``number`` is an exact ``int`` from 0 to 2**63 - 1: a record's time in ms."""

def is_partition(number: Any, /) -> bool:
    """Whether ``number`` is an exact ``int`` from 0 to 2**31 - 1."""

def is_frozen(headers: Any, /) -> bool:
    """Whether ``headers`` is a tuple of ``(str, bytes | None)`` tuples with UTF-8 names."""

def largest_payload(largest_batch: int, /) -> int:
    """Bytes of key, value and headers, 10 more for each header, of a record that surely fits.

    A batch with that record alone has at most ``largest_batch`` bytes, whatever its timestamp.
    """

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

def partition_for_key(key: Buffer, partitions: int, /) -> int:
    """The partition of a key: ``(murmur2(key) & 0x7FFFFFFF) % partitions``.

    After ``BuiltInPartitioner.partitionForKey``. Raises ValueError for a number of partitions that
    no topic has, TypeError for a key that is no buffer. Thread-safe.
    """
