"""Which texts Kafka takes as the name of a topic."""

from __future__ import annotations

import re

MAX_TOPIC_LENGTH = 249

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_NOT_NAMES = (".", "..")


def is_topic_name(text: str) -> bool:
    """The rule of ``org.apache.kafka.common.internals.Topic``."""
    return _NAME.fullmatch(text) is not None and text not in _NOT_NAMES
