"""The error of a data directory that cannot be used."""

from __future__ import annotations

from kprod.errors import KprodError


class StorageError(KprodError, OSError):
    """The data directory is in use, of a future version, or not readable. Nothing was deleted."""
