"""Options per topic, and the rule for topic names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from kprod.config.kinds import Refused, Text, safe_repr

MAX_TOPIC_LENGTH = 249

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_NOT_NAMES = (".", "..")


def is_topic_name(text: str) -> bool:
    """The rule of ``org.apache.kafka.common.internals.Topic``."""
    return _NAME.fullmatch(text) is not None and text not in _NOT_NAMES


class TopicName(Text):
    """The name of a topic, or None."""

    def convert(self, value: Any) -> str | None:
        if isinstance(value, str) and not is_topic_name(value):
            raise Refused
        return super().convert(value)


class TopicOptions(NamedTuple):
    """The options of one topic: its own, and otherwise the producer's."""

    topic: str
    acks: int
    compression_type: str | None
    compression_level: int | None
    linger_ms: int


PER_TOPIC = TopicOptions._fields[1:]
"""The names of the options that a topic may override."""


class OptionsByTopic:
    """A dict of dicts; the inner ones are validated later."""

    type_name = "dict"
    expected = f"a dict of topics to dicts of {', '.join(PER_TOPIC)}"

    def convert(self, value: Any) -> dict[str, dict[Any, Any]]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise Refused
        return {_checked_topic(topic): _checked(topic, own) for topic, own in value.items()}


def _checked_topic(topic: Any) -> str:
    if isinstance(topic, str) and is_topic_name(topic):
        return topic
    raise Refused(f"{safe_repr(topic)} is not a valid topic name")


def _checked(topic: str, own: Any) -> dict[Any, Any]:
    if isinstance(own, Mapping):
        return dict(own)
    raise Refused(f"{safe_repr(own)} for topic {topic!r} is not a dict")
