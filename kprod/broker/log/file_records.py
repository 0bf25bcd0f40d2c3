"""The batches of one segment, one after the other in a file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from kprod.broker.descriptors import OpenFile
from kprod.broker.log.checkpoint_files import sync_data
from kprod.broker.records.file_slice import FileSlice
from kprod.records.codecs import CorruptBatch
from kprod.records.legacy_message import LegacyMessage, StoredHeader, legacy_size
from kprod.records.record_batch import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_AT,
    MAGIC_V2,
    BatchHeader,
)
from kprod.types import BytesLike


class FileRecords:
    """A ``.log`` file (Kafka: FileRecords). ``size`` is the end of the last complete batch.

    Only one thread at a time may append, truncate or close, so the caller must hold the partition's
    lock. Any thread may read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        file = OpenFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        self._file: OpenFile | None = file
        self.size = os.fstat(file.fd).st_size

    def append(self, buffers: Sequence[BytesLike]) -> None:
        """Append ``buffers`` to the file. If this raises ``OSError``, the file is unchanged."""
        length = sum(len(buffer) for buffer in buffers)
        try:
            written = os.pwritev(self._fd, buffers, self.size)
            if written < length:
                self._append_rest(b"".join(buffers), written)
        except OSError:
            os.ftruncate(self._fd, self.size)
            raise
        self.size += length

    def _append_rest(self, data: bytes, written: int) -> None:
        while written < len(data):
            written += os.pwrite(self._fd, memoryview(data)[written:], self.size + written)

    def read(self, position: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``position``; fewer at the end of the file.

        If the file is closed, returns nothing.
        """
        file = self._file  # held here: it is not closed in the middle of the read
        return os.pread(file.fd, length, position) if file is not None else b""

    def slice(self, position: int, length: int) -> FileSlice | bytes:
        """Return the bytes that ``read`` would return, as a slice that is not read yet.

        The slice ends at ``size`` at the latest.
        """
        file = self._file
        length = min(length, self.size - position)
        return FileSlice(file, position, length) if file is not None and length > 0 else b""

    def header_at(self, position: int) -> StoredHeader | None:
        """Return the header of the batch at ``position``; None if no complete batch starts there.

        For the formats 0 and 1, returns the whole message instead. Raises ``CorruptBatch`` for
        invalid bytes.
        """
        if position < 0:
            raise CorruptBatch(f"{self.path} has no position {position}")
        left = self.size - position
        data = self.read(position, min(HEADER_BYTES, left)) if left > MAGIC_AT else b""
        if len(data) <= MAGIC_AT:
            return None
        try:
            if data[MAGIC_AT] < MAGIC_V2:
                return self._legacy_message(position, legacy_size(data))
        except CorruptBatch as error:
            raise CorruptBatch(f"{self.path}: position {position}: {error}") from None
        if len(data) < HEADER_BYTES:
            return None
        header = BatchHeader.parse(data)
        if header.batch_length < HEADER_BYTES - LENGTH_PREFIX_BYTES or header.magic != MAGIC_V2:
            raise CorruptBatch(f"{self.path}: no record batch at position {position}")
        return header if position + header.size <= self.size else None

    def _legacy_message(self, position: int, size: int) -> LegacyMessage | None:
        if position + size > self.size:
            return None
        data = self.read(position, size)
        return LegacyMessage.parse(memoryview(data)) if len(data) == size else None

    def headers(self, position: int = 0) -> Iterator[tuple[int, StoredHeader]]:
        """Yield position and header of each batch from ``position`` on. Raises ``CorruptBatch``."""
        while (header := self.header_at(position)) is not None:
            yield position, header
            position += header.size

    def truncate(self, size: int) -> None:
        """Drop everything from ``size`` on."""
        os.ftruncate(self._fd, size)
        self.size = size

    def rename(self, path: Path) -> None:
        """Give the file another name."""
        self.path.rename(path)
        self.path = path

    def flush(self) -> None:
        """Flush the appended batches to disk."""
        sync_data(self._fd)

    def close(self) -> None:
        """Close the file as soon as nobody reads it or sends a slice of it. Idempotent."""
        self._file = None

    @property
    def _fd(self) -> int:
        if self._file is None:
            raise OSError(errno.EBADF, "the file is closed", str(self.path))
        return self._file.fd
