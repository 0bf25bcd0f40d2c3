"""One record as it lies in a log."""

from __future__ import annotations

from typing import NamedTuple

from kprod.types import Header


class StoredRecord(NamedTuple):
    """A record with its place and time: ``timestamp`` in milliseconds since the epoch."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
