"""What a partition's log may do, under Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1024 * 1024
_DAY_MS = 24 * 3_600_000
NO_LIMIT = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Sizes in bytes, times in milliseconds; Kafka's defaults but for the retention.

    Nothing is deleted by age or size unless that is asked for: -1 is no limit.
    ``flush_messages`` is the number of records after which the log is forced to the disk, and
    ``flush_ms`` the time; None leaves that to the operating system, so that what was acknowledged
    survives the death of the process but not that of the machine. One message is the strict mode.
    """

    segment_bytes: int = 1024 * _MIB
    segment_ms: int = 7 * _DAY_MS
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 * _MIB
    max_message_bytes: int = _MIB + 12
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = NO_LIMIT
    message_timestamp_after_max_ms: int = 3_600_000
    flush_messages: int | None = None
    flush_ms: int | None = None
    cleanup_policy: str = "delete"
    retention_ms: int = -1
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = _DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NO_LIMIT

    @property
    def deletes(self) -> bool:
        """Whether old segments go by age and size."""
        return "delete" in self.cleanup_policy.split(",")

    @property
    def compacts(self) -> bool:
        """Whether only the last record of each key is kept."""
        return "compact" in self.cleanup_policy.split(",")
