"""What a partition's log may do, under Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Sizes in bytes, Kafka's defaults.

    ``flush_messages`` is the number of records after which the log is forced to the disk; None
    leaves that to the operating system, so that what was acknowledged survives the death of the
    process but not that of the machine. 1 is the strict mode.
    """

    segment_bytes: int = 1024 * _MIB
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 * _MIB
    max_message_bytes: int = _MIB + 12
    message_timestamp_after_max_ms: int = 3_600_000
    flush_messages: int | None = None
