"""Subject names. They decide which schemas must be compatible with each other.

The strategies are those of Confluent's serializers (``io.confluent.kafka.serializers.subject``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kprod.errors import ConfigError

SubjectStrategy: TypeAlias = Callable[[str, bool, str | None], str]
"""``f(topic, is_key, record_name) -> subject``; ``record_name`` is the schema's own name."""


def topic_name(topic: str, is_key: bool, record_name: str | None) -> str:
    """``TOPIC-key`` or ``TOPIC-value``: one record type per topic. This is the usual strategy."""
    return f"{topic}-{'key' if is_key else 'value'}"


def record_name(topic: str, is_key: bool, record_name: str | None) -> str:
    """The schema's full name: one schema for all topics. Raises ConfigError without a name."""
    if not record_name:
        raise ConfigError('subject="record_name" needs a schema with a name (JSON Schema: a title)')
    return record_name


def topic_record_name(topic: str, is_key: bool, record_name: str | None) -> str:
    """``TOPIC-NAME``: several record types in one topic. Raises ConfigError without a name."""
    if not record_name:
        raise ConfigError(
            'subject="topic_record_name" needs a schema with a name (JSON Schema: a title)'
        )
    return f"{topic}-{record_name}"


_NAMED: dict[str, SubjectStrategy] = {
    "topic_name": topic_name,
    "record_name": record_name,
    "topic_record_name": topic_record_name,
}


def subject_strategy(given: str | SubjectStrategy) -> SubjectStrategy:
    """The strategy with a given name, or the application's own. Raises ConfigError."""
    if callable(given):
        return given
    if given in _NAMED:
        return _NAMED[given]
    raise ConfigError(f"subject: expected a callable or one of {sorted(_NAMED)}, got {given!r}")
