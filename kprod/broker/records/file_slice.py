"""A piece of a file, which can be sent without reading it into memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from kprod.broker.descriptors import OpenFile
from kprod.types import BytesLike


@dataclass(frozen=True, slots=True)
class FileSlice:
    """``length`` bytes of a file, from ``position`` on (Kafka: FileRecords). Never empty."""

    file: OpenFile
    position: int
    length: int

    @property
    def fd(self) -> int:
        """The descriptor of the file."""
        return self.file.fd

    def __len__(self) -> int:
        return self.length

    def after(self, count: int) -> FileSlice:
        """The slice without its first ``count`` bytes."""
        return FileSlice(self.file, self.position + count, self.length - count)

    def read(self) -> bytes:
        """Read the slice. Returns fewer than ``length`` bytes if the file has become shorter."""
        return os.pread(self.fd, self.length, self.position)


def in_memory(parts: Iterable[BytesLike | FileSlice]) -> bytes:
    """Join all pieces. Slices of files are read into memory."""
    return b"".join(part.read() if isinstance(part, FileSlice) else part for part in parts)
