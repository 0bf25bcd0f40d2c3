"""Kafka's text files of one offset per partition: version, count, then a line for each.

Used for ``recovery-point-offset-checkpoint`` (what is known to be on disk) and
``log-start-offset-checkpoint``. A file that cannot be read counts as absent: the log is then
scanned from its start, which costs time and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kprod.broker.log.durable_file import replace_file
from kprod.types import TopicPartition

_VERSION: Final = "0"
_log = logging.getLogger(__name__)


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """The offsets in the file; none when it is missing or damaged."""
    try:
        return _parse(path.read_text(encoding="utf-8").splitlines())
    except FileNotFoundError:
        return {}
    except (ValueError, IndexError) as error:
        _log.warning("%s is damaged and left out of account: %s", path, error)
        return {}


def _parse(lines: list[str]) -> dict[TopicPartition, int]:
    if lines[0] != _VERSION:
        raise ValueError(f"version {lines[0]!r}")
    entries = [line.split(" ") for line in lines[2:]]
    if len(entries) != int(lines[1]):
        raise ValueError(f"{len(entries)} entries where {lines[1]} are announced")
    return {TopicPartition(topic, int(number)): int(offset) for topic, number, offset in entries}


def write_offsets(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the file, durably."""
    lines = [_VERSION, str(len(offsets))]
    lines += [f"{where.topic} {where.partition} {offset}" for where, offset in offsets.items()]
    replace_file(path, ("\n".join(lines) + "\n").encode())
