from collections.abc import Callable
from typing import Any, final

from typing_extensions import Buffer

@final
class RecordClock:
    """The time of records that were sent without a timestamp. Thread-safe.

    ``source`` returns milliseconds since the epoch; None means the system's clock, as of its last
    tick (``CLOCK_REALTIME_COARSE``: 1 to 10 ms). If the source steps back by at most a minute, this
    clock stands still until the source has caught up. It follows a larger step back, which corrects
    a wrong clock. Raises TypeError for a source that cannot be called.
    """

    def __new__(cls, source: Callable[[], int] | None = None) -> RecordClock: ...
    def wall_ms(self) -> int:
        """Milliseconds since the epoch. Raises what ``source`` raises."""

def is_timestamp(number: Any, /) -> bool:
    """Whether ``number`` is a valid timestamp in ms: an exact ``int`` from 0 to 2**63 - 1."""

def is_partition(number: Any, /) -> bool:
    """Whether ``number`` is a valid partition number: an exact ``int`` from 0 to 2**31 - 1."""

def is_frozen(headers: Any, /) -> bool:
    """Whether ``headers`` is a tuple of ``(str, bytes | None)`` tuples with UTF-8 names."""

def largest_payload(largest_batch: int, /) -> int:
    """Bytes of key, value and headers, plus 10 per header, of a record that always fits.

    A batch that contains only that record has at most ``largest_batch`` bytes, with any timestamp.
    """

def murmur2(data: Buffer, /) -> int:
    """Hash bytes as Kafka's default partitioner does (``Utils.murmur2``).

    Returns the hash as an unsigned 32-bit number; the partition of a key is
    ``(murmur2(key) & 0x7FFFFFFF) % partitions``. Any C-contiguous buffer is read as its raw
    bytes. Raises TypeError for anything else. Thread-safe.
    """

def fnv1a(data: Buffer, /) -> int:
    """Hash bytes with FNV-1a (Fowler, Noll and Vo), the hash that Sarama's partitioner uses.

    Returns the hash as an unsigned 32-bit number. Any C-contiguous buffer is read as its raw bytes.
    Raises TypeError for anything else. Thread-safe.
    """

def partition_for_key(key: Buffer, partitions: int, /) -> int:
    """The partition of a key: ``(murmur2(key) & 0x7FFFFFFF) % partitions``.

    Like ``BuiltInPartitioner.partitionForKey``. Raises ValueError for an invalid number of
    partitions, TypeError for a key that is not a buffer. Thread-safe.
    """
