"""The settings of topics, under Kafka's names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from kprod.broker.log.log_config import NO_LIMIT, LogConfig
from kprod.broker.messages import Message
from kprod.errors import BrokerError

_FROM_TOPIC: Final = 1
_FROM_BROKER: Final = 4
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

    def as_created(self) -> Message:
        """As CreateTopics reports it."""
        return {
            "name": self.name,
            "value": self.value,
            "config_source": _FROM_TOPIC if self.is_own else _FROM_BROKER,
        }

    def as_described(self) -> Message:
        """As DescribeConfigs reports it."""
        return {
            **self.as_created(),
            "is_default": not self.is_own,
            "config_type": self.type,
            "documentation": None,
        }


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
