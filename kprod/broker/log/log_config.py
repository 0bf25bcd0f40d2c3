"""The options of a partition's log, and the settings of topics, under Kafka's names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from kprod.errors import BrokerError

_MIB = 1024 * 1024
_DAY_MS = 24 * 3_600_000
NO_LIMIT = 2**63 - 1


_STRING: Final = 2
_INT: Final = 3
_LONG: Final = 5
_DOUBLE: Final = 6
_LIST: Final = 7
_KEY: Final = "key"
_NUMBER: Final = re.compile(r"-?\d{1,19}")


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One setting: Kafka's number for its type, and how its text is parsed.

    ``read`` raises ``ValueError`` for an invalid text. ``fixed`` is the only possible value of a
    setting that ``LogConfig`` does not have.
    """

    type: int
    read: Callable[[str], Any]
    fixed: str | None = None


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


def _setting(default: Any, kafka_type: int, read: Callable[[str], Any]) -> Any:
    return field(default=default, metadata={_KEY: ConfigKey(kafka_type, read)})


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Options of the log. The defaults are Kafka's, except that old records are not deleted.

    Sizes are in bytes, times in milliseconds. For ``retention_ms`` and ``retention_bytes``, the
    default -1 means no limit.

    ``fsync`` is called after ``flush_messages`` records. It is also called when ``flush_ms`` have
    passed, which is checked every 30 seconds. By default, both are None: acknowledged records then
    survive a crash of the process, but may not survive a crash of the machine. ``flush_messages=1``
    is the strictest setting: each batch is flushed before it is acknowledged.
    """

    segment_bytes: int = _setting(1024 * _MIB, _INT, _between(14, _INT_MAX))
    segment_ms: int = _setting(7 * _DAY_MS, _LONG, _between(1))
    index_interval_bytes: int = _setting(4096, _INT, _between(0, _INT_MAX))
    segment_index_bytes: int = _setting(10 * _MIB, _INT, _between(4, _INT_MAX))
    max_message_bytes: int = _setting(_MIB + 12, _INT, _between(0, _INT_MAX))
    message_timestamp_type: str = _setting(
        "CreateTime", _STRING, _one_of("CreateTime", "LogAppendTime")
    )
    message_timestamp_before_max_ms: int = _setting(NO_LIMIT, _LONG, _between(0))
    message_timestamp_after_max_ms: int = _setting(3_600_000, _LONG, _between(0))
    flush_messages: int | None = _setting(None, _LONG, _flush)
    flush_ms: int | None = _setting(None, _LONG, _flush)
    cleanup_policy: str = _setting("delete", _LIST, _policy)
    retention_ms: int = _setting(-1, _LONG, _between(-1))
    retention_bytes: int = _setting(-1, _LONG, _between(-1))
    file_delete_delay_ms: int = _setting(60_000, _LONG, _between(0))
    delete_retention_ms: int = _setting(_DAY_MS, _LONG, _between(0))
    min_cleanable_dirty_ratio: float = _setting(0.5, _DOUBLE, _ratio)
    min_compaction_lag_ms: int = _setting(0, _LONG, _between(0))
    max_compaction_lag_ms: int = _setting(NO_LIMIT, _LONG, _between(1))

    @property
    def deletes(self) -> bool:
        """Whether segments are deleted because of their age and the size of the log."""
        return "delete" in self.cleanup_policy.split(",")

    @property
    def compacts(self) -> bool:
        """Whether only the last record of each key is kept."""
        return "compact" in self.cleanup_policy.split(",")

    @property
    def max_segment_ms(self) -> int:
        """The age at which a segment is rolled; only then can it be compacted."""
        return min(self.segment_ms, self.max_compaction_lag_ms if self.compacts else NO_LIMIT)


KEYS: Final[Mapping[str, ConfigKey]] = {
    "compression.type": ConfigKey(_STRING, _one_of("producer"), fixed="producer"),
    "min.insync.replicas": ConfigKey(_INT, _one_of("1"), fixed="1"),
    **{each.name.replace("_", "."): each.metadata[_KEY] for each in fields(LogConfig)},
}
"""The settings of a topic, by Kafka's names."""


class TopicConfig(NamedTuple):
    """The value of one setting for a topic."""

    name: str
    value: str
    type: int
    is_own: bool


def topic_configs(config: LogConfig, own: Mapping[str, str]) -> Iterator[TopicConfig]:
    """Yield all settings of a topic: its ``own``, and the broker's for the others."""
    resulting = with_overrides(config, own)
    for name, key in sorted(KEYS.items()):
        value = key.fixed or getattr(resulting, _field(name))
        shown = str(NO_LIMIT if value is None else value)
        yield TopicConfig(name, shown, key.type, name in own)


def with_overrides(config: LogConfig, own: Mapping[str, str]) -> LogConfig:
    """Return the broker's settings, overridden by a topic's own.

    Raises ``BrokerError`` 40 for an unknown setting or an invalid value.
    """
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
