"""A piece of a file, to be sent without reading it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from kprod.types import BytesLike


class OpenFile:
    """A descriptor that stays open for as long as this object is referenced.

    A segment may be deleted while a response that holds a slice of it waits for a slow client;
    its bytes are then still there for that client, and the number of the descriptor is not given
    to another file.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


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
        """What is left behind the first ``count`` bytes."""
        return FileSlice(self.file, self.position + count, self.length - count)

    def read(self) -> bytes:
        """The bytes; fewer than ``length`` if the file has become shorter."""
        return os.pread(self.fd, self.length, self.position)


def in_memory(parts: Iterable[BytesLike | FileSlice]) -> bytes:
    """The bytes of some pieces, those of files read."""
    return b"".join(part.read() if isinstance(part, FileSlice) else part for part in parts)
