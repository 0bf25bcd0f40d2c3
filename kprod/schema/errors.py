"""Errors of schema registries."""

from __future__ import annotations

from kprod.errors import KprodError


class RegistryError(KprodError, number="KP-2001"):
    """The registry rejected a request, or did not respond in time.

    ``status`` is the HTTP status, or None if there was no response. ``code`` is the registry's
    error number, for example 40401, or None.
    """

    def __init__(
        self,
        message: str,
        status: int | None = None,
        code: int | None = None,
        *,
        retriable: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        by_status = status is None or status in RETRIED
        self.retriable = by_status if retriable is None else retriable


class SchemaNotFoundError(RegistryError, number="KP-2002"):
    """The registry has no such subject, version or schema."""


class IncompatibleSchemaError(RegistryError, number="KP-2003"):
    """The schema breaks the subject's compatibility rule. The message says what differs."""


RETRIED = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""
