"""Small files of a data directory, replaced atomically: a crash leaves the old or the new file."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from kprod.errors import KprodError
from kprod.types import TopicPartition


class StorageError(KprodError, OSError, number="KP-4001"):
    """A data directory is in use, has another version, or is unreadable. Nothing was deleted."""


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically and durably: write and flush a new file, then rename it."""
    fresh = path.with_name(path.name + ".tmp")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    fresh.replace(path)
    flush_directory(path.parent)


def flush_directory(path: Path) -> None:
    """Flush the names of the files in a directory to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_data(descriptor: int) -> None:
    """Flush a file's content to disk, but not its timestamps if the system can leave them out."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


_CHECKPOINT_VERSION: Final = "0"
_Row = TypeVar("_Row")
_log = logging.getLogger(__name__)


def read_checkpoint(path: Path, parse: Callable[[list[str]], _Row]) -> list[_Row]:
    """Return the rows of a file (Kafka: CheckpointFile). A missing or damaged file has none.

    The first line is the version, the second the number of rows; the rows follow. The fields of a
    row are separated by blanks. ``parse`` converts these fields, and may raise ``ValueError``,
    ``IndexError`` or ``TypeError``.
    """
    try:
        version, count, *lines = path.read_text(encoding="utf-8").splitlines()
        if version != _CHECKPOINT_VERSION or int(count) != len(lines):
            raise ValueError(f"version {version!r}, {len(lines)} of {count} rows")
        return [parse(line.split(" ")) for line in lines]
    except FileNotFoundError:
        return []
    except (ValueError, IndexError, TypeError) as error:
        _log.warning("%s is damaged and left out of account: %s", path, error)
        return []


def write_checkpoint(path: Path, rows: Sequence[str]) -> None:
    """Durably replace a file that ``read_checkpoint`` can read."""
    lines = [_CHECKPOINT_VERSION, str(len(rows)), *rows]
    replace_file(path, ("\n".join(lines) + "\n").encode())


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """Return the offset of each partition in the file. A missing or damaged file has none."""
    return dict(read_checkpoint(path, _parse_offset))


def _parse_offset(fields: list[str]) -> tuple[TopicPartition, int]:
    topic, number, offset = fields
    return TopicPartition(topic, int(number)), int(offset)


def write_offsets(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Durably replace a file that ``read_offsets`` can read."""
    write_checkpoint(path, [f"{w.topic} {w.partition} {at}" for w, at in offsets.items()])


def read_properties(path: Path, separator: str, version: str) -> dict[str, str]:
    """Return the values in the lines ``name<separator>value``, by name. Comments are skipped.

    Raises ``StorageError`` if the file does not have this ``version``.
    """
    found: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, parted, value = line.partition(separator)
        if parted and not line.startswith("#"):
            found[name.strip()] = value.strip()
    if found.get("version") != version:
        raise StorageError(f"{path} has version {found.get('version')}, expected {version}")
    return found


def write_properties(path: Path, separator: str, values: Mapping[str, str]) -> None:
    """Durably replace a file that ``read_properties`` can read."""
    lines = [f"{name}{separator}{value}\n" for name, value in values.items()]
    replace_file(path, "".join(lines).encode())


_OVERRIDES_VERSION: Final = 0


class TopicOverrides:
    """Each topic's own settings, in a JSON file. Not thread-safe: ``Topics`` has a lock.

    Kafka keeps these settings in its cluster metadata. The file is kprod's own.
    """

    def __init__(self, path: Path) -> None:
        """Read the file. Raises ``StorageError`` if its content is invalid."""
        self._path = path
        self._by_topic: dict[str, dict[str, str]] = {}
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["version"] != _OVERRIDES_VERSION:
                raise ValueError(f"version {content['version']}")
            for topic, settings in content["topics"].items():
                self._by_topic[str(topic)] = {str(name): str(settings[name]) for name in settings}
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(f"{path} has no settings of topics: {error}") from error

    def of(self, topic: str) -> Mapping[str, str]:
        """Return the topic's own settings."""
        return self._by_topic.get(topic, {})

    def replace(self, topic: str, settings: Mapping[str, str]) -> None:
        """Replace all of a topic's own settings, durably. Raises ``OSError``."""
        changed = {name: own for name, own in self._by_topic.items() if name != topic}
        if settings:
            changed[topic] = dict(settings)
        if changed != self._by_topic:
            content = {"version": _OVERRIDES_VERSION, "topics": changed}
            replace_file(self._path, json.dumps(content, indent=1).encode())
            self._by_topic = changed
