"""Kafka's small text files of names and values (``meta.properties``, ``partition.metadata``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kprod.broker.log.durable_file import replace_file
from kprod.broker.log.storage_error import StorageError


def read_properties(path: Path, separator: str, version: str) -> dict[str, str]:
    """The lines ``name<separator>value``, comments left out.

    Raises ``StorageError`` when the file's ``version`` is another one: written by something newer.
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
    """Replace the file, durably."""
    lines = [f"{name}{separator}{value}\n" for name, value in values.items()]
    replace_file(path, "".join(lines).encode())
