"""Producer ids that no earlier run of this broker has given away."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from kprod.broker.log.durable_file import replace_file
from kprod.broker.log.storage_error import StorageError

_BLOCK: Final = 1000
_VERSION: Final = "0"


class ProducerIds:
    """Hands out ids from blocks; a block is written off on disk before its first id is used.

    So that after a crash the next block begins and no id is given twice. Thread-safe. Kafka keeps
    the same blocks in its cluster metadata (KIP-730); the file is ours: version, next block.
    """

    def __init__(self, path: Path) -> None:
        """Raises ``StorageError`` for a file of another version."""
        self._path = path
        self._lock = threading.Lock()  # guards the two below
        self._next = self._block_end = self._read()

    def _read(self) -> int:
        if not self._path.exists():
            return 0
        version, _, block = self._path.read_text(encoding="ascii").partition("\n")
        if version != _VERSION or not block.strip().isdigit():
            raise StorageError(f"{self._path} is not a file of producer ids of this version")
        return int(block)

    def take(self) -> int:
        """The next id. ``OSError`` when the disk does not let us."""
        with self._lock:
            if self._next == self._block_end:
                end = self._block_end + _BLOCK
                replace_file(self._path, f"{_VERSION}\n{end}\n".encode())
                self._block_end = end
            self._next += 1
            return self._next - 1
