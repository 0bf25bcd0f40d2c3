"""The errors of everything that reads record batches."""

from __future__ import annotations

from kprod.errors import KprodError


class CorruptBatch(KprodError, ValueError):
    """The bytes are not what Kafka stores."""


class BatchTooLarge(CorruptBatch):
    """The records take more bytes, decompressed, than the reader allows."""
