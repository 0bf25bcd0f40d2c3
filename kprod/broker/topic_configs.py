"""What holds for every topic, under Kafka's names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from kprod.broker.log.log_config import LogConfig
from kprod.broker.messages import Message

_FROM_BROKER: Final = 4
_INT: Final = 3
_LONG: Final = 5
_STRING: Final = 2
_LIST: Final = 7


class TopicConfig(NamedTuple):
    """One setting; it comes from the broker's start and cannot be changed."""

    name: str
    value: str
    type: int

    def as_created(self) -> Message:
        """As CreateTopics reports it."""
        return {
            "name": self.name,
            "value": self.value,
            "read_only": True,
            "config_source": _FROM_BROKER,
        }

    def as_described(self) -> Message:
        """As DescribeConfigs reports it."""
        return {**self.as_created(), "config_type": self.type, "documentation": None}


def topic_configs(config: LogConfig) -> Iterator[TopicConfig]:
    """The settings of every topic."""
    flush = 2**63 - 1 if config.flush_messages is None else config.flush_messages
    yield TopicConfig("cleanup.policy", "delete", _LIST)
    yield TopicConfig("compression.type", "producer", _STRING)
    yield TopicConfig("flush.messages", str(flush), _LONG)
    yield TopicConfig("index.interval.bytes", str(config.index_interval_bytes), _INT)
    yield TopicConfig("max.message.bytes", str(config.max_message_bytes), _INT)
    yield TopicConfig(
        "message.timestamp.after.max.ms", str(config.message_timestamp_after_max_ms), _LONG
    )
    yield TopicConfig("message.timestamp.type", "CreateTime", _STRING)
    yield TopicConfig("min.insync.replicas", "1", _INT)
    yield TopicConfig("retention.bytes", "-1", _LONG)
    yield TopicConfig("retention.ms", "-1", _LONG)
    yield TopicConfig("segment.bytes", str(config.segment_bytes), _INT)
    yield TopicConfig("segment.index.bytes", str(config.segment_index_bytes), _INT)
