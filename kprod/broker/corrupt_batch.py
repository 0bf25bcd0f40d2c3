"""The one error of everything that reads record batches."""

from __future__ import annotations

from kprod.errors import KprodError


class CorruptBatch(KprodError, ValueError):
    """The bytes are not a record batch of Kafka's format v2."""
