"""The limits of consumer groups, under Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Kafka's defaults, but for the initial delay, which only makes tests wait.

    ``offsets_topic_partitions`` is 1 here and 50 in Kafka: one node needs no more.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offset_metadata_max_bytes: int = 4096
    max_size: int = 2**31 - 1
    offsets_topic_partitions: int = 1
