"""The settings that topics have of their own, on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kprod.broker.log.durable_file import replace_file
from kprod.broker.log.storage_error import StorageError

_VERSION: Final = 0


class TopicOverrides:
    """Settings by topic (Kafka keeps them in its cluster metadata; the file is ours: JSON).

    Not thread-safe: the registry of topics has a lock.
    """

    def __init__(self, path: Path) -> None:
        """Raises ``StorageError`` for a file that cannot be read."""
        self._path = path
        self._by_topic: dict[str, dict[str, str]] = {}
        if path.exists():
            self._read()

    def _read(self) -> None:
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            if content["version"] != _VERSION:
                raise ValueError(f"version {content['version']}")
            self._by_topic = {
                str(topic): {str(name): str(value) for name, value in settings.items()}
                for topic, settings in content["topics"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(f"{self._path} has no settings of topics: {error}") from error

    def of(self, topic: str) -> Mapping[str, str]:
        """What one topic has of its own."""
        return self._by_topic.get(topic, {})

    def replace(self, topic: str, settings: Mapping[str, str]) -> None:
        """Put all of a topic's settings in place of those it had, durably. ``OSError``."""
        changed = {name: own for name, own in self._by_topic.items() if name != topic}
        if settings:
            changed[topic] = dict(settings)
        if changed != self._by_topic:
            content = {"version": _VERSION, "topics": changed}
            replace_file(self._path, json.dumps(content, indent=1).encode())
            self._by_topic = changed
