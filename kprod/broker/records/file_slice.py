"""A piece of a file, to be sent without reading it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from kprod.broker.descriptors import OpenFile
from kprod.types import BytesLike


@dataclass(frozen=True, slots=True)
class FileSlice:
    """``length`` bytes from ``position`` on (Kafka: a slice of FileRecords). Never empty."""

    file: OpenFile
    position: int
    length: int

    @property
    def fd(self) -> int:
        """The descriptor."""
        return self.file.fd

    def __len__(self) -> int:
        return self.length

    def after(self, count: int) -> FileSlice:
        """The slice without its first ``count`` bytes."""
        return FileSlice(self.file, self.position + count, self.length - count)

    def read(self) -> bytes:
        """The bytes; fewer than ``length`` if the file has become shorter."""
        return os.pread(self.fd, self.length, self.position)


def in_memory(parts: Iterable[BytesLike | FileSlice]) -> bytes:
    """All pieces in one; slices of files are read."""
    return b"".join(part.read() if isinstance(part, FileSlice) else part for part in parts)
