"""What a partition's log may do, and the settings of topics, under Kafka's names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from kprod.errors import BrokerError

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


_STRING: Final = 2
_INT: Final = 3
_LONG: Final = 5
_DOUBLE: Final = 6
_LIST: Final = 7
_NUMBER: Final = re.compile(r"-?\d{1,19}")


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One setting: Kafka's type number, how it is read, and the field of ``LogConfig`` it is.

    ``read`` raises ``ValueError``. A setting without a field has the one value it can have.
    """

    type: int
    read: Callable[[str], Any]
    fixed: str | None = None

    def show(self, value: Any) -> str:
        """The value as Kafka writes it."""
        return str(NO_LIMIT if value is None else value)


def _between(lowest: int, highest: int = NO_LIMIT) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not _NUMBER.fullmatch(text) or not lowest <= int(text) <= highest:
            raise ValueError(f"not a number of {lowest} to {highest}")
        return int(text)

    return read


def _flush(text: str) -> int | None:
    found = _between(1)(text)
    return None if found == NO_LIMIT else found


def _one_of(*values: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in values:
            raise ValueError(f"not one of {', '.join(values)}")
        return text

    return read


def _policy(text: str) -> str:
    parts = [part.strip() for part in text.split(",")]
    if not parts or set(parts) - {"delete", "compact"}:
        raise ValueError("not made of delete and compact")
    return ",".join(parts)


def _ratio(text: str) -> float:
    found = float(text)
    if not 0 <= found <= 1:
        raise ValueError("not a number of 0 to 1")
    return found


_INT_MAX: Final = 2**31 - 1
KEYS: Final[Mapping[str, ConfigKey]] = {
    "cleanup.policy": ConfigKey(_LIST, _policy),
    "compression.type": ConfigKey(_STRING, _one_of("producer"), fixed="producer"),
    "delete.retention.ms": ConfigKey(_LONG, _between(0)),
    "file.delete.delay.ms": ConfigKey(_LONG, _between(0)),
    "flush.messages": ConfigKey(_LONG, _flush),
    "flush.ms": ConfigKey(_LONG, _flush),
    "index.interval.bytes": ConfigKey(_INT, _between(0, _INT_MAX)),
    "max.compaction.lag.ms": ConfigKey(_LONG, _between(1)),
    "max.message.bytes": ConfigKey(_INT, _between(0, _INT_MAX)),
    "message.timestamp.after.max.ms": ConfigKey(_LONG, _between(0)),
    "message.timestamp.before.max.ms": ConfigKey(_LONG, _between(0)),
    "message.timestamp.type": ConfigKey(_STRING, _one_of("CreateTime", "LogAppendTime")),
    "min.cleanable.dirty.ratio": ConfigKey(_DOUBLE, _ratio),
    "min.compaction.lag.ms": ConfigKey(_LONG, _between(0)),
    "min.insync.replicas": ConfigKey(_INT, _one_of("1"), fixed="1"),
    "retention.bytes": ConfigKey(_LONG, _between(-1)),
    "retention.ms": ConfigKey(_LONG, _between(-1)),
    "segment.bytes": ConfigKey(_INT, _between(14, _INT_MAX)),
    "segment.index.bytes": ConfigKey(_INT, _between(4, _INT_MAX)),
    "segment.ms": ConfigKey(_LONG, _between(1)),
}


class TopicConfig(NamedTuple):
    """One setting as it holds for a topic."""

    name: str
    value: str
    type: int
    is_own: bool


def topic_configs(config: LogConfig, own: Mapping[str, str]) -> Iterator[TopicConfig]:
    """All settings: what the topic has of its ``own``, and the broker's for the rest."""
    resulting = with_overrides(config, own)
    for name, key in KEYS.items():
        value = key.fixed or key.show(getattr(resulting, _field(name)))
        yield TopicConfig(name, value, key.type, name in own)


def with_overrides(config: LogConfig, own: Mapping[str, str]) -> LogConfig:
    """The broker's settings with those of a topic in their place. Raises ``BrokerError`` 40."""
    changes = {}
    for name, text in own.items():
        key = KEYS.get(name)
        if key is None:
            raise BrokerError(ErrorCode.invalid_config, f"{name}: there is no such setting")
        try:
            value = key.read(text)
        except ValueError as error:
            raise BrokerError(ErrorCode.invalid_config, f"{name}={text}: {error}") from None
        if key.fixed is None:
            changes[_field(name)] = value
    return replace(config, **changes)


def _field(name: str) -> str:
    return name.replace(".", "_")
